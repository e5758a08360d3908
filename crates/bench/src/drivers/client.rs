//! A client in a driver: converts operations and their results to JSON and back.

use crate::program::Program;
use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, Condition, Error, Number, Obstacle, Operation, Status, Version,
};

/// One client in a driver.
pub(super) struct DriverClient {
    driver: Arc<Program>,
    number: u64,
    table: String,
    /// How long an answer may take: longer than the client's own deadline.
    patience: Duration,
    /// One of so many operations is cancelled; 0: none.
    cancel_every: u64,
    performed: AtomicU64,
}

impl DriverClient {
    /// Makes a client in a driver.
    pub(super) fn open(
        driver: &Arc<Program>,
        number: u64,
        (url, mode): (&str, &str),
        table: &str,
        (deadline, cancel_every): (Duration, u64),
    ) -> Result<DriverClient> {
        let patience = deadline * 2 + Duration::from_secs(30);
        let cancels = driver.cancels.iter().any(|it| it == mode);
        let cancel_every = if cancels { cancel_every } else { 0 };
        let (driver, table) = (Arc::clone(driver), table.to_owned());
        let performed = AtomicU64::new(0);
        let client = DriverClient { driver, number, table, patience, cancel_every, performed };
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
        let count = self.performed.fetch_add(1, Ordering::Relaxed) + 1;
        if self.cancel_every > 0 && count.is_multiple_of(self.cancel_every) {
            request["cancel"] = json!(true);
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

    /// Returns the number of operations that were cancelled. Some had ended before.
    pub(super) fn cancelled(&self) -> u64 {
        self.performed.load(Ordering::Relaxed).checked_div(self.cancel_every).unwrap_or(0)
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
        20 => Error::Cancelled,
        _ => bail!("an unexpected error: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::{READY, shell};

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
            DriverClient::open(&driver, 0, ("thunderhead://h", "sync"), "t", (Duration::ZERO, 0));
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
    fn every_third_operation_is_cancelled_in_a_mode_that_can() {
        let ready = READY.replace(r#"["sync"]"#, r#"["sync","async"],"cancels":["async"]"#);
        let script = format!(
            "{ready}\nid=0\nwhile read a; do id=$((id + 1)); case \"$a\" in\n\
             *'\"cancel\":true'*) echo '{{\"id\":'$id',\"error\":{{\"code\":20,\
             \"outcome\":\"not_done\",\"text\":\"it was cancelled\"}}}}';;\n\
             *) echo '{{\"id\":'$id',\"ok\":{{\"absent\":true}}}}';; esac; done\n"
        );
        let (path, driver) = shell(&script);
        let driver = Arc::new(driver.unwrap());
        for (mode, cancels) in [("sync", false), ("async", true)] {
            let options = (Duration::ZERO, 3);
            let client = DriverClient::open(&driver, 0, ("thunderhead://h", mode), "t", options);
            let client = client.unwrap();
            for count in 1..=7 {
                let result = client.perform(&operation(Action::Read)).unwrap();
                let is_cancelled = cancels && count % 3 == 0;
                assert_eq!(result.is_err(), is_cancelled, "{result:?}");
                assert!(!is_cancelled || result == Err(Error::Cancelled));
            }
            assert_eq!(client.cancelled(), if cancels { 2 } else { 0 });
        }
        driver.end().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
