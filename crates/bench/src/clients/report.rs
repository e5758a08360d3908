//! From rounds to a report: medians, prices, goals, the table and the figure.

use super::task::{Goal, Language, Mode, Task};
use serde::Serialize;
use std::collections::BTreeMap;
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::median;
use thunderhead_load::plot::{Marks, Panel, Series};
use thunderhead_load::table::Table;

/// A client that does rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The core in Rust. The channel is shared memory unless this is true.
    Core {
        /// Whether it speaks TCP.
        is_tcp: bool,
    },
    /// The client of a language.
    Client(Language),
    /// The usual Redis client of a language.
    Redis(Language),
}

impl Subject {
    /// Returns the core with which a language is compared.
    #[must_use]
    pub fn core_of(language: Language) -> Subject {
        Subject::Core { is_tcp: language.is_tcp() }
    }

    /// Returns the channel to the store.
    #[must_use]
    pub fn channel(self) -> Channel {
        match self {
            Subject::Core { is_tcp: false } => Channel::Shm,
            Subject::Client(language) if !language.is_tcp() => Channel::Shm,
            _ => Channel::Tcp,
        }
    }
}

/// The measurement of one client, in one mode, with one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measurement {
    /// The task comes first, so that measurements of the same task follow each other.
    pub task: Task,
    /// The way to call the client.
    pub mode: Mode,
    /// The client.
    pub subject: Subject,
}

impl Measurement {
    /// Returns the measurement of the core with which a client is compared. Only the queue of the
    /// core can have operations in flight.
    #[must_use]
    pub fn core_of(language: Language, mode: Mode, task: Task) -> Measurement {
        let mode = if task.work.is_in_flight() { Mode::Async } else { mode };
        Measurement { task, mode, subject: Subject::core_of(language) }
    }
}

/// Returns the measurements for some languages, in the order of a turn: the core and all clients do
/// the same task one after the other.
#[must_use]
pub fn plan(languages: &[(Language, Vec<Mode>)]) -> Vec<Measurement> {
    let mut all = Vec::new();
    for (language, mode, task) in rows_of(languages) {
        all.push(Measurement::core_of(language, mode, task));
        all.push(Measurement { task, mode, subject: Subject::Client(language) });
        if task.is_beside_redis() {
            all.push(Measurement { task, mode, subject: Subject::Redis(language) });
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn rows_of(
    languages: &[(Language, Vec<Mode>)],
) -> impl Iterator<Item = (Language, Mode, Task)> + '_ {
    let modes = languages.iter().flat_map(|(it, modes)| modes.iter().map(|mode| (*it, *mode)));
    modes.flat_map(|(language, mode)| {
        let tasks = Task::ALL.into_iter().filter(move |task| task.is_for(language, mode));
        tasks.map(move |task| (language, mode, task))
    })
}

/// The rounds of all measurements: nanoseconds for each operation.
pub type Rounds = BTreeMap<Measurement, Vec<f64>>;

/// Nanoseconds for each operation: the median of the rounds, and the best round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The median.
    pub median_ns: f64,
    /// The best.
    pub best_ns: f64,
}

impl Times {
    /// Returns the times of some rounds, if there are any.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Times> {
        let best_ns = rounds.iter().copied().reduce(f64::min)?;
        Some(Times { median_ns: median(rounds.to_vec()), best_ns })
    }

    fn less(self, other: Times) -> Times {
        Times { median_ns: self.median_ns - other.median_ns, best_ns: self.best_ns - other.best_ns }
    }
}

/// The results of a client with one task.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The language.
    pub language: Language,
    /// The way to call the client.
    pub mode: Mode,
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// The channel of the core and of the client.
    pub channel: Channel,
    /// The core.
    pub core: Option<Times>,
    /// The client.
    pub client: Option<Times>,
    /// The difference: the price of the language.
    pub price: Option<Times>,
    /// The difference from the client for C, for C++.
    pub over_c: Option<Times>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
    /// Whether the medians meet it, if it could be measured.
    pub is_met: Option<bool>,
    /// The usual Redis client of the language.
    pub redis: Option<Times>,
    /// Whether the client's median is below that of the Redis client.
    pub is_faster: Option<bool>,
}

impl Row {
    /// Returns the mode of the core with which the client is compared.
    fn core_mode(&self) -> Mode {
        Measurement::core_of(self.language, self.mode, self.task).mode
    }
}

