//! `LATENCY`: how long commands take.
//!
//! - The *monitor* notes commands that took at least `latency-monitor-threshold` milliseconds, as
//!   events `command` and `fast-command`: the longest one of each second.
//! - The *histograms* count the calls of each command by their time, unless `latency-tracking` is
//!   switched off. [`Calls`](super::counts::Calls) has them.
//!
//! The server has no other events. Redis has some for its expiry, its eviction and its files.

use super::commands::{ADMIN, Command, FAST, Group, LOADING, NOSCRIPT, STALE, by_subcommand};
use super::context::{Context, from};
use super::counts::Calls;
use super::parser::Arguments;
use super::server::State;
use super::stop::{Done, Stop};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

pub(super) const COMMANDS: &[Command] = &[Command::new("latency", -2, 0, by_subcommand)
    .subcommands(&[
        Command::new("latency|doctor", 2, ADMIN | NOSCRIPT | LOADING | STALE, latency_doctor)
            .tips(TIPS)
            .about(Group::Server, "2.8.13", "Describes the slow commands, and gives advice."),
        Command::new("latency|graph", 3, ADMIN | NOSCRIPT | LOADING | STALE, latency_graph)
            .tips(TIPS)
            .about(Group::Server, "2.8.13", "Draws the samples of an event."),
        Command::new("latency|reset", -2, ADMIN | NOSCRIPT | LOADING | STALE, latency_reset)
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum"])
            .about(Group::Server, "2.8.13", "Forgets the samples of some events, or of all."),
        Command::new("latency|help", 2, LOADING | STALE, latency_help).about(
            Group::Server,
            "2.8.13",
            "Describes the subcommands.",
        ),
        Command::new("latency|history", 3, ADMIN | NOSCRIPT | LOADING | STALE, latency_history)
            .tips(TIPS)
            .about(Group::Server, "2.8.13", "Returns the samples of an event."),
        Command::new("latency|latest", 2, ADMIN | NOSCRIPT | LOADING | STALE, latency_latest)
            .tips(TIPS)
            .about(Group::Server, "2.8.13", "Returns the last sample of each event."),
        Command::new(
            "latency|histogram",
            -2,
            ADMIN | NOSCRIPT | LOADING | STALE,
            latency_histogram,
        )
        .tips(TIPS)
        .about(Group::Server, "7.0.0", "Counts the calls of commands by their time."),
    ])
    .about(Group::Server, "2.8.13", "Commands about the time that commands take.")];

/// The most samples of an event.
const SAMPLES_MAX: usize = 160;

/// A sample: its time in seconds since 1970, and the milliseconds that a command took.
type Sample = (u64, u64);

/// The samples of an event.
#[derive(Debug, Default)]
struct Series {
    samples: VecDeque<Sample>,
    /// The longest time since the last reset.
    highest: u64,
}

impl Series {
    fn add(&mut self, time: u64, milliseconds: u64) {
        self.highest = self.highest.max(milliseconds);
        match self.samples.back_mut() {
            Some((last, longest)) if *last == time => *longest = milliseconds.max(*longest),
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back((time, milliseconds));
            }
        }
    }
}

/// The monitor: see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    events: BTreeMap<&'static str, Series>,
}

/// The number of buckets of a histogram. The last one has all calls of half a second and more.
const BUCKETS: usize = 21;

/// The calls of a command by their time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram([u64; BUCKETS]);

/// Returns the bound of a bucket, in nanoseconds: a power of two, as precise as Redis's bounds.
const fn bound(bucket: usize) -> u64 {
    (1 << (10 + bucket)) + (1 << (3 + bucket)) - 1
}

impl Histogram {
    /// Returns the bucket of a time.
    fn bucket(microseconds: u64) -> usize {
        let nanoseconds = microseconds.saturating_mul(1000);
        (0..BUCKETS - 1).find(|bucket| nanoseconds <= bound(*bucket)).unwrap_or(BUCKETS - 1)
    }

    /// Counts calls that took a time each.
    pub(super) fn add(&mut self, microseconds: u64, count: u64) {
        self.0[Histogram::bucket(microseconds)] += count;
    }

    /// Takes back a call.
    pub(super) fn take_back(&mut self, microseconds: u64) {
        let count = &mut self.0[Histogram::bucket(microseconds)];
        *count = count.saturating_sub(1);
    }

    /// Returns the calls up to each bound in microseconds, for the bounds that add some.
    fn sums(&self) -> Vec<(u64, u64)> {
        let mut sum = 0;
        let mut sums = Vec::new();
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            sums.push((bound(bucket) / 1000, sum));
        }
        sums
    }
}

impl State {
    /// Returns the present time by the clock of the machine, for [`State::took`].
    #[inline]
    pub(super) fn time(&self) -> Option<Duration> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Returns the time that has passed.
    #[inline]
    pub(super) fn took(&self, begin: Option<Duration>) -> Option<Duration> {
        Some(self.time()?.saturating_sub(begin?))
    }

