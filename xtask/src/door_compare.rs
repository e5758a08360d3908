//! `cargo xtask door-compare`: sends the same random commands to a real server and to ours, and
//! compares the raw bytes of all answers.
//!
//! Most complaints about servers that speak another server's protocol are about the shape of a
//! reply: a null of the wrong type, an error with another text, a number as a string. No list of
//! cases finds them all. So sequences come from a seed, and a real server says the right answers.
//!
//! After each sequence the contents of both servers are compared too, and removed. A sequence that
//! differs is shrunk to the commands that the difference needs. Few differences are allowed, by
//! rules with a reason.
//!
//! It does not compare parts of an answer that depend on the time or on the server: `normalize.rs`
//! has the list.

mod administration;
mod allowed;
mod bytes;
mod commands;
mod connection;
mod contest;
mod execute;
mod fill;
mod generate;
mod grammar;
mod memcached;
mod normalize;
mod older;
mod programs;
mod random;
mod redis;
mod reply;
mod report;
mod sequence;
pub(crate) mod servers;
mod shrink;
mod streams;

use crate::scratch::Scratch;
use crate::steps::{run, target};
use anyhow::{Context, Result, bail, ensure};
use commands::{GROUPS, Group};
use contest::{Bounds, Results, contest};
use generate::{Generator, Wanted};
use report::Setting;
use servers::{Kind, Server};
use std::path::{Path, PathBuf};

/// The options of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The protocol.
    door: Door,
    /// The server that is tested instead of ours: an address, or `redis`, `debian`, `valkey` or
    /// `memcached`.
    #[arg(long, value_name = "SERVER")]
    ours: Option<String>,
    /// The real server, named in the same way.
    #[arg(long, value_name = "SERVER")]
    theirs: Option<String>,
    /// The real server is Debian's Redis, an older one.
    #[arg(long, conflicts_with = "theirs")]
    debian: bool,
    /// The seed of all sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first sequence.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many sequences are run.
    #[arg(long, default_value_t = 20_000)]
    sequences: u64,
    /// The most commands of a sequence.
    #[arg(long, default_value_t = 30)]
    commands_per_sequence: usize,
    /// Groups of commands of Redis; a wrong name lists them.
    #[arg(long, value_delimiter = ',')]
    groups: Vec<String>,
    /// Groups that are left out.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Commands that are left out, in capital letters.
    #[arg(long, value_delimiter = ',')]
    except: Vec<String>,
    /// Versions of Redis's protocol.
    #[arg(long, value_delimiter = ',', default_value = "2,3")]
    resp: Vec<u8>,
    /// Distinct differences after which it ends.
    #[arg(long, default_value_t = 10)]
    stop_after: usize,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    Redis,
    Memcached,
}

/// Groups that are not compared with Redis 7.0, because too many of their commands differ. In
/// scripts, 7.0 writes numbers with other digits.
const OF_LATEST: [&str; 4] = ["users", "tracking", "server", "scripts"];

impl Arguments {
    /// Returns the options of a sample of some sequences.
    fn sample(door: Door, sequences: u64) -> Arguments {
        Arguments {
            door,
            ours: None,
            theirs: None,
            debian: false,
            seed: 1,
            first: 0,
            sequences,
            commands_per_sequence: 30,
            groups: Vec::new(),
            without: Vec::new(),
            except: Vec::new(),
            resp: vec![2, 3],
            stop_after: 10,
            json: false,
        }
    }

    fn theirs(&self) -> Result<Kind> {
        match (&self.theirs, self.door) {
            (Some(name), _) => kind(name),
            (None, Door::Redis) if self.debian => Ok(Kind::Debian),
            (None, Door::Redis) => Ok(Kind::Redis),
            (None, Door::Memcached) => Ok(Kind::Memcached),
        }
    }

    fn ours(&self) -> Result<Kind> {
        match (&self.ours, self.door) {
            (Some(name), _) => kind(name),
            (None, Door::Redis) => Ok(Kind::OurRedis),
            (None, Door::Memcached) => Ok(Kind::OurMemcached),
        }
    }

