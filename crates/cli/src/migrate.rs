//! `import` of the keys of Redis: from a running server, or from an RDB file, into a server of
//! Redis's clients such as `thunderhead redis`.
//!
//! Both read values in the form of `DUMP`, and write them with `RESTORE`, many at a time. The
//! target keeps a value or refuses it as a whole. A large value that it refuses for its size is
//! written in parts. An import that failed can be repeated.
//!
//! A running server is copied with `SCAN`. Its events name the keys that change meanwhile. These
//! are copied again until no key changes. Streams are read again too, because groups change without
//! events. If the server sends no events, all keys are copied twice.

mod changes;
mod connection;
mod parts;
mod streams;

use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::session::Session;
use crate::text;
use changes::{ChangedKey, Changes};
use connection::{Address, Connection, Reply};
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::time::Instant;
use streams::Streams;
use thunderhead_server::rdb::{Damaged, Entry, File, FileError, Part};

/// The keys that are in flight, and the bytes of values in flight from a file.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 4 << 20;

/// The keys that one call of `SCAN` looks at.
const SCANNED: &[u8] = b"512";

/// The most copies of keys that change all the time.
const ROUNDS_MAX: u32 = 20;

/// Keys that are refused and reported one by one.
const REFUSED_TOLD: u64 = 10;

/// The bytes of a file that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The finished work.
#[derive(Debug, Default)]
struct Tally {
    keys: u64,
    bytes: u64,
    refused: u64,
    /// Copies of keys that had changed.
    changed: u64,
    deleted: u64,
}

/// How a live copy catches up with changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchUp {
    /// The source tells which keys change.
    Events,
    /// All keys are copied twice.
    SecondScan,
    /// A file does not change.
    No,
}

/// A value on its way: its key, its time to live or of expiry, and its payload.
struct Moved {
    key: Vec<u8>,
    time: u64,
    payload: Vec<u8>,
}

/// The server that gets the keys.
struct Target {
    connection: Connection,
    tally: Tally,
    notes: Vec<String>,
    /// The streams that it has got from a running server.
    streams: Streams,
    /// Whether times are times of expiry.
    is_absolute: bool,
}

impl Target {
    fn open(address: &Address, is_absolute: bool) -> Result<Target, Failure> {
        let mut connection = Connection::open(address)?;
        connection.want_ok(&[b"PING"])?;
        let (tally, notes, streams) = Default::default();
        Ok(Target { connection, tally, notes, streams, is_absolute })
    }