    /// Lets the monitor see the time of a command.
    #[inline]
    pub(super) fn monitor_latency(&mut self, command: &Command, took: Duration, now_ms: u64) {
        let least = self.settings.latency_ms;
        let milliseconds = took.as_millis() as u64;
        if least > 0 && milliseconds >= least {
            let event = if command.has(FAST) { "fast-command" } else { "command" };
            let series = self.latencies.events.entry(event).or_default();
            series.add(now_ms / 1000, milliseconds);
        }
    }
}

fn latency_latest(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let shown = state.latencies.events.iter();
    let shown: Vec<_> =
        shown.filter_map(|(name, it)| Some((*name, *it.samples.back()?, it.highest))).collect();
    reply.array(shown.len());
    for (name, (time, milliseconds), highest) in shown {
        reply.array(4);
        reply.string(name.as_bytes());
        reply.integer(time as i64);
        reply.integer(milliseconds as i64);
        reply.integer(highest as i64);
    }
    Ok(())
}

fn series<'s>(state: &'s State, name: &[u8]) -> Option<&'s Series> {
    let name = std::str::from_utf8(name).ok()?;
    state.latencies.events.get(name)
}

fn latency_history(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let samples = series(state, &arguments[2]).map(|it| &it.samples);
    reply.array(samples.map_or(0, VecDeque::len));
    for (time, milliseconds) in samples.into_iter().flatten() {
        reply.array(2);
        reply.integer(*time as i64);
        reply.integer(*milliseconds as i64);
    }
    Ok(())
}

fn latency_reset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let events = &mut context.state.latencies.events;
    let before = events.len();
    match arguments.len() {
        2 => events.clear(),
        _ => events.retain(|name, _| !from(arguments, 2).any(|it| it == name.as_bytes())),
    }
    let count = before - events.len();
    context.reply.integer(count as i64);
    Ok(())
}

/// A command with its calls, and the calls up to each bound.
type Shown<'n> = (&'n str, u64, Vec<(u64, u64)>);

fn latency_histogram(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let calls = &state.counts.calls;
    let of_place = |place: usize| {
        let Calls { executed, histogram, .. } = calls.get(place)?;
        let name = state.names.at(place)?.name;
        Some((name, *executed, histogram.as_ref()?.sums())).filter(|it| !it.2.is_empty())
    };
    let of = |command: &'static Command| of_place(state.names.place_of(command));
    let shown: Vec<Shown<'_>> = match arguments.len() {
        2 => (0..calls.len()).filter_map(of_place).collect(),
        _ => {
            let named = from(arguments, 2).filter_map(|name| state.names.named(name));
            let with_subcommands = named.flat_map(|it| [it].into_iter().chain(it.subcommands));
            with_subcommands.filter_map(of).collect()
        }
    };
    reply.map(shown.len());
    for (name, executed, sums) in shown {
        reply.string(name.as_bytes());
        reply.map(2);
        reply.string(b"calls");
        reply.integer(executed as i64);
        reply.string(b"histogram_usec");
        reply.map(sums.len());
        for (bound, sum) in sums {
            reply.integer(bound as i64);
            reply.integer(sum as i64);
        }
    }
    Ok(())
}

/// The lines of a graph above its labels.
const ROWS: usize = 4;

/// The marks of a column's top, by its height within a line, and the mark below the top.
const TOPS: [u8; 3] = *b"_o#";
const BELOW: u8 = b'|';

