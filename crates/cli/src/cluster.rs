//! `thunderhead cluster …`: what may change in a cluster that runs.

use crate::exit::Failure;
use crate::session::Session;
use crate::store::Store;
use clap::{Subcommand, ValueEnum};
use thunderhead_wire::control::ChangeSettings;

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Change a setting. All servers learn it at once; none has to be started again.
    Set {
        /// Which setting.
        #[arg(value_enum)]
        setting: Setting,
        /// Its value.
        #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
        value: u32,
    },
}

/// What can be set.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Setting {
    /// Replicas without which no write is acknowledged: at most as many as the cluster keeps. With fewer,
    /// writes go on while servers are away; with as many, they wait.
    #[value(name = "min_replicas")]
    MinReplicas,
}

/// Does it.
pub(crate) fn run(
    command: Command,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Command::Set { setting: Setting::MinReplicas, value } = command;
    let settings = store.change_settings(ChangeSettings { min_replicas: Some(value) })?;
    if session.json {
        return session.put_json(&settings);
    }
    let (min, all) = (settings.min_replicas, settings.replicas);
    writeln!(session.out, "writes are acknowledged with {min} of {all} replicas or more")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::fake::{Fake, run};

    #[test]
    fn a_setting_is_changed_and_one_that_cannot_be_is_refused() {
        let mut fake = Fake::default();
        let said = run(&mut fake, "cluster set min_replicas 2").unwrap();
        assert_eq!(said, "writes are acknowledged with 2 of 3 replicas or more\n");
        let json = run(&mut fake, "cluster set min_replicas 3 --json").unwrap();
        assert!(json.contains("\"min_replicas\""), "{json}");
        let refused = run(&mut fake, "cluster set min_replicas 4").unwrap_err();
        assert!(refused.message.contains("min_replicas"), "{}", refused.message);
    }
}
