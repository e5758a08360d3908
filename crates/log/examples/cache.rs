//! A cache without copies that is full and written to: the objects that fit into its memory, and
//! the bytes that its cleaner copies for each written byte.
//!
//! All figures are counts, and no thread is started, so each run of the same code has the same
//! result, however busy the machine is:
//!
//! ```text
//! cargo run --release -p thunderhead-log --example cache             # 256 MB, segments of 2 MB
//! cargo run --release -p thunderhead-log --example cache -- 64 1     # 64 MB, segments of 1 MB
//! ```
//!
//! Keys follow Zipf's law, as in `thunderhead-bench cache`. Their sizes are 23 B. Values have 25 B,
//! or sizes of 0 to 8 KB that follow Zipf's law.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use thunderhead_log::{
    Attributes, Cleaner, Error, Log, LogId, Memory, NoReplication, Options, Step, TableId,
    TabletRange, Usage,
};

const TABLE: TableId = TableId(1);

/// The longest value.
const VALUE_BYTES: u64 = 8 << 10;

/// Writes between two turns.
const WRITES_PER_TURN: u64 = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (memory, segment) = (number(256)?, number(2)?);
    println!("{memory} MB, segments of {segment} MB");
    for sizes in [None, Some(Zipf::new(VALUE_BYTES + 1))] {
        run(memory, segment, sizes)?;
    }
    Ok(())
}

/// Fills a cache, and writes as many objects again twice. Prints the figures of the second time.
fn run(megabytes: usize, segment: usize, sizes: Option<Zipf>) -> Result<(), Error> {
    let memory = Memory::new(megabytes << 20).expect("the memory is possible");
    let options = Options { segment_bytes: segment << 20, value_share: 2, ..Options::default() };
    let log = Log::new(&memory, LogId(1), options, Box::<NoReplication>::default());
    let mut log = log.expect("the memory holds some segments");
    log.create_tablet(TabletRange::whole(TABLE))?;
    log.go_without_copies();
    let cleaner = log.cleaner().expect("it is the first cleaner");
    let per_megabyte = if sizes.is_some() { 1 << 13 } else { 1 << 16 };
    let keys = Zipf::new(megabytes as u64 * per_megabyte);
    let name = if sizes.is_some() { "Zipf 0-8 KB" } else { "25 B" };
    let mut writer = Writer { log, cleaner, keys, sizes, random: Random(1), writes: 0, bytes: 0 };
    while writer.log.usage().evicted == 0 {
        writer.write()?;
    }
    let count = writer.writes;
    (0..count).try_for_each(|_| writer.write())?;
    let (before, bytes) = (writer.log.usage(), writer.bytes);
    (0..count).try_for_each(|_| writer.write())?;
    let (after, bytes) = (writer.log.usage(), writer.bytes - bytes);
    let copied = |it: &Usage| it.survivor_bytes + it.compaction_bytes;
    let objects: u64 = writer.log.statistics().map(|it| it.objects).sum();
    println!(
        "values of {name}: {} objects/MB; {:.1} % of the memory is live, {:.1} % index; {:.2} B \
         copied for each B written; {:.2} objects moved and {:.2} evicted for each write",
        objects / megabytes as u64,
        100.0 * after.live_bytes as f64 / memory.bytes() as f64,
        100.0 * after.index_bytes as f64 / memory.bytes() as f64,
        (copied(&after) - copied(&before)) as f64 / bytes as f64,
        (after.entries_moved - before.entries_moved) as f64 / count as f64,
        (after.evicted - before.evicted) as f64 / count as f64,
    );
    Ok(())
}

struct Writer {
    log: Log,
    cleaner: Cleaner,
    keys: Zipf,
    sizes: Option<Zipf>,
    random: Random,
    writes: u64,
    bytes: u64,
}

impl Writer {
    /// Writes an object. The cleaner does a step if it has to.
    fn write(&mut self) -> Result<(), Error> {
        let rank = self.keys.draw(&mut self.random);
        let key = format!("user{:019}", rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
        let bytes = self.sizes.as_ref().map_or(25, |sizes| sizes.draw(&mut self.random));
        let value = vec![0; bytes as usize];
        let attributes = Attributes { is_cached: true, ..Attributes::NONE };
        let write = |log: &mut Log| log.write(TABLE, key.as_bytes(), &value);
        while let Err(error) = self.log.with_attributes(attributes, write) {
            if error != Error::CleanerBehind {
                return Err(error);
            }
            self.log.turn();
            self.cleaner.step();
            self.log.turn();
        }
        self.writes += 1;
        self.bytes += key.len() as u64 + bytes;
        if self.writes.is_multiple_of(WRITES_PER_TURN) {
            self.log.turn();
            let mut is_due = self.log.wants_cleaning() || self.log.wants_victims();
            while is_due {
                is_due = self.cleaner.step() == Step::Rescanned;
            }
        }
        Ok(())
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    /// Draws a number of at least 0 and less than 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws ranks from 0 by Zipf's law with an exponent of nearly 1: the logarithm of a rank is
/// distributed evenly.
struct Zipf {
    logarithm: f64,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        Zipf { logarithm: (count as f64 + 1.0).ln() }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        (random.fraction() * self.logarithm).exp() as u64 - 1
    }
}
