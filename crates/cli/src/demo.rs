//! `thunderhead demo`: the store's promises, shown with separate processes.

use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::text::count;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use thunderhead_config::{parse_bytes, parse_duration};
use thunderhead_load::crash::{self, Crash, Plan, Report, Screen};

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Kill a server of five and watch its data come back.
    ///
    /// Starts a coordinator and servers as processes on this machine, loads objects and writes at
    /// full speed. Then it kills a server and shows live how the server's data returns. At last it
    /// reads all objects: every acknowledged write must be there. Status 1 if one is missing, or if
    /// the data did not return in time.
    Crash(CrashArguments),
}

/// The arguments of the demonstration.
#[derive(Debug, Args)]
pub(crate) struct CrashArguments {
    /// Bytes of all values.
    #[arg(long, default_value = "1GB", value_parser = parse_bytes)]
    bytes: u64,
    /// Bytes of each value: 64 to 1048576.
    #[arg(long, default_value_t = 1000)]
    value_bytes: u64,
    /// The number of servers: 3 to 64.
    #[arg(long, default_value_t = 5)]
    servers: u32,
    /// Replicas of each segment.
    #[arg(long, default_value_t = 2)]
    replicas: u32,
    /// The killed server has all objects. Otherwise it has its share.
    #[arg(long)]
    victim_has_all: bool,
    /// Stop the server (SIGSTOP) instead of killing it, and continue it after its data has
    /// returned.
    #[arg(long)]
    stop: bool,
    /// Start the server again so long after it was killed.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "stop")]
    restart: Option<Duration>,
    /// How long the data may take to return.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    patience: Duration,
    /// The directory below which the demo makes a directory for its files. The default is the
    /// directory of temporary files.
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,
    /// Keep the directory, with the logs of the processes.
    #[arg(long)]
    keep: bool,
}

/// Runs the command.
pub(crate) fn run(command: Command, session: &mut Session<'_>) -> Result<(), Failure> {
    let Command::Crash(arguments) = command;
    let broken = |error: anyhow::Error| Failure::usage(format!("{error:#}"));
    let program = std::env::current_exe()
        .map_err(|error| Failure::file("find this program to start it as servers", &error))?;
    let plan = Plan {
        directory: arguments.directory,
        keep: arguments.keep,
        servers: arguments.servers,
        replicas: arguments.replicas,
        objects: arguments.bytes / arguments.value_bytes.max(1),
        value_bytes: usize::try_from(arguments.value_bytes).unwrap_or(usize::MAX),
        victim_has_all: arguments.victim_has_all,
        crash: if arguments.stop { Crash::Stop } else { Crash::Kill },
        restart_after: arguments.restart,
        patience: arguments.patience,
        ..Plan::new(program)
    };
    let report = crash::run(&plan, &LiveScreen::new(session.progress)).map_err(broken)?;
    match session.json {
        true => session.put_json(&report)?,
        false => print(&report, &plan, session.out)?,
    }
    match report.is_good() {
        true => Ok(()),
        false => Err(Failure::new(Exit::Negative, "negative", "")),
    }
}

/// Reports to people on the standard error, with a bar on a terminal.
struct LiveScreen {
    is_terminal: bool,
    bar: Mutex<Option<(String, ProgressBar)>>,
}

impl LiveScreen {
    fn new(is_terminal: bool) -> LiveScreen {
        LiveScreen { is_terminal, bar: Mutex::new(None) }
    }
}

impl Screen for LiveScreen {
    fn say(&self, at: Option<f64>, label: &str) {
        let line = match at {
            Some(at) => format!("{at:8.3} s  {label}"),
            None => label.to_owned(),
        };
        // A failure to write means only that the user does not read.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    fn progress(&self, label: &str, done: u64, of: u64, value_bytes: usize) {
        if !self.is_terminal {
            return;
        }
        let Ok(mut bar) = self.bar.lock() else { return };
        let is_new = bar.as_ref().is_none_or(|(old, _)| old != label);
        let (_, shown) = match &mut *bar {
            Some(bar) if !is_new => bar,
            bar => bar.insert((label.to_owned(), new_bar(label, of, value_bytes))),
        };
        shown.set_position(done * value_bytes as u64);
        if done >= of {
            shown.finish_and_clear();
            *bar = None;
        }
    }
}

fn new_bar(label: &str, of: u64, value_bytes: usize) -> ProgressBar {
    let template = "{msg} {wide_bar} {percent}% {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(of * value_bytes as u64).with_style(style);
    bar.with_message(label.to_owned())
}

fn print(report: &Report, plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let gone = match report.crash {
        Crash::Kill => "killed",
        Crash::Stop => "stopped",
    };
    let (victim, had) = (report.victim, count(report.victim_objects));
    let all = count(report.objects);
    let after = |out: &mut dyn Write, label: &str, time: Option<f64>| match time {
        Some(time) => writeln!(out, "  {label:44} {time:8.3} s"),
        None => writeln!(out, "  {label:44}    never, in {:?}", plan.patience),
    };
    writeln!(out)?;
    writeln!(out, "{victim} was {gone}; it had {had} of {all} objects. Times from then on:")?;
    after(out, "until the cluster declared it crashed", report.detected_s)?;
    after(out, "until the first of its objects was readable", report.first_readable_s)?;
    after(out, "until the last of its objects was readable", report.last_readable_s)?;
    after(out, "until its objects were written again", report.written_again_s)?;
    if report.others_pause_s.is_some() {
        after(out, "longest pause of writes to the others", report.others_pause_s)?;
    }
    writeln!(
        out,
        "{} writes were acknowledged, {} failed.",
        count(report.writes_acknowledged),
        count(report.writes_failed)
    )?;
    for line in report.failures.iter().chain(&report.false_verdicts) {
        writeln!(out, "  {line}")?;
    }
    match &report.found {
        None => writeln!(out, "NOT ALL DATA CAME BACK within {:?}.", plan.patience),
        Some(found) if report.is_good() => writeln!(
            out,
            "All {} objects were read: every acknowledged write is there.",
            count(found.checked)
        ),
        Some(found) => {
            writeln!(
                out,
                "OF {} OBJECTS {} ARE LOST AND {} WRONG:",
                count(found.checked),
                count(found.lost),
                count(found.wrong)
            )?;
            found.examples.iter().try_for_each(|it| writeln!(out, "  {it}"))
        }
    }
}
