//! A log under test: filled to a given utilization, then overwritten.

use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thunderhead_load::content::{KEY_BYTES, key};
use thunderhead_load::machine;
use thunderhead_log::{
    CleanerThreads, Condition, Log, LogId, Memory, NoReplication, Options, Put, Replicator,
    TabletRange, Usage,
};
use thunderhead_runtime::Random;
use thunderhead_wire::TableId;

/// The table of all objects.
pub const TABLE: TableId = TableId(1);

/// The content of a log, and the utilization of its memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of live entries.
    pub live_bytes: u64,
    /// Live entries as a share of the memory that segments may use.
    pub utilization: f64,
    /// The log's options.
    pub options: Options,
    /// Cleaner threads beside the writer.
    pub cleaners: usize,
}

impl Plan {
    fn objects(&self) -> u64 {
        self.live_bytes / entry_bytes(self.value_bytes)
    }

    /// Returns the memory for the log at this utilization and the index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let log_bytes = (self.live_bytes as f64 / self.utilization) as u64;
        log_bytes + index_bytes(self.objects(), log_bytes)
    }
}

/// Returns the bytes of an index of `objects` objects beside a log of `log_bytes`. References are
/// shorter in a memory of up to 4 GiB; a little more memory than planned must not exceed that.
#[must_use]
pub fn index_bytes(objects: u64, log_bytes: u64) -> u64 {
    const SOME_MORE: u64 = 2 << 20;
    const A_LITTLE: u64 = 256 << 20;
    let short = objects * 10 + SOME_MORE;
    if log_bytes + short + A_LITTLE <= 4 << 30 { short } else { objects * 29 / 2 + SOME_MORE }
}

/// Returns options that suit this much live data: at least a hundred segments, better five hundred.
/// The papers' servers, of 16 GB and with 8 MB segments, had even more.
#[must_use]
pub fn options_for(live_bytes: u64) -> Options {
    let segment_bytes = match live_bytes {
        SMALL.. if live_bytes < 2 << 30 => 2 << 20,
        SMALL.. => 8 << 20,
        _ => 1 << 20,
    };
    Options { segment_bytes, ..Options::default() }
}

/// Below this, seglets are smaller too.
const SMALL: u64 = 256 << 20;

/// Returns a memory for this much live data, with every page touched.
///
/// # Errors
/// When the memory cannot be allocated.
pub fn memory_for(bytes: u64, live_bytes: u64) -> Result<Arc<Memory>> {
    let memory = if live_bytes < SMALL {
        Memory::with_seglets(bytes as usize, 16 << 10)?
    } else {
        Memory::new(bytes as usize)?
    };
    memory.populate(&mut |_| true);
    Ok(memory)
}

/// Refuses values that do not fit a log with these options, and too few objects for a meaningful
/// result. `flag` is the option that sets `bytes`.
///
/// # Errors
/// When the size, or the bytes, must be changed.
pub fn check_size(value_bytes: usize, bytes: u64, options: &Options, flag: &str) -> Result<()> {
    let most = options.value_bytes_max();
    ensure!(
        value_bytes <= most,
        "--sizes is {value_bytes}; with {flag} {bytes} it must be at most {most}"
    );
    let least = OBJECTS_MIN * entry_bytes(value_bytes);
    ensure!(
        (least..=1 << 46).contains(&bytes),
        "{flag} is {bytes}; with values of {value_bytes} bytes it must be {least} to {}",
        1u64 << 46
    );
    Ok(())
}

/// Fewer objects give no meaningful result.
pub const OBJECTS_MIN: u64 = 256;

/// A log that holds `objects` objects.
pub struct Subject {
    /// The log.
    pub log: Log,
    /// The number of objects that it holds.
    pub objects: u64,
    value: Vec<u8>,
    _cleaners: CleanerThreads,
}

/// The results of a run of overwrites.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Writes a second.
    pub writes: f64,
    /// Bytes of new entries a second.
    pub bytes: f64,
    /// Bytes that combined cleaning wrote to backups, for each byte of new entries.
    pub cleaner_bytes: f64,
    /// Cores that cleaners kept busy.
    pub cleaner_cores: f64,
}

/// Returns the bytes that an object takes in the log and, on average, in the index.
#[must_use]
pub fn entry_bytes(value_bytes: usize) -> u64 {
    // Flags, checksum, length, table, version, birth, prior, key length: see docs/format.md.
    let header = 12 + if value_bytes + KEY_BYTES > 110 { 1 } else { 0 };
    (header + KEY_BYTES + value_bytes) as u64
}

impl Subject {
    /// Fills a log as planned.
    ///
    /// # Errors
    /// When the memory cannot be allocated or the options do not fit it.
    pub fn new(plan: &Plan, replicator: Box<dyn Replicator>) -> Result<Subject> {
        let mut subject = Subject::prepared(plan, replicator)?;
        subject.fill()?;
        Ok(subject)
    }