    /// Writes values from one database to another.
    fn write(&mut self, (from, to): (u32, u32), values: &[Moved]) -> Result<(), Failure> {
        self.connection.select(to)?;
        for Moved { key, time, payload } in values {
            let time = time.to_string();
            let mut words: Vec<&[u8]> = vec![b"RESTORE", key, time.as_bytes(), payload, b"REPLACE"];
            if self.is_absolute {
                words.push(b"ABSTTL");
            }
            self.connection.send(&words)?;
        }
        // The answers to all commands must be read before the next command is sent.
        let mut errors = Vec::new();
        for value in values {
            let Moved { key, payload, .. } = value;
            match self.connection.reply()? {
                Reply::Error(text) => errors.push((value, text)),
                _ => self.count(key, payload),
            }
        }
        for (value, text) in errors {
            let Moved { key, payload, .. } = value;
            let refused = match parts::are_wanted(&text, payload) {
                true => parts::write(&mut self.connection, value, self.is_absolute)?,
                false => Some(text),
            };
            match refused {
                None => self.count(key, payload),
                Some(reason) => {
                    self.streams.forget(&(from, key.clone()));
                    self.refuse(to, key, &reason);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, key: &[u8], payload: &[u8]) {
        self.tally.keys += 1;
        self.tally.bytes += (key.len() + payload.len()) as u64;
    }

    fn refuse(&mut self, database: u32, key: &[u8], reason: &str) {
        self.tally.refused += 1;
        if self.tally.refused <= REFUSED_TOLD {
            let key = key.escape_ascii();
            self.notes.push(format!("skipped the key {key} of database {database}: {reason}"));
        }
    }

    fn delete(&mut self, database: u32, keys: &[Vec<u8>]) -> Result<(), Failure> {
        self.connection.select(database)?;
        for key in keys {
            if self.connection.want(&[b"DEL", key])? == Reply::Integer(1) {
                self.tally.deleted += 1;
            }
        }
        Ok(())
    }

    fn tell(&mut self, session: &mut Session<'_>) {
        self.notes.drain(..).for_each(|note| session.note(note));
    }

    fn end(
        mut self,
        began: Instant,
        catch_up: CatchUp,
        session: &mut Session<'_>,
    ) -> Result<(), Failure> {
        self.tell(session);
        let Tally { keys, bytes, refused, changed, deleted } = self.tally;
        let seconds = began.elapsed().as_secs_f64();
        if session.json {
            let seconds = (seconds * 1000.0).round() / 1000.0;
            let catch_up = match catch_up {
                CatchUp::Events => Some("events"),
                CatchUp::SecondScan => Some("second_scan"),
                CatchUp::No => None,
            };
            session.put_json(&json!({
                "imported": keys, "bytes": bytes, "skipped": refused, "changed": changed,
                "deleted": deleted, "catch_up": catch_up, "seconds": seconds,
            }))?;
        } else {
            let rate = text::count((keys as f64 / seconds.max(1e-9)) as u64);
            let (keys, bytes) = (text::plural(keys, "key"), text::amount(bytes));
            let changed = match (catch_up, changed) {
                (CatchUp::Events, changed) => {
                    format!("; {} changed meanwhile", text::plural(changed, "key"))
                }
                (CatchUp::SecondScan, _) => "; each was copied twice".to_owned(),
                (CatchUp::No, _) => String::new(),
            };
            let text = format!("imported {keys}, {bytes}, in {seconds:.1} s ({rate} a second)");
            writeln!(session.out, "{text}{changed}")?;
        }
        match refused {
            0 => Ok(()),
            refused => Err(Failure::new(
                Exit::Refused,
                "refused",
                format!("skipped {}; all others were imported", text::plural(refused, "key")),
            )),
        }
    }
}

/// Imports a file, or the keys of the server at `from`.
pub(crate) fn run(
    from: Option<&str>,
    file: Option<&Path>,
    to: &str,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let to = Address::read(to)?;
    match (from, file) {
        (Some(from), _) => copy(&Address::read(from)?, &to, session),
        (None, Some(file)) => import(file, &to, session),
        (None, None) => Err(Failure::usage("name an RDB file, or a server with --from")),
    }
}

/// Returns the databases that a source has.
fn databases(source: &mut Connection, address: &Address) -> Result<Vec<u32>, Failure> {
    if let Some(database) = address.database {
        return Ok(vec![database]);
    }
    let text = match source.want(&[b"INFO", b"keyspace"])? {
        Reply::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    };
    let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
    Ok(text.lines().filter_map(number).collect())
}

/// Reads some keys as they are now. Returns their values, and the keys that are not there.
fn read_keys(
    source: &mut Connection,
    target: &mut Target,
    from: u32,
    keys: &[Vec<u8>],
) -> Result<(Vec<Moved>, Vec<Vec<u8>>), Failure> {
    source.select(from)?;
    for key in keys {
        source.send(&[b"PTTL", key])?;
        source.send(&[b"DUMP", key])?;
    }
    let (mut values, mut absent) = (Vec::new(), Vec::new());
    for key in keys {
        match (source.reply()?, source.reply()?) {
            (Reply::Integer(time), Reply::String(Some(payload))) if time != -2 => {
                // 0 stands for no time, and a key that expires now must not stay.
                let time = if time == -1 { 0 } else { u64::try_from(time).unwrap_or(0).max(1) };
                values.push(Moved { key: key.clone(), time, payload });
            }
            (_, Reply::Error(text)) => {
                target.streams.forget(&(from, key.clone()));
                target.refuse(from, key, &text);
            }
            _ => absent.push(key.clone()),
        }
    }
    for key in &absent {
        target.streams.forget(&(from, key.clone()));
    }
    Ok((values, absent))
}

/// Copies some keys as they are now. Returns the keys that are not there.
fn copy_keys(
    source: &mut Connection,
    target: &mut Target,
    (from, to): (u32, u32),
    keys: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, Failure> {
    let (values, absent) = read_keys(source, target, from, keys)?;
    for Moved { key, payload, .. } in &values {
        target.streams.note((from, key.clone()), payload);
    }
    target.write((from, to), &values)?;
    Ok(absent)
}

/// Calls a function for some keys of the same database at a time, with the database in the target.
fn by_database(
    keys: &[ChangedKey],
    place: impl Fn(u32) -> Option<u32>,
    mut act: impl FnMut((u32, u32), &[Vec<u8>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for part in keys.chunk_by(|(one, _), (other, _)| one == other) {
        for part in part.chunks(BATCH) {
            let Some(from) = part.first().map(|(database, _)| *database) else { continue };
            let Some(to) = place(from) else { continue };
            let keys: Vec<Vec<u8>> = part.iter().map(|(_, key)| key.clone()).collect();
            act((from, to), &keys)?;
        }
    }
    Ok(())
}

/// Reads the streams once more, and copies the changed streams. Returns their number.
fn copy_streams(
    source: &mut Connection,
    target: &mut Target,
    place: impl Fn(u32) -> Option<u32>,
) -> Result<u64, Failure> {
    let (streams, mut changed) = (target.streams.keys(), 0);
    by_database(&streams, place, |(from, to), keys| {
        let (mut values, absent) = read_keys(source, target, from, keys)?;
        values
            .retain(|Moved { key, payload, .. }| target.streams.note((from, key.clone()), payload));
        changed += (values.len() + absent.len()) as u64;
        target.write((from, to), &values)?;
        target.delete(to, &absent)
    })?;
    Ok(changed)
}

/// Copies all keys of a database.
fn copy_database(
    source: &mut Connection,
    target: &mut Target,
    (from, to): (u32, u32),
    progress: &Progress,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let mut cursor = b"0".to_vec();
    loop {
        source.select(from)?;
        let Reply::Array(Some(page)) = source.want(&[b"SCAN", &cursor, b"COUNT", SCANNED])? else {
            return Err(Failure::new(Exit::Refused, "refused", "the source does not scan"));
        };
        let [Reply::String(Some(next)), keys] = &page[..] else {
            return Err(Failure::new(Exit::Refused, "refused", "the source does not scan"));
        };
        let keys = keys.clone().strings().unwrap_or_default();
        for keys in keys.chunks(BATCH) {
            copy_keys(source, target, (from, to), keys)?;
            let Tally { keys, bytes, .. } = target.tally;
            progress.at(bytes, || format!("{}, {}", text::count(keys), text::amount(bytes)));
        }
        target.tell(session);
        cursor.clone_from(next);
        if cursor == b"0" {
            return Ok(());
        }
    }
}

/// Copies keys that have changed, until none changes. Returns `false` if events were lost.
fn catch_up(
    source: &mut Connection,
    target: &mut Target,
    changes: &mut Changes,
    place: impl Fn(u32) -> Option<u32> + Copy,
    session: &mut Session<'_>,
) -> Result<bool, Failure> {
    let mut has_new_streams = true;
    for round in 1..=ROUNDS_MAX {
        let Some(changed) = changes.take() else { return Ok(false) };
        let is_of_import = |(database, _): &ChangedKey| place(*database).is_some();
        let changed: Vec<ChangedKey> = changed.into_iter().filter(is_of_import).collect();
        if changed.is_empty() && (!has_new_streams || target.streams.is_empty()) {
            return Ok(true);
        }
        target.tally.changed += changed.len() as u64;
        by_database(&changed, place, |(from, to), keys| {
            let absent = copy_keys(source, target, (from, to), keys)?;
            target.delete(to, &absent)
        })?;
        has_new_streams = true;
        if changed.is_empty() || round == ROUNDS_MAX {
            let changed = copy_streams(source, target, place)?;
            target.tally.changed += changed;
            has_new_streams = changed > 0;
        }
        target.tell(session);
    }
    session.note(format!(
        "keys of the source still change after {ROUNDS_MAX} rounds: stop its clients, and import again"
    ));
    Ok(true)
}

/// Copies the keys of a running server.
fn copy(from: &Address, to: &Address, session: &mut Session<'_>) -> Result<(), Failure> {
    let began = Instant::now();
    if to.database.is_some() && from.database.is_none() {
        return Err(Failure::usage("name a database of the source if you name one of the target"));
    }
    let mut source = Connection::open(from)?;
    let mut target = Target::open(to, false)?;
    let place = |database: u32| match from.database {
        Some(own) => (own == database).then(|| to.database.unwrap_or(own)),
        None => Some(database),
    };
    let mut changes = match Changes::subscribe(&mut source, from)? {
        Ok(changes) => Some(changes),
        Err(reason) => {
            session.note(format!(
                "{} sends no events ({reason}): all keys are copied twice, and keys that are deleted \
                 meanwhile may stay",
                source.name
            ));
            None
        }
    };
    let done = copy_all(&mut source, &mut target, from, changes.as_mut(), place, session);
    let restored = changes.map_or(Ok(()), |changes| changes.end(&mut source));
    let way = done?;
    restored?;
    target.end(began, way, session)
}

fn copy_all(
    source: &mut Connection,
    target: &mut Target,
    from: &Address,
    changes: Option<&mut Changes>,
    place: impl Fn(u32) -> Option<u32> + Copy,
    session: &mut Session<'_>,
) -> Result<CatchUp, Failure> {
    let progress = Progress::new(session.progress, None);
    let copy_databases =
        |source: &mut Connection, target: &mut Target, session: &mut Session<'_>| {
            for database in databases(source, from)? {
                let Some(to) = place(database) else { continue };
                copy_database(source, target, (database, to), &progress, session)?;
            }
            Ok::<(), Failure>(())
        };
    copy_databases(source, target, session)?;
    if let Some(changes) = changes {
        let is_whole = catch_up(source, target, changes, place, session)?;
        if target.streams.is_full {
            session.note("there are too many streams: changes of some groups may be missing");
        }
        if is_whole {
            progress.end();
            return Ok(CatchUp::Events);
        }
        session.note("some events of the source were lost: all keys are copied a second time");
    }
    target.tally = Tally { changed: target.tally.changed, ..Tally::default() };
    copy_databases(source, target, session)?;
    progress.end();
    Ok(CatchUp::SecondScan)
}

/// Returns the failure for bytes that are not of a file of Redis.
fn bad_file(path: &Path, error: FileError) -> Failure {
    let text = match error {
        FileError::NotRdb => "it is no RDB file of Redis".to_owned(),
        FileError::Version(version) => format!("its version {version} is newer than 12"),
        FileError::Damaged(at, damaged) => format!("it is damaged at byte {at}: {damaged:?}"),
        FileError::Checksum => "its checksum is wrong: it is damaged".to_owned(),
    };
    Failure::new(Exit::Usage, "file", format!("{}: {text}", path.display()))
}

/// Reads a file, and gives its keys to a function.
fn read_file(
    path: &Path,
    mut take: impl FnMut(Option<Entry<'_>>, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(path.display(), &error);
    let mut input = std::fs::File::open(path).map_err(failed)?;
    let (mut file, mut bytes, mut at, mut total) = (File::new(), Vec::new(), 0, 0);
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let (part, used) = file.next(rest).map_err(|error| bad_file(path, error))?;
        total += used as u64;
        match part {
            Part::End => return Ok(()),
            Part::Nothing => take(None, total)?,
            Part::Entry(entry) => take(Some(entry), total)?,
            Part::More => {
                bytes.drain(..at);
                at = 0;
                // A long value is looked at again only after its bytes have doubled.
                let wanted = CHUNK_BYTES.max(bytes.len());
                let read = input.by_ref().take(wanted as u64).read_to_end(&mut bytes);
                if read.map_err(failed)? == 0 {
                    let text = format!("{}: it ends too early", path.display());
                    return Err(Failure::new(Exit::Usage, "file", text));
                }
                continue;
            }
        }
        at += used;
    }
}

/// Imports an RDB file. It is read twice: nothing is written if it is damaged.
fn import(path: &Path, to: &Address, session: &mut Session<'_>) -> Result<(), Failure> {
    let began = Instant::now();
    read_file(path, |_, _| Ok(()))?;
    let mut target = Target::open(to, true)?;
    let length = std::fs::metadata(path).map(|it| it.len()).ok();
    let progress = Progress::new(session.progress, length);
    let (mut values, mut waiting, mut database) = (Vec::new(), 0, 0);
    read_file(path, |entry, at| {
        let Some(entry) = entry else { return Ok(()) };
        let own = u32::try_from(entry.database).unwrap_or(u32::MAX);
        let own = if to.database.is_some() { to.database.unwrap_or(own) } else { own };
        if own != database || values.len() >= BATCH || waiting > BATCH_BYTES {
            target.write((database, database), &values)?;
            values.clear();
            (waiting, database) = (0, own);
            target.tell(session);
            progress.at(at, || text::plural(target.tally.keys, "key"));
        }
        let reason = match entry.check() {
            Ok(()) => {
                let payload = entry.payload();
                waiting += payload.len();
                values.push(Moved { key: entry.key, time: entry.expires.unwrap_or(0), payload });
                return Ok(());
            }
            Err(Damaged::Unsupported(_)) => "values of modules are not supported",
            Err(Damaged::TooLong) => "its value is too long",
            Err(Damaged::Format | Damaged::End) => "its value is damaged: it contradicts itself",
        };
        target.refuse(own, &entry.key, reason);
        Ok(())
    })?;
    target.write((database, database), &values)?;
    progress.end();
    target.end(began, CatchUp::No, session)
}

#[cfg(test)]
mod tests;
