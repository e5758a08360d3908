//! Figures 13 and 14 of the paper: policies that choose segments for cleaning, simulated.
//!
//! The workload is that of the original LFS study: a disk of fixed size with a given share of live
//! data. Each step overwrites one object, drawn uniformly or hot-and-cold (90 % of the writes to 10
//! % of the objects). When clean segments run out, some segments are cleaned: their live objects
//! are sorted by age and written to new segments. The y axis is LFS's write cost: all bytes read
//! and written for each byte of new data, where a cleaned segment is read whole.
//!
//! The policies differ in the segments that they clean first:
//!
//! | name | formula |
//! | --- | --- |
//! | greedy | 1 − u |
//! | object age | (1 − u) × age of the youngest object / (1 + u): LFS as published |
//! | segment age | (1 − u) × age of the segment / (1 + u): LFS as its simulator must have been |
//! | ours | (1 − u) × age of the segment / u: the cost when live data is in memory anyway |

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::path::PathBuf;
use thunderhead_load::output::{progress, show};
use thunderhead_load::plot::{self, Marks, Panel, Series, save};
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Utilizations of the disk, in percent: 1 to 99, and low enough that some segments stay clean.
    #[arg(long, value_delimiter = ',', default_value = "10,20,30,40,50,60,70,80,90")]
    utilization: Vec<u32>,
    /// Segments of the simulated disk: 32 to 100000.
    #[arg(long, default_value_t = 1000)]
    segments: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the figure.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The policy that chooses segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The emptiest first.
    Greedy,
    /// LFS as published.
    ObjectAge,
    /// LFS with the age of the segment.
    SegmentAge,
    /// The formula that the log uses.
    Ours,
}

impl Policy {
    const ALL: [Policy; 4] = [Policy::Greedy, Policy::ObjectAge, Policy::SegmentAge, Policy::Ours];

    fn name(self) -> &'static str {
        match self {
            Policy::Greedy => "greedy",
            Policy::ObjectAge => "object age",
            Policy::SegmentAge => "segment age",
            Policy::Ours => "ours",
        }
    }

    fn worth(self, utilization: f64, object_age: f64, segment_age: f64) -> f64 {
        let free = 1.0 - utilization;
        match self {
            Policy::Greedy => free,
            Policy::ObjectAge => free * object_age / (1.0 + utilization),
            Policy::SegmentAge => free * segment_age / (1.0 + utilization),
            Policy::Ours => free * segment_age / utilization.max(1e-6),
        }
    }
}

/// One simulated point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Whether 90 % of the writes go to 10 % of the objects.
    pub hot_and_cold: bool,
    /// The policy.
    pub policy: Policy,
    /// Live data as a share of the disk.
    pub utilization: f64,
    /// Bytes read and written for each new byte.
    pub write_cost: f64,
    /// Bytes that cleaning wrote for each new byte.
    pub cleaner_bytes_per_new_byte: f64,
}

/// Objects of a segment.
const SEGMENT_OBJECTS: usize = 128;
/// Segments that one pass cleans, and the number of clean segments at which a pass is due.
const PASS: usize = 16;
const CLEAN_LOW: usize = 4;

/// Segments of a disk: at least two passes, and few enough to rank them in reasonable time.
const SEGMENTS: std::ops::RangeInclusive<usize> = 2 * PASS..=100_000;

/// The place of an object before its first write.
const NOWHERE: u32 = u32::MAX;

#[derive(Default)]
struct Segment {
    objects: Vec<u32>,
    live: usize,
    created: u64,
    youngest: u64,
}

struct Disk {
    policy: Policy,
    segments: Vec<Segment>,
    clean: Vec<usize>,
    head: usize,
    /// For each object: its place, counted through the segments, and the time of its write.
    places: Vec<u32>,
    written: Vec<u64>,
    now: u64,
    new: u64,
    read: u64,
    copied: u64,
}

impl Disk {
    fn new(policy: Policy, segments: usize, objects: usize) -> Disk {
        let mut clean: Vec<usize> = (0..segments).collect();
        let head = clean.pop().unwrap_or_default();
        Disk {
            policy,
            segments: (0..segments).map(|_| Segment::default()).collect(),
            clean,
            head,
            places: vec![NOWHERE; objects],
            written: vec![0; objects],
            now: 0,
            new: 0,
            read: 0,
            copied: 0,
        }
    }

