//! `get`, `put`, `delete`, `incr`, `cas`, `expire`, `ttl`, `scan`: one object, or a look at many.

use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::store::Store;
use crate::text;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use thunderhead_client::{Action, Answer, Error, Number, Object, Operation};
use thunderhead_config::{duration_text, parse_duration};
use thunderhead_wire::{Condition, TableId, TimeToLive, Version};

/// No cluster accepts a longer value, so reading stops after this many bytes.
const VALUE_BYTES_MAX: u64 = 16 << 20;

/// The object of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The table's name.
    table: String,
    /// The key.
    key: OsString,
    /// KEY and VALUE are escaped, as in the output of `scan`: \n, \t, \\, and \xNN for any byte.
    #[arg(long, short)]
    escaped: bool,
}

impl Place {
    fn bytes(&self, argument: OsString) -> Result<Vec<u8>, Failure> {
        let bytes = argument.into_vec();
        match self.escaped {
            true => text::unescape(&bytes).map_err(Failure::usage),
            false => Ok(bytes),
        }
    }

    /// Returns the table's id and the key.
    fn find(&self, store: &mut dyn Store) -> Result<(TableId, Vec<u8>), Failure> {
        let key = self.bytes(self.key.clone())?;
        Ok((store.table(&self.table)?, key))
    }
}

/// `get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// Show the value in hexadecimal.
    #[arg(long, group = "form")]
    hex: bool,
    /// Write the value's bytes unchanged, and nothing else.
    #[arg(long, group = "form")]
    raw: bool,
    /// Show the value, 8 bytes, as the whole number that `incr` uses.
    #[arg(long, group = "form")]
    number: bool,
    /// Show the value, 8 bytes, as the number that `incr --float` uses.
    #[arg(long, group = "form")]
    float: bool,
    /// Write the value's bytes into this file.
    #[arg(long, short, value_name = "FILE", conflicts_with = "form")]
    output: Option<PathBuf>,
}

/// `put`.
#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    value: Content,
    /// The object expires after this time, such as 10s or 5m; or never. Default: that of the table.
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<TimeToLive>,
    #[command(flatten)]
    condition: If,
}

/// The value to write.
#[derive(Debug, clap::Args)]
pub(crate) struct Content {
    /// The value; - reads it from the standard input.
    #[arg(allow_hyphen_values = true, required_unless_present = "file")]
    value: Option<OsString>,
    /// Read the value from this file; - is the standard input.
    #[arg(long, short, conflicts_with = "value")]
    file: Option<PathBuf>,
    /// VALUE is a whole number, for `incr`. `incr` accepts only values that were written as
    /// numbers.
    #[arg(long, conflicts_with_all = ["file", "float"])]
    number: bool,
    /// VALUE is a floating-point number, for `incr --float`.
    #[arg(long, conflicts_with = "file")]
    float: bool,
}

/// The condition of a write.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct If {
    /// Only if the object does not exist.
    #[arg(long)]
    if_absent: bool,
    /// Only if the object exists.
    #[arg(long)]
    if_present: bool,
    /// Only if the object has this version.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// `delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    place: Place,
    /// Only if the object has this version.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// `incr`.
#[derive(Debug, clap::Args)]
pub(crate) struct Incr {
    #[command(flatten)]
    place: Place,
    /// The number to add.
    #[arg(default_value = "1", allow_negative_numbers = true)]
    by: String,
    /// Use floating-point numbers.
    #[arg(long)]
    float: bool,
}

/// `cas`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cas {
    #[command(flatten)]
    place: Place,
    /// The version that the object must have. 0: it must not exist.
    version: u64,
    #[command(flatten)]
    value: Content,
    /// The object expires after this time, such as 10s or 5m; or never. Default: that of the table.
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<TimeToLive>,
}

/// `expire`.
#[derive(Debug, clap::Args)]
pub(crate) struct Expire {
    #[command(flatten)]
    place: Place,
    /// The object expires after this time from now on, such as 10s or 5m; or never.
    #[arg(value_parser = time_to_live)]
    time: TimeToLive,
    /// Only if the object has this version.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// `ttl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ttl {
    #[command(flatten)]
    place: Place,
}

