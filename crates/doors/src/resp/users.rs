//! `ACL`: commands about users. There is one user, which may do everything.

use super::commands::{ADMIN, Command, Group, LOADING, NOSCRIPT, STALE, by_subcommand, subcommand};
use super::connection::USER;
use super::context::{Context, from, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};

pub(super) const COMMANDS: &[Command] = &[Command::new("acl", -2, 0, by_subcommand)
    .subcommands(&[
        Command::new("acl|whoami", 2, NOSCRIPT | LOADING | STALE, acl_whoami).about(
            Group::Server,
            "6.0.0",
            "Returns the name of the user.",
        ),
        Command::new("acl|help", 2, LOADING | STALE, acl_help).about(
            Group::Server,
            "6.0.0",
            "Describes the subcommands.",
        ),
        Command::new("acl|list", 2, ADMIN | NOSCRIPT | LOADING | STALE, acl_list).about(
            Group::Server,
            "6.0.0",
            "Describes the user.",
        ),
        Command::new("acl|users", 2, ADMIN | NOSCRIPT | LOADING | STALE, acl_users).about(
            Group::Server,
            "6.0.0",
            "Returns the name of the user.",
        ),
        Command::new("acl|cat", -2, NOSCRIPT | LOADING | STALE, acl_cat).about(
            Group::Server,
            "6.0.0",
            "Returns the categories of commands.",
        ),
        Command::new("acl|getuser", 3, ADMIN | NOSCRIPT | LOADING | STALE, acl_getuser).about(
            Group::Server,
            "6.0.0",
            "Describes a user.",
        ),
        Command::new("acl|setuser", -3, ADMIN | NOSCRIPT | LOADING | STALE, acl_setuser)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "6.0.0", "Refused: see the error."),
        Command::new("acl|deluser", -3, ADMIN | NOSCRIPT | LOADING | STALE, acl_deluser)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "6.0.0", "Answers 0: there are no other users."),
        Command::new("acl|dryrun", -4, ADMIN | NOSCRIPT | LOADING | STALE, acl_dryrun).about(
            Group::Server,
            "7.0.0",
            "Tells whether the user may execute a command, and executes nothing.",
        ),
        Command::new("acl|log", -2, ADMIN | NOSCRIPT | LOADING | STALE, acl_log).about(
            Group::Server,
            "6.0.0",
            "Returns no entries: the user may do everything.",
        ),
    ])
    .about(Group::Server, "6.0.0", "Commands about users, of which there is one.")];

fn acl_whoami(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.string(USER);
    Ok(())
}

fn acl_users(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.array(1);
    context.reply.string(USER);
    Ok(())
}

fn acl_list(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let pass = if context.state.settings.password.is_some() { "" } else { " nopass" };
    let line = format!("user default on{pass} sanitize-payload ~* &* +@all");
    context.reply.array(1);
    context.reply.string(line.as_bytes());
    Ok(())
}

/// The categories of commands, in the order of Redis.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

fn acl_cat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Some(name) = arguments.get(2) else {
        context.reply.array(CATEGORIES.len());
        for category in CATEGORIES {
            context.reply.string(category.as_bytes());
        }
        return Ok(());
    };
    if !CATEGORIES.iter().any(|category| is(name, category)) {
        return Err(Stop::error_of([b"ERR Unknown category '", name, b"'"].concat()));
    }
    super::command_info::reply_names(context, |command| {
        command.category_names().iter().any(|own| is(name, &own[1..]))
    });
    Ok(())
}

fn acl_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "acl");
    Ok(())
}

fn acl_getuser(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if &arguments[2] != USER {
        context.reply.null();
        return Ok(());
    }
    let needs_password = context.state.settings.password.is_some();
    let flags = ["on", "nopass", "sanitize-payload"];
    let flags = flags.into_iter().filter(|flag| !(needs_password && *flag == "nopass"));
    let reply = &mut context.reply;
    reply.map(6);
    reply.string(b"flags");
    reply.set(flags.clone().count());
    flags.for_each(|flag| reply.simple(flag));
    // Redis shows hashes of passwords. The server shows nothing of its password.
    reply.string(b"passwords");
    reply.array(0);
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.string(name.as_bytes());
        reply.string(value.as_bytes());
    }
    reply.string(b"selectors");
    reply.array(0);
    Ok(())
}

