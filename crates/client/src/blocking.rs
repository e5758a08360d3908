//! A front for a thread that waits: it does the I/O itself, and no other thread is woken on the way.

use crate::core::{CallNumber, Core, Output, Results};
use crate::enumeration::Enumeration;
use crate::error::Error;
use crate::map::TabletMap;
use crate::operation::{Action, Answer, Number, Object, Operation};
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::{CallId, Caller};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::{Condition, TableId, Version};

/// Says where the tablets are.
pub trait MapSource {
    /// The newest map that can be had, or nothing if nobody answers; then it is asked again.
    fn map(&mut self) -> Option<TabletMap>;
}

/// A map that never changes.
impl MapSource for TabletMap {
    fn map(&mut self) -> Option<TabletMap> {
        Some(self.clone())
    }
}

/// A client for one thread.
pub struct Blocking<M> {
    core: Core,
    caller: Caller,
    clock: Clock,
    source: M,
    calls: BTreeMap<CallId, CallNumber>,
    /// How long an operation may take.
    pub deadline: Option<Duration>,
}

/// How long an operation may take, if nobody says otherwise.
const DEADLINE: Duration = Duration::from_secs(10);

impl<M: MapSource> Blocking<M> {
    /// A client for a lease that nobody has used yet, on a caller and the clock of its world.
    pub fn new(
        lease: u64,
        random: Random,
        clock: Clock,
        caller: Caller,
        mut source: M,
    ) -> Blocking<M> {
        let mut core = Core::new(lease, random);
        if let Some(map) = source.map() {
            core.learn(clock.now(), map);
        }
        let (calls, deadline) = (BTreeMap::new(), Some(DEADLINE));
        Blocking { core, caller, clock, source, calls, deadline }
    }

    /// Reads an object; `None` where there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(
        &mut self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<(Version, Vec<u8>)>, Error> {
        match self.operate(table, key, Condition::Always, Action::Read)? {
            Answer::Found { version, value } => Ok(Some((version, value))),
            Answer::Absent => Ok(None),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Writes an object if a condition holds; returns its new version.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn write(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, Error> {
        match self.operate(table, key, condition, Action::Write(value.to_vec()))? {
            Answer::Written(version) => Ok(version),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Deletes an object if a condition holds; returns the version it had, if there was one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<Version>, Error> {
        match self.operate(table, key, condition, Action::Delete)? {
            Answer::Deleted(version) => Ok(Some(version)),
            Answer::Absent => Ok(None),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Adds to a number; returns its new version and the sum.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: Number,
    ) -> Result<(Version, Number), Error> {
        match self.operate(table, key, Condition::Always, Action::Increment(by))? {
            Answer::Sum { version, number } => Ok((version, number)),
            _ => Err(Error::Incomprehensible),
        }
    }

    /// Walks over all objects of a table, in no useful order. One that is there all the time is
    /// told of once; one that comes or goes meanwhile may be told of or not.
    pub fn scan(&mut self, table: TableId) -> Scan<'_, M> {
        let enumeration = Enumeration::new(table);
        Scan { client: self, enumeration, page: Vec::new().into_iter(), failed: false }
    }

    fn operate(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
        action: Action,
    ) -> Result<Answer, Error> {
        let operation = Operation { table, key: key.to_vec(), condition, action };
        let mut results = self.all(vec![operation]);
        results.pop().unwrap_or(Err(Error::Incomprehensible))
    }

    /// Does some operations, which have no order among them, and says what came of each.
    pub fn all(&mut self, operations: Vec<Operation>) -> Results {
        let now = self.clock.now();
        let deadline = self.deadline.map_or(Time::NEVER, |deadline| now + deadline);
        let ticket = self.core.begin(now, operations, deadline);
        loop {
            if let Some((done, results)) = self.core.next_done() {
                debug_assert_eq!(done, ticket, "nothing else is under way");
                return results;
            }
            self.send();
            if self.core.has_done() {
                continue;
            }
            self.take();
        }
    }

    /// Does what the core wants to be done.
    fn send(&mut self) {
        while let Some(output) = self.core.next_output() {
            match output {
                Output::Call { number, to, opcode, body, timeout } => {
                    match self.caller.begin(to, opcode, &[&body], Some(timeout)) {
                        Ok(id) => {
                            self.calls.insert(id, number);
                        }
                        Err(error) => self.core.answered(self.clock.now(), number, Err(error)),
                    }
                }
                Output::Learn => {
                    if let Some(map) = self.source.map() {
                        self.core.learn(self.clock.now(), map);
                    }
                }
            }
        }
    }

    /// Waits for what arrives, spinning a little and then asleep, or for the time that the core
    /// waits for.
    fn take(&mut self) {
        let Blocking { core, caller, clock, calls, .. } = self;
        let until = core.deadline().unwrap_or(Time::NEVER);
        caller.wait_until(until, &mut |id, outcome: Result<&[u8], _>| {
            if let Some(number) = calls.remove(&id) {
                core.answered(clock.now(), number, outcome);
            }
        });
        core.tick(clock.now());
    }
}

/// A walk over all objects of a table. After an error it is at its end.
pub struct Scan<'a, M> {
    client: &'a mut Blocking<M>,
    enumeration: Enumeration,
    page: std::vec::IntoIter<Object>,
    failed: bool,
}

impl<M: MapSource> Iterator for Scan<'_, M> {
    type Item = Result<Object, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            if let Some(object) = self.page.next() {
                return Some(Ok(object));
            }
            let operation = self.enumeration.next()?;
            let answer = self.client.all(vec![operation]).pop();
            let page = answer.unwrap_or(Err(Error::Incomprehensible)).and_then(|answer| {
                self.enumeration.answered(answer).ok_or(Error::Incomprehensible)
            });
            match page {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
