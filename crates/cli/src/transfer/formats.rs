//! The lines of an import and of an export.

use super::Format;
use crate::exit::Failure;
use crate::objects::{number_of_text, write_line};
use crate::text;
use csv::ByteRecord;
use serde::Deserialize;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::rc::Rc;
use thunderhead_client::{Number, Object};
use thunderhead_wire::ValueKind;

/// The longest object, in base64 or with all its characters escaped, and some more.
pub(super) const LINE_BYTES_MAX: u64 = 16 << 20;

/// One object of an import.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Object { number: u64, key: Vec<u8>, kind: ValueKind, value: Vec<u8> },
    Bad { number: u64, why: String },
}

/// The lines of an import.
pub(super) struct Lines<'a> {
    source: Source<'a>,
    bytes: Rc<Cell<u64>>,
}

enum Source<'a> {
    Json { input: BufReader<CountingReader<'a>>, number: u64, line: Vec<u8> },
    Csv(Box<Csv<'a>>),
}

struct Csv<'a> {
    reader: csv::Reader<CountingReader<'a>>,
    names: [String; 2],
    columns: Option<[usize; 2]>,
    record: ByteRecord,
    /// The offset at which the present record began.
    began: Rc<Cell<u64>>,
}

/// Counts the bytes, and fails if a record is too long.
struct CountingReader<'a> {
    inner: Box<dyn Read + 'a>,
    bytes: Rc<Cell<u64>>,
    began: Rc<Cell<u64>>,
}

impl Read for CountingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.get() - self.began.get() > LINE_BYTES_MAX {
            return Err(io::Error::other(
                "a record is too long; check for a quote without its end",
            ));
        }
        let bytes = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + bytes as u64);
        Ok(bytes)
    }
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    key_base64: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    value_base64: Option<String>,
    #[serde(default)]
    number: Option<serde_json::Value>,
    #[serde(default)]
    float: Option<serde_json::Value>,
}

/// A value, and its kind.
type Value = (ValueKind, Vec<u8>);

impl Members {
    fn value(self) -> Result<Value, String> {
        let Members { value, value_base64, number, float, .. } = self;
        let (json, is_float, kind) = match (number, float) {
            (None, None) => {
                let value = text::of_json("value", value, value_base64.as_deref())?;
                return Ok((ValueKind::Bytes, value));
            }
            (Some(number), None) => (number, false, ValueKind::Integer),
            (None, Some(number)) => (number, true, ValueKind::Float),
            (Some(_), Some(_)) => return Err("it has both number and float".to_owned()),
        };
        if value.is_some() || value_base64.is_some() {
            return Err("it has both a value and a number".to_owned());
        }
        let digits = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
        let bytes = match number_of_text(&digits, is_float) {
            Some(Number::Integer(number)) => number.to_le_bytes(),
            Some(Number::Float(number)) => number.to_le_bytes(),
            None => return Err(format!("{digits} is not a number of 64 bits")),
        };
        Ok((kind, bytes.to_vec()))
    }
}

impl<'a> Lines<'a> {
    pub(super) fn new(
        inner: Box<dyn Read + 'a>,
        format: Format,
        key_column: &str,
        value_column: &str,
    ) -> Lines<'a> {
        let bytes = Rc::new(Cell::new(0));
        let began = Rc::new(Cell::new(0));
        let counted = CountingReader { inner, bytes: bytes.clone(), began: began.clone() };
        let source = match format {
            Format::Jsonl => {
                let input = BufReader::with_capacity(64 << 10, counted);
                Source::Json { input, number: 0, line: Vec::new() }
            }
            Format::Csv => {
                let reader = csv::ReaderBuilder::new().flexible(true).from_reader(counted);
                let names = [key_column, value_column].map(str::to_owned);
                let record = ByteRecord::new();
                Source::Csv(Box::new(Csv { reader, names, columns: None, record, began }))
            }
        };
        Lines { source, bytes }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Returns the next line, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Failure> {
        match &mut self.source {
            Source::Csv(csv) => {
                csv.began.set(self.bytes.get());
                csv.next()
            }
            Source::Json { input, number, line } => loop {
                *number += 1;
                line.clear();
                input.get_ref().began.set(self.bytes.get());
                let limit = LINE_BYTES_MAX / 2;
                let read = (&mut *input).take(limit).read_until(b'\n', line);
                let read = read.map_err(|error| Failure::file("reading", &error))?;
                if read == 0 {
                    return Ok(None);
                }
                let number = *number;
                if read as u64 == limit && line.last() != Some(&b'\n') {
                    skip_line(input).map_err(|error| Failure::file("reading", &error))?;
                    let why = format!("it is longer than {}", text::amount(limit));
                    return Ok(Some(Line::Bad { number, why }));
                }
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Ok(Some(of_json(number, line)));
                }
            },
        }
    }
}

