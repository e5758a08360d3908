//! The generated parts of the documents: the end of `docs/cli.md`, which lists statuses and
//! commands, that of `docs/redis.md`, and all of `docs/configuration.md`. They come from the
//! commands and from the table of keys, so they agree with the program. A test compares them with
//! the files, and `cargo xtask reference` writes them.

use crate::arguments::Arguments;
use crate::exit::EXITS;
use clap::{Arg, Command, CommandFactory, ValueEnum};
use std::fmt::Write;
use thunderhead_config::KEYS;

/// The line with which the generated end of a page begins.
const GENERATED: &str = "<!-- From here on, `cargo xtask reference` writes this page. -->";

/// A generated part of the documents.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Part {
    /// The end of docs/cli.md.
    Commands,
    /// All of docs/configuration.md.
    Configuration,
    /// The end of docs/redis.md.
    RedisCommands,
}

/// Returns a generated part.
pub(crate) fn part(part: Part) -> String {
    let mut root = Arguments::command();
    root.build();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match part {
        Part::Commands => statuses(&mut text).and_then(|()| commands(&root, &mut text)),
        Part::Configuration => configuration(&mut text),
        Part::RedisCommands => redis_commands(&mut text),
    };
    text
}

fn statuses(text: &mut String) -> std::fmt::Result {
    writeln!(text, "{GENERATED}\n")?;
    writeln!(text, "## Exit statuses\n\n| status | meaning |\n| --- | --- |")?;
    for (exit, meaning) in EXITS {
        writeln!(text, "| {} | {meaning} |", *exit as u8)?;
    }
    text.push_str(
        "\nA command with several steps may have done some of them when it fails: `import`, \
         `table split --in`, a script\nof the shell. You may repeat the first two without harm.\n",
    );
    Ok(())
}

const CONFIGURATION: &str = r#"# Configuration

This page is generated from [the table of keys](../crates/config/src/keys.rs); `cargo xtask reference` writes it.

## Where a value comes from

1. A flag on the command line: `--memory 8GiB`, or `--set server.memory=8GiB`, which sets any key.
2. Otherwise the environment: `THUNDERHEAD_SERVER_MEMORY=8GiB`. An empty variable counts as not set.
3. Otherwise the file. `--config` or `THUNDERHEAD_CONFIG` names it; without them it is `./thunderhead.toml`, if that
   exists.
4. Otherwise the default.

The file is TOML. Check it before you use it:

```console
$ printf '[server]\nmemory = "8GiB"\nshards = 2\n' > thunderhead.toml
$ thunderhead config check
thunderhead.toml is right
```

A mistake is named with its line, and with the key that you probably meant:

```console
$ printf '[server]\nmemroy = "8GiB"\n' > wrong.toml
$ thunderhead config check wrong.toml
wrong.toml:2: server.memroy: there is no such key; did you mean server.memory?
thunderhead: wrong.toml is wrong: 1 mistake
```

`thunderhead config show` prints all values as a file, each with its source:

```console
$ THUNDERHEAD_SERVER_SHARDS=4 thunderhead config show | grep -A 8 '^.server'
[server]
listen = "127.0.0.1:7071"                        # default
# advertise is not set                           # default
data = "thunderhead-server"                      # default
memory = "8GiB"                                  # thunderhead.toml:2
populate = false                                 # default
shards = 4                                       # THUNDERHEAD_SERVER_SHARDS
cleaners = 1                                     # default
backup = true                                    # default
```

## Names and values

- A key's variable is its name in capitals after `THUNDERHEAD_`, with `_` for the dot.
- Its flag is its name without the section, with `-` for `_`, on the command that it configures: `--memory` of
  `thunderhead server`. The sections `log` and `probe` stay: `--log-level`.
- Bytes and times have a unit: `8GiB`, `512MiB`, `4096B`, `100ms`, `10s`, `5m`.

One variable is not for a key: `THUNDERHEAD_HISTORY` is the file with the history of `thunderhead shell`. If it is not
set, the file is `thunderhead/history` below `XDG_STATE_HOME`, or below `~/.local/state`. Lines that begin with a
blank are not kept.
"#;

fn configuration(text: &mut String) -> std::fmt::Result {
    text.push_str(CONFIGURATION);
    let mut section = None;
    for key in KEYS {
        if section != Some(key.section()) {
            section = Some(key.section());
            let heading = match key.section() {
                "" => "For all commands".to_owned(),
                section => format!("`[{section}]`"),
            };
            writeln!(text, "\n## {heading}\n")?;
            writeln!(text, "| key | variable | allowed | default | meaning |")?;
            writeln!(text, "| --- | --- | --- | --- | --- |")?;
        }
        let default = key.default.map_or(String::new(), |default| format!("`{default}`"));
        let (name, variable, allowed) = (key.name, key.variable(), key.kind.allowed());
        let meaning = key.meaning;
        writeln!(text, "| `{name}` | `{variable}` | {allowed} | {default} | {meaning} |")?;
    }
    Ok(())
}

