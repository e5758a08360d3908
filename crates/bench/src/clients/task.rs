//! The tasks that are measured, and the goals of each language.

use serde::Serialize;

/// A language with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// C.
    C,
    /// C++.
    #[serde(rename = "c++")]
    Cpp,
    /// Go.
    Go,
    /// Java.
    Java,
    /// Node.
    Node,
    /// Python.
    Python,
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 6] = [
        Language::C,
        Language::Cpp,
        Language::Go,
        Language::Java,
        Language::Node,
        Language::Python,
    ];

    /// Returns the language that a program names.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Cpp => "c++",
            Language::Go => "go",
            Language::Java => "java",
            Language::Node => "node",
            Language::Python => "python",
        }
    }

    /// Returns its name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Language::C => "C",
            Language::Cpp => "C++",
            Language::Go => "Go",
            Language::Java => "Java",
            Language::Node => "Node",
            Language::Python => "Python",
        }
    }

    /// Returns its name for people, with the mode if the language has both.
    #[must_use]
    pub fn title(self, mode: Mode) -> &'static str {
        match (self, mode) {
            (Language::C, Mode::Async) => "C queue",
            (Language::Cpp, Mode::Async) => "C++ queue",
            (Language::Java, Mode::Sync) => "Java sync",
            (Language::Java, Mode::Async) => "Java async",
            (Language::Python, Mode::Sync) => "Python sync",
            (Language::Python, Mode::Async) => "Python asyncio",
            (Language::C | Language::Cpp | Language::Go | Language::Node, _) => self.label(),
        }
    }

    /// Whether its client speaks only TCP. All others use shared memory with a server on the same
    /// host.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        self == Language::Go
    }
}

/// The way to call a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Calls that wait.
    Sync,
    /// Futures, promises or coroutines.
    Async,
}

impl Mode {
    /// Returns the mode of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Mode> {
        [Mode::Sync, Mode::Async].into_iter().find(|it| it.name() == name)
    }

    /// Returns its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Async => "async",
        }
    }
}

/// The kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Reads, one after the other.
    Get,
    /// Writes, one after the other.
    Put,
    /// Calls that read many objects.
    GetMany,
    /// Calls that write many objects.
    PutMany,
    /// Many reads at the same time.
    GetInFlight,
    /// Many writes at the same time.
    PutInFlight,
}

impl Work {
    /// Returns its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::Put => "put",
            Work::GetMany => "get_many",
            Work::PutMany => "put_many",
            Work::GetInFlight => "get_in_flight",
            Work::PutInFlight => "put_in_flight",
        }
    }

    /// Whether many calls are in progress at the same time.
    #[must_use]
    pub fn is_in_flight(self) -> bool {
        matches!(self, Work::GetInFlight | Work::PutInFlight)
    }
}

/// Some work, and how much of it is done together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Task {
    /// The kind of calls.
    pub work: Work,
    /// The number of objects in a call, or of calls in flight.
    pub width: u64,
}

impl Task {
    /// All tasks. 64 calls in flight are only for Go, whose goal names that number.
    pub const ALL: [Task; 8] = [
        Task { work: Work::Get, width: 1 },
        Task { work: Work::Put, width: 1 },
        Task { work: Work::GetMany, width: 100 },
        Task { work: Work::PutMany, width: 100 },
        Task { work: Work::GetInFlight, width: 64 },
        Task { work: Work::PutInFlight, width: 64 },
        Task { work: Work::GetInFlight, width: 100 },
        Task { work: Work::PutInFlight, width: 100 },
    ];

    /// Whether a client has this task. Only goroutines and asynchronous calls can be in flight
    /// together.
    #[must_use]
    pub fn is_for(self, language: Language, mode: Mode) -> bool {
        let is_go = language == Language::Go;
        (is_go || self.width != 64) && (is_go || mode == Mode::Async || !self.work.is_in_flight())
    }

    /// Whether Redis's client is measured too. 64 in flight are only compared with Rust.
    #[must_use]
    pub fn is_beside_redis(self) -> bool {
        self.width != 64
    }

    /// Returns the number of operations in a round, of which each call or worker does as many.
    #[must_use]
    pub fn count(self, operations: u64) -> u64 {
        // An operation takes less time if there are many together.
        let all = if self.width == 1 { operations } else { operations * 5 };
        all.div_ceil(self.width) * self.width
    }

    /// Returns its name for people.
    #[must_use]
    pub fn title(self) -> String {
        match self.work {
            Work::Get => "get".to_owned(),
            Work::Put => "put".to_owned(),
            Work::GetMany => format!("get {} at once, each", self.width),
            Work::PutMany => format!("put {} at once, each", self.width),
            Work::GetInFlight => format!("get, {} in flight, each", self.width),
            Work::PutInFlight => format!("put, {} in flight, each", self.width),
        }
    }
}

