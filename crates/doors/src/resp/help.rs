//! The replies to `HELP`: the subcommands of a command, from the table of commands.

use super::commands::Command;
use super::context::Context;

/// Replies with the subcommands of a command and their summaries.
pub(super) fn reply(context: &mut Context<'_>, name: &str) {
    let subcommands =
        context.state.names.command(name.as_bytes()).map_or(&[][..], |command| command.subcommands);
    let shown = |command: &&&Command| !command.name.ends_with("|help");
    context.reply.array(3 + 2 * subcommands.iter().filter(|it| shown(&it)).count());
    let name = name.to_ascii_uppercase();
    let line = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    context.reply.simple(&line);
    for command in subcommands.iter().filter(|it| shown(&it)) {
        let own = command.name.split_once('|').map_or("", |(_, own)| own);
        context.reply.simple(&own.to_ascii_uppercase());
        context.reply.simple(&format!("    {}", command.summary));
    }
    context.reply.simple("HELP");
    context.reply.simple("    Describes the subcommands.");
}
