//! The clients' workloads: each is a mixture of kinds of operations.

use super::distribution::Distribution;
use serde::Serialize;
use thunderhead_runtime::Random;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Reads.
    Read,
    /// Writes of objects that exist.
    Write,
    /// Reads and writes.
    Mixed,
    /// Reads of many objects in one message.
    MultiRead,
    /// Writes of many objects in one message.
    MultiWrite,
    /// Increments.
    Increment,
    /// YCSB A: half reads, half updates.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB D: 95 % reads of the latest, 5 % inserts.
    YcsbD,
    /// YCSB F: half reads, half reads followed by a write of the same object.
    YcsbF,
}

/// A kind of operation that is measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A read of one object.
    Read,
    /// A write of one existing object.
    Write,
    /// A write of one new object.
    Insert,
    /// A read of one object, followed by a write of it.
    ReadModifyWrite,
    /// A read of many objects in one message.
    MultiRead,
    /// A write of many objects in one message.
    MultiWrite,
    /// An addition to a number.
    Increment,
}

impl Kind {
    /// Returns its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Insert => "insert",
            Kind::ReadModifyWrite => "read-modify-write",
            Kind::MultiRead => "multi-read",
            Kind::MultiWrite => "multi-write",
            Kind::Increment => "increment",
        }
    }

    /// Whether a message contains many objects.
    #[must_use]
    pub fn is_many(self) -> bool {
        matches!(self, Kind::MultiRead | Kind::MultiWrite)
    }
}

impl Workload {
    /// Every workload.
    pub const ALL: [Workload; 11] = [
        Workload::Read,
        Workload::Write,
        Workload::Mixed,
        Workload::MultiRead,
        Workload::MultiWrite,
        Workload::Increment,
        Workload::YcsbA,
        Workload::YcsbB,
        Workload::YcsbC,
        Workload::YcsbD,
        Workload::YcsbF,
    ];

    /// Returns its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Read => "read",
            Workload::Write => "write",
            Workload::Mixed => "mixed",
            Workload::MultiRead => "multiread",
            Workload::MultiWrite => "multiwrite",
            Workload::Increment => "increment",
            Workload::YcsbA => "ycsb-a",
            Workload::YcsbB => "ycsb-b",
            Workload::YcsbC => "ycsb-c",
            Workload::YcsbD => "ycsb-d",
            Workload::YcsbF => "ycsb-f",
        }
    }

    /// Returns YCSB's distribution for its workloads, and the default for the others.
    #[must_use]
    pub fn distribution(self) -> Distribution {
        match self {
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbF => {
                Distribution::Zipfian
            }
            Workload::YcsbD => Distribution::Latest,
            _ => Distribution::Uniform,
        }
    }

    /// Returns its two kinds of operations, with the share of the first.
    #[must_use]
    pub fn mixture(self, reads: f64) -> Mixture {
        let (share, first, other) = match self {
            Workload::Read | Workload::YcsbC => (1.0, Kind::Read, Kind::Read),
            Workload::Write => (1.0, Kind::Write, Kind::Write),
            Workload::Mixed => (reads, Kind::Read, Kind::Write),
            Workload::MultiRead => (1.0, Kind::MultiRead, Kind::MultiRead),
            Workload::MultiWrite => (1.0, Kind::MultiWrite, Kind::MultiWrite),
            Workload::Increment => (1.0, Kind::Increment, Kind::Increment),
            Workload::YcsbA => (0.5, Kind::Read, Kind::Write),
            Workload::YcsbB => (0.95, Kind::Read, Kind::Write),
            Workload::YcsbD => (0.95, Kind::Read, Kind::Insert),
            Workload::YcsbF => (0.5, Kind::Read, Kind::ReadModifyWrite),
        };
        Mixture { share, first, other }
    }

    /// Whether it writes, so that a log must be cleaned.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Workload::Read | Workload::MultiRead | Workload::YcsbC)
    }
}

/// Two kinds of operations, the first of which has a share.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    share: f64,
    first: Kind,
    other: Kind,
}

impl Mixture {
    /// Draws a kind.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> Kind {
        if self.share >= 1.0 || random.chance(self.share) { self.first } else { self.other }
    }

    /// Returns the kinds that can be drawn.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let other = (self.share < 1.0).then_some(self.other);
        [Some(self.first), other].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixtures_have_the_shares_of_ycsb() {
        let mut random = Random::from_seed(1);
        for (workload, share) in [
            (Workload::YcsbA, 0.5),
            (Workload::YcsbB, 0.95),
            (Workload::YcsbC, 1.0),
            (Workload::YcsbD, 0.95),
            (Workload::YcsbF, 0.5),
            (Workload::Mixed, 0.7),
        ] {
            let mixture = workload.mixture(0.7);
            let draws = 20_000;
            let reads = (0..draws).filter(|_| mixture.draw(&mut random) == Kind::Read).count();
            let deviation = (share * (1.0 - share) / f64::from(draws)).sqrt();
            let found = reads as f64 / f64::from(draws);
            assert!((found - share).abs() <= 5.0 * deviation, "{}: {found}", workload.name());
            assert_eq!(mixture.kinds().count(), if share < 1.0 { 2 } else { 1 });
        }
    }
}
