//! `thunderhead config check` and `config show`.

use crate::arguments::Common;
use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::settings;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use thunderhead_config::Problems;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the configuration, and report every mistake in it.
    ///
    /// Status 0: it is right. 1: it has mistakes. 2: it cannot be read.
    Check {
        /// The file to check, in place of --config.
        file: Option<PathBuf>,
    },
    /// Print the effective configuration, with the source of each value. The output can serve as a
    /// file.
    Show,
}

/// Runs the command.
pub(crate) fn run(
    command: Command,
    mut common: Common,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    match command {
        Command::Check { file } => {
            common.config = file.or(common.config);
            check(&common, session)
        }
        Command::Show => show(&common, session),
    }
}

fn check(common: &Common, session: &mut Session<'_>) -> Result<(), Failure> {
    let sources = settings::sources(common, Vec::new())?;
    let subject = sources.file.as_ref().map_or_else(
        || "there is no file; environment and flags are".to_owned(),
        |file| format!("{} is", file.name),
    );
    match sources.resolve() {
        Ok(effective) => {
            let warnings: Vec<String> =
                effective.warnings.iter().map(ToString::to_string).collect();
            if session.json {
                return session.put_json(&json!({"problems": [], "warnings": warnings}));
            }
            for warning in warnings {
                writeln!(session.out, "warning: {warning}")?;
            }
            writeln!(session.out, "{subject} right")?;
            Ok(())
        }
        Err(Problems(problems)) => {
            if session.json {
                let list: Vec<Value> = problems
                    .iter()
                    .map(|it| {
                        json!({"place": it.place, "key": it.key, "value": it.value,
                               "what": it.what, "nearest": it.nearest})
                    })
                    .collect();
                session.put_json(&json!({"problems": list}))?;
            } else {
                for problem in &problems {
                    writeln!(session.out, "{problem}")?;
                }
            }
            let mistakes = crate::text::plural(problems.len() as u64, "mistake");
            Err(Failure::new(Exit::Negative, "config", format!("{subject} wrong: {mistakes}")))
        }
    }
}

fn show(common: &Common, session: &mut Session<'_>) -> Result<(), Failure> {
    let effective = settings::effective(common, Vec::new(), session.notes)?;
    if !session.json {
        write!(session.out, "{}", effective.to_toml())?;
        return Ok(());
    }
    let keys: Map<String, Value> = effective
        .iter()
        .map(|(key, setting)| {
            let value = setting.value.as_ref().map(ToString::to_string);
            (key.name.to_owned(), json!({"value": value, "from": setting.origin.to_string()}))
        })
        .collect();
    session.put_json(&keys)
}