fn redis_commands(text: &mut String) -> std::fmt::Result {
    writeln!(text, "{GENERATED}\n\n## Commands\n\n| group | commands |\n| --- | --- |")?;
    for (group, names) in thunderhead_server::redis_commands() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(text, "| {group} | {} |", names.join(", "))?;
    }
    text.push_str(
        "\nCommands of clusters on the plain port, those of replication, and `SHUTDOWN` are refused with \
         advice, and so are `MIGRATE`, `MODULE LOAD`,\n`ACL LOAD`, `ACL SAVE`, `CONFIG REWRITE` and \
         `DEBUG SLEEP`. `REPLICAOF NO ONE` answers `OK`. Every\ncommand that is not in the table \
         gets the error for an unknown one.\n",
    );
    Ok(())
}

fn commands(root: &Command, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n## Commands\n\nEach command has `--help`, and takes these arguments:")?;
    arguments(root.get_arguments().filter(|it| it.is_global_set()), text)?;
    for command in root.get_subcommands() {
        command_and_below(command, "thunderhead", text)?;
    }
    Ok(())
}

fn command_and_below(command: &Command, above: &str, text: &mut String) -> std::fmt::Result {
    let name = format!("{above} {}", command.get_name());
    if command.is_hide_set() || command.get_name() == "help" {
        return Ok(());
    }
    let inner: Vec<&Command> =
        command.get_subcommands().filter(|it| it.get_name() != "help").collect();
    let is_bench = command.get_name() == "bench";
    if !inner.is_empty() && !is_bench && command.is_subcommand_required_set() {
        return inner.into_iter().try_for_each(|it| command_and_below(it, &name, text));
    }
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    writeln!(text, "\n### `{name}`\n\n{}\n", sentence(&about))?;
    let usage = command.clone().render_usage().to_string();
    writeln!(text, "```text\n{}\n```", usage.trim_start_matches("Usage: "))?;
    let own = command.get_arguments().filter(|it| !it.is_global_set() && it.get_id() != "help");
    arguments(own, text)?;
    if is_bench {
        return workloads(&inner, text);
    }
    inner.into_iter().try_for_each(|it| command_and_below(it, &name, text))
}

/// Writes the workloads, all of which have the same options.
fn workloads(all: &[&Command], text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n| workload | meaning |\n| --- | --- |")?;
    for workload in all.iter().filter(|it| !it.is_hide_set()) {
        let about = workload.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, "| `{}` | {} |", workload.get_name(), sentence(&about))?;
    }
    let options = all.first().into_iter().flat_map(|it| it.get_arguments());
    arguments(options.filter(|it| !it.is_global_set()), text)
}

fn arguments<'a>(all: impl Iterator<Item = &'a Arg>, text: &mut String) -> std::fmt::Result {
    let all: Vec<&Arg> = all.filter(|it| !it.is_hide_set() && it.get_id() != "help").collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n| argument | meaning |\n| --- | --- |")?;
    for argument in all {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let values = argument.get_value_names().unwrap_or_default();
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let value_is_shown = argument.get_action().takes_values();
        let value = if value_is_shown { values.join(" ") } else { String::new() };
        let mut names: Vec<String> = Vec::new();
        names.extend(argument.get_short().map(|short| format!("-{short}")));
        names.extend(argument.get_long().map(|long| format!("--{long}")));
        let name = match (names.is_empty(), value.is_empty()) {
            (true, _) => value,
            (false, true) => names.join(", "),
            (false, false) => format!("{} {value}", names.join(", ")),
        };
        let mut help = sentence(&help).replace('|', "\\|");
        let possible = argument.get_possible_values();
        if !possible.is_empty() && value_is_shown {
            let words: Vec<&str> = possible.iter().map(|it| it.get_name()).collect();
            write!(help, " [{}]", words.join(", "))?;
        }
        if let Some(default) = argument.get_default_values().first()
            && value_is_shown
        {
            write!(help, " [default {}]", default.to_string_lossy())?;
        }
        writeln!(text, "| `{name}` | {help} |")?;
    }
    Ok(())
}

/// clap removes the full stop.
fn sentence(help: &str) -> String {
    match help.ends_with(['.', ']']) || help.is_empty() {
        true => help.to_owned(),
        false => format!("{help}."),
    }
}
