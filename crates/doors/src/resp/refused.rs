//! Commands that are refused, each with an error that names another way.

use super::commands::{
    ADMIN, ALLOW_BUSY, Command, DANGEROUS, Group, Keys, LOADING, MOVABLE_KEYS, NO_ASYNC_LOADING,
    NO_MULTI, NOSCRIPT, STALE, WRITE, by_subcommand,
};
use super::context::{Context, is};
use super::parser::Arguments;
use super::stop::{Done, Stop};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("failover", -1, ADMIN | NOSCRIPT | STALE, no_replication).about(Group::Server, "6.2.0", "Refused: see the error."),
    Command::new("migrate", -6, WRITE | MOVABLE_KEYS | DANGEROUS, migrate).keys(&[Keys::one("RW access delete", 3), Keys::behind("RW access delete incomplete", "KEYS", -2), /* {'flags': ['RW', 'access', 'delete', 'incomplete'], 'begin_search': {'type': 'keyword', 'spec': {'keyword': 'KEYS', 'startfrom': -2}}, 'find_keys': {'type': 'range', 'spec': {'lastkey': -1, 'keystep': 1, 'limit': 0}}} */]).tips(&["nondeterministic_output"]).about(Group::Generic, "2.6.0", "Refused: see the error."),
    Command::new("module", -2, 0, by_subcommand).subcommands(&[
        Command::new("module|unload", 3, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, no_modules).about(Group::Server, "4.0.0", "Refused: there are no modules."),
        Command::new("module|help", 2, LOADING | STALE, module_help).about(Group::Server, "5.0.0", "Describes the subcommands."),
        Command::new("module|list", 2, ADMIN | NOSCRIPT, module_list).tips(&["nondeterministic_output_order"]).about(Group::Server, "4.0.0", "Returns the modules, of which there are none."),
        Command::new("module|loadex", -3, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, no_modules).about(Group::Server, "7.0.0", "Refused: there are no modules."),
        Command::new("module|load", -3, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, no_modules).about(Group::Server, "4.0.0", "Refused: there are no modules."),
    ]).about(Group::Server, "4.0.0", "Commands about modules, of which there are none."),
    Command::new("psync", -3, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, no_replication).about(Group::Server, "2.8.0", "Refused: see the error."),
    Command::new("replconf", -1, ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY, no_replication).about(Group::Server, "3.0.0", "Refused: see the error."),
    Command::new("replicaof", 3, ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING, replicaof).about(Group::Server, "5.0.0", "Refused, but for NO ONE: see the error."),
    Command::new("shutdown", -1, ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY, shutdown).about(Group::Server, "1.0.0", "Refused: see the error."),
    Command::new("slaveof", 3, ADMIN | NOSCRIPT | STALE | NO_ASYNC_LOADING, replicaof).about(Group::Server, "1.0.0", "Refused, but for NO ONE: see the error."),
    Command::new("sync", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, no_replication).about(Group::Server, "1.0.0", "Refused: see the error."),
];

fn no_replication(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error(
        "ERR There is no replication between servers of Redis: a cluster keeps replicas by itself",
    ))
}

/// The server is no replica, so `NO ONE` changes nothing.
fn replicaof(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if is(&arguments[1], "NO") && is(&arguments[2], "ONE") {
        context.ok();
        return Ok(());
    }
    no_replication(context, arguments)
}

fn migrate(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("ERR MIGRATE is refused: copy the keys with `thunderhead import`"))
}

fn module_list(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.array(0);
    Ok(())
}

fn module_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "module");
    Ok(())
}

fn no_modules(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("ERR Thunderhead has no modules"))
}

fn shutdown(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("ERR Clients cannot stop the server: stop its process instead"))
}

#[cfg(test)]
mod tests {
    use crate::resp::testing::Door;

    #[test]
    fn there_are_no_modules() {
        let mut door = Door::new();
        door.expect(&[
            ("module list", "*0|"),
            ("module load x", "-ERR Thunderhead has no modules|"),
            ("module", "-ERR wrong number of arguments for 'module' command|"),
            ("module foo", "-ERR unknown subcommand 'foo'. Try MODULE HELP.|"),
        ]);
        assert!(door.said("module help").contains("+LOADEX|"));
    }
}