/// Returns an age in at most two digits, for people.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns a graph of samples: a column for each, from the least to the greatest value, and its age
/// below it, from top to bottom.
fn graph(samples: &VecDeque<Sample>, now: u64) -> String {
    let least = samples.iter().map(|it| it.1).min().unwrap_or(0);
    let span = samples.iter().map(|it| it.1).max().unwrap_or(0) - least;
    let steps = (ROWS * TOPS.len()) as u64;
    let step = |value: u64| {
        let height = ((value - least) * steps).checked_div(span).unwrap_or(0);
        height.min(steps - 1) as usize
    };
    let heights: Vec<usize> = samples.iter().map(|it| step(it.1)).collect();
    let labels: Vec<String> = samples.iter().map(|it| age(now.saturating_sub(it.0))).collect();
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let floor = row * TOPS.len();
        for height in &heights {
            let mark = match height.checked_sub(floor) {
                None => b' ',
                Some(top) => TOPS.get(top).copied().unwrap_or(BELOW),
            };
            text.push(char::from(mark));
        }
        text.push('\n');
    }
    let rows = labels.iter().map(String::len).max().unwrap_or(0);
    text.extend(std::iter::repeat_n(' ', heights.len()));
    text.push('\n');
    for row in 0..rows {
        text.extend(labels.iter().map(|label| label.chars().nth(row).unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn latency_graph(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let name = &arguments[2];
    let now = context.objects.now() / 1000;
    let Some(Series { samples, highest }) = series(context.state, name) else {
        let begin = b"ERR No samples available for event '";
        return Err(Stop::error_of([&begin[..], name, b"'"].concat()));
    };
    let all = || samples.iter().map(|it| it.1);
    let (high, low) = (all().max().unwrap_or(0), all().min().unwrap_or(0));
    let name = String::from_utf8_lossy(name);
    let text = format!(
        "{name} - high {high} ms, low {low} ms (all time high {highest} ms)\n{}\n{}",
        "-".repeat(80),
        graph(samples, now)
    );
    context.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn latency_doctor(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let state = &*context.state;
    let events = &state.latencies.events;
    let mut text = String::new();
    if state.settings.latency_ms == 0 {
        text.push_str(
            "The latency monitor is off. Switch it on with CONFIG SET latency-monitor-threshold \
             MILLISECONDS.\n",
        );
    } else if events.is_empty() {
        text.push_str("No command has taken as long as latency-monitor-threshold.\n");
    }
    for (name, Series { samples, highest }) in events {
        let count = samples.len() as f64;
        let average = samples.iter().map(|it| it.1 as f64).sum::<f64>() / count;
        let deviation = samples.iter().map(|it| (it.1 as f64 - average).abs()).sum::<f64>() / count;
        let first = samples.front().map_or(0, |it| it.0);
        let period = samples.back().map_or(0, |it| it.0).saturating_sub(first) as f64 / count;
        // A string takes every text.
        let _ = writeln!(
            text,
            "{name}: {count} slow seconds, {average:.0} ms on average (mean deviation \
             {deviation:.0} ms), one every {period:.2} s. The slowest took {highest} ms."
        );
    }
    if !events.is_empty() {
        text.push_str(
            "SLOWLOG GET shows the slow commands. Large collections, long scripts and KEYS are the \
             usual reasons.\n",
        );
    }
    context.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn latency_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "latency");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::testing::Door;

    #[test]
    fn bounds_of_buckets_are_those_of_redis() {
        let bounds: Vec<u64> = (0..12).map(|bucket| bound(bucket) / 1000).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113]);
        assert_eq!(Histogram::bucket(0), 0);
        assert_eq!(Histogram::bucket(33), 5);
        assert_eq!(Histogram::bucket(34), 6);
        assert_eq!(Histogram::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_monitor_keeps_the_longest_sample_of_each_second() {
        let mut door = Door::new();
        door.measure(20_000);
        door.expect(&[
            ("set a 1", "+OK|"),
            ("latency latest", "*0|"),
            ("config set latency-monitor-threshold 20", "+OK|"),
            ("latency reset", ":1|"),
            ("set a 1", "+OK|"),
            ("get a", "$1|1|"),
            ("latency history fast-command", "*1|*2|:1800000000|:20|"),
            (
                "latency latest",
                "*2|*4|$7|command|:1800000000|:20|:20|*4|$12|fast-command|:1800000000|:20|:20|",
            ),
        ]);
        door.measure(30_000);
        door.pass(1000);
        door.said("get a\nget a");
        door.expect(&[
            ("latency history fast-command", "*2|*2|:1800000000|:20|*2|:1800000001|:30|"),
            ("latency history foo", "*0|"),
            ("config set latency-monitor-threshold 0", "+OK|"),
            ("latency reset fast-command foo", ":1|"),
            ("latency history fast-command", "*0|"),
        ]);
        assert!(door.said("latency doctor").contains("The slowest took 30 ms."));
    }

    #[test]
    fn an_event_has_a_bounded_number_of_samples() {
        let mut series = Series::default();
        for time in 0..1000 {
            series.add(time, 1000 - time);
        }
        assert_eq!((series.samples.len(), series.highest), (SAMPLES_MAX, 1000));
        assert_eq!(series.samples.front(), Some(&(840, 160)));
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let samples = VecDeque::from([(90, 50), (91, 1109), (92, 114), (93, 1000)]);
        let lines = [" # o", " | |", " | |", "_|_|", "    ", "3210", "ssss", ""];
        assert_eq!(graph(&samples, 93), lines.join("\n"));
        assert_eq!(graph(&VecDeque::from([(0, 5)]), 120), " \n \n \n_\n \n2\nm\n");
    }

    #[test]
    fn histograms_count_calls_and_can_be_switched_off() {
        let mut door = Door::new();
        door.measure(10);
        door.said("config resetstat");
        door.expect(&[
            ("set a 1", "+OK|"),
            ("set b 1", "+OK|"),
            (
                "latency histogram set get foo",
                "*2|$3|set|*4|$5|calls|:2|$14|histogram_usec|*2|:16|:2|",
            ),
            ("client id", ":1|"),
        ]);
        let shown = door.said("latency histogram client");
        assert!(shown.starts_with("*2|$9|client|id|*4|$5|calls|:1|"), "{shown}");
        door.expect(&[
            ("config set latency-tracking no", "+OK|"),
            ("config resetstat", "+OK|"),
            ("set a 1", "+OK|"),
            ("latency histogram", "*0|"),
        ]);
        let counts = door.said("info commandstats");
        assert!(counts.contains("cmdstat_set:calls=1,usec=10,usec_per_call=10.00,"), "{counts}");
    }
}
