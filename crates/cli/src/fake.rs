//! A cluster in memory for tests of commands. It honours versions and conditions, and fails on
//! request. It also runs lines as a person would type them.

use crate::arguments::{self, DataCommand};
use crate::exit::Failure;
use crate::session::Session;
use crate::store::{Objects, Store};
use clap::{FromArgMatches, Subcommand};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use thunderhead_client::{Action, Answer, Error, Number, Object, Obstacle, Operation};
use thunderhead_wire::control::{
    AtRisk, BackupInfo, BackupStatus, ChangeSettings, ClusterStatus, KnownFormat, Map, Program,
    RecoveryInfo, ServerInfo, ServerList, ServerState, Settings, SettingsChanged, ShardInfo,
    ShardStatus, TableInfo, TableOptions, TabletInfo,
};
use thunderhead_wire::{
    ClusterId, Condition, Format, Generation, KeyHash, MasterId, ServerId, Status, TableId,
    TimeToLive, ValueKind, Version,
};

type Content = BTreeMap<Vec<u8>, (Version, ValueKind, Vec<u8>)>;

/// Times to live, by table and key. Time stands still here.
type TimesToLive = BTreeMap<(TableId, Vec<u8>), TimeToLive>;

/// A cluster in memory.
#[derive(Default)]
pub(crate) struct FakeStore {
    tables: Vec<(TableInfo, Content)>,
    times_to_live: TimesToLive,
    made: u64,
    version: u64,
    /// Every operation fails with this error.
    pub(crate) fails: Option<Error>,
    /// Operations about this key fail with this error.
    pub(crate) refuses: Option<(Vec<u8>, Error)>,
    /// A scan fails after its last object.
    pub(crate) fails_in_scan: bool,
    /// Operations without an order are done from last to first.
    pub(crate) reverses: bool,
    /// The number of operations in each batch.
    pub(crate) batches: Vec<usize>,
    /// All programs know format 2. Otherwise only some do.
    pub(crate) is_upgraded: bool,
    /// The person's answer to a question, if there is a terminal.
    pub(crate) agrees: Option<bool>,
}

pub(crate) fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn number_at(version: Version, number: Number) -> (Version, ValueKind, Vec<u8>) {
    match number {
        Number::Integer(number) => (version, ValueKind::Integer, number.to_le_bytes().to_vec()),
        Number::Float(number) => (version, ValueKind::Float, number.to_le_bytes().to_vec()),
    }
}

impl FakeStore {
    fn content_mut(&mut self, table: TableId) -> Result<&mut Content, Error> {
        if let Some(error) = self.fails {
            return Err(error);
        }
        let found = self.tables.iter_mut().find(|(info, _)| info.id == table);
        found.map(|(_, content)| content).ok_or(Error::NoSuchTable(table))
    }

    fn info(&mut self, name: &str) -> Result<&mut TableInfo, Failure> {
        let found = self.tables.iter_mut().find(|(info, _)| info.name == name);
        found.map(|(info, _)| info).ok_or_else(|| Failure::no_table(name))
    }

