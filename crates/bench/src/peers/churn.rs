//! Memory while the sizes of objects change: W2 and W8 of Table 1 in the paper on log-structured
//! memory.
//!
//! | | before | deleted | after |
//! | --- | --- | --- | --- |
//! | W2 | 100 B | nothing | 130 B |
//! | W8 | 50 to 150 B | 90 % | 5 to 15 KB |
//!
//! A size is that of a key (30 B) and its value. Each phase writes several times the live bytes,
//! and deletes objects at random to stay within them. One connection keeps requests in flight all
//! the time. Thunderhead gets the memory in which its log would be 90 % full.

use super::crowd::{Crowd, Shape};
use super::process::resident_bytes;
use super::protocol::Act;
use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use crate::log::allocators::{self, Held, Item, WORKLOADS, drive, memory_for};
use crate::log::subject::options_for;
use anyhow::{Context as _, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use thunderhead_load::content::KEY_BYTES;
use thunderhead_load::output::progress;
use thunderhead_load::table::Table;

/// The workloads, by index.
const CHANGING: [(&str, usize); 2] = [("W2", 1), ("W8", 7)];

/// The most resident bytes for each live byte.
const MOST: f64 = 1.45;

/// Requests in flight, and the number that is collected before they are sent.
const DEPTH: usize = 128;
const TOGETHER: usize = 64;

/// The factor of more memory that Thunderhead gets if the objects did not fit, and the number of
/// tries.
const MORE: f64 = 1.02;
const TRIES: usize = 4;

type Queue = Rc<RefCell<VecDeque<(Act, u64, usize)>>>;

/// A store that receives one request after another, without waiting for the answers.
struct Remote<'a> {
    process: u32,
    crowd: Crowd<'a>,
    queue: Queue,
    next: u64,
    cap: u64,
}

impl Remote<'_> {
    fn new(store: &Store, cap: u64) -> Result<Remote<'static>> {
        let queue = Queue::default();
        let own = Rc::clone(&queue);
        let source = move |numbers: &mut Vec<u64>| {
            let (act, number, value_bytes) = own.borrow_mut().pop_front()?;
            numbers.push(number);
            Some((act, value_bytes))
        };
        let shape = Shape::polling(1, DEPTH);
        let crowd = store.crowd(store.tcp(), shape, true, Box::new(source))?;
        Ok(Remote { process: store.process()?, crowd, queue, next: 0, cap })
    }

    fn push(&mut self, act: Act, item: Item) -> Result<()> {
        let value_bytes = item.size() as usize - KEY_BYTES;
        self.queue.borrow_mut().push_back((act, item.name(), value_bytes));
        if self.queue.borrow().len() < TOGETHER {
            return Ok(());
        }
        self.crowd.wake()?;
        while !self.queue.borrow().is_empty() {
            self.crowd.turn(&mut |_, _| {})?;
        }
        Ok(())
    }
}

impl allocators::Store for Remote<'_> {
    fn has_room(&self, payload: u64, more: u64) -> bool {
        payload + more <= self.cap
    }

    fn put(&mut self, size: u64) -> Result<Item> {
        let item = Item::new(self.next, size);
        self.next += 1;
        self.push(Act::Write, item)?;
        Ok(item)
    }

    fn delete(&mut self, item: Item) -> Result<()> {
        self.push(Act::Delete, item)
    }

    fn needed(&self) -> u64 {
        0
    }

    fn next_phase(&mut self) {}

    fn resident_bytes(&self, _own: u64) -> u64 {
        resident_bytes(self.process).unwrap_or(0)
    }
}

fn one(kind: Kind, number: usize, scale: &Scale, memory_bytes: u64) -> Result<Held> {
    let segment_bytes = options_for(scale.live_bytes).segment_bytes as u64;
    let store = Store::start(kind, Wanted { segment_bytes, ..Wanted::memory(memory_bytes) })?;
    let mut remote = Remote::new(&store, scale.live_bytes)?;
    let held = drive(&mut remote, WORKLOADS[number], scale.live_bytes, scale.churn, 0)?;
    remote.crowd.finish()?;
    Ok(held)
}

