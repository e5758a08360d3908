//! A process of `thunderhead redis`.

use crate::scratch::Running;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// See the module's documentation. It is started again after a kill.
pub(super) struct Server {
    thunderhead: PathBuf,
    /// `--maxmemory`.
    memory: &'static str,
    /// The directory with its data, if it keeps any.
    data: Option<PathBuf>,
    process: Option<Running>,
    /// The port. The first start chooses one if it is 0.
    pub(super) port: String,
}

impl Server {
    pub(super) fn new(thunderhead: PathBuf, memory: &'static str, data: Option<PathBuf>) -> Server {
        Server { thunderhead, memory, data, process: None, port: "0".to_owned() }
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.thunderhead);
        command.args(["--json", "redis", "-p", &self.port, "--maxmemory", self.memory]);
        if let Some(data) = &self.data {
            command.arg("--data").arg(data);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::start(command, "thunderhead redis")?;
        let output = process.0.stdout.take().context("take the output of the server")?;
        let mut line = String::new();
        BufReader::new(output.take(1 << 16)).read_line(&mut line)?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("the server says: {line}"))?;
        let listens = ready["listens"][0].as_str().unwrap_or_default();
        self.port = listens.rsplit(':').next().unwrap_or_default().to_owned();
        ensure!(!self.port.is_empty(), "the server does not say where it listens: {line}");
        self.process = Some(process);
        Ok(())
    }

    pub(super) fn kill_and_start(&mut self) -> Result<()> {
        // To drop it kills it.
        self.process = None;
        self.start()
    }

    /// Checks that the process has not ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        let is_running =
            self.process.as_mut().is_some_and(|it| matches!(it.0.try_wait(), Ok(None)));
        ensure!(is_running, "the server has ended");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }
}