/// Returns the results of all clients.
#[must_use]
pub fn rows(languages: &[(Language, Vec<Mode>)], rounds: &Rounds) -> Vec<Row> {
    let times = |measurement| rounds.get(&measurement).and_then(|it| Times::of(it));
    let row = |(language, mode, task)| {
        let of = |subject| times(Measurement { task, mode, subject });
        let core = times(Measurement::core_of(language, mode, task));
        let client = of(Subject::Client(language));
        let redis = of(Subject::Redis(language));
        let price = client.zip(core).map(|(client, core)| client.less(core));
        let over_c = of(Subject::Client(Language::C)).filter(|_| language == Language::Cpp);
        let over_c = client.zip(over_c).map(|(client, c)| client.less(c));
        let goal = Goal::of(language, mode, task);
        let is_met = goal.and_then(|goal| {
            Some(match goal {
                Goal::OverCore(most) => price?.median_ns <= most,
                Goal::OverC(most) => over_c?.median_ns <= most,
                Goal::Share(share) => core?.median_ns / client?.median_ns >= share,
            })
        });
        let is_faster = client.zip(redis).map(|(ours, redis)| ours.median_ns < redis.median_ns);
        let channel = Subject::core_of(language).channel();
        Row {
            language,
            mode,
            task,
            channel,
            core,
            client,
            price,
            over_c,
            goal,
            is_met,
            redis,
            is_faster,
        }
    };
    rows_of(languages).map(row).collect()
}

/// Whether no measured row misses its goal, or is slower than Redis's client.
#[must_use]
pub fn are_met(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.is_met != Some(false) && row.is_faster != Some(false))
}

