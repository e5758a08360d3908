//! The core of all clients, in Rust: the same work as the programs in other languages do.

use super::task::{Mode, Task, Work};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::SocketAddr;
use std::time::Instant;
use thunderhead_client::{
    Action, Answer, Client, CompletionQueue, Condition, Operation, Options, Outcome, Request,
    Submission, TableId,
};
use thunderhead_load::channel::Channel;
use thunderhead_runtime::polling::Polling;

/// Bytes of each value.
pub const VALUE_BYTES: usize = 100;

/// The number of keys: `key0`, `key1` and so on.
pub const KEYS: usize = 100;

/// A client that waits, and a queue.
pub struct Core {
    client: Client,
    queue: CompletionQueue,
    table: TableId,
    keys: Vec<Vec<u8>>,
    value: Vec<u8>,
}

impl Core {
    /// Connects, and writes an object under each key. `polling` is the setting of the client that
    /// waits, and that of the queue.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn connect(
        coordinator: SocketAddr,
        table: &str,
        channel: Channel,
        polling: [Polling; 2],
    ) -> Result<Core> {
        let [sync, queue] = polling.map(|polling| {
            let mut options = Options { polling, ..Options::new([coordinator]) };
            options.net.shared_memory = channel == Channel::Shm;
            options
        });
        let mut client = Client::connect(&sync).context("connect")?;
        let queue = CompletionQueue::connect(&queue).context("connect a queue")?;
        let table = client.table(table).context("find the table")?;
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|at| format!("key{at}").into_bytes()).collect();
        let value = vec![b'v'; VALUE_BYTES];
        for written in client.put_many(table, keys.iter().map(|key| (key, value.clone()))) {
            written.context("write an object")?;
        }
        Ok(Core { client, queue, table, keys, value })
    }

    /// Does a round of operations, and returns the nanoseconds of each.
    ///
    /// # Errors
    /// When an operation fails.
    pub fn round(&mut self, mode: Mode, task: Task, count: u64) -> Result<f64> {
        let began = Instant::now();
        match (task.work, mode) {
            (Work::Get, Mode::Sync) => self.gets(count)?,
            (Work::Put, Mode::Sync) => self.puts(count)?,
            (Work::GetMany, Mode::Sync) => self.get_many(count / task.width)?,
            (Work::PutMany, Mode::Sync) => self.put_many(count / task.width)?,
            (Work::Get | Work::GetInFlight, _) => self.in_flight(false, task.width, count)?,
            (Work::Put | Work::PutInFlight, _) => self.in_flight(true, task.width, count)?,
            (Work::GetMany, Mode::Async) => self.batches(false, count / task.width)?,
            (Work::PutMany, Mode::Async) => self.batches(true, count / task.width)?,
        }
        Ok(began.elapsed().as_nanos() as f64 / count as f64)
    }

    fn gets(&mut self, count: u64) -> Result<()> {
        let key = self.keys.first().context("there is a key")?;
        for _ in 0..count {
            let bytes = self.client.get_with(self.table, key, |found| found.map(|it| it.1.len()));
            ensure!(bytes? == Some(VALUE_BYTES), "an object is not there");
        }
        Ok(())
    }

    fn puts(&mut self, count: u64) -> Result<()> {
        let key = self.keys.first().context("there is a key")?;
        for _ in 0..count {
            self.client.put(self.table, key, &self.value, Condition::Always)?;
        }
        Ok(())
    }

    fn get_many(&mut self, calls: u64) -> Result<()> {
        for _ in 0..calls {
            for found in self.client.get_many(self.table, &self.keys) {
                ensure!(found?.is_some(), "an object is not there");
            }
        }
        Ok(())
    }

    fn put_many(&mut self, calls: u64) -> Result<()> {
        for _ in 0..calls {
            let objects = self.keys.iter().map(|key| (key, self.value.clone()));
            for written in self.client.put_many(self.table, objects) {
                written?;
            }
        }
        Ok(())
    }

    fn operation(&self, writes: bool, key: u64) -> Operation {
        let key = self.keys.get(key as usize % KEYS).cloned().unwrap_or_default();
        let action = if writes { Action::Write(self.value.clone()) } else { Action::Read };
        Operation { table: self.table, key, condition: Condition::Always, action }
    }

    fn submission(&self, writes: bool, key: u64) -> Submission {
        let request = Request::Operations(vec![self.operation(writes, key)]);
        Submission { tag: key, request, deadline: None }
    }

    /// Has `width` operations in flight: begins another one for each that ended.
    fn in_flight(&mut self, writes: bool, width: u64, count: u64) -> Result<()> {
        self.queue.submit((0..width).map(|key| self.submission(writes, key)).collect())?;
        let (mut begun, mut ended) = (width, 0);
        while ended < count {
            let taken = self.wait()?;
            ended += taken.len() as u64;
            let more = (count - begun).min(taken.len() as u64);
            begun += more;
            let keys = taken.iter().take(more as usize);
            let next: Vec<Submission> = keys.map(|key| self.submission(writes, *key)).collect();
            if !next.is_empty() {
                self.queue.submit(next)?;
            }
        }
        Ok(())
    }

    fn batches(&mut self, writes: bool, calls: u64) -> Result<()> {
        for _ in 0..calls {
            let operations = (0..KEYS as u64).map(|key| self.operation(writes, key)).collect();
            let request = Request::Operations(operations);
            self.queue.submit(vec![Submission { tag: 0, request, deadline: None }])?;
            while self.wait()?.is_empty() {}
        }
        Ok(())
    }

    /// Waits until the queue has completions. Checks them, and returns their tags.
    fn wait(&self) -> Result<Vec<u64>> {
        let descriptor = self.queue.descriptor();
        // An interrupted wait is repeated by the caller, as nothing was taken.
        let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
        let mut tags = Vec::new();
        for completion in self.queue.take(usize::MAX) {
            let Outcome::Operations(results) = completion.outcome else {
                bail!("the queue answers a question")
            };
            for result in results {
                match result? {
                    Answer::Found { .. } | Answer::Written(_) => {}
                    other => bail!("an operation has the answer {other:?}"),
                }
            }
            tags.push(completion.tag);
        }
        Ok(tags)
    }
}
