//! `import` and `export`: a table's objects as lines of JSON or as CSV.
//!
//! Both are streams: memory holds one batch, or one page of a scan. A line has a maximal length, so
//! that a quote without its end does not take all memory.
//!
//! An import sends batches, in which operations have no order. So a batch has each key at most
//! once: a second line with the same key begins the next batch, and the last line wins.

mod formats;

use crate::exit::{Exit, Failure};
use crate::migrate;
use crate::progress::Progress;
use crate::session::Session;
use crate::store::Store;
use crate::text;
use clap::ValueEnum;
use formats::{Line, Lines};
use serde_json::json;
use std::collections::HashSet;
use std::fs;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use thunderhead_client::{Action, Number, Operation};
use thunderhead_wire::{Condition, TableId};

/// The formats of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object in each line, with the members key and value, or key_base64 and value_base64
    /// for bytes that are not text. A value that `incr` may change has the member number or float
    /// instead of value.
    Jsonl,
    /// Comma-separated values with a line of headings, bytes unchanged. This format does not
    /// distinguish numbers for `incr`.
    Csv,
}

/// The arguments of both commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Shape {
    /// The format of the file. If it is not given: CSV for names that end with .csv, otherwise JSON
    /// lines.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The heading of the column of keys, in CSV.
    #[arg(long, value_name = "NAME", default_value = "key")]
    key_column: String,
    /// The heading of the column of values, in CSV.
    #[arg(long, value_name = "NAME", default_value = "value")]
    value_column: String,
}

impl Shape {
    fn format(&self, path: &Path) -> Format {
        let is_csv = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("csv"));
        self.format.unwrap_or(if is_csv { Format::Csv } else { Format::Jsonl })
    }
}

/// `import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The table's name. With `--to`: an RDB file of Redis.
    #[arg(required_unless_present = "from")]
    table: Option<String>,
    /// The file; - is the standard input.
    #[arg(required_unless_present = "to", conflicts_with = "to")]
    file: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
    /// Skip lines that are malformed or refused, and count them.
    #[arg(long, conflicts_with = "to")]
    skip_bad: bool,
    /// Copy the keys of a running server of Redis: redis://user:password@host:port/database.
    #[arg(long, value_name = "URL", requires = "to", conflicts_with = "table")]
    from: Option<String>,
    /// The server of Redis's clients that gets the keys, such as `thunderhead redis`.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
}

impl Import {
    /// Returns the URL of the server of Redis's clients that gets the keys.
    pub(crate) fn redis(&self) -> Option<&str> {
        self.to.as_deref()
    }
}

/// `import` from Redis, which needs no cluster.
pub(crate) fn import_from_redis(import: &Import, session: &mut Session<'_>) -> Result<(), Failure> {
    let file = import.table.as_ref().map(Path::new);
    migrate::run(import.from.as_deref(), file, import.redis().unwrap_or(""), session)
}

/// `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The table's name.
    table: String,
    /// The file; - is the standard output.
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

/// Operations in one batch.
const BATCH: usize = 512;
/// Bytes in one batch; one object may exceed it.
const BATCH_BYTES: usize = 1 << 20;
/// Bad lines that are reported one by one.
const BAD_TOLD: u64 = 10;

/// The finished work.
#[derive(Default)]
struct Tally {
    objects: u64,
    bytes: u64,
    skipped: u64,
}

impl Tally {
    fn report(
        &self,
        verb: &str,
        began: Instant,
        session: &mut Session<'_>,
        on_notes: bool,
    ) -> Result<(), Failure> {
        let Tally { objects, bytes, skipped } = *self;
        let seconds = began.elapsed().as_secs_f64();
        let text = if session.json {
            let seconds = (seconds * 1000.0).round() / 1000.0;
            json!({verb: objects, "bytes": bytes, "skipped": skipped, "seconds": seconds})
                .to_string()
        } else {
            let skipped = match skipped {
                0 => String::new(),
                lines => format!("; {} skipped", text::plural(lines, "line")),
            };
            let rate = text::count((objects as f64 / seconds.max(1e-9)) as u64);
            let (objects, bytes) = (text::plural(objects, "object"), text::amount(bytes));
            format!("{verb} {objects}, {bytes}, in {seconds:.1} s ({rate} a second){skipped}")
        };
        match on_notes {
            true => session.note(text),
            false => writeln!(session.out, "{text}")?,
        }
        Ok(())
    }
}

