//! The stages of Thunderhead's restart, from the start of its processes to the first answer.
//!
//! The coordinator and the servers log the end of each stage at every start. So the measurement
//! adds no work. Their clock is this process's clock, because they are on the same machine.

use super::store::Restarted;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thunderhead_load::table::Table;

/// For each stage the log message that marks its end, and a description of its work.
const STAGES: [(&str, &str); 11] = [
    ("this coordinator leads", "the coordinator starts and leads"),
    (" listening ", "the server's process starts and listens"),
    ("the cluster knows this server", "the server asks the cluster for its identity"),
    ("the storage of the backup is open", "the server opens its storage and times reading"),
    (" enlisted ", "the server enlists"),
    ("a recovery begins", "the coordinator looks for replicas and fences"),
    ("told to rebuild a part", "the server is told to take its log back"),
    ("all closed segments are here", "it takes closed segments back"),
    ("everything is replayed", "it replays the open segments"),
    ("everything is durable", "a digest of all segments is durable"),
    ("a part is rebuilt", "the coordinator writes the tablets' owners"),
];

/// The last stage.
const SERVED: &str = "a client finds the table served";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the ends of the stages, since the start.
#[must_use]
pub fn table(restarted: &Restarted) -> Table {
    let mut table = Table::new(
        "Where the time of Thunderhead's restart goes",
        &["stage", "seconds since the start", "duration in seconds"],
    );
    let mut before = Duration::ZERO;
    for (what, at) in stages(restarted) {
        let took = at.saturating_sub(before);
        before = at;
        let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
        table.row(&[what.into(), seconds(at), seconds(took)]);
    }
    table
}

/// Returns the logged stages, in the order of their ends.
fn stages(restarted: &Restarted) -> Vec<(&'static str, Duration)> {
    let lines = restarted.said.iter().flat_map(|said| said.lines());
    let ends: Vec<(&str, Duration)> =
        lines.filter_map(|line| Some((line, since(restarted.clock, line)?))).collect();
    let end = |(told, what): &(&str, &'static str)| {
        // Of several shards or servers, the last one counts.
        let of_stage = ends.iter().filter(|(line, _)| line.contains(told));
        Some((*what, of_stage.map(|(_, at)| *at).max()?))
    };
    let mut found: Vec<_> = STAGES.iter().filter_map(end).collect();
    found.push((SERVED, restarted.took));
    found.sort_by_key(|(_, at)| *at);
    found
}

/// Returns the time from `clock` to a log line, by the time of day at the line's start.
fn since(clock: SystemTime, line: &str) -> Option<Duration> {
    let stamp = line.split_whitespace().next()?;
    let time = stamp.split_once('T')?.1.strip_suffix('Z')?;
    let mut parts = time.split(':');
    let mut part = || parts.next()?.parse::<f64>().ok();
    let seconds = (part()? * 60.0 + part()?) * 60.0 + part()?;
    let of_day = Duration::try_from_secs_f64(seconds).ok()?;
    let from = clock.duration_since(UNIX_EPOCH).ok()?.as_nanos() % DAY.as_nanos();
    let nanoseconds = (of_day.as_nanos() + DAY.as_nanos()).checked_sub(from)? % DAY.as_nanos();
    Some(Duration::from_nanos(nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line_counts_from_the_start_over_midnight_too() {
        // Two seconds before a midnight.
        let clock = UNIX_EPOCH + DAY * 20_000 - Duration::from_secs(2);
        let at = |line| since(clock, line).map(|it| it.as_millis());
        assert_eq!(at("2024-10-03T23:59:58.250000Z  INFO a: b"), Some(250));
        assert_eq!(at("2024-10-04T00:00:01.000000Z  INFO a: b"), Some(3000));
        assert_eq!(at("thunderhead: ending"), None);
        assert_eq!(at(""), None);
        assert_eq!(at("T-5:a:bZ"), None);
    }

    #[test]
    fn stages_come_in_the_order_in_which_they_ended() {
        let coordinator = "1970-01-01T00:00:00.500000Z  INFO c: this coordinator leads, and …\n\
                           1970-01-01T00:00:04.000000Z  INFO c: a part is rebuilt crashed=m1\n";
        let server = "1970-01-01T00:00:00.250000Z  INFO s: listening addresses=[]\n\
                      1970-01-01T00:00:01.500000Z  INFO s: enlisted server=s1\n\
                      1970-01-01T00:00:02.000000Z  INFO s: enlisted server=s2\n";
        let restarted = Restarted {
            clock: UNIX_EPOCH,
            took: Duration::from_secs(5),
            said: vec![coordinator.into(), server.into()],
        };
        let rows = table(&restarted).rows;
        let times = rows.iter().filter_map(|row| Some((&**row.get(1)?, &**row.get(2)?)));
        let times = times.collect::<Vec<_>>();
        let expected = [
            ("0.250", "0.250"),
            ("0.500", "0.250"),
            ("2.000", "1.500"),
            ("4.000", "2.000"),
            ("5.000", "1.000"),
        ];
        assert_eq!(times, expected);
    }
}
