//! Flags, environment and file, gathered for the configuration.
//!
//! The flags follow from the table of keys. Each command has the flags of its own sections. `--set`
//! reaches all keys in every command.

use crate::arguments::Common;
use crate::exit::Failure;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use thunderhead_config::{Effective, File, KEYS, Key, Kind, Sources};

/// Some sections' keys as flags.
pub(crate) trait Group {
    const SECTIONS: &'static [&'static str];
    const HEADING: &'static str = "Configuration";
    const GLOBAL: bool = false;
}

macro_rules! groups {
    ($($name:ident: $sections:expr;)*) => {
        $(
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Group for $name {
                const SECTIONS: &'static [&'static str] = &$sections;
            }
        )*
    };
}

groups! {
    Dev: ["dev", "probe", "log"];
    Server: ["server", "probe", "log"];
    Coordinator: ["coordinator", "cluster", "probe", "log"];
}

/// The keys of every command.
#[derive(Debug)]
pub(crate) struct Everywhere;

impl Group for Everywhere {
    const SECTIONS: &'static [&'static str] = &["", "client"];
    const HEADING: &'static str = "Everywhere";
    const GLOBAL: bool = true;
}

/// The flags on a command line.
pub(crate) struct Flags<G> {
    /// The flag's name, the key's name, the value.
    given: Vec<(String, String, String)>,
    group: PhantomData<G>,
}

impl<G> fmt::Debug for Flags<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given.fmt(f)
    }
}

impl<G: Group> Flags<G> {
    fn keys() -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(|key| G::SECTIONS.contains(&key.section()))
    }

    /// Returns the flags.
    pub(crate) fn into_given(self) -> Vec<(String, String, String)> {
        self.given
    }
}

impl<G: Group> Args for Flags<G> {
    fn augment_args(mut command: Command) -> Command {
        for key in Self::keys() {
            let default = key.default.map(|it| format!(", default {it}")).unwrap_or_default();
            let help = format!("{} [{}{default}]", key.meaning, key.kind.allowed());
            let mut argument = Arg::new(key.name)
                .long(key.flag())
                .value_name(key.leaf().to_uppercase())
                .help(help)
                .help_heading(G::HEADING)
                .global(G::GLOBAL);
            if key.kind == Kind::Flag {
                argument = argument.num_args(0..=1).default_missing_value("true");
            }
            command = command.arg(argument);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: Group> FromArgMatches for Flags<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::keys().filter_map(|key| {
            let value: &String = matches.try_get_one(key.name).ok().flatten()?;
            Some((format!("--{}", key.flag()), key.name.to_owned(), value.clone()))
        });
        Ok(Flags { given: given.collect(), group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The file that is read if none is named.
const FILE: &str = "thunderhead.toml";

/// Returns all sources of the configuration: the arguments of every command, and this command's
/// flags.
pub(crate) fn sources(
    common: &Common,
    own: Vec<(String, String, String)>,
) -> Result<Sources, Failure> {
    let named = std::env::var_os("THUNDERHEAD_CONFIG").map(PathBuf::from);
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let file = match common.config.as_ref().or(named.as_ref()) {
        Some(path) => Some(read(path)?),
        None => match read(Path::new(FILE)) {
            Ok(file) => Some(file),
            Err(_) if !Path::new(FILE).exists() => None,
            Err(failure) => return Err(failure),
        },
    };
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with("THUNDERHEAD_").then(|| (name, value.to_string_lossy().into_owned()))
    });
    let set =
        common.set.iter().map(|(key, value)| ("--set".to_owned(), key.clone(), value.clone()));
    let mut flags: Vec<_> = set.collect();
    flags.extend(common.flags.given.iter().cloned());
    flags.extend(own);
    Ok(Sources { file, environment: environment.collect(), flags })
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let failure = Failure::file(format!("the configuration {}", path.display()), &error);
        match error.kind() {
            io::ErrorKind::NotFound => failure.with("check --config and THUNDERHEAD_CONFIG"),
            _ => failure,
        }
    })?;
    Ok(File { name: path.display().to_string(), text })
}

/// Returns the effective configuration. Prints warnings about probable mistakes.
pub(crate) fn effective(
    common: &Common,
    own: Vec<(String, String, String)>,
    notes: &mut dyn io::Write,
) -> Result<Effective, Failure> {
    let effective = sources(common, own)?.resolve()?;
    for warning in &effective.warnings {
        let _ = writeln!(notes, "thunderhead: {warning}");
    }
    Ok(effective)
}

/// Returns the user's directory for the state of programs, by the rules for XDG directories.
pub(crate) fn state_directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")))?;
    Some(state.join("thunderhead"))
}