    fn overwrite(&mut self, object: usize) -> Result<()> {
        self.now += 1;
        self.new += 1;
        if self.places[object] != NOWHERE {
            let old = self.places[object] as usize / SEGMENT_OBJECTS;
            self.segments[old].live -= 1;
            self.places[object] = NOWHERE; // Cleaning must not take it for alive.
        }
        self.written[object] = self.now;
        if self.segments[self.head].objects.len() == SEGMENT_OBJECTS {
            // On a nearly full disk a pass may gain less than a segment, and by its formula the
            // next pass may ignore the segments that the first has left. Once each segment could
            // have had its turn, the emptiest are taken, which gathers all free space. If that
            // gains nothing either, the disk is too full.
            let by_worth = self.segments.len().div_ceil(PASS);
            for pass in 0..self.segments.len() + by_worth {
                if self.clean.len() > CLEAN_LOW {
                    break;
                }
                self.clean_some(if pass < by_worth { self.policy } else { Policy::Greedy });
            }
            if self.clean.len() <= CLEAN_LOW {
                bail!("the disk is so full that cleaning frees nothing; lower --utilization");
            }
            self.head = self.open();
        }
        self.append(self.head, object);
        Ok(())
    }

    fn open(&mut self) -> usize {
        let number = self.clean.pop().expect("cleaning leaves clean segments");
        self.segments[number].created = self.now;
        number
    }

    fn append(&mut self, to: usize, object: usize) {
        let segment = &mut self.segments[to];
        self.places[object] = (to * SEGMENT_OBJECTS + segment.objects.len()) as u32;
        segment.objects.push(object as u32);
        segment.live += 1;
        segment.youngest = segment.youngest.max(self.written[object]);
    }

    fn clean_some(&mut self, policy: Policy) {
        let mut ranked: Vec<(f64, usize)> = (0..self.segments.len())
            .filter(|at| *at != self.head && !self.segments[*at].objects.is_empty())
            .map(|at| {
                let segment = &self.segments[at];
                let utilization = segment.live as f64 / SEGMENT_OBJECTS as f64;
                let object_age = (self.now - segment.youngest) as f64;
                let segment_age = (self.now - segment.created) as f64;
                (policy.worth(utilization, object_age, segment_age), at)
            })
            .collect();
        let pass = PASS.min(ranked.len());
        ranked.select_nth_unstable_by(pass - 1, |a, b| b.0.total_cmp(&a.0));
        let mut survivors: Vec<u32> = Vec::new();
        for (_, at) in &ranked[..pass] {
            let objects = std::mem::take(&mut self.segments[*at].objects);
            if self.segments[*at].live > 0 {
                self.read += SEGMENT_OBJECTS as u64;
            }
            for (slot, object) in objects.into_iter().enumerate() {
                if self.places[object as usize] as usize == at * SEGMENT_OBJECTS + slot {
                    survivors.push(object);
                }
            }
            self.segments[*at] = Segment::default();
            self.clean.push(*at);
        }
        survivors.sort_unstable_by_key(|object| self.written[*object as usize]);
        self.copied += survivors.len() as u64;
        for chunk in survivors.chunks(SEGMENT_OBJECTS) {
            let to = self.open();
            for object in chunk {
                self.append(to, *object as usize);
            }
        }
    }
}

/// Simulates one point until its costs have settled.
///
/// # Errors
/// When the disk is so full that cleaning makes no progress.
pub fn simulate(
    policy: Policy,
    hot_and_cold: bool,
    utilization: f64,
    segments: usize,
    seed: u64,
) -> Result<Point> {
    let capacity = segments * SEGMENT_OBJECTS;
    let objects = (capacity as f64 * utilization) as usize;
    let mut disk = Disk::new(policy, segments, objects);
    (0..objects).try_for_each(|object| disk.overwrite(object))?;
    let mut random = Random::from_seed(seed);
    let hot = (objects / 10).max(1) as u64;
    let mut draw = || {
        if !hot_and_cold {
            random.below(objects as u64)
        } else if random.below(10) < 9 {
            random.below(hot)
        } else {
            hot + random.below(objects as u64 - hot)
        }
    };
    // Ten times the disk to settle, so that cold objects are rewritten at least once; ten more to
    // measure.
    let steps = 10 * capacity;
    (0..steps).try_for_each(|_| disk.overwrite(draw() as usize))?;
    (disk.new, disk.read, disk.copied) = (0, 0, 0);
    (0..steps).try_for_each(|_| disk.overwrite(draw() as usize))?;
    Ok(Point {
        hot_and_cold,
        policy,
        utilization,
        write_cost: (disk.new + disk.read + disk.copied) as f64 / disk.new as f64,
        cleaner_bytes_per_new_byte: disk.copied as f64 / disk.new as f64,
    })
}