/// Skips the rest of a line.
fn skip_line(input: &mut BufReader<CountingReader<'_>>) -> io::Result<()> {
    loop {
        let counted = input.get_ref();
        counted.began.set(counted.bytes.get());
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (bytes, is_last) = match end {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(bytes);
        if is_last {
            return Ok(());
        }
    }
}

fn of_json(number: u64, line: &[u8]) -> Line {
    let object = serde_json::from_slice(line).map_err(|error| {
        // The caller names the line, and it is always line 1 here.
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or(&said);
        format!("it is not an object with a key and a value: {said} (column {})", error.column())
    });
    let object = object.and_then(|mut members: Members| {
        let (key, key_base64) = (members.key.take(), members.key_base64.take());
        let key = text::of_json("key", key, key_base64.as_deref())?;
        Ok((key, members.value()?))
    });
    checked(number, object)
}

fn checked(number: u64, object: Result<(Vec<u8>, Value), String>) -> Line {
    match object {
        Ok((key, _)) if key.is_empty() => Line::Bad { number, why: "the key is empty".to_owned() },
        Ok((key, (kind, value))) => Line::Object { number, key, kind, value },
        Err(why) => Line::Bad { number, why },
    }
}

impl Csv<'_> {
    fn next(&mut self) -> Result<Option<Line>, Failure> {
        let columns = match self.columns {
            Some(columns) => columns,
            None => {
                let headings = self.reader.byte_headers().map_err(|error| failed(&error))?.clone();
                if headings.is_empty() {
                    return Ok(None);
                }
                let [key, value] = &self.names;
                let columns = [
                    column(&headings, key, "--key-column")?,
                    column(&headings, value, "--value-column")?,
                ];
                *self.columns.insert(columns)
            }
        };
        if !self.reader.read_byte_record(&mut self.record).map_err(|error| failed(&error))? {
            return Ok(None);
        }
        let number = self.record.position().map_or(0, csv::Position::line);
        let fields = columns.map(|column| self.record.get(column).map(<[u8]>::to_vec));
        let object = match fields {
            [Some(key), Some(value)] => Ok((key, (ValueKind::Bytes, value))),
            _ => {
                let most = columns.into_iter().max().unwrap_or(0) + 1;
                let fields = text::plural(self.record.len() as u64, "field");
                Err(format!("it has {fields}, but needs at least {most}"))
            }
        };
        Ok(Some(checked(number, object)))
    }
}

fn column(headings: &ByteRecord, name: &str, flag: &str) -> Result<usize, Failure> {
    headings.iter().position(|heading| heading == name.as_bytes()).ok_or_else(|| {
        let there: Vec<String> = headings.iter().map(text::escape).collect();
        let there = there.join(", ");
        Failure::usage(format!("no column is headed {name:?}, but {there}; choose one with {flag}"))
    })
}

fn failed(error: &csv::Error) -> Failure {
    Failure::usage(match error.kind() {
        csv::ErrorKind::Io(error) => error.to_string(),
        _ => error.to_string(),
    })
}

/// The writers of an export.
pub(super) enum Writer<'a> {
    Json(&'a mut dyn Write),
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        out: &'a mut dyn Write,
        format: Format,
        key_column: &str,
        value_column: &str,
    ) -> io::Result<Writer<'a>> {
        match format {
            Format::Jsonl => Ok(Writer::Json(out)),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                writer.write_record([key_column, value_column]).map_err(io_error)?;
                Ok(Writer::Csv(Box::new(writer)))
            }
        }
    }

    pub(super) fn put(&mut self, object: &Object) -> io::Result<()> {
        match self {
            Writer::Json(out) => write_line(out, object, true),
            Writer::Csv(writer) => {
                writer.write_record([&object.key, &object.value]).map_err(io_error)
            }
        }
    }

    pub(super) fn end(self) -> io::Result<()> {
        match self {
            Writer::Json(out) => out.flush(),
            Writer::Csv(mut writer) => writer.flush(),
        }
    }
}

/// Keeps the error's kind, which shows whether the reader has gone.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