/// The goal of a client for a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most this many nanoseconds more than the core.
    OverCore(f64),
    /// At most this many nanoseconds more than the client for C.
    OverC(f64),
    /// At least this share of the core's throughput.
    Share(f64),
}

impl Goal {
    /// Returns the goal of a client for a task, if there is one.
    #[must_use]
    pub fn of(language: Language, mode: Mode, task: Task) -> Option<Goal> {
        let is_single = matches!(task.work, Work::Get | Work::Put);
        let over_core = |nanoseconds| Some(Goal::OverCore(nanoseconds));
        match (language, mode) {
            (Language::C, Mode::Sync) if is_single => over_core(50.0),
            (Language::Cpp, Mode::Sync) if is_single => Some(Goal::OverC(20.0)),
            (Language::Go, _) if is_single => over_core(5_000.0),
            (Language::Go, _) if task.width == 64 => Some(Goal::Share(0.8)),
            (Language::Java, Mode::Sync) if is_single => over_core(300.0),
            (Language::Java, Mode::Async) if is_single => over_core(8_000.0),
            (Language::Java, Mode::Async) if task.work.is_in_flight() => over_core(1_000.0),
            (Language::Node, Mode::Async) if is_single => over_core(25_000.0),
            (Language::Node, Mode::Async) if task.work.is_in_flight() => over_core(1_500.0),
            (Language::Python, Mode::Sync) if is_single => over_core(1_000.0),
            (Language::Python, Mode::Sync) if task.work == Work::GetMany => over_core(300.0),
            (Language::Python, Mode::Async) if is_single => over_core(25_000.0),
            (Language::Python, Mode::Async) if task.work.is_in_flight() => over_core(3_000.0),
            _ => None,
        }
    }

    /// Returns it for people.
    #[must_use]
    pub fn title(self) -> String {
        let micros = |nanoseconds: f64| nanoseconds / 1e3;
        match self {
            Goal::OverCore(most) => format!("<= {} µs more", micros(most)),
            Goal::OverC(most) => format!("<= {} µs over C", micros(most)),
            Goal::Share(share) => format!(">= {share} x Rust's rate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for language in Language::ALL {
            assert_eq!(Language::of_name(language.name()), Some(language));
        }
        assert_eq!(Language::of_name("shell"), None);
        for mode in [Mode::Sync, Mode::Async] {
            assert_eq!(Mode::of_name(mode.name()), Some(mode));
        }
        assert_eq!(Mode::of_name("both"), None);
    }

    #[test]
    fn only_go_and_asynchronous_calls_are_in_flight_together() {
        let count =
            |language, mode| Task::ALL.iter().filter(|task| task.is_for(language, mode)).count();
        assert_eq!(count(Language::C, Mode::Sync), 4);
        assert_eq!(count(Language::Python, Mode::Sync), 4);
        assert_eq!(count(Language::Python, Mode::Async), 6);
        assert_eq!(count(Language::Go, Mode::Sync), 8);
    }

    #[test]
    fn each_worker_of_a_round_does_equally_many_operations() {
        for task in Task::ALL {
            assert_eq!(task.count(1_001) % task.width, 0);
            assert!(task.count(1_001) >= 1_001);
        }
    }

    #[test]
    fn goals_are_those_of_the_design() {
        let [get, .., in_flight] = Task::ALL;
        let many = Task { work: Work::GetMany, width: 100 };
        let of_64 = Task { work: Work::GetInFlight, width: 64 };
        for (language, mode, task, expected) in [
            (Language::C, Mode::Sync, get, Some("<= 0.05 µs more")),
            (Language::C, Mode::Sync, many, None),
            (Language::Cpp, Mode::Sync, get, Some("<= 0.02 µs over C")),
            (Language::Go, Mode::Sync, get, Some("<= 5 µs more")),
            (Language::Go, Mode::Sync, of_64, Some(">= 0.8 x Rust's rate")),
            (Language::Go, Mode::Sync, in_flight, None),
            (Language::Java, Mode::Sync, get, Some("<= 0.3 µs more")),
            (Language::Java, Mode::Async, get, Some("<= 8 µs more")),
            (Language::Java, Mode::Async, in_flight, Some("<= 1 µs more")),
            (Language::Node, Mode::Async, get, Some("<= 25 µs more")),
            (Language::Node, Mode::Async, in_flight, Some("<= 1.5 µs more")),
            (Language::Python, Mode::Sync, get, Some("<= 1 µs more")),
            (Language::Python, Mode::Sync, many, Some("<= 0.3 µs more")),
            (Language::Python, Mode::Async, get, Some("<= 25 µs more")),
            (Language::Python, Mode::Async, in_flight, Some("<= 3 µs more")),
        ] {
            let found = Goal::of(language, mode, task).map(Goal::title);
            assert_eq!(found.as_deref(), expected, "{language:?} {mode:?} {task:?}");
        }
    }
}