    fn operate(&mut self, operation: Operation) -> Result<Answer, Error> {
        let Operation { table, key, condition, action } = operation;
        if let Some((refused, error)) = &self.refuses
            && *refused == key
        {
            return Err(*error);
        }
        let next = Version(self.version + 1);
        let content = self.content_mut(table)?;
        let there = content.get(&key).cloned();
        let version = there.as_ref().map_or(Version::NONE, |(version, ..)| *version);
        if !condition.holds(version) {
            return Err(Error::ConditionFailed { version });
        }
        let place = (table, key.clone());
        let time_to_live = match &action {
            Action::WriteExpiring(_, time) | Action::WriteNumberExpiring(_, time) => Some(*time),
            Action::Write(_) | Action::WriteNumber(_) => Some(TimeToLive::Never),
            Action::SetExpiry(time) if there.is_some() => Some(*time),
            _ => None,
        };
        let answer = match action {
            Action::ReadExpiry => {
                let time = self.times_to_live.get(&place).copied().unwrap_or(TimeToLive::Never);
                let lives =
                    |it: (Version, _, _)| Answer::Lives { version: it.0, time_to_live: time };
                return Ok(there.map_or(Answer::Absent, lives));
            }
            Action::SetExpiry(_) => {
                let Some((_, kind, value)) = there else { return Ok(Answer::Absent) };
                content.insert(key, (next, kind, value));
                Answer::Written(next)
            }
            Action::Read => {
                return Ok(there.map_or(Answer::Absent, |(version, _, value)| Answer::Found {
                    version,
                    value,
                }));
            }
            Action::Write(value) | Action::WriteExpiring(value, _) => {
                content.insert(key, (next, ValueKind::Bytes, value));
                Answer::Written(next)
            }
            Action::Delete => {
                return Ok(content.remove(&key).map_or(Answer::Absent, |it| Answer::Deleted(it.0)));
            }
            Action::Increment(by) => {
                let old = there.map(|(_, kind, value)| Number::of_value(kind, &value));
                let number = match (old, by) {
                    (None, by) => by,
                    (Some(Some(Number::Integer(old))), Number::Integer(by)) => {
                        Number::Integer(old + by)
                    }
                    (Some(Some(Number::Float(old))), Number::Float(by)) => Number::Float(old + by),
                    _ => return Err(Error::NotANumber { version }),
                };
                content.insert(key, number_at(next, number));
                Answer::Sum { version: next, number }
            }
            Action::WriteNumber(number) | Action::WriteNumberExpiring(number, _) => {
                content.insert(key, number_at(next, number));
                Answer::Written(next)
            }
            Action::Page { .. } => return Err(Error::Incomprehensible),
        };
        self.times_to_live.extend(time_to_live.map(|time| (place, time)));
        self.version += 1;
        Ok(answer)
    }

    /// Fills a table.
    pub(crate) fn fill(&mut self, table: &str, objects: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let id = self.table(table).unwrap();
        for (key, value) in objects {
            let (condition, action) = (Condition::Always, Action::Write(value.clone()));
            let operation = Operation { table: id, key: key.clone(), condition, action };
            self.operate(operation).unwrap();
        }
    }

    /// Returns the contents of a table.
    pub(crate) fn content(&mut self, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let id = self.table(table).unwrap();
        let content = self.content_mut(id).unwrap().clone();
        content.into_iter().map(|(key, (_, _, value))| (key, value)).collect()
    }
}

impl Store for FakeStore {
    fn create_table(
        &mut self,
        name: &str,
        span: u32,
        options: TableOptions,
    ) -> Result<TableInfo, Failure> {
        if self.info(name).is_ok() {
            return Err(Status::TableExists.into());
        }
        self.made += 1;
        let span = span.min(8);
        let at = |n: u32| (u128::from(n) << 64) / u128::from(span);
        let tablets = (0..span).map(|n| TabletInfo {
            first: KeyHash(at(n) as u64),
            last: KeyHash((at(n + 1) - 1) as u64),
            master: MasterId(u64::from(n) + 1),
            address: Some(address(7071 + n as u16)),
        });
        let info = TableInfo {
            id: TableId(self.made),
            name: name.to_owned(),
            tablets: tablets.collect(),
            since: 0,
            beside: None,
            options,
        };
        self.tables.push((info.clone(), Content::new()));
        Ok(info)
    }

    fn drop_table(&mut self, name: &str) -> Result<(), Failure> {
        self.info(name)?;
        self.tables.retain(|(info, _)| info.name != name);
        Ok(())
    }

    fn tables(&mut self) -> Result<Map, Failure> {
        let tables = self.tables.iter().map(|(info, _)| info.clone()).collect();
        Ok(Map { version: 1, tables, ..Map::default() })
    }

    fn split(&mut self, table: &str, at: KeyHash) -> Result<TableInfo, Failure> {
        let info = self.info(table)?;
        let found = info.tablets.iter().position(|it| it.first < at && at <= it.last);
        let found = found.ok_or_else(|| Failure::from(Status::BadRange))?;
        let second = TabletInfo { first: at, ..info.tablets[found] };
        info.tablets[found].last = KeyHash(at.0 - 1);
        info.tablets.insert(found + 1, second);
        Ok(info.clone())
    }