/// `scan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Scan {
    /// The table's name.
    table: String,
    /// Show only the keys.
    #[arg(long)]
    keys: bool,
    /// Show at most so many objects.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Show only objects whose keys begin with this. The whole table is read all the same.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<OsString>,
    /// PREFIX is escaped, as keys are shown.
    #[arg(long, short)]
    escaped: bool,
}

/// Parses a time to live.
pub(crate) fn time_to_live(text: &str) -> Result<TimeToLive, String> {
    if text == "never" {
        return Ok(TimeToLive::Never);
    }
    let parsed = TimeToLive::after(parse_duration(text)?);
    parsed.map_err(|status| status.text().to_owned())
}

impl If {
    fn condition(&self) -> Condition {
        match self {
            If { if_absent: true, .. } => Condition::Absent,
            If { if_present: true, .. } => Condition::Present,
            If { if_version: Some(version), .. } => of_version(*version),
            _ => Condition::Always,
        }
    }
}

/// Returns the condition for a version. Version 0 means that the object must not exist.
fn of_version(version: u64) -> Condition {
    match version {
        0 => Condition::Absent,
        version => Condition::VersionIs(Version(version)),
    }
}

/// A value to write.
enum NewValue {
    Bytes(Vec<u8>),
    Number(Number),
}

impl Content {
    fn read(self, place: &Place, session: &mut Session<'_>) -> Result<NewValue, Failure> {
        let Content { value, file, number, float } = self;
        let is_input = |text: &std::ffi::OsStr| text.as_encoded_bytes() == b"-";
        let is_number = number || float;
        let bytes = match (value, file) {
            (Some(value), _) if is_input(&value) => input(session)?,
            (Some(value), _) if is_number => value.into_vec(),
            (Some(value), _) => place.bytes(value)?,
            (None, Some(file)) if is_input(file.as_os_str()) => input(session)?,
            (None, Some(file)) => {
                let opened = fs::OpenOptions::new().read(true).open(&file);
                let opened = opened.map_err(|error| Failure::file(file.display(), &error))?;
                limited(opened, &file.display().to_string())?
            }
            (None, None) => return Err(Failure::usage("give a value, or a file with it")),
        };
        if !is_number {
            return Ok(NewValue::Bytes(bytes));
        }
        let text = String::from_utf8_lossy(&bytes);
        let kind = if float { "number" } else { "whole number of 64 bits" };
        let parsed = number_of_text(text.trim(), float);
        let parsed = parsed.ok_or_else(|| Failure::usage(format!("{text:?} is not a {kind}")));
        parsed.map(NewValue::Number)
    }
}

/// Parses a number.
pub(crate) fn number_of_text(text: &str, float: bool) -> Option<Number> {
    match float {
        true => text.parse().ok().map(Number::Float),
        false => text.parse().ok().map(Number::Integer),
    }
}

fn input(session: &mut Session<'_>) -> Result<Vec<u8>, Failure> {
    match &mut session.input {
        Some(input) => limited(input, "the standard input"),
        None => Err(Failure::usage("the shell reads the standard input itself; give a file")),
    }
}

fn limited(from: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let read = from.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::file(name, &error))?;
    match value.len() as u64 > VALUE_BYTES_MAX {
        true => Err(Failure::usage(format!("{name} is too long; a value has at most 1 MiB"))),
        false => Ok(value),
    }
}

fn not_found(key: &[u8]) -> Failure {
    Failure::new(Exit::Negative, "not_found", format!("there is no object {}", text::escape(key)))
}

