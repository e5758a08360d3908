//! Source packages of Debian, with the tests of the programs.

use crate::steps::{execute, target};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A source package in a suite of Debian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// The suite of Debian.
    pub(super) debian: &'static str,
    pub(super) package: &'static str,
    /// The file with the program's own sources.
    pub(super) file: &'static str,
}

impl Source {
    /// Returns the path of the file, which is fetched once; `None` if Debian has another version
    /// now.
    pub(super) fn fetch(&self) -> Result<Option<PathBuf>> {
        let directory =
            std::path::absolute(target().join("doors/sources")).context("find the builds")?;
        let file = directory.join(self.file);
        if file.exists() {
            return Ok(Some(file));
        }
        println!("fetching the sources of {}", self.package);
        // Lists of their own: the machine's need not name sources, and are not changed.
        let own = directory.join(self.debian);
        let lists = own.join("lists");
        fs::create_dir_all(lists.join("partial")).context("make a directory")?;
        let source = own.join("sources.list");
        let signed = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
        let debian = self.debian;
        let line = format!("deb-src [{signed}] http://deb.debian.org/debian {debian} main\n");
        fs::write(&source, line).context("write a list of sources")?;
        let run = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.arg("-qq").args(["-o", "Dir::Etc::SourceParts=/dev/null"]);
            command.arg("-o").arg(format!("Dir::Etc::SourceList={}", source.display()));
            command.arg("-o").arg(format!("Dir::State::Lists={}", lists.display()));
            // The user of apt-get may not be allowed into the directory.
            command.args(["-o", "APT::Sandbox::User=root"]).args(arguments);
            command.current_dir(&directory);
            execute(command)
        };
        run(&["update"]).context("fetch the list of Debian's sources")?;
        // A mirror may lack another file of the package, such as Debian's changes.
        let fetched = run(&["source", "--download-only", self.package]);
        if file.exists() {
            return Ok(Some(file));
        }
        fetched.with_context(|| format!("fetch the sources of {}", self.package))?;
        Ok(None)
    }
}