fn acl_setuser(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error(match context.state.settings.may_set_password {
        true => {
            "ERR There is only the user 'default': set its password with CONFIG SET requirepass"
        }
        false => {
            "ERR There is only the user 'default': set its password with server.redis_password, \
             alike for all servers"
        }
    }))
}

fn acl_deluser(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if from(arguments, 2).any(|name| name == USER) {
        return Err(Stop::error("ERR The 'default' user cannot be removed"));
    }
    context.reply.integer(0);
    Ok(())
}

fn acl_dryrun(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (user, name) = (&arguments[2], &arguments[3]);
    if user != USER {
        return Err(Stop::error_of([b"ERR User '", user, b"' not found"].concat()));
    }
    let names = &context.state.names;
    let Some(mut command) = names.command(name) else {
        return Err(Stop::error_of([b"ERR Command '", name, b"' not found"].concat()));
    };
    if let Some(found) = arguments.get(4).and_then(|name| subcommand(command, name)) {
        command = found;
    }
    if !command.takes(arguments.len() - 3) {
        return Err(stop::wrong_arity(command.name));
    }
    context.ok();
    Ok(())
}

fn acl_log(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match (arguments.get(2), arguments.len()) {
        (None, _) => context.reply.array(0),
        (Some(word), 3) if is(word, "RESET") => context.ok(),
        (Some(count), 3) => {
            integer_of(count).ok_or(stop::NOT_AN_INTEGER)?;
            context.reply.array(0);
        }
        _ => {
            let begin = b"ERR unknown subcommand or wrong number of arguments for '";
            let text = [&begin[..], &arguments[1], b"'. Try ACL HELP."].concat();
            return Err(Stop::error_of(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::resp::testing::Door;

    #[test]
    fn acl_describes_the_only_user() {
        let mut door = Door::new();
        door.expect(&[
            ("acl whoami", "$7|default|"),
            ("acl users", "*1|$7|default|"),
            ("acl list", "*1|$51|user default on nopass sanitize-payload ~* &* +@all|"),
            ("acl cat foo", "-ERR Unknown category 'foo'|"),
            (
                "acl getuser default",
                "*12|$5|flags|*3|+on|+nopass|+sanitize-payload|$9|passwords|*0|$8|commands|$5|+@all|\
                 $4|keys|$2|~*|$8|channels|$2|&*|$9|selectors|*0|",
            ),
            ("acl getuser foo", "$-1|"),
            ("acl deluser foo bar", ":0|"),
            ("acl deluser foo default", "-ERR The 'default' user cannot be removed|"),
        ]);
        assert!(door.said("acl setuser foo on").contains("only the user 'default'"));
        door.said("config set requirepass secret");
        let user = door.said("acl getuser default");
        assert!(user.starts_with("*12|$5|flags|*2|+on|+sanitize-payload|"), "{user}");
        assert!(!user.contains("secret"), "the password stays secret: {user}");
    }

    #[test]
    fn acl_dryrun_checks_the_command_and_executes_nothing() {
        Door::new().expect(&[
            ("acl dryrun default set a b", "+OK|"),
            ("exists a", ":0|"),
            ("acl dryrun foo set a b", "-ERR User 'foo' not found|"),
            ("acl dryrun default foo", "-ERR Command 'foo' not found|"),
            ("acl dryrun default set a", "-ERR wrong number of arguments for 'set' command|"),
            ("acl dryrun default client list", "+OK|"),
            (
                "acl dryrun default client id x",
                "-ERR wrong number of arguments for 'client|id' command|",
            ),
        ]);
    }

    #[test]
    fn acl_log_has_no_entries() {
        Door::new().expect(&[
            ("acl log", "*0|"),
            ("acl log 10", "*0|"),
            ("acl log x", "-ERR value is not an integer or out of range|"),
            ("acl log reset", "+OK|"),
            (
                "acl log reset a",
                "-ERR unknown subcommand or wrong number of arguments for 'log'. Try ACL HELP.|",
            ),
        ]);
    }
}