/// `get`.
pub(crate) fn get(
    get: Get,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let (table, key) = get.place.find(store)?;
    let Some((version, value)) = store.read(table, &key)? else {
        return Err(not_found(&key));
    };
    if let Some(path) = &get.output {
        fs::write(path, &value).map_err(|error| Failure::file(path.display(), &error))?;
        if session.json {
            let bytes = value.len();
            return session.put_json(&json!({"version": version, "bytes": bytes, "file": path}));
        }
        return Ok(());
    }
    if get.raw {
        session.out.write_all(&value)?;
        return Ok(());
    }
    let number = match get.number || get.float {
        true => Some(number(&value, get.float)?),
        false => None,
    };
    if session.json {
        let mut object = Map::new();
        text::put_json(&mut object, "key", &key);
        object.insert("version".into(), version.0.into());
        match number {
            Some(number) => object.insert("value".into(), number_json(number)),
            None if get.hex => object.insert("value_hex".into(), text::hex(&value).into()),
            None => {
                text::put_json(&mut object, "value", &value);
                None
            }
        };
        return session.put_json(&object);
    }
    let shown = match number {
        Some(number) => number_text(number),
        None if get.hex => text::hex(&value),
        None => text::shown(&value),
    };
    writeln!(session.out, "{shown}")?;
    Ok(())
}

fn number(value: &[u8], float: bool) -> Result<Number, Failure> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| {
        let message = format!("the object is not a number: it has {} bytes, not 8", value.len());
        Failure::new(Exit::Refused, "refused", message)
    })?;
    Ok(match float {
        true => Number::Float(f64::from_le_bytes(bytes)),
        false => Number::Integer(i64::from_le_bytes(bytes)),
    })
}

fn number_text(number: Number) -> String {
    match number {
        Number::Integer(number) => number.to_string(),
        Number::Float(number) => number.to_string(),
    }
}

/// JSON has no infinity, so infinite numbers are text.
fn number_json(number: Number) -> Value {
    match number {
        Number::Integer(number) => number.into(),
        Number::Float(number) if number.is_finite() => number.into(),
        Number::Float(number) => number.to_string().into(),
    }
}

/// `put`.
pub(crate) fn put(
    put: Put,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Put { place, value, ttl, condition } = put;
    let value = value.read(&place, session)?;
    write(&place, value, (ttl, condition.condition()), store, session)
}

/// `cas`.
pub(crate) fn cas(
    cas: Cas,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Cas { place, version, value, ttl } = cas;
    let value = value.read(&place, session)?;
    write(&place, value, (ttl, of_version(version)), store, session)
}

fn write(
    place: &Place,
    value: NewValue,
    (ttl, condition): (Option<TimeToLive>, Condition),
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let (table, key) = place.find(store)?;
    let action = match (value, ttl) {
        (NewValue::Bytes(value), None) => Action::Write(value),
        (NewValue::Bytes(value), Some(ttl)) => Action::WriteExpiring(value, ttl),
        (NewValue::Number(number), None) => Action::WriteNumber(number),
        (NewValue::Number(number), Some(ttl)) => Action::WriteNumberExpiring(number, ttl),
    };
    let Answer::Written(version) = operate(store, table, key, condition, action)? else {
        return Err(Error::Incomprehensible.into());
    };
    match session.json {
        true => session.put_json(&json!({"version": version}))?,
        false => writeln!(session.out, "version {}", version.0)?,
    }
    Ok(())
}

/// Does one operation.
fn operate(
    store: &mut dyn Store,
    table: TableId,
    key: Vec<u8>,
    condition: Condition,
    action: Action,
) -> Result<Answer, Failure> {
    let mut results = store.all(vec![Operation { table, key, condition, action }]);
    results.pop().unwrap_or(Err(Error::Incomprehensible)).map_err(failed)
}

/// `expire`.
pub(crate) fn expire(
    expire: Expire,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let (table, key) = expire.place.find(store)?;
    let condition = expire.if_version.map_or(Condition::Always, of_version);
    let action = Action::SetExpiry(expire.time);
    let Answer::Written(version) = operate(store, table, key.clone(), condition, action)? else {
        return Err(not_found(&key));
    };
    match session.json {
        true => session.put_json(&json!({"version": version}))?,
        false => writeln!(session.out, "version {}", version.0)?,
    }
    Ok(())
}