/// Formats nanoseconds as microseconds, with enough digits for goals of 20 ns.
fn micros(nanoseconds: f64) -> String {
    let value = nanoseconds / 1e3;
    if value.abs() < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

fn cell<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

fn verdict(is_good: bool, good: &str, bad: &str) -> String {
    if is_good { good } else { bad }.to_owned()
}

/// Returns the table for people. Each figure is a median, and the best round in brackets.
#[must_use]
pub fn table_of(title: &str, rows: &[Row]) -> Table {
    let columns = [
        "client",
        "task",
        "core µs",
        "client µs",
        "more µs (best)",
        "goal",
        "met",
        "Redis client µs",
        "beside Redis",
    ];
    let mut table = Table::new(title, &columns);
    for row in rows {
        let middle = |times: Times| micros(times.median_ns);
        // The goal of C++ is about its difference from C.
        let more = if matches!(row.goal, Some(Goal::OverC(_))) { row.over_c } else { row.price };
        let both = |it: Times| format!("{} ({})", micros(it.median_ns), micros(it.best_ns));
        table.row(&[
            row.language.title(row.mode).to_owned(),
            row.task.title(),
            cell(row.core, middle),
            cell(row.client, middle),
            cell(more, both),
            cell(row.goal, Goal::title),
            cell(row.is_met, |it| verdict(it, "met", "MISSED")),
            cell(row.redis, middle),
            cell(row.is_faster, |it| verdict(it, "faster", "SLOWER")),
        ]);
    }
    table
}

/// Returns a panel for each task of calls that wait, and one for each of asynchronous calls: the
/// core, the client, and the usual Redis client of each language.
#[must_use]
pub fn draw(rows: &[Row]) -> Vec<Panel> {
    let mut panels = Vec::new();
    for task in Task::ALL {
        for mode in [Mode::Sync, Mode::Async] {
            let is_here = |row: &&Row| row.task == task && row.core_mode() == mode;
            let rows: Vec<&Row> = rows.iter().filter(is_here).collect();
            if !rows.is_empty() {
                panels.push(panel(task, mode, &rows));
            }
        }
    }
    panels
}

fn panel(task: Task, mode: Mode, rows: &[&Row]) -> Panel {
    let series = |name: &str, times: fn(&Row) -> Option<Times>| {
        let points = rows.iter().enumerate();
        let points =
            points.filter_map(|(at, row)| Some((at as f64, times(row)?.median_ns / 1e3))).collect();
        Series { name: name.to_owned(), points }
    };
    let title = match mode {
        Mode::Async if !task.work.is_in_flight() => format!("{}, asynchronous", task.title()),
        _ => task.title(),
    };
    Panel {
        title,
        x_label: "client".to_owned(),
        y_label: "µs".to_owned(),
        marks: Marks::Bars(rows.iter().map(|row| row.language.label().to_owned()).collect()),
        series: vec![
            series("the core", |row| row.core),
            series("the client", |row| row.client),
            series("the Redis client", |row| row.redis),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Mode; 2] = [Mode::Sync, Mode::Async];

    fn languages() -> Vec<(Language, Vec<Mode>)> {
        vec![
            (Language::C, vec![Mode::Sync]),
            (Language::Cpp, vec![Mode::Sync]),
            (Language::Go, vec![Mode::Sync]),
            (Language::Python, BOTH.to_vec()),
        ]
    }

    /// Returns rounds in which the core takes 1000 ns, a client 1030 and a Redis client 2000.
    fn rounds() -> Rounds {
        let of = |measurement: Measurement| match measurement.subject {
            Subject::Core { .. } => vec![1000.0, 900.0, 5000.0],
            Subject::Client(_) => vec![1030.0, 9000.0, 920.0],
            Subject::Redis(_) => vec![2000.0],
        };
        plan(&languages()).into_iter().map(|it| (it, of(it))).collect()
    }

    fn find(rows: &[Row], language: Language, mode: Mode, at: usize) -> &Row {
        let of = |row: &&Row| (row.language, row.mode, row.task) == (language, mode, Task::ALL[at]);
        rows.iter().find(of).unwrap()
    }

    #[test]
    fn a_turn_has_each_measurement_once_and_the_core_beside_its_clients() {
        let plan = plan(&languages());
        let of_get = plan.iter().filter(|it| it.task == Task::ALL[0] && it.mode == Mode::Sync);
        let subjects: Vec<Subject> = of_get.map(|it| it.subject).collect();
        let clients = [Language::C, Language::Cpp, Language::Go, Language::Python];
        let mut expected = vec![Subject::Core { is_tcp: false }, Subject::Core { is_tcp: true }];
        expected.extend(clients.map(Subject::Client));
        expected.extend(clients.map(Subject::Redis));
        assert_eq!(subjects, expected);
        let of_64 = plan.iter().filter(|it| it.task == Task::ALL[4]);
        let of_64: Vec<(Mode, Subject)> = of_64.map(|it| (it.mode, it.subject)).collect();
        let client = (Mode::Sync, Subject::Client(Language::Go));
        assert_eq!(of_64, [client, (Mode::Async, Subject::Core { is_tcp: true })]);
    }

    #[test]
    fn prices_are_differences_of_medians_and_of_best_rounds() {
        let rows = rows(&languages(), &rounds());
        let row = find(&rows, Language::C, Mode::Sync, 0);
        let times = |median_ns, best_ns| Some(Times { median_ns, best_ns });
        assert_eq!((row.core, row.client), (times(1000.0, 900.0), times(1030.0, 920.0)));
        assert_eq!((row.price, row.redis), (times(30.0, 20.0), times(2000.0, 2000.0)));
        assert_eq!((row.is_met, row.is_faster, row.over_c), (Some(true), Some(true), None));
        let row = find(&rows, Language::Cpp, Mode::Sync, 0);
        assert_eq!((row.over_c, row.is_met), (times(0.0, 0.0), Some(true)));
        let row = find(&rows, Language::Go, Mode::Sync, 4);
        assert_eq!((row.is_met, row.redis, row.channel), (Some(true), None, Channel::Tcp));
        assert!(are_met(&rows));
    }

    #[test]
    fn a_missed_goal_and_a_slower_client_are_reported() {
        let mut rounds = rounds();
        let (mode, subject) = (Mode::Sync, Subject::Client(Language::C));
        let get = Measurement { task: Task::ALL[0], mode, subject };
        rounds.insert(get, vec![1051.0]);
        let met = |rounds: &Rounds| {
            let rows = rows(&languages(), rounds);
            let row = find(&rows, Language::C, Mode::Sync, 0).clone();
            (row.is_met, row.is_faster, are_met(&rows))
        };
        assert_eq!(met(&rounds), (Some(false), Some(true), false));
        rounds.insert(get, vec![1040.0]);
        let redis = Measurement { subject: Subject::Redis(Language::C), ..get };
        rounds.insert(redis, vec![1040.0]);
        assert_eq!(met(&rounds), (Some(true), Some(false), false));
        rounds.remove(&redis);
        assert_eq!(met(&rounds), (Some(true), None, true));
        rounds.remove(&get);
        assert_eq!(met(&rounds), (None, None, true));
    }

    #[test]
    fn the_table_has_a_row_for_each_task_and_a_dash_for_what_is_missing() {
        let mut rounds = rounds();
        rounds.retain(|it, _| it.subject != Subject::Redis(Language::C));
        let rows = rows(&languages(), &rounds);
        let table = table_of("title", &rows);
        assert_eq!(table.rows.len(), 4 + 4 + 8 + 4 + 6);
        let first = ["C", "get", "1.000", "1.030", "0.030 (0.020)", "<= 0.05 µs more", "met"];
        assert_eq!(table.rows[0], [first.as_slice(), &["-", "-"]].concat());
        assert_eq!(table.rows[2][5..7], ["-", "-"]);
        let panels = draw(&rows);
        let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles.len(), 12);
        assert_eq!(titles[..2], ["get", "get, asynchronous"]);
        assert_eq!(titles[10], "get, 100 in flight, each");
        assert_eq!(panels[0].series[2].points, [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]);
    }

    #[test]
    fn times_have_enough_digits() {
        assert_eq!(micros(-21.0), "-0.021");
        assert_eq!(micros(123_456.0), "123.5");
    }
}