/// `import`.
pub(crate) fn import(
    import: Import,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    if import.redis().is_some() {
        return import_from_redis(&import, session);
    }
    let began = Instant::now();
    let Import { table, file, shape, skip_bad, .. } = import;
    let (Some(table), Some(file)) = (table, file) else {
        return Err(Failure::usage("name a table and a file"));
    };
    let table = store.table(&table)?;
    let (input, total): (Box<dyn Read + '_>, Option<u64>) = if file.as_os_str() == "-" {
        match session.input.take() {
            Some(input) => (Box::new(input), None),
            None => {
                return Err(Failure::usage(
                    "the shell reads the standard input itself; name a file",
                ));
            }
        }
    } else {
        let opened = fs::OpenOptions::new().read(true).open(&file);
        let opened = opened.map_err(|error| Failure::file(file.display(), &error))?;
        let metadata = opened.metadata().ok().filter(fs::Metadata::is_file);
        (Box::new(opened), metadata.map(|it| it.len()))
    };
    let mut lines = Lines::new(input, shape.format(&file), &shape.key_column, &shape.value_column);
    let progress = Progress::new(session.progress, total);
    let mut work = Work {
        store,
        table,
        batch: Vec::new(),
        keys: HashSet::new(),
        batch_bytes: 0,
        skip_bad,
        tally: Tally::default(),
        bad: Vec::new(),
    };
    let outcome = loop {
        match lines.next() {
            Ok(None) => break work.send(),
            Ok(Some(line)) => {
                let sent = work.take(line);
                // A bar that is redrawn would run into these lines.
                for bad in work.bad.drain(..) {
                    session.note(bad);
                }
                if let Err(failure) = sent {
                    break Err(failure);
                }
                let tally = &work.tally;
                progress.at(lines.bytes(), || format!("{} objects", text::count(tally.objects)));
            }
            Err(failure) => {
                // Lines before the failure are imported, as they are before a bad line.
                break work.send().and(Err(failure.within(file.display())));
            }
        }
    };
    progress.end();
    for bad in work.bad.drain(..) {
        session.note(bad);
    }
    let tally = work.tally;
    outcome.map_err(|failure| {
        let objects = text::plural(tally.objects, "object");
        failure.with(format!("{objects} had been imported; you may import them again"))
    })?;
    tally.report("imported", began, session, false)
}

/// An import in progress.
struct Work<'a> {
    store: &'a mut dyn Store,
    table: TableId,
    batch: Vec<(u64, Operation)>,
    keys: HashSet<Vec<u8>>,
    batch_bytes: usize,
    skip_bad: bool,
    tally: Tally,
    /// Reports about skipped lines.
    bad: Vec<String>,
}

