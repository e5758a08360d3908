//! Environments of Python for tests that others wrote.

use crate::steps::{execute, install as install_packages};
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes an environment with these packages, once: a program of theirs shows that it is there.
pub(super) fn install(environment: &Path, packages: &[&str], program: &str) -> Result<()> {
    let make = || {
        let mut command = Command::new("python3");
        command.args(["-m", "venv", "--clear"]).arg(environment).stdout(Stdio::null());
        execute(command)
    };
    if environment.join("bin").join(program).exists() {
        return Ok(());
    }
    if !environment.join("bin/python").exists() {
        // Debian has Python without the part that makes environments.
        make().or_else(|_| install_packages(&["python3-venv"]).and_then(|()| make()))?;
    }
    println!("installing {}", packages.join(", "));
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    execute(pip)
}
