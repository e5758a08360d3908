//! `thunderhead cluster …`: changes of a running cluster.

use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::store::Store;
use clap::{Subcommand, ValueEnum};
use thunderhead_wire::Format;
use thunderhead_wire::control::{ChangeSettings, KnownFormat, SettingsChanged};

/// A change of the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Change a setting. All servers learn it at once, without a restart.
    Set {
        /// The setting.
        #[arg(value_enum)]
        setting: Setting,
        /// Its value.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        value: u32,
    },
}

/// The settings that can change.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Setting {
    /// The number of replicas without which no write is acknowledged, at most the number that the
    /// cluster keeps. If it is smaller, writes go on while servers are down. If it is equal, they
    /// wait.
    #[value(name = "min_replicas")]
    MinReplicas,
    /// The cluster's format: the formats that its programs may write. Raise it after an upgrade,
    /// when all servers and coordinators run the new program: `thunderhead status` shows which
    /// formats each knows. Until then you can go back to the program before. After that you cannot,
    /// because a format never goes back.
    #[value(name = "format")]
    Format,
}

/// Runs the command.
pub(crate) fn run(
    command: Command,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Command::Set { setting, value } = command;
    let changes = match setting {
        Setting::MinReplicas => {
            ChangeSettings { min_replicas: Some(value), ..ChangeSettings::default() }
        }
        Setting::Format => {
            ChangeSettings { format: Some(Format(value)), ..ChangeSettings::default() }
        }
    };
    let SettingsChanged { settings, format, lacking } = store.change_settings(changes)?;
    if !lacking.is_empty() {
        let names = |it: &KnownFormat| format!("{} knows {}", it.program, it.newest);
        let names: Vec<String> = lacking.iter().map(names).collect();
        let message = format!(
            "the cluster stays at {format}, as not all of its programs know {}: {}; upgrade these, or have the \
             cluster forget a server that does not come again (`thunderhead server forget`)",
            Format(value),
            names.join(", ")
        );
        return Err(Failure::new(Exit::Refused, "format_not_known", message));
    }
    if session.json {
        return match setting {
            Setting::MinReplicas => session.put_json(&settings),
            Setting::Format => session.put_json(&serde_json::json!({"format": format})),
        };
    }
    match setting {
        Setting::MinReplicas => {
            let (min, all) = (settings.min_replicas, settings.replicas);
            writeln!(session.out, "writes are acknowledged with {min} of {all} replicas or more")?;
        }
        Setting::Format => writeln!(session.out, "the cluster is at {format}")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::exit::Exit;
    use crate::fake::{FakeStore, run};

    #[test]
    fn a_setting_changes_or_is_refused() {
        let mut fake = FakeStore::default();
        let said = run(&mut fake, "cluster set min_replicas 2").unwrap();
        assert_eq!(said, "writes are acknowledged with 2 of 3 replicas or more\n");
        let json = run(&mut fake, "cluster set min_replicas 3 --json").unwrap();
        assert!(json.contains("\"min_replicas\""), "{json}");
        let refused = run(&mut fake, "cluster set min_replicas 4").unwrap_err();
        assert!(refused.message.contains("min_replicas"), "{}", refused.message);
    }

    #[test]
    fn a_format_is_switched_on_or_the_programs_without_it_are_named() {
        let mut fake = FakeStore::default();
        let refused = run(&mut fake, "cluster set format 2").unwrap_err();
        assert_eq!((refused.exit, refused.kind), (Exit::Refused, "format_not_known"));
        for part in ["stays at format 1", "know format 2", "server 2 knows format 1"] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        assert!(!refused.message.contains("server 1 "), "{}", refused.message);
        fake.is_upgraded = true;
        assert_eq!(run(&mut fake, "cluster set format 2").unwrap(), "the cluster is at format 2\n");
        assert_eq!(run(&mut fake, "cluster set format 2 --json").unwrap(), "{\"format\":2}\n");
        assert_eq!(run(&mut fake, "cluster set format 0").unwrap_err().kind, "usage");
    }
}
