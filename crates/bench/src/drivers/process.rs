//! A driver: a program in another language that performs requests with its client.

use crate::peers::process::resident_bytes_of_family;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, Condition, Error, Number, Obstacle, Operation, Status, Version,
};

/// How long a driver may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a driver that failed may take to print why, and to end.
const BLAMED_PATIENCE: Duration = Duration::from_secs(10);

/// The receivers of replies by the id of their request. `None` after the driver has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

/// A running driver.
pub(super) struct Driver {
    pub(super) language: String,
    pub(super) modes: Vec<String>,
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

impl Driver {
    /// Starts a driver by its command line.
    pub(super) fn start(command: &str) -> Result<Driver> {
        let mut words = command.split_whitespace();
        let program = words.next().context("the command of a driver is empty")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start the driver {command:?}"))?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let stderr = child.stderr.take().context("its errors are a pipe")?;
        let errors = std::thread::spawn(move || {
            // The rest is read too, so that the driver does not wait for a full pipe.
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
            // Waiting requests learn that the driver has ended. Later ones must not wait: the
            // driver's input may still be open.
            *locked(&to) = None;
        });
        let mut driver = Driver {
            language: String::new(),
            modes: Vec::new(),
            child: Mutex::new(child),
            input: Mutex::new(input),
            waiting,
            ids: AtomicU64::new(1),
            reader: Mutex::new(Some(reader)),
            errors: Mutex::new(Some(errors)),
        };
        let first = wait(&ready, PATIENCE).context("the driver does not say that it is ready")?;
        let language = first["language"].as_str().context("the driver names no language")?;
        driver.language = language.to_owned();
        let modes = first["modes"].as_array().into_iter().flatten();
        driver.modes = modes.filter_map(|it| it.as_str().map(str::to_owned)).collect();
        ensure!(!driver.modes.is_empty(), "the driver for {language} names no modes");
        Ok(driver)
    }

    /// Returns the resident bytes of the driver's processes.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes_of_family(locked(&self.child).id())
    }

    /// Sends a request and waits for its reply.
    fn ask(&self, mut request: Value, patience: Duration) -> Result<Value> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        request["id"] = json!(id);
        let (tell, reply) = channel();
        locked(&self.waiting).as_mut().context("the driver has ended")?.insert(id, tell);
        {
            let mut input = locked(&self.input);
            let input = input.as_mut().context("the driver's input is closed")?;
            // A broken pipe must not be the cause: `main` takes it for a closed standard output,
            // and reports success.
            let written = writeln!(input, "{request}").and_then(|()| input.flush());
            written.map_err(|error| anyhow!("the driver does not read its input: {error}"))?;
        }
        wait(&reply, patience).with_context(|| {
            format!("the driver for {} gives no answer to {request}", self.language)
        })
    }

    /// Closes its input, waits for its end, and checks that it ends well.
    pub(super) fn end(&self) -> Result<()> {
        let status = self.stop(PATIENCE)?;
        if let Some(reader) = locked(&self.reader).take() {
            let _ = reader.join();
        }
        let errors = self.printed();
        ensure!(errors.is_empty(), "the driver for {} printed: {errors}", self.language);
        ensure!(status.success(), "the driver for {} ended with {status}", self.language);
        Ok(())
    }

    /// Ends a driver that failed with an error, and adds its standard error to that error.
    pub(super) fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        let _ = self.stop(BLAMED_PATIENCE);
        let printed = self.printed();
        if printed.is_empty() {
            return error;
        }
        error.context(format!("the driver for {} printed: {}", self.language, printed.trim()))
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
                bail!("the driver for {} does not end with its input", self.language);
            }
            let look = Duration::from_millis(20).min(patience);
            std::thread::sleep(look);
            patience -= look;
        }
    }

    /// Returns the beginning of its standard error. The driver must have ended.
    fn printed(&self) -> String {
        locked(&self.errors).take().and_then(|it| it.join().ok()).unwrap_or_default()
    }
}