/// `ttl`.
pub(crate) fn ttl(
    ttl: Ttl,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let (table, key) = ttl.place.find(store)?;
    let answer = operate(store, table, key.clone(), Condition::Always, Action::ReadExpiry)?;
    let Answer::Lives { version, time_to_live } = answer else {
        return Err(not_found(&key));
    };
    let left = time_to_live.duration();
    match session.json {
        true => {
            let ttl_ms = left.map(|left| left.as_millis() as u64);
            session.put_json(&json!({"version": version, "ttl_ms": ttl_ms}))?;
        }
        false => writeln!(session.out, "{}", left.map_or("never".to_owned(), duration_text))?,
    }
    Ok(())
}

/// Returns the failure, with a message for an object that does not exist.
fn failed(error: Error) -> Failure {
    let mut failure = Failure::from(error);
    if error == (Error::ConditionFailed { version: Version::NONE }) {
        failure.message = "the condition does not hold: there is no such object".to_owned();
    }
    failure
}

/// `delete`.
pub(crate) fn delete(
    delete: Delete,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let (table, key) = delete.place.find(store)?;
    let condition = delete.if_version.map_or(Condition::Always, of_version);
    let Some(version) = store.delete(table, &key, condition).map_err(failed)? else {
        return Err(not_found(&key));
    };
    match session.json {
        true => session.put_json(&json!({"deleted_version": version}))?,
        false => writeln!(session.out, "deleted version {}", version.0)?,
    }
    Ok(())
}

/// `incr`.
pub(crate) fn incr(
    incr: Incr,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Incr { place, by, float } = incr;
    let number = number_of_text(&by, float).ok_or_else(|| {
        let hint = if float { "" } else { " of 64 bits; --float counts with fractions" };
        Failure::usage(format!("{by:?} is not a number{hint}"))
    })?;
    let (table, key) = place.find(store)?;
    let (version, sum) = store.increment(table, &key, number).map_err(|error| match error {
        Error::NotANumber { .. } => {
            let (flag, kind) = match float {
                true => ("--float", "floating-point"),
                false => ("--number", "whole"),
            };
            let hint = format!(
                "`put {flag}` writes a {kind} number, and `incr` of a missing key counts from 0"
            );
            Failure::from(error).within(text::escape(&key)).with(hint)
        }
        error => error.into(),
    })?;
    match session.json {
        true => session.put_json(&json!({"version": version, "value": number_json(sum)}))?,
        false => writeln!(session.out, "{}", number_text(sum))?,
    }
    Ok(())
}

/// `scan`.
pub(crate) fn scan(
    scan: Scan,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let prefix = match scan.prefix.map(OsString::into_vec) {
        Some(prefix) if scan.escaped => text::unescape(&prefix).map_err(Failure::usage)?,
        prefix => prefix.unwrap_or_default(),
    };
    let table = store.table(&scan.table)?;
    let mut left = scan.limit.unwrap_or(u64::MAX);
    let mut objects = store.scan(table);
    while left > 0 {
        let Some(object) = objects.next() else { break };
        let object = object?;
        if !object.key.starts_with(&prefix) {
            continue;
        }
        left -= 1;
        match (session.json, scan.keys) {
            (true, keys) => {
                write_line(session.out, &object, !keys)?;
            }
            (false, true) => writeln!(session.out, "{}", text::escape(&object.key))?,
            (false, false) => {
                let key = text::escape(&object.key);
                let number = object.number().map(number_text);
                let value = number.unwrap_or_else(|| text::escape(&object.value));
                writeln!(session.out, "{key}\t{value}")?;
            }
        }
    }
    Ok(())
}

/// Writes an object as a line of JSON: the format that `scan --json` and `export` write and
/// `import` reads. A floating-point number is a string, because readers of JSON may round it.
pub(crate) fn write_line(
    out: &mut dyn Write,
    object: &Object,
    has_value: bool,
) -> std::io::Result<()> {
    let Object { version, key, value, .. } = object;
    out.write_all(b"{")?;
    text::write_json(out, "key", key)?;
    match object.number().filter(|_| has_value) {
        Some(Number::Integer(number)) => {
            write!(out, ",\"number\":{}", text::exact(&number.to_string()))?;
        }
        Some(Number::Float(number)) => write!(out, ",\"float\":\"{number}\"")?,
        None if has_value => {
            out.write_all(b",")?;
            text::write_json(out, "value", value)?;
        }
        None => {}
    }
    writeln!(out, ",\"version\":{}}}", text::json_number(version.0))
}