impl Arguments {
    /// Refuses invalid options before any simulation.
    fn check(&self) -> Result<()> {
        let segments = self.segments;
        let (least, most) = (SEGMENTS.start(), SEGMENTS.end());
        ensure!(
            SEGMENTS.contains(&segments),
            "--segments is {segments}; it must be {least} to {most}"
        );
        // Clean segments, the head, and one to gain.
        let spare = CLEAN_LOW + 2;
        for percent in &self.utilization {
            let highest = (segments - spare) * 100 / segments;
            ensure!(
                (1..=highest.min(99)).contains(&(*percent as usize)),
                "--utilization is {percent}; with {segments} segments it must be 1 to {highest}, \
                 because {spare} of them cannot be live"
            );
        }
        Ok(())
    }
}

/// Runs the experiment and prints it.
///
/// # Errors
/// When the options are invalid, or the plot cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    plot::check(arguments.plot.as_deref())?;
    let mut points = Vec::new();
    for hot_and_cold in [false, true] {
        for policy in Policy::ALL {
            progress(&format!(
                "{}, {}",
                if hot_and_cold { "hot and cold" } else { "uniform" },
                policy.name()
            ));
            for percent in &arguments.utilization {
                let utilization = f64::from(*percent) / 100.0;
                points.push(simulate(policy, hot_and_cold, utilization, arguments.segments, 1)?);
            }
        }
    }
    let mut table = Table::new(
        "LFS's write cost: bytes read and written for each new byte",
        &["writes", "policy", "full", "write cost", "cleaner/new"],
    );
    for point in &points {
        table.row(&[
            if point.hot_and_cold { "hot-and-cold" } else { "uniform" }.into(),
            point.policy.name().into(),
            format!("{:.0} %", point.utilization * 100.0),
            format!("{:.2}", point.write_cost),
            format!("{:.2}", point.cleaner_bytes_per_new_byte),
        ]);
    }
    // Printed first, so that the results are not lost if the figure cannot be drawn.
    show(arguments.json, &table, &points)?;
    if let Some(path) = &arguments.plot {
        let panel = |hot_and_cold: bool, title: &str| Panel {
            title: title.into(),
            x_label: "disk utilization, %".into(),
            y_label: "write cost".into(),
            marks: Marks::Lines,
            series: Policy::ALL
                .into_iter()
                .map(|policy| Series {
                    name: policy.name().into(),
                    points: points
                        .iter()
                        .filter(|it| it.policy == policy && it.hot_and_cold == hot_and_cold)
                        .map(|point| (point.utilization * 100.0, point.write_cost))
                        .collect(),
                })
                .collect(),
        };
        let panels = [
            panel(false, "Uniform overwrites"),
            panel(true, "Hot and cold: 90 % of the writes to 10 % of the data"),
        ];
        save(path, &panels)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_stays_at_its_last_place() {
        for policy in Policy::ALL {
            let mut disk = Disk::new(policy, 100, 8_000);
            let mut random = Random::from_seed(3);
            (0..8_000).try_for_each(|object| disk.overwrite(object)).unwrap();
            (0..60_000).try_for_each(|_| disk.overwrite(random.below(8_000) as usize)).unwrap();
            let live: usize = disk.segments.iter().map(|segment| segment.live).sum();
            assert_eq!(live, 8_000);
            for (object, place) in disk.places.iter().enumerate() {
                let (at, slot) =
                    (*place as usize / SEGMENT_OBJECTS, *place as usize % SEGMENT_OBJECTS);
                assert_eq!(disk.segments[at].objects[slot] as usize, object);
            }
            assert!(disk.copied > 0 && disk.read >= disk.copied);
        }
    }

    #[test]
    fn a_disk_that_cannot_be_cleaned_is_refused() {
        let check = |segments, utilization| {
            let utilization = vec![utilization];
            Arguments { utilization, segments, json: false, plot: None }.check()
        };
        let bad = [
            (100, 99),
            (100, 100),
            (100, 250),
            (100, 0),
            (10, 90),
            (0, 50),
            (1, 50),
            (99_999_999_999_999, 50),
        ];
        for (segments, utilization) in bad {
            assert!(check(segments, utilization).is_err(), "{segments} {utilization}");
        }
        for (segments, utilization, seeds) in [(100, 94, 1), (32, 81, 10), (32, 1, 1)] {
            check(segments, utilization).unwrap();
            for policy in Policy::ALL {
                for seed in 0..seeds {
                    let utilization = f64::from(utilization) / 100.0;
                    simulate(policy, seed % 2 == 0, utilization, segments, seed).unwrap();
                }
            }
        }
        // A disk that proves too full during the run is refused too.
        assert!(simulate(Policy::Greedy, false, 0.97, 100, 1).is_err());
    }

    #[test]
    fn with_locality_the_age_of_objects_misleads() {
        let cost = |policy| simulate(policy, true, 0.85, 200, 1).unwrap().write_cost;
        assert!(cost(Policy::ObjectAge) > 1.2 * cost(Policy::SegmentAge));
    }
}