/// Measures Thunderhead with as little memory as possible.
fn ours(number: usize, scale: &Scale) -> Result<(Held, f64)> {
    let mut memory = memory_for(WORKLOADS[number], scale.live_bytes, 0.9) as f64;
    let mut more = 1.0;
    for _ in 1..TRIES {
        match one(Kind::Thunderhead, number, scale, memory as u64) {
            Ok(held) => return Ok((held, more)),
            Err(error) => progress(&format!("  it gets more memory: {error:#}")),
        }
        memory *= MORE;
        more *= MORE;
    }
    Ok((one(Kind::Thunderhead, number, scale, memory as u64)?, more))
}

/// Measures all stores.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        &format!(
            "Memory while sizes change, {} MB live: resident bytes / bytes of live keys and values",
            scale.live_bytes >> 20
        ),
        &["workload", "store", "at most", "in the end", "K operations/s"],
    );
    for (name, number) in CHANGING {
        let mut row = |kind: Kind, held: &Held| {
            table.row(&[
                name.to_owned(),
                kind.name().to_owned(),
                format!("{:.2}", held.per_byte()),
                format!("{:.2}", held.end_bytes as f64 / held.end_payload_bytes.max(1) as f64),
                format!("{:.0}", held.operations_per_second / 1e3),
            ]);
        };
        progress(&format!("{name}: Thunderhead"));
        let (held, more) = ours(number, scale).with_context(|| format!("{name} of Thunderhead"))?;
        row(Kind::Thunderhead, &held);
        let mut what = format!(
            "{name}, {:.0} K operations/s: resident bytes for each live byte of keys and values",
            held.operations_per_second / 1e3
        );
        if more > 1.0 {
            what += &format!(" ({:.0} % more memory than 90 % takes)", (more - 1.0) * 100.0);
        }
        report.rows.at_most(&what, MOST, held.per_byte(), "×");
        for kind in kinds.iter().filter(|it| it.is_redis()) {
            progress(&format!("{name}: {}", kind.name()));
            let held = one(*kind, number, scale, 0)?;
            row(*kind, &held);
            let what = format!("  the same of {}", kind.name());
            report.rows.reported(&what, held.per_byte(), "×");
        }
        if kinds.contains(&Kind::Memcached) {
            progress(&format!("{name}: memcached"));
            memcached(name, number, scale, &mut table, report)?;
        }
    }
    report.table(table);
    Ok(())
}

/// Measures memcached, which forgets objects that do not fit its classes of sizes. Only the objects
/// that it still has count. It gets as much memory as Thunderhead.
fn memcached(
    name: &str,
    number: usize,
    scale: &Scale,
    table: &mut Table,
    report: &mut Report,
) -> Result<()> {
    let memory_bytes = memory_for(WORKLOADS[number], scale.live_bytes, 0.9);
    let store = Store::start(Kind::Memcached, Wanted::memory(memory_bytes))?;
    let mut remote = Remote::new(&store, scale.live_bytes)?;
    let held = drive(&mut remote, WORKLOADS[number], scale.live_bytes, scale.churn, 0)?;
    remote.crowd.finish()?;
    let stats = store.command(&["stats"])?;
    let count = |name| stat(&stats, name).unwrap_or(0);
    let evicted = count("evictions") + count("store_no_memory");
    // Its own count includes its overhead for each object.
    let kept = count("curr_items");
    table.row(&[
        name.to_owned(),
        format!("memcached, {kept} objects kept, {evicted} evicted or refused"),
        format!("{:.2}", held.per_byte()),
        format!("{:.2}", held.end_bytes as f64 / held.end_payload_bytes.max(1) as f64),
        format!("{:.0}", held.operations_per_second / 1e3),
    ]);
    let what = format!(
        "  {name}: objects that memcached evicted or refused with as much memory as Thunderhead"
    );
    report.rows.reported(&what, evicted as f64, "");
    Ok(())
}

/// Returns a statistic of memcached.
fn stat(stats: &str, name: &str) -> Option<u64> {
    stats.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = words.next() == Some("STAT") && words.next() == Some(name);
        words.next().filter(|_| found)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcacheds_statistics_are_parsed() {
        let stats = "STAT pid 3\r\nSTAT evictions 17\r\nEND\r\n";
        assert_eq!(stat(stats, "evictions"), Some(17));
        assert_eq!(stat(stats, "curr_items"), None);
        assert_eq!(stat("STAT evictions x", "evictions"), None);
    }
}