impl Drop for Driver {
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
        RecvTimeoutError::Disconnected => anyhow!("the driver has ended"),
    })
}

/// One client in a driver.
pub(super) struct DriverClient {
    driver: Arc<Driver>,
    number: u64,
    table: String,
    /// How long an answer may take: longer than the client's own deadline.
    patience: Duration,
}

impl DriverClient {
    /// Makes a client in a driver.
    pub(super) fn open(
        driver: &Arc<Driver>,
        number: u64,
        (url, mode): (&str, &str),
        table: &str,
        deadline: Duration,
    ) -> Result<DriverClient> {
        let patience = deadline * 2 + Duration::from_secs(30);
        let (driver, table) = (Arc::clone(driver), table.to_owned());
        let client = DriverClient { driver, number, table, patience };
        let reply = client.ask(json!({ "op": "open", "url": url, "mode": mode }))?;
        ensure!(reply.get("ok").is_some(), "the client cannot be made: {reply}");
        Ok(client)
    }

    fn ask(&self, mut request: Value) -> Result<Value> {
        request["client"] = json!(self.number);
        self.driver.ask(request, self.patience)
    }

    /// Performs an operation. The outer error is a fault of the driver, the inner one belongs to
    /// the operation.
    pub(super) fn perform(&self, operation: &Operation) -> Result<Result<Answer, Error>> {
        let mut request = json!({ "table": self.table, "key": BASE64.encode(&operation.key) });
        let condition = match operation.condition {
            Condition::Always => Value::Null,
            Condition::Absent => json!("absent"),
            Condition::Present => json!("present"),
            Condition::VersionIs(version) => json!({ "version": version.0.to_string() }),
            Condition::VersionBelow(_) => bail!("drivers do not have this condition"),
        };
        if condition != Value::Null {
            request["if"] = condition;
        }
        match &operation.action {
            Action::Read => request["op"] = json!("get"),
            Action::Delete => request["op"] = json!("delete"),
            Action::Write(value) => {
                request["op"] = json!("put");
                request["value"] = json!(BASE64.encode(value));
            }
            Action::WriteNumber(Number::Integer(number)) => {
                request["op"] = json!("put_number");
                request["number"] = json!(number.to_string());
            }
            Action::Increment(Number::Integer(by)) => {
                request["op"] = json!("increment");
                request["by"] = json!(by.to_string());
            }
            other => bail!("drivers do not have the operation {other:?}"),
        }
        let reply = self.ask(request)?;
        if let Some(error) = reply.get("error") {
            return error_of(error).map(Err);
        }
        let ok = reply.get("ok").with_context(|| format!("no reply: {reply}"))?;
        answer_of(&operation.action, ok)
            .with_context(|| format!("a reply that does not fit its request: {reply}"))
            .map(Ok)
    }

    /// Closes the client.
    pub(super) fn close(&self) -> Result<()> {
        let reply = self.ask(json!({ "op": "close" }))?;
        ensure!(reply.get("ok").is_some(), "the client cannot be closed: {reply}");
        Ok(())
    }
}

fn number<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

fn answer_of(action: &Action, ok: &Value) -> Option<Answer> {
    if ok["absent"] == json!(true) {
        return Some(Answer::Absent);
    }
    let version = Version(number(&ok["version"])?);
    Some(match action {
        Action::Read => {
            Answer::Found { version, value: BASE64.decode(ok["value"].as_str()?).ok()? }
        }
        Action::Delete => Answer::Deleted(version),
        Action::Increment(_) => {
            Answer::Sum { version, number: Number::Integer(number(&ok["sum"])?) }
        }
        _ => Answer::Written(version),
    })
}