#[cfg(test)]
mod tests {
    use crate::exit::Exit;
    use crate::fake::{FakeStore, run, run_with};
    use thunderhead_client::{Error, Obstacle};

    fn fake() -> FakeStore {
        let mut fake = FakeStore::default();
        run(&mut fake, "table create t").unwrap();
        fake
    }

    /// Runs lines. Each must print this text, or fail with this kind after a "!".
    fn check(fake: &mut FakeStore, cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            let said = run(fake, line).unwrap_or_else(|failure| format!("!{}", failure.kind));
            assert_eq!(said, *expected, "{line}");
        }
    }

    #[test]
    fn objects_are_written_read_and_deleted() {
        check(
            &mut fake(),
            &[
                ("get t k", "!not_found"),
                ("put t k hello", "version 1\n"),
                ("get t k", "hello\n"),
                ("get t k --hex", "68656c6c6f\n"),
                ("get t k --raw", "hello"),
                ("get t k --json", "{\"key\":\"k\",\"value\":\"hello\",\"version\":1}\n"),
                ("put -e t \\xff\\n \\x00 --json", "{\"version\":2}\n"),
                ("get -e t \\xff\\x0a", "\\x00\n"),
                (
                    "get -e t \\xff\\x0a --json",
                    "{\"key_base64\":\"/wo=\",\"value\":\"\\u0000\",\"version\":2}\n",
                ),
                ("scan t --keys --prefix k", "k\n"),
                ("delete t k", "deleted version 1\n"),
                ("delete t k", "!not_found"),
                ("scan t", "\\xff\\n\t\\x00\n"),
                ("scan t --limit 0", ""),
                ("put t k -5", "version 3\n"),
                ("get t k", "-5\n"),
                ("get t k --number", "!refused"),
            ],
        );
    }

    #[test]
    fn conditions_decide() {
        check(
            &mut fake(),
            &[
                ("put t k a --if-present", "!condition_failed"),
                ("put t k a --if-version 3", "!condition_failed"),
                ("put t k a --if-absent", "version 1\n"),
                ("put t k b --if-absent", "!condition_failed"),
                ("put t k b --if-version 1", "version 2\n"),
                ("cas t k 1 c", "!condition_failed"),
                ("cas t k 2 c", "version 3\n"),
                ("cas t new 0 x", "version 4\n"),
                ("cas t new 0 x", "!condition_failed"),
                ("delete t k --if-version 2", "!condition_failed"),
                ("delete t k --if-version 3", "deleted version 3\n"),
            ],
        );
        let failure = run(&mut fake(), "cas t k 7 v").unwrap_err();
        assert!(failure.message.contains("no such object"), "{failure}");
        assert_eq!(failure.exit, Exit::Negative);
    }

    #[test]
    fn objects_get_a_time_to_live() {
        check(
            &mut fake(),
            &[
                ("ttl t k", "!not_found"),
                ("expire t k 10s", "!not_found"),
                ("put t k v --ttl 90s", "version 1\n"),
                ("ttl t k", "90s\n"),
                ("ttl t k --json", "{\"ttl_ms\":90000,\"version\":1}\n"),
                ("put t n 5 --number --ttl 2m", "version 2\n"),
                ("incr t n", "6\n"),
                ("ttl t n", "2m\n"),
                ("expire t k 1h", "version 4\n"),
                ("ttl t k", "1h\n"),
                ("expire t k never --if-version 3", "!condition_failed"),
                ("expire t k never --if-version 4", "version 5\n"),
                ("ttl t k --json", "{\"ttl_ms\":null,\"version\":5}\n"),
                ("cas t k 5 w --ttl 1s", "version 6\n"),
                ("ttl t k", "1s\n"),
                ("put t k v", "version 7\n"),
                ("ttl t k", "never\n"),
                ("put t k v --ttl 0s", "!usage"),
                ("put t k v --ttl 10", "!usage"),
            ],
        );
    }

    #[test]
    fn numbers_are_counted() {
        check(
            &mut fake(),
            &[
                ("incr t n", "1\n"),
                ("incr t n -- -5", "-4\n"),
                ("incr t n -3 --json", "{\"value\":-7,\"version\":3}\n"),
                ("get t n --number", "-7\n"),
                ("get t n --number --json", "{\"key\":\"n\",\"value\":-7,\"version\":3}\n"),
                ("put t m 40 --number", "version 4\n"),
                ("incr t m 2", "42\n"),
                ("incr t f 0.5 --float", "0.5\n"),
                ("incr t f 0.25 --float", "0.75\n"),
                ("get t f --float", "0.75\n"),
                ("incr t n 0.5", "!usage"),
                ("put t n x --number", "!usage"),
                ("put t text abc", "version 8\n"),
                ("incr t text", "!not_a_number"),
                ("put t text 12345678", "version 9\n"),
                ("incr t text", "!not_a_number"),
                ("put t text 7 --number", "version 10\n"),
                ("incr t text 0.5 --float", "!not_a_number"),
                ("incr t text", "8\n"),
                ("put t text 0.5 --float", "version 12\n"),
                ("incr t text", "!not_a_number"),
                ("scan t --prefix text", "text\t0.5\n"),
                ("scan t --prefix n --json", "{\"key\":\"n\",\"number\":-7,\"version\":3}\n"),
                ("scan t --prefix f --json", "{\"key\":\"f\",\"float\":\"0.75\",\"version\":7}\n"),
            ],
        );
    }

    #[test]
    fn an_increment_of_a_non_number_explains_how_to_write_numbers() {
        let mut fake = fake();
        run(&mut fake, "put t k 12345678").unwrap();
        let failure = run(&mut fake, "incr t k").unwrap_err();
        assert_eq!((failure.exit, failure.kind), (Exit::Refused, "not_a_number"));
        for part in ["k: ", "no number", "`put --number`", "counts from 0"] {
            assert!(failure.message.contains(part), "{part}: {failure}");
        }
        let failure = run(&mut fake, "incr t k --float").unwrap_err();
        assert!(failure.message.contains("`put --float`"), "{failure}");
    }

    #[test]
    fn a_number_may_come_from_the_standard_input() {
        let mut fake = fake();
        run_with(&mut fake, "put t k - --number", b"41\n").unwrap();
        assert_eq!(run(&mut fake, "incr t k").unwrap(), "42\n");
        assert_eq!(run_with(&mut fake, "put t k - --number", b"x").unwrap_err().kind, "usage");
    }

    #[test]
    fn a_value_may_come_from_the_standard_input_or_a_file() {
        let mut fake = fake();
        run_with(&mut fake, "put t k -", b"from \xff outside").unwrap();
        assert_eq!(run(&mut fake, "get t k --raw").unwrap_err().kind, "file", "it is not text");
        run_with(&mut fake, "put t l --file -", b"again").unwrap();
        assert_eq!(run(&mut fake, "get t l").unwrap(), "again\n");
        let failure = run(&mut fake, "put t l --file /nowhere/at/all").unwrap_err();
        assert_eq!((failure.exit, failure.kind), (Exit::Usage, "file"));
        assert!(failure.message.contains("/nowhere/at/all"), "{failure}");
        let path = std::env::temp_dir().join(format!("thunderhead-get-{}", std::process::id()));
        run(&mut fake, &format!("get t k -o {}", path.display())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"from \xff outside");
        run(&mut fake, &format!("put t m -f {}", path.display())).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(run(&mut fake, "get t m").unwrap(), "from \\xff outside\n");
    }

    #[test]
    fn errors_of_the_cluster_become_statuses() {
        let cases = [
            (Error::TimedOut(Obstacle::NoAnswer), Exit::Unreachable),
            (Error::Unknown(Obstacle::NoAnswer), Exit::Unknown),
        ];
        for (error, exit) in cases {
            let mut fake = fake();
            fake.fails = Some(error);
            for line in ["get t k", "put t k v", "delete t k", "incr t k", "scan t"] {
                assert_eq!(run(&mut fake, line).unwrap_err().exit, exit, "{line}");
            }
        }
    }
}
