//! The reference of the command line, as Markdown. It is generated from the commands and the table
//! of keys, so it agrees with the program. A test compares it with `docs/cli.md`.

use crate::arguments::Arguments;
use crate::exit::EXITS;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;
use thunderhead_config::KEYS;

/// Returns the whole page.
pub(crate) fn page() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut text = String::from(INTRODUCTION);
    // Writing to a string does not fail.
    let _ = statuses(&mut text)
        .and_then(|()| configuration(&mut text))
        .and_then(|()| commands(&root, &mut text));
    text
}

const INTRODUCTION: &str = "\
# The command line

This page is the output of `thunderhead reference`. A test compares the two.

The result of a command goes to the standard output. Errors, progress and notes about skipped lines go to
the standard error. With `--json` the result is one JSON value, or one line for each of several objects,
and a failure prints `{\"error\": {\"kind\", \"status\", \"message\"}}` on the standard error. If the
reader of the output goes away, the command ends with status 0.

Keys and values are bytes. The command line takes the bytes that the shell passes on. With `--escaped`, and
between quotes in `thunderhead shell`, `\\n`, `\\r`, `\\t`, `\\\\` and `\\xNN` stand for bytes; `scan` shows
bytes that are not plain text in this way. `get` shows text unchanged. In JSON, bytes that are not UTF-8 are in
base64, in a member whose name ends with `_base64`. Whole numbers above 2⁵³ (ids of clusters, versions,
counters) are strings, because many programs would round them. Programs should read both forms.

An import sends the objects of 512 lines, or of 1 MiB, at a time. If several lines have the same key, the
last one wins. Lines of JSON have at most 8 MiB.
";

fn statuses(text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n## Status\n\n| status | meaning |\n| --- | --- |")?;
    for (exit, meaning) in EXITS {
        writeln!(text, "| {} | {meaning} |", *exit as u8)?;
    }
    text.push_str(
        "\nA command with several steps may have done some of them when it fails: `import`, \
         `table split\n--in`, a script of the shell. You may repeat the first two without harm.\n",
    );
    Ok(())
}

fn configuration(text: &mut String) -> std::fmt::Result {
    text.push_str(
        "\n## Configuration\n\n\
         A flag overrides the environment, which overrides the file, which overrides the default. The file \
         is given\nby `--config` or `THUNDERHEAD_CONFIG`; otherwise it is `./thunderhead.toml`, if that \
         exists.\n`thunderhead config show` prints the effective configuration as a file, with the source of each \
         value. A key's\nvariable is its name in capitals after `THUNDERHEAD_`, with `_` for the dot. Its flag is \
         its name without the\nsection, with `-` for `_`, on the command that it configures; the sections `log` \
         and `probe` stay:\n`--log-level`. \
         `--set KEY=VALUE` sets any key. An empty variable\ncounts as not set. Bytes and times have their unit:\n`8GiB`, `512MiB`, `4096B`, \
         `100ms`, `10s`, `5m`.\n\nThe shell keeps its history in `THUNDERHEAD_HISTORY`; if that is not \
         set, in `thunderhead/history` below\n`XDG_STATE_HOME`, or below `~/.local/state`. Lines that begin \
         with a blank are not kept.\n",
    );
    let mut section = None;
    for key in KEYS {
        if section != Some(key.section()) {
            section = Some(key.section());
            let heading = match key.section() {
                "" => "For all".to_owned(),
                section => format!("`[{section}]`"),
            };
            writeln!(text, "\n### {heading}\n")?;
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

fn commands(root: &Command, text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n## Commands\n\nEach has `--help`. Everywhere:")?;
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