/// Returns the error of an operation.
fn error_of(error: &Value) -> Result<Error> {
    let code = error["code"].as_u64().context("an error without a code")?;
    let version = Version(number(&error["version"]).unwrap_or(0));
    let text = error["text"].as_str().unwrap_or_default();
    ensure!(text.len() > 10, "an error without a sentence: {error}");
    let is_unknown = match error["outcome"].as_str() {
        Some("unknown") => true,
        Some("not_done") => false,
        _ => bail!("an error without an outcome: {error}"),
    };
    let not_a_number = 1000 + u64::from(Status::NotANumber.code());
    Ok(match code {
        _ if is_unknown => Error::Unknown(Obstacle::NoAnswer),
        1 => Error::ConditionFailed { version },
        code if code == not_a_number => Error::NotANumber { version },
        4..=9 | 13..=19 => Error::TimedOut(Obstacle::NoAnswer),
        _ => bail!("an unexpected error: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver in the language of the shell.
    fn shell(script: &str) -> (std::path::PathBuf, Result<Driver>) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-driver-{}-{number}.sh", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, script).unwrap();
        let driver = Driver::start(&format!("sh {}", path.display()));
        (path, driver)
    }

    const READY: &str = r#"echo '{"ready":true,"language":"shell","modes":["sync"]}'"#;

    fn operation(action: Action) -> Operation {
        let condition = Condition::Always;
        Operation { table: thunderhead_client::TableId(1), key: vec![1], condition, action }
    }

    #[test]
    fn a_driver_is_asked_and_ends_with_its_input() {
        let script = format!(
            "{READY}\nread a; echo '{{\"id\":1,\"ok\":{{}}}}'\n\
             read a; echo '{{\"id\":2,\"ok\":{{\"version\":\"8\",\"sum\":\"12\"}}}}'\n\
             read a; echo '{{\"id\":3,\"error\":{{\"code\":1,\"outcome\":\"not_done\",\
             \"version\":\"9\",\"text\":\"a whole sentence\"}}}}'\n\
             read a; echo nonsense\nread a\nexit 0\n"
        );
        let (path, driver) = shell(&script);
        let driver = Arc::new(driver.unwrap());
        assert_eq!((driver.language.as_str(), driver.modes.len()), ("shell", 1));
        let client =
            DriverClient::open(&driver, 0, ("thunderhead://h", "sync"), "t", Duration::ZERO);
        let mut client = client.unwrap();
        let by = Action::Increment(Number::Integer(5));
        let sum = Answer::Sum { version: Version(8), number: Number::Integer(12) };
        assert_eq!(client.perform(&operation(by.clone())).unwrap(), Ok(sum));
        let error = client.perform(&operation(by)).unwrap().unwrap_err();
        assert_eq!(error, Error::ConditionFailed { version: Version(9) });
        client.patience = Duration::from_millis(1);
        assert!(client.perform(&operation(Action::Read)).is_err());
        driver.end().unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_driver_that_prints_or_fails_is_refused() {
        for (script, expected) in [
            (format!("{READY}\nread a\necho oops >&2"), "printed"),
            (format!("{READY}\nread a\nexit 3"), "ended with"),
        ] {
            let (path, driver) = shell(&script);
            let error = driver.unwrap().end().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            std::fs::remove_file(path).unwrap();
        }
        let (path, driver) = shell(&format!("{READY}\necho oops >&2"));
        let error = driver.unwrap().blame(anyhow!("no answer"));
        assert!(format!("{error:#}").contains("printed: oops"), "{error:#}");
        std::fs::remove_file(path).unwrap();
        let (path, driver) = shell(&format!("exec 0<&-\n{READY}\nexec sleep 60"));
        let error = driver.unwrap().ask(json!({}), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("does not read"), "{error:#}");
        assert!(error.root_cause().downcast_ref::<std::io::Error>().is_none(), "{error:#}");
        std::fs::remove_file(path).unwrap();
        let (path, driver) = shell("exit 0");
        assert!(driver.is_err());
        std::fs::remove_file(path).unwrap();
        assert!(Driver::start("").is_err());
        assert!(Driver::start("/no/such/program").is_err());
    }
}
