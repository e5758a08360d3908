//! A store for tests.

use super::store::{Change, Database, Found, Kind, PAGES, Refusal, Store};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The objects that one call of `walk` visits.
const VISITED: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    value: Vec<u8>,
    kind: Kind,
    expires: Option<u64>,
    version: u64,
}

/// A store in memory, for tests: its clock stands still, and it refuses on demand.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    databases: BTreeMap<Database, BTreeMap<Vec<u8>, Object>>,
    version: u64,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The number of calls that are answered before one is refused with [`Refusal::NotNow`]. Then
    /// it is `None`: none is refused.
    pub refuses_after: Option<u64>,
    /// The number of calls of [`Store::apply`] that are done before the others are refused with
    /// [`Refusal::NotNow`]; `None` if all are done.
    pub writes_left: Option<u64>,
    /// The bytes of keys and values that fit; `None` if all do.
    pub bytes_max: Option<usize>,
    /// The latest time of expiry of a part that a command found to be gone.
    pub gone_ms: u64,
}

impl Memory {
    /// Returns an empty store at a time.
    #[must_use]
    pub fn new(now_ms: u64) -> Memory {
        Memory { now_ms, ..Memory::default() }
    }

    /// Returns all that does not change with versions: for comparisons.
    #[must_use]
    pub fn content(&self) -> Vec<String> {
        let shown = |(database, objects): (&Database, &BTreeMap<Vec<u8>, Object>)| {
            let database = *database;
            let line = move |(key, it): (&Vec<u8>, &Object)| {
                let (key, value) = (key.escape_ascii(), it.value.escape_ascii());
                format!("{database} {key} {:?} {:?} {value}", it.kind, it.expires)
            };
            objects.iter().map(line).collect::<Vec<_>>()
        };
        self.databases.iter().flat_map(shown).collect()
    }

    fn may_refuse(&mut self) -> Result<(), Refusal> {
        match self.refuses_after {
            Some(0) => {
                self.refuses_after = None;
                return Err(Refusal::NotNow);
            }
            Some(left) => self.refuses_after = Some(left - 1),
            None => {}
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let objects = self.databases.values().flatten();
        objects.map(|(key, object)| key.len() + object.value.len()).sum()
    }

    fn is_expired(&self, object: &Object) -> bool {
        object.expires.is_some_and(|expires| expires <= self.now_ms)
    }

    fn change(&mut self, change: &Change<'_>) {
        self.version += 1;
        let version = self.version;
        match *change {
            Change::Put { database, key, value, kind, expires } => {
                let object = Object { value: value.to_vec(), kind, expires, version };
                self.databases.entry(database).or_default().insert(key.to_vec(), object);
            }
            Change::Remove { database, key } => {
                let removed = self.databases.entry(database).or_default().remove(key);
                assert!(removed.is_some(), "only objects that exist are removed");
            }
            Change::Clear(database) => {
                self.databases.remove(&database);
                self.databases.remove(&(PAGES | database));
            }
            Change::Swap(one, other) => {
                for (one, other) in [(one, other), (PAGES | one, PAGES | other)] {
                    let first = self.databases.remove(&one);
                    let second = self.databases.remove(&other);
                    self.databases.extend(second.map(|objects| (one, objects)));
                    self.databases.extend(first.map(|objects| (other, objects)));
                }
            }
        }
    }
}

impl Store for Memory {
    fn find(
        &mut self,
        database: Database,
        key: &[u8],
        _counts: bool,
    ) -> Result<Option<Found<'_>>, Refusal> {
        self.may_refuse()?;
        let Some(object) = self.databases.get(&database).and_then(|it| it.get(key)) else {
            return Ok(None);
        };
        if self.is_expired(object) {
            return Ok(None);
        }
        let Object { value, kind, expires, version } = object;
        Ok(Some(Found { value, kind: *kind, expires: *expires, version: *version }))
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Refusal> {
        self.may_refuse()?;
        if let Some(left) = &mut self.writes_left {
            *left = left.checked_sub(1).ok_or(Refusal::NotNow)?;
        }
        let before = self.bytes_max.map(|_| self.databases.clone());
        let is_put = |change: &Change<'_>| matches!(change, Change::Put { .. });
        for change in changes {
            self.change(change);
        }
        if let (Some(most), Some(before)) = (self.bytes_max, before)
            && self.bytes() > most
            && changes.iter().any(is_put)
        {
            self.databases = before;
            return Err(Refusal::Full);
        }
        Ok(())
    }

    fn objects(&mut self, database: Database) -> Result<u64, Refusal> {
        self.may_refuse()?;
        Ok(self.databases.get(&database).map_or(0, |objects| objects.len() as u64))
    }

    fn walk(
        &mut self,
        database: Database,
        cursor: u64,
        visit: &mut dyn FnMut(&[u8], &Found<'_>),
    ) -> Result<u64, Refusal> {
        self.may_refuse()?;
        let Some(objects) = self.databases.get(&database) else { return Ok(0) };
        // The cursor is the first bytes of the next key, so objects may come and go.
        let bytes = (cursor << 1).to_be_bytes();
        let begin = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let range = (Bound::Included(bytes[..begin].to_vec()), Bound::Unbounded);
        let mut last = 0;
        for (visited, (key, object)) in objects.range::<Vec<u8>, _>(range).enumerate() {
            let place = place_of(key);
            if visited >= VISITED && place != last {
                return Ok(place);
            }
            last = place;
            if !self.is_expired(object) {
                let Object { value, kind, expires, version } = object;
                visit(key, &Found { value, kind: *kind, expires: *expires, version: *version });
            }
        }
        Ok(0)
    }

    fn note_gone(&mut self, expired: u64) -> Result<(), Refusal> {
        self.may_refuse()?;
        self.gone_ms = self.gone_ms.max(expired);
        Ok(())
    }

    fn places(&self) -> fn(&[u8]) -> u64 {
        place_of
    }

    fn now(&self) -> u64 {
        self.now_ms
    }
}

/// Returns the place of a key in a walk: its first bytes.
fn place_of(key: &[u8]) -> u64 {
    let mut prefix = [0; 8];
    let length = key.len().min(8);
    prefix[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(prefix) >> 1
}
