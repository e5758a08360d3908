//! The JSON interface of an etcd cluster: one request, one answer, and the meaning of each failure.

use crate::error::Error;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use ureq::http::StatusCode;

/// The longest answer that the client accepts: the longest chunk of a page, in base64.
pub(super) const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Connections that were idle for longer are not used again. The server may have closed them, and a
/// write on a closed connection has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// A client of some endpoints.
pub(super) struct Gateway {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: usize,
}

/// Whether a request may be sent again when no answer comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A repetition is harmless: the next endpoint is tried.
    Harmless,
    /// The request must not be sent twice.
    Once,
}

/// The reasons why one endpoint did not do a request.
enum Failure {
    /// The request was certainly not done: the next endpoint is tried.
    NotSent(String),
    /// The request may have been done.
    NoAnswer(String),
    /// The cluster refuses, and its other endpoints would too.
    Final(Error),
    /// The object of the request does not exist.
    NotFound,
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

pub(super) fn decode(value: &Value) -> Result<Vec<u8>, Error> {
    // The gateway leaves out empty fields.
    let text = value.as_str().unwrap_or("");
    BASE64_STANDARD.decode(text).map_err(|error| Error::damaged(format!("base64: {error}")))
}

/// Parses a 64-bit number of the gateway, which writes it as text and leaves out zero.
pub(super) fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

impl Gateway {
    pub(super) fn new(endpoints: &[String], patience: Duration) -> Gateway {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Proxies in this process's environment are not meant for its metastore.
            .proxy(None)
            .max_idle_age(IDLE_MAX)
            .timeout_connect(Some(patience / 2))
            .timeout_global(Some(patience))
            .build()
            .new_agent();
        Gateway { agent, endpoints: endpoints.to_vec(), current: 0 }
    }

    /// Asks one endpoint after another, as far as that is safe. Returns `None` if the object of the
    /// request does not exist.
    pub(super) fn call(
        &mut self,
        path: &str,
        body: &Value,
        repeat: Repeat,
    ) -> Result<Option<Value>, Error> {
        let body = body.to_string();
        let mut why = String::from("it has no endpoints");
        for _ in 0..self.endpoints.len() {
            let failure = match self.ask(path, &body) {
                Ok(answer) => return Ok(Some(answer)),
                Err(failure) => failure,
            };
            match failure {
                Failure::NotFound => return Ok(None),
                Failure::Final(error) => return Err(error),
                Failure::NoAnswer(reason) if repeat == Repeat::Once => {
                    self.turn_to_next();
                    return Err(Error::unknown(reason));
                }
                Failure::NotSent(reason) | Failure::NoAnswer(reason) => {
                    self.turn_to_next();
                    why = reason;
                }
            }
        }
        Err(Error::unavailable(why))
    }

    fn turn_to_next(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len();
    }

    fn ask(&self, path: &str, body: &str) -> Result<Value, Failure> {
        let url = format!("http://{}{path}", self.endpoints[self.current]);
        let at =
            |reason: &dyn std::fmt::Display| format!("{}: {reason}", self.endpoints[self.current]);
        let sent = self.agent.post(&url).content_type("application/json").send(body);
        let mut response = sent.map_err(|error| {
            if is_before_sending(&error) {
                Failure::NotSent(at(&error))
            } else {
                Failure::NoAnswer(at(&error))
            }
        })?;
        let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| Failure::NoAnswer(at(&error)))?;
        let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
        match (response.status(), answer) {
            (StatusCode::OK, Some(answer)) if answer.get("error").is_none() => Ok(answer),
            (_, Some(answer)) => Err(refusal(&answer, &at)),
            (status, None) => Err(Failure::NoAnswer(at(&format!("answered {status}")))),
        }
    }
}

/// Whether a request certainly did not reach the endpoint.
fn is_before_sending(error: &ureq::Error) -> bool {
    use ureq::{Error as E, Timeout};
    match error {
        E::HostNotFound | E::ConnectionFailed | E::BadUri(_) => true,
        E::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        E::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// Classifies an error of the cluster by its gRPC code and, if the code is ambiguous, by its text.
fn refusal(answer: &Value, at: &dyn Fn(&dyn std::fmt::Display) -> String) -> Failure {
    // A stream wraps its error once more.
    let error = answer.get("error").filter(|error| error.is_object()).unwrap_or(answer);
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let words = field("message").or(field("error")).unwrap_or("an error without words");
    let code = error.get("code").or(error.get("grpc_code")).and_then(Value::as_u64);
    let not_done = ["no leader", "too many requests", "not capable"];
    match code {
        Some(5) => Failure::NotFound,
        // gRPC's codes for invalid, forbidden, unknown to this server, and without credentials: a
        // later attempt will fail too.
        Some(3 | 7 | 12 | 16) => Failure::Final(Error::refused(at(&words))),
        Some(8) if !words.contains("too many requests") => {
            Failure::Final(Error::refused(at(&words)))
        }
        _ if not_done.iter().any(|phrase| words.contains(phrase)) => Failure::NotSent(at(&words)),
        _ => Failure::NoAnswer(at(&words)),
    }
}

/// The request for the keys of a range, in order.
pub(super) fn range(key: &str, end: Option<&str>, limit: usize) -> Value {
    let mut range = json!({ "key": encode(key), "limit": limit.to_string() });
    if let Some(end) = end {
        range["range_end"] = json!(encode(end));
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(answer: &Value) -> &'static str {
        match refusal(answer, &|reason| reason.to_string()) {
            Failure::NotSent(_) => "not sent",
            Failure::NoAnswer(_) => "no answer",
            Failure::Final(_) => "final",
            Failure::NotFound => "not found",
        }
    }

    #[test]
    fn only_harmless_errors_count_as_not_sent() {
        let cases = [
            (json!({"error": "etcdserver: requested lease not found", "code": 5}), "not found"),
            (json!({"message": "etcdserver: request is too large", "code": 3}), "final"),
            (json!({"message": "etcdserver: mvcc: database space exceeded", "code": 8}), "final"),
            (json!({"message": "etcdserver: too many requests", "code": 8}), "not sent"),
            (json!({"message": "etcdserver: no leader", "code": 14}), "not sent"),
            (json!({"message": "etcdserver: request timed out", "code": 14}), "no answer"),
            (json!({"message": "etcdserver: leader changed", "code": 14}), "no answer"),
            (json!({"error": {"grpc_code": 5, "message": "gone"}}), "not found"),
            (json!({}), "no answer"),
        ];
        for (answer, expected) in cases {
            assert_eq!(kind(&answer), expected, "{answer}");
        }
    }

    #[test]
    fn numbers_are_text_or_absent() {
        for (value, expected) in [(json!("17"), 17), (json!(17), 17), (Value::Null, 0)] {
            assert_eq!(number(&value), expected);
        }
    }
}
