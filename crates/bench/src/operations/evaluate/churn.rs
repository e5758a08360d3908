//! The memory bound: objects of changing sizes, in a memory that is 90 % full, for a long time.
//!
//! The phases are those of the last workload of the paper's Table 1: small objects until twice the
//! live data has been written, with random deletes to stay within the live data; then nine tenths
//! of them are deleted; then large objects, and so on. Everything goes through the shard in
//! messages of many. The process's resident memory is checked continuously. A store that gets 100
//! GB of new data in a day gets as much in ten minutes at 170 MB/s; the row reports the amount.

use super::super::target::Own;
use super::Scale;
use crate::log::subject::{TABLE, entry_bytes};
use crate::requirements::Rows;
use crate::rpc::floors::PATIENCE;
use crate::rpc::subject::caller;
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::content::key;
use thunderhead_load::machine;
use thunderhead_rpc::{Caller, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::operations::{
    IDENTITY_BYTES, Identity, ObjectHead, PartHead, UpdateKind, UpdatePart,
};
use thunderhead_wire::{Condition, Sequence, Status};
use zerocopy::IntoBytes;

/// Sizes of values, phase after phase.
const SIZES: [(u64, u64); 2] = [(50, 150), (5_000, 15_000)];

/// The target utilization, and the utilization that must be reached. The index takes more memory
/// for each object at some sizes of a table than at others. When the shard reports that memory is
/// full, a little less data is live from then on, and the row reports how much that was.
const UTILIZATION: f64 = 0.9;
const UTILIZATION_MIN: f64 = 0.8;

/// Updates in a message, and bytes of them.
const PARTS: usize = 64;
const MESSAGE_BYTES: usize = 128 << 10;

/// The generator's pause when the shard is too busy: shorter than the shard asks for.
const PAUSE: Duration = Duration::from_micros(100);

/// The interval at which resident memory is checked.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Copy)]
struct Item {
    number: u64,
    bytes: u32,
}

/// The observations of a run.
#[derive(Default)]
struct Seen {
    peak_bytes: u64,
    written_bytes: u64,
    phases: u64,
    busy: u64,
}

struct Churn {
    caller: Caller,
    address: SocketAddr,
    items: Vec<Item>,
    /// Bytes of live objects, index included.
    live: u64,
    limit: u64,
    limit_min: u64,
    next: u64,
    random: Random,
    message: Vec<u8>,
    /// The updates of the next message.
    waiting: Vec<(UpdateKind, Item)>,
    value: Vec<u8>,
    own_bytes: u64,
    next_look: Instant,
    seen: Seen,
}

fn bytes_of(item: Item) -> u64 {
    // The object's share of the index, as `evaluate log` measures it, and a byte for long objects.
    entry_bytes(item.bytes as usize) + 16
}

impl Churn {
    fn put(&mut self, kind: UpdateKind, item: Item) -> Result<()> {
        self.waiting.push((kind, item));
        let bytes: usize = self.waiting.iter().map(|(_, item)| 70 + item.bytes as usize).sum();
        if self.waiting.len() >= PARTS || bytes > MESSAGE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Returns the number of waiting updates for the next message. After memory was full, thousands
    /// of deletes wait.
    fn next_message(&self) -> usize {
        let mut bytes = 0;
        let fits = self.waiting.iter().take(PARTS).take_while(|(_, item)| {
            bytes += 70 + item.bytes as usize;
            bytes <= 2 * MESSAGE_BYTES
        });
        fits.count().max(1)
    }

    /// Sends the waiting updates, and repeats those for which the shard was too busy.
    fn flush(&mut self) -> Result<()> {
        while !self.waiting.is_empty() {
            let count = self.next_message();
            let mut batch: Vec<_> = self.waiting.drain(..count).collect();
            let Churn { message, value, .. } = self;
            message.clear();
            message.extend_from_slice(Identity::NONE.as_bytes());
            debug_assert_eq!(message.len(), IDENTITY_BYTES);
            for (kind, item) in &batch {
                let key = key(item.number);
                let head = &ObjectHead::new(TABLE, key.len(), Condition::Always, 0);
                let argument = match kind {
                    UpdateKind::Write => &value[..item.bytes as usize],
                    _ => &[],
                };
                UpdatePart { head, kind: *kind, key: &key, argument }.put(Sequence::NONE, message);
            }
            let (mut rest, mut full) = (Vec::new(), false);
            let take = |mut body: &[u8]| {
                for part in batch.drain(..) {
                    let Some((head, _, behind)) = PartHead::take(body) else { return false };
                    body = behind;
                    match Status::of_code(head.status()) {
                        Some(Status::Ok) => {}
                        Some(status) if status.is_busy() => rest.push(part),
                        Some(Status::NoSpace) => {
                            full = true;
                            rest.push(part);
                        }
                        _ => return false,
                    }
                }
                body.is_empty()
            };
            let timeout = Some(PATIENCE);
            let opcode = Opcode::UpdateMany;
            let is_right = self.caller.call(self.address, opcode, &[message], timeout, take)?;
            ensure!(is_right, "a message of many updates got a wrong answer");
            if full {
                self.make_room(rest)?;
            } else if !rest.is_empty() {
                self.seen.busy += rest.len() as u64;
                self.waiting.splice(..0, rest);
                let began = Instant::now();
                while began.elapsed() < PAUSE {
                    std::hint::spin_loop();
                }
            }
            let now = Instant::now();
            if now >= self.next_look {
                self.next_look = now + LOOK;
                let resident = machine::resident_bytes().saturating_sub(self.own_bytes);
                self.seen.peak_bytes = self.seen.peak_bytes.max(resident);
            }
        }
        Ok(())
    }

    /// Reacts to a full shard: less data will be live, and the remaining updates wait behind the
    /// deletes for that.
    fn make_room(&mut self, rest: Vec<(UpdateKind, Item)>) -> Result<()> {
        self.limit -= self.limit / 500;
        ensure!(
            self.limit >= self.limit_min,
            "memory is full although live data is within the required bound: {} bytes, index included",
            self.live
        );
        let is_write = |it: &&(UpdateKind, Item)| it.0 == UpdateKind::Write;
        let unwritten: Vec<u64> =
            rest.iter().chain(&self.waiting).filter(is_write).map(|(_, it)| it.number).collect();
        let is_waiting = |item: &Item| unwritten.contains(&item.number);
        let mut first = Vec::new();
        while self.live > self.limit {
            let at = self.random.below(self.items.len() as u64) as usize;
            // An object that is not written yet cannot be deleted.
            if self.items.get(at).is_some_and(is_waiting) {
                continue;
            }
            let item = self.items.swap_remove(at);
            self.live -= bytes_of(item);
            first.push((UpdateKind::Delete, item));
        }
        first.extend(rest);
        self.waiting.splice(..0, first);
        Ok(())
    }

    fn delete_one(&mut self) -> Result<()> {
        let at = self.random.below(self.items.len() as u64) as usize;
        let item = self.items.swap_remove(at);
        self.live -= bytes_of(item);
        self.put(UpdateKind::Delete, item)
    }

    /// Writes twice the live bytes, in sizes of a range, and finally deletes nine tenths.
    fn phase(&mut self, (least, most): (u64, u64), end: Instant) -> Result<()> {
        let goal = self.seen.written_bytes + 2 * self.limit;
        while self.seen.written_bytes < goal && Instant::now() < end {
            for _ in 0..PARTS {
                let bytes = (least + self.random.below(most - least + 1)) as u32;
                let item = Item { number: self.next, bytes };
                while self.live + bytes_of(item) > self.limit && !self.items.is_empty() {
                    self.delete_one()?;
                }
                self.next += 1;
                self.live += bytes_of(item);
                self.seen.written_bytes += u64::from(bytes);
                self.items.push(item);
                self.put(UpdateKind::Write, item)?;
            }
        }
        let left = self.items.len() / 10;
        while self.items.len() > left {
            self.delete_one()?;
        }
        self.seen.phases += u64::from(self.seen.written_bytes >= goal);
        self.flush()
    }
}

pub(super) fn row(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let memory = scale.churn_bytes;
    // As the log counts: live bytes as a share of all memory, including the index.
    let live_bytes = (memory as f64 * UTILIZATION) as u64;
    let own = Own { live_bytes, ..Own::holding(0, 100, UTILIZATION) };
    let configured = own.memory_bytes();
    let before = machine::resident_bytes();
    let began = Instant::now();
    let outcome = own.beside(Channel::Shm, |address| {
        let most_items = (memory / bytes_of(Item { number: 0, bytes: 50 })) as usize;
        let mut churn = Churn {
            caller: caller(Channel::Shm)?,
            address,
            items: Vec::with_capacity(most_items),
            live: 0,
            limit: (configured as f64 * UTILIZATION) as u64,
            limit_min: (configured as f64 * UTILIZATION_MIN) as u64,
            next: 0,
            random: Random::from_seed(5),
            message: Vec::new(),
            waiting: Vec::new(),
            value: vec![7; SIZES[1].1 as usize],
            own_bytes: before,
            next_look: Instant::now(),
            seen: Seen::default(),
        };
        // The benchmark's own list is touched now, so that it counts as memory from before.
        churn.items.resize(most_items, Item { number: 1, bytes: 1 });
        churn.items.clear();
        churn.own_bytes += (most_items * size_of::<Item>()) as u64;
        let end = Instant::now() + scale.churn;
        for phase in 0.. {
            if Instant::now() >= end {
                break;
            }
            churn.phase(SIZES[phase % 2], end)?;
        }
        Ok((churn.seen, churn.limit))
    });
    let (seen, limit) = match outcome {
        Ok(done) => done,
        Err(error) => {
            let what = "memory bound, sizes that change at 90 % full";
            rows.add(what, "≤ 1.05 ×".into(), format!("{error:#}"), false);
            return Ok(());
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    let what = format!(
        "memory bound, sizes that change at {:.1} % full, {seconds:.0} s, {:.1} GB written in {} \
         phases, {} times busy: process against configured memory ({} MB)",
        limit as f64 / configured as f64 * 100.0,
        seen.written_bytes as f64 / 1e9,
        seen.phases,
        seen.busy,
        configured / 1_000_000
    );
    if seen.phases < SIZES.len() as u64 {
        // Memory was not filled with each of the sizes, so the requirement is not met.
        rows.add(&what, "≤ 1.05 ×".into(), "not reached: give it --minutes".into(), false);
    } else {
        rows.at_most(&what, 1.05, seen.peak_bytes as f64 / configured as f64, "×");
    }
    Ok(())
}