    fn migrate(&mut self, table: &str, first: KeyHash, to: MasterId) -> Result<TableInfo, Failure> {
        let info = self.info(table)?;
        let found = info.tablets.iter_mut().find(|it| it.first == first);
        found.ok_or_else(|| Failure::from(Status::BadRange))?.master = to;
        Ok(info.clone())
    }

    fn forget_server(&mut self, server: ServerId) -> Result<(), Failure> {
        match server.0 {
            1 => Err(Status::ServerIsUp.into()),
            2 => Ok(()),
            3 => Err(Status::MayBeNeeded.into()),
            _ => Err(Status::NoSuchServer.into()),
        }
    }

    fn change_settings(&mut self, changes: ChangeSettings) -> Result<SettingsChanged, Failure> {
        let ClusterStatus { mut settings, format, programs, .. } = self.status()?;
        let wanted = changes.format.unwrap_or(format);
        let lacking: Vec<_> = programs.into_iter().filter(|it| it.newest < wanted).collect();
        let format = if lacking.is_empty() { wanted } else { format };
        match changes.min_replicas {
            Some(wanted) if wanted > settings.replicas => return Err(Status::BadSetting.into()),
            wanted => settings.min_replicas = wanted.unwrap_or(settings.min_replicas),
        }
        Ok(SettingsChanged { settings, format, lacking })
    }

    fn status(&mut self) -> Result<ClusterStatus, Failure> {
        let server = |id: u64, state| ServerInfo {
            lineages: Vec::new(),
            server: ServerId(id),
            generation: Generation(2),
            state,
            host: "here".to_owned(),
            rack: String::new(),
            shards: vec![ShardInfo { master: MasterId(id), address: address(7070 + id as u16) }],
            backup: Some(BackupInfo {
                address: address(7070 + id as u16),
                read_bytes_per_second: 0,
                place: 0,
            }),
        };
        let servers = vec![server(1, ServerState::Up), server(2, ServerState::Down)];
        let old = if self.is_upgraded { Format(2) } else { Format(1) };
        let program = |program, newest| KnownFormat { program, newest };
        Ok(ClusterStatus {
            format: Format(1),
            programs: vec![
                program(Program::Server(ServerId(1)), Format(2)),
                program(Program::Server(ServerId(2)), old),
                program(Program::Coordinator("here:7070".to_owned()), Format(2)),
            ],
            remarks: Vec::new(),
            cluster: ClusterId(77),
            settings_version: Some(1),
            settings: Settings {
                replicas: 3,
                min_replicas: 1,
                durability: "replicated".to_owned(),
                segment_bytes: 8 << 20,
                self_backup: false,
            },
            servers: ServerList { version: 1, servers, ..ServerList::default() },
            map: self.tables()?,
            leases: 4,
            recoveries: vec![
                RecoveryInfo {
                    crashed: MasterId(2),
                    by: Some(MasterId(1)),
                    trouble: Some("a segment is missing".to_owned()),
                    stage: "rebuilding".to_owned(),
                    partitions: 3,
                    partitions_left: 2,
                    masters: vec![MasterId(1)],
                    bytes: 64 << 20,
                    for_ms: 2345,
                    ..RecoveryInfo::default()
                },
                RecoveryInfo { crashed: MasterId(3), ..RecoveryInfo::default() },
            ],
        })
    }

    fn shard_status(&mut self, address: SocketAddr) -> Result<ShardStatus, Failure> {
        match address.port() {
            7071 => Ok(ShardStatus {
                master: MasterId(1),
                memory_bytes: 1 << 30,
                used_bytes: 512 << 20,
                live_bytes: 256 << 20,
                objects: 1_234_567,
                recovering: Some((1 << 20, 4 << 20)),
                at_risk: Some(AtRisk {
                    segments: 12,
                    bytes: 96 << 20,
                    replicas: 1,
                    for_ms: 35_900,
                    is_blocked: true,
                }),
                remarks: vec!["memory is tight".to_owned()],
                ..ShardStatus::default()
            }),
            _ => Err(Error::TimedOut(Obstacle::NoAnswer).into()),
        }
    }

