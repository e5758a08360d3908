//! A program in another language that performs requests with its client: a driver, or a program
//! that measures the client's cost. Requests and replies are lines of JSON.

use crate::peers::process::resident_bytes_of_family;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a program may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a program that failed may take to print why, and to end.
const BLAMED_PATIENCE: Duration = Duration::from_secs(10);

/// The receivers of replies by the id of their request. `None` after the program has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

/// A running program.
pub(crate) struct Program {
    pub(crate) language: String,
    pub(crate) modes: Vec<String>,
    /// The modes in which it can cancel an operation.
    pub(crate) cancels: Vec<String>,
    child: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
    waiting: Waiting,
    ids: AtomicU64,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// Reads the standard error, and returns its beginning.
    errors: Mutex<Option<JoinHandle<String>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Program {
    /// Starts a program by its command line.
    pub(crate) fn start(command: &str) -> Result<Program> {
        let mut words = command.split_whitespace();
        let first = words.next().context("the command of a program is empty")?;
        let mut child = Command::new(first)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start the program {command:?}"))?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let stderr = child.stderr.take().context("its errors are a pipe")?;
        let errors = std::thread::spawn(move || {
            // The rest is read too, so that the program does not wait for a full pipe.
            let (mut text, mut rest) = (Vec::new(), BufReader::new(stderr));
            let _ = rest.by_ref().take(64 << 10).read_to_end(&mut text);
            let _ = std::io::copy(&mut rest, &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (tell, ready) = channel();
        let to = Arc::clone(&waiting);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            let mut is_first = true;
            while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let reply: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
                if is_first {
                    let _ = tell.send(reply);
                } else if let Some(id) = reply["id"].as_u64()
                    && let Some(waiter) = locked(&to).as_mut().and_then(|it| it.remove(&id))
                {
                    let _ = waiter.send(reply);
                }
                is_first = false;
                line.clear();
            }
            // Waiting requests learn that the program has ended. Later ones must not wait: the
            // program's input may still be open.
            *locked(&to) = None;
        });
        let mut program = Program {
            // Until the program names its language.
            language: command.to_owned(),
            modes: Vec::new(),
            cancels: Vec::new(),
            child: Mutex::new(child),
            input: Mutex::new(input),
            waiting,
            ids: AtomicU64::new(1),
            reader: Mutex::new(Some(reader)),
            errors: Mutex::new(Some(errors)),
        };
        let first = wait(&ready, PATIENCE).map_err(|error| program.blame(error));
        let first = first.context("the program does not say that it is ready")?;
        let language = first["language"].as_str().context("the program names no language")?;
        program.language = language.to_owned();
        let names = |member: &str| -> Vec<String> {
            let names = first[member].as_array().into_iter().flatten();
            names.filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        (program.modes, program.cancels) = (names("modes"), names("cancels"));
        ensure!(!program.modes.is_empty(), "the program for {language} names no modes");
        Ok(program)
    }

    /// Returns the resident bytes of the program's processes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes_of_family(locked(&self.child).id())
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&self, mut request: Value, patience: Duration) -> Result<Value> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        request["id"] = json!(id);
        let (tell, reply) = channel();
        locked(&self.waiting).as_mut().context("the program has ended")?.insert(id, tell);
        {
            let mut input = locked(&self.input);
            let input = input.as_mut().context("the program's input is closed")?;
            // A broken pipe must not be the cause: `main` takes it for a closed standard output,
            // and reports success.
            let written = writeln!(input, "{request}").and_then(|()| input.flush());
            written.map_err(|error| anyhow!("the program does not read its input: {error}"))?;
        }
        wait(&reply, patience).with_context(|| {
            format!("the program for {} gives no answer to {request}", self.language)
        })
    }

    /// Closes its input, waits for its end, and checks that it ends well.
    pub(crate) fn end(&self) -> Result<()> {
        let status = self.stop(PATIENCE)?;
        if let Some(reader) = locked(&self.reader).take() {
            let _ = reader.join();
        }
        let errors = self.printed();
        ensure!(errors.is_empty(), "the program for {} printed: {errors}", self.language);
        ensure!(status.success(), "the program for {} ended with {status}", self.language);
        Ok(())
    }

    /// Ends a program that failed with an error, and adds its standard error to that error.
    pub(crate) fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        let _ = self.stop(BLAMED_PATIENCE);
        let printed = self.printed();
        if printed.is_empty() {
            return error;
        }
        error.context(format!("the program for {} printed: {}", self.language, printed.trim()))
    }

    /// Closes its input and waits for its end. Kills it if it does not end.
    fn stop(&self, mut patience: Duration) -> Result<ExitStatus> {
        drop(locked(&self.input).take());
        let mut child = locked(&self.child);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if patience.is_zero() {
                let _ = child.kill();
                bail!("the program for {} does not end with its input", self.language);
            }
            let look = Duration::from_millis(20).min(patience);
            std::thread::sleep(look);
            patience -= look;
        }
    }

    /// Returns the beginning of its standard error. The program must have ended.
    fn printed(&self) -> String {
        locked(&self.errors).take().and_then(|it| it.join().ok()).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut child = locked(&self.child);
        if matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(reply: &Receiver<Value>, patience: Duration) -> Result<Value> {
    reply.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => anyhow!("nothing came within {patience:?}"),
        RecvTimeoutError::Disconnected => anyhow!("the program has ended"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program in the language of the shell.
    pub(crate) fn shell(script: &str) -> (std::path::PathBuf, Result<Program>) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-program-{}-{number}.sh", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, script).unwrap();
        let program = Program::start(&format!("sh {}", path.display()));
        (path, program)
    }

    pub(crate) const READY: &str = r#"echo '{"ready":true,"language":"shell","modes":["sync"]}'"#;

    #[test]
    fn a_program_that_prints_or_fails_is_refused() {
        for (script, expected) in [
            (format!("{READY}\nread a\necho oops >&2"), "printed"),
            (format!("{READY}\nread a\nexit 3"), "ended with"),
        ] {
            let (path, program) = shell(&script);
            let error = program.unwrap().end().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        let (path, program) = shell(&format!("{READY}\necho oops >&2"));
        let error = program.unwrap().blame(anyhow!("no answer"));
        assert!(format!("{error:#}").contains("printed: oops"), "{error:#}");
        std::fs::remove_file(path).unwrap();
        let (path, program) = shell(&format!("exec 0<&-\n{READY}\nexec sleep 60"));
        let error = program.unwrap().ask(json!({}), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("does not read"), "{error:#}");
        assert!(error.root_cause().downcast_ref::<std::io::Error>().is_none(), "{error:#}");
        std::fs::remove_file(path).unwrap();
        let (path, program) = shell("echo oops >&2");
        let error = format!("{:#}", program.err().unwrap());
        assert!(error.contains("ready") && error.contains("printed: oops"), "{error}");
        std::fs::remove_file(path).unwrap();
        assert!(Program::start("").is_err());
        assert!(Program::start("/no/such/program").is_err());
    }
}