impl Work<'_> {
    fn take(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Bad { number, why } if self.skip_bad => {
                self.skip(number, &why);
                Ok(())
            }
            Line::Bad { number, why } => {
                self.send()?;
                let message = format!("line {number}: {why}");
                let failure = Failure::new(Exit::Usage, "bad_line", message);
                Err(failure.with("correct it, or skip such lines with --skip-bad"))
            }
            Line::Object { number, key, kind, value } => {
                let is_full = self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES;
                if is_full || self.keys.contains(&key) {
                    self.send()?;
                }
                self.batch_bytes += key.len() + value.len();
                self.keys.insert(key.clone());
                let condition = Condition::Always;
                let action = match Number::of_value(kind, &value) {
                    Some(number) => Action::WriteNumber(number),
                    None => Action::Write(value),
                };
                self.batch.push((number, Operation { table: self.table, key, condition, action }));
                Ok(())
            }
        }
    }

    fn skip(&mut self, number: u64, why: &str) {
        self.tally.skipped += 1;
        match self.tally.skipped {
            told if told <= BAD_TOLD => self.bad.push(format!("line {number} is skipped: {why}")),
            told if told == BAD_TOLD + 1 => self.bad.push("and more lines are skipped".to_owned()),
            _ => {}
        }
    }

    /// Sends the batch. Returns the worst failure.
    fn send(&mut self) -> Result<(), Failure> {
        self.keys.clear();
        self.batch_bytes = 0;
        let (about, operations): (Vec<(u64, usize)>, Vec<Operation>) =
            self.batch.drain(..).map(|(number, it)| ((number, bytes_of(&it)), it)).unzip();
        if operations.is_empty() {
            return Ok(());
        }
        let mut worst: Option<Failure> = None;
        for ((number, bytes), result) in about.into_iter().zip(self.store.all(operations)) {
            let failure = match result {
                Ok(_) => {
                    self.tally.objects += 1;
                    self.tally.bytes += bytes as u64;
                    continue;
                }
                Err(error) => Failure::from(error),
            };
            match failure.exit {
                // The line is wrong, not the cluster.
                Exit::Refused if self.skip_bad => self.skip(number, &failure.message),
                exit => {
                    let rank = |exit| match exit {
                        Exit::Unknown => 2,
                        Exit::Unreachable => 1,
                        _ => 0,
                    };
                    if worst.as_ref().is_none_or(|worst| rank(exit) > rank(worst.exit)) {
                        worst = Some(failure.within(format!("line {number}")));
                    }
                }
            }
        }
        worst.map_or(Ok(()), Err)
    }
}

fn bytes_of(operation: &Operation) -> usize {
    match &operation.action {
        Action::Write(value) => operation.key.len() + value.len(),
        Action::WriteNumber(_) => operation.key.len() + 8,
        _ => operation.key.len(),
    }
}

/// `export`.
pub(crate) fn export(
    export: Export,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let began = Instant::now();
    let Export { table, file, shape } = export;
    let table = store.table(&table)?;
    let format = shape.format(&file);
    if file.as_os_str() == "-" {
        let tally = write_all(store, table, format, &shape, session.progress, session.out)?;
        return tally.report("exported", began, session, true);
    }
    let failed = |error: std::io::Error| Failure::file(file.display(), &error);
    // A partial export must not pass for a whole one. A target that is not a plain file, such as a
    // pipe, is written directly.
    let is_plain = fs::metadata(&file).map_or(true, |it| it.is_file());
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    let partial = if is_plain { PathBuf::from(name) } else { file.clone() };
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&partial);
    let mut out = BufWriter::new(opened.map_err(failed)?);
    let written = write_all(store, table, format, &shape, session.progress, &mut out)
        .and_then(|tally| out.flush().map(|()| tally).map_err(failed));
    drop(out);
    let tally = match written {
        Ok(tally) => tally,
        Err(failure) => {
            if is_plain {
                let _ = fs::remove_file(&partial);
            }
            return Err(Failure { reader_is_gone: false, ..failure });
        }
    };
    if is_plain {
        fs::rename(&partial, &file).map_err(failed)?;
    }
    tally.report("exported", began, session, false)
}

fn write_all(
    store: &mut dyn Store,
    table: TableId,
    format: Format,
    shape: &Shape,
    progress: bool,
    out: &mut dyn Write,
) -> Result<Tally, Failure> {
    let progress = Progress::new(progress, None);
    let mut tally = Tally::default();
    let mut writer = formats::Writer::new(out, format, &shape.key_column, &shape.value_column)?;
    for object in store.scan(table) {
        let object = object.map_err(Failure::from).map_err(|failure| {
            let objects = text::plural(tally.objects, "object");
            failure.with(format!("{objects} had been exported; begin again"))
        })?;
        writer.put(&object)?;
        tally.objects += 1;
        tally.bytes += (object.key.len() + object.value.len()) as u64;
        let objects = tally.objects;
        if objects.is_multiple_of(256) {
            progress.at(tally.bytes, || format!("{} objects", text::count(objects)));
        }
    }
    writer.end()?;
    progress.end();
    Ok(tally)
}

#[cfg(test)]
mod tests;