    /// Writes every object once.
    ///
    /// # Errors
    /// As [`Subject::write`].
    pub fn fill(&mut self) -> Result<()> {
        for first in (0..self.objects).step_by(thunderhead_log::BATCH) {
            let last = (first + thunderhead_log::BATCH as u64).min(self.objects);
            self.write_batch(&(first..last).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Returns a log as planned, before it is filled.
    ///
    /// # Errors
    /// As [`Subject::new`].
    pub fn empty(plan: &Plan) -> Result<Subject> {
        Subject::prepared(plan, Box::new(NoReplication::default()))
    }

    /// Like [`Subject::empty`], with a replicator.
    ///
    /// # Errors
    /// As [`Subject::new`].
    pub fn prepared(plan: &Plan, replicator: Box<dyn Replicator>) -> Result<Subject> {
        let objects = plan.objects();
        let memory = memory_for(plan.memory_bytes(), plan.live_bytes)?;
        let mut log = Log::new(&memory, LogId(7), plan.options.clone(), replicator)
            .with_context(|| format!("{objects} objects are too few to make a log for"))?;
        log.create_tablet(TabletRange::whole(TABLE)).context("creating the table")?;
        let cleaners =
            CleanerThreads::start(&log, plan.cleaners, |number| machine::pin(1 + number));
        machine::pin(0);
        let value = vec![7; plan.value_bytes];
        Ok(Subject { log, objects, value, _cleaners: cleaners })
    }

    /// Like [`Subject::new`], without replication: backups of unlimited speed.
    ///
    /// # Errors
    /// As [`Subject::new`].
    pub fn unreplicated(plan: &Plan) -> Result<Subject> {
        Subject::new(plan, Box::new(NoReplication::default()))
    }

    /// Writes one object, and waits for the cleaners if necessary.
    ///
    /// # Errors
    /// When the log refuses the write permanently.
    #[inline]
    pub fn write(&mut self, number: u64) -> Result<()> {
        loop {
            match self.log.write(TABLE, &key(number), &self.value) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_transient() => {
                    self.log.turn();
                    // Retrying at once would only disturb the cleaner.
                    (0..20).for_each(|_| std::hint::spin_loop());
                }
                Err(error) => bail!("object {number} of {}: {error}", self.objects),
            }
        }
    }

    /// Writes a batch of objects.
    ///
    /// # Errors
    /// As [`Subject::write`].
    pub fn write_batch(&mut self, numbers: &[u64]) -> Result<()> {
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        let puts: Vec<Put<'_>> = keys
            .iter()
            .map(|key| Put { table: TABLE, key, value: &self.value, condition: Condition::Always })
            .collect();
        let again = write_all(&mut self.log, &puts)
            .with_context(|| format!("writing some of {} objects", self.objects))?;
        again.into_iter().try_for_each(|at| self.write(numbers[at]))
    }

    /// Overwrites objects that `draw` chooses for a time, and measures the second half of it. By
    /// then the cleaners' work has settled.
    ///
    /// # Errors
    /// As [`Subject::write`].
    pub fn overwrite(
        &mut self,
        warm_up: Duration,
        time: Duration,
        batched: bool,
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<Throughput> {
        self.overwrite_for(warm_up, batched, draw)?;
        let (before, cpu, own) =
            (self.log.usage(), machine::process_time(), machine::thread_time());
        let began = Instant::now();
        let writes = self.overwrite_for(time, batched, draw)?;
        let took = began.elapsed().as_secs_f64();
        let cpu = (machine::process_time() - cpu).saturating_sub(machine::thread_time() - own);
        let after: Usage = self.log.usage();
        let bytes = writes as f64 * entry_bytes(self.value.len()) as f64;
        Ok(Throughput {
            writes: writes as f64 / took,
            bytes: bytes / took,
            cleaner_bytes: (after.survivor_bytes - before.survivor_bytes) as f64 / bytes,
            cleaner_cores: cpu.as_secs_f64() / took,
        })
    }

    fn overwrite_for(
        &mut self,
        time: Duration,
        batched: bool,
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<u64> {
        let began = Instant::now();
        let mut writes = 0;
        let mut numbers = [0u64; 64];
        while began.elapsed() < time {
            for _ in 0..8 {
                numbers.fill_with(&mut *draw);
                if batched {
                    self.write_batch(&numbers)?;
                } else {
                    numbers.iter().try_for_each(|number| self.write(*number))?;
                }
                writes += numbers.len() as u64;
            }
        }
        Ok(writes)
    }
}

/// Draws every object with the same probability.
pub fn uniform(objects: u64, seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::from_seed(seed);
    move || random.below(objects)
}

/// Draws so that 90 % of the writes go to 15 % of the objects, by Zipf's law over all of them: the
/// papers' measure of locality.
pub fn zipfian(objects: u64, seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::from_seed(seed);
    // With the continuous law of exponent s < 1, a share x of the objects gets x^(1-s) of the
    // writes: 0.15^(1-s) = 0.9.
    let exponent = 1.0 / (0.9f64.ln() / 0.15f64.ln());
    move || {
        let rank = (random.fraction().powf(exponent) * objects as f64) as u64;
        // Objects of similar popularity must not be neighbours in the log.
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % objects
    }
}

/// Writes a batch; returns the places of the writes to repeat because the cleaners are behind.
pub(super) fn write_all(log: &mut Log, puts: &[Put<'_>]) -> Result<Vec<usize>> {
    let (mut again, mut refused) = (Vec::new(), None);
    log.write_batch(puts, |at, result| match result {
        Ok(_) => {}
        Err(error) if error.is_transient() => again.push(at),
        Err(error) => refused = Some(error),
    });
    match refused {
        Some(error) => bail!("a write is refused: {error}"),
        None => Ok(again),
    }
}