    /// Returns the chosen groups of commands of Redis.
    fn chosen(&self) -> Result<Vec<&'static Group>> {
        let names = || GROUPS.iter().map(|group| group.name).collect::<Vec<_>>().join(", ");
        for name in self.groups.iter().chain(&self.without) {
            let is_known = GROUPS.iter().any(|group| group.name == name);
            ensure!(is_known, "there is no group {name}; the groups are {}", names());
        }
        let is_older = self.theirs()? == Kind::Debian;
        let is_wanted = |group: &&Group| {
            let is_left_out = self.without.iter().any(|name| name == group.name);
            let is_named = self.groups.iter().any(|name| name == group.name);
            let is_usual = group.is_default && !(is_older && OF_LATEST.contains(&group.name));
            !is_left_out && (is_named || (self.groups.is_empty() && is_usual))
        };
        Ok(GROUPS.iter().filter(is_wanted).collect())
    }
}

fn kind(name: &str) -> Result<Kind> {
    Ok(match name {
        "redis" => Kind::Redis,
        "debian" => Kind::Debian,
        "valkey" => Kind::Valkey,
        "memcached" => Kind::Memcached,
        other => Kind::At(other.parse().with_context(|| format!("{other} is no server"))?),
    })
}

/// Compares, prints, and fails if there is a difference.
pub(crate) fn door_compare(arguments: &Arguments) -> Result<()> {
    let program = target().join("debug/thunderhead");
    if matches!(arguments.ours()?, Kind::OurRedis | Kind::OurMemcached) {
        run("cargo", &["build", "--quiet", "--package", "thunderhead"])?;
    }
    compare(arguments, &program)
}

/// Compares a sample, as a step of the full test. `program` is `thunderhead`.
pub(crate) fn check(door: Door, sequences: u64, program: &Path) -> Result<()> {
    compare(&Arguments::sample(door, sequences), &PathBuf::from(program))
}

fn compare(arguments: &Arguments, program: &Path) -> Result<()> {
    ensure!(arguments.commands_per_sequence > 0, "--commands-per-sequence must be at least 1");
    ensure!(
        !arguments.resp.is_empty() && arguments.resp.iter().all(|it| matches!(it, 2 | 3)),
        "--resp takes 2, 3 or both"
    );
    let scratch = Scratch::new("door-compare")?;
    let theirs = Server::start(arguments.theirs()?, program, &scratch)?;
    let ours = Server::start(arguments.ours()?, program, &scratch)?;
    let bounds = Bounds {
        first: arguments.first,
        sequences: arguments.sequences,
        stop_after: arguments.stop_after.max(1),
        shows_progress: !arguments.json,
    };
    let (results, absent, without_rows) = match arguments.door {
        Door::Redis => redis(arguments, &theirs, &ours, bounds)?,
        Door::Memcached => {
            let (seed, most) = (arguments.seed, arguments.commands_per_sequence);
            let mut game = memcached::Memcached::new(seed, most, theirs.address, ours.address)?;
            (contest(&mut game, bounds), Vec::new(), Vec::new())
        }
    };
    let names = if theirs.name == ours.name { " (second)" } else { "" };
    let setting = Setting {
        theirs: theirs.name.clone(),
        ours: format!("{}{names}", ours.name),
        seed: arguments.seed,
        absent,
        without_rows,
        skipped: if arguments.door == Door::Redis { allowed::skipped() } else { Vec::new() },
    };
    if arguments.json {
        println!("{:#}", report::json(&setting, &results));
    } else {
        println!("{}", report::text(&setting, &results));
    }
    match results.findings.len() {
        0 if results.broken.is_none() => Ok(()),
        0 => bail!("the run ended early"),
        count => bail!("{count} differences"),
    }
}

fn redis(
    arguments: &Arguments,
    theirs: &Server,
    ours: &Server,
    bounds: Bounds,
) -> Result<(Results, Vec<String>, Vec<String>)> {
    let is_older = arguments.theirs()? == Kind::Debian;
    let known = redis::known(theirs.address)?;
    let absent = redis::absent(ours.address, &known)?;
    let mut left_out = absent.clone();
    left_out.extend(arguments.except.iter().cloned());
    let wanted = Wanted {
        groups: arguments.chosen()?,
        absent: left_out,
        seed: arguments.seed,
        commands: arguments.commands_per_sequence,
        versions: arguments.resp.clone(),
        is_older,
    };
    let generator = Generator::new(wanted, known)?;
    let without_rows = generator.without_rows();
    let mut duel = execute::Duel::new(theirs.address, ours.address, is_older);
    duel.restart()?;
    let results = contest(&mut redis::Redis { generator, duel }, bounds);
    Ok((results, absent.into_iter().collect(), without_rows))
}