    fn backup_status(&mut self, _: SocketAddr) -> Result<BackupStatus, Failure> {
        Ok(BackupStatus {
            frames: 100,
            frames_free: 60,
            frames_damaged: 1,
            ..BackupStatus::default()
        })
    }

    fn table(&mut self, name: &str) -> Result<TableId, Failure> {
        self.info(name).map(|info| info.id)
    }

    fn read(&mut self, table: TableId, key: &[u8]) -> Result<Option<(Version, Vec<u8>)>, Error> {
        let found = self.content_mut(table)?.get(key).cloned();
        Ok(found.map(|(version, _, value)| (version, value)))
    }

    fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        let action = Action::Delete;
        match self.operate(Operation { table, key: key.to_vec(), condition, action })? {
            Answer::Deleted(version) => Ok(Some(version)),
            _ => Ok(None),
        }
    }

    fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        let (condition, action) = (Condition::Always, Action::Increment(by));
        match self.operate(Operation { table, key: key.to_vec(), condition, action })? {
            Answer::Sum { version, number } => Ok((version, number)),
            _ => Err(Error::Incomprehensible),
        }
    }

    fn all(&mut self, operations: Vec<Operation>) -> Vec<Result<Answer, Error>> {
        self.batches.push(operations.len());
        let count = operations.len();
        let mut order: Vec<(usize, Operation)> = operations.into_iter().enumerate().collect();
        if self.reverses {
            order.reverse();
        }
        let mut results = vec![Err(Error::Unknown(Obstacle::NoAnswer)); count];
        for (at, operation) in order {
            results[at] = self.operate(operation);
        }
        results
    }

    fn scan(&mut self, table: TableId) -> Objects<'_> {
        let end = self.fails_in_scan.then_some(Err(Error::TimedOut(Obstacle::NoAnswer)));
        match self.content_mut(table) {
            Err(error) => Box::new(std::iter::once(Err(error))),
            Ok(content) => {
                let objects: Vec<_> = content
                    .iter()
                    .map(|(key, (version, kind, value))| {
                        let (key, value) = (key.clone(), value.clone());
                        Ok(Object { version: *version, key, kind: *kind, value })
                    })
                    .collect();
                Box::new(objects.into_iter().chain(end))
            }
        }
    }
}

/// Runs a line of words. Returns its output, notes included, as bytes.
pub(crate) fn run_bytes(
    fake: &mut FakeStore,
    line: &str,
    mut input: &[u8],
) -> Result<Vec<u8>, Failure> {
    let mut words: Vec<OsString> =
        line.split(' ').map(|word| OsString::from_vec(word.as_bytes().to_vec())).collect();
    let json = words.iter().position(|word| word == "--json").map(|at| words.remove(at));
    let command = DataCommand::augment_subcommands(clap::Command::new("x")).no_binary_name(true);
    let matches =
        command.try_get_matches_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    let command = DataCommand::from_arg_matches(&matches)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let agrees = fake.agrees;
    let mut ask = |_: &str| agrees.unwrap_or_default();
    let mut session = Session {
        out: &mut out,
        notes: &mut notes,
        input: Some(&mut input as &mut dyn Read),
        ask: agrees.map(|_| &mut ask as &mut dyn FnMut(&str) -> bool),
        json: json.is_some(),
        progress: false,
    };
    arguments::run(command, fake, &mut session)?;
    // An export's output is compared byte by byte, without the notes.
    if !line.starts_with("export") {
        out.extend(notes);
    }
    Ok(out)
}

/// As `run_bytes`, with the output as text.
pub(crate) fn run_with(fake: &mut FakeStore, line: &str, input: &[u8]) -> Result<String, Failure> {
    let said = run_bytes(fake, line, input)?;
    String::from_utf8(said)
        .map_err(|_| Failure::file("the output", &std::io::ErrorKind::InvalidData.into()))
}

/// As `run_with`, without input.
pub(crate) fn run(fake: &mut FakeStore, line: &str) -> Result<String, Failure> {
    run_with(fake, line, b"")
}
