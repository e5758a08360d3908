//! `ACL`: commands about users. See [`acl`](super::acl).

use super::acl::{self, Denied, User, merged};
use super::commands::{ADMIN, Command, Group, LOADING, NOSCRIPT, STALE, by_subcommand, named};
use super::context::{Context, from, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::server::ClientId;
use super::stop::{self, Done, Stop};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
            "Describes all users.",
        ),
        Command::new("acl|users", 2, ADMIN | NOSCRIPT | LOADING | STALE, acl_users).about(
            Group::Server,
            "6.0.0",
            "Returns the names of all users.",
        ),
        Command::new("acl|cat", -2, NOSCRIPT | LOADING | STALE, acl_cat).about(
            Group::Server,
            "6.0.0",
            "Returns the categories of commands, or the commands of one.",
        ),
        Command::new("acl|genpass", -2, NOSCRIPT | LOADING | STALE, acl_genpass).about(
            Group::Server,
            "6.0.0",
            "Returns a random password.",
        ),
        Command::new("acl|getuser", 3, ADMIN | NOSCRIPT | LOADING | STALE, acl_getuser).about(
            Group::Server,
            "6.0.0",
            "Describes a user.",
        ),
        Command::new("acl|setuser", -3, ADMIN | NOSCRIPT | LOADING | STALE, acl_setuser)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "6.0.0", "Makes a user, or changes one."),
        Command::new("acl|deluser", -3, ADMIN | NOSCRIPT | LOADING | STALE, acl_deluser)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "6.0.0", "Deletes users, and closes their connections."),
        Command::new("acl|dryrun", -4, ADMIN | NOSCRIPT | LOADING | STALE, acl_dryrun).about(
            Group::Server,
            "7.0.0",
            "Tells whether a user may execute a command, and executes nothing.",
        ),
        Command::new("acl|load", 2, ADMIN | NOSCRIPT | LOADING | STALE, no_file).about(
            Group::Server,
            "6.0.0",
            "Refused: users are kept with the objects.",
        ),
        Command::new("acl|log", -2, ADMIN | NOSCRIPT | LOADING | STALE, acl_log).about(
            Group::Server,
            "6.0.0",
            "Returns refused commands and passwords.",
        ),
        Command::new("acl|save", 2, ADMIN | NOSCRIPT | LOADING | STALE, no_file)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "6.0.0", "Refused: users are kept with the objects."),
    ])
    .about(Group::Server, "6.0.0", "Commands about users and their rights.")];

fn acl_whoami(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let name = context.client().user_name().to_vec();
    context.reply.string(&name);
    Ok(())
}

fn acl_users(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let users = state.settings.users.iter();
    reply.array(users.len());
    users.for_each(|user| reply.string(&user.name));
    Ok(())
}

fn acl_list(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let users = state.settings.users.iter();
    reply.array(users.len());
    users.for_each(|user| reply.string(&user.line()));
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

/// Whether there is a category of commands with a name.
pub(super) fn is_category(name: &[u8]) -> bool {
    CATEGORIES.iter().any(|category| is(name, category))
}

/// Returns the error for too many arguments of a subcommand.
fn too_many(arguments: &Arguments<'_>) -> Stop {
    let begin = b"ERR unknown subcommand or wrong number of arguments for '";
    Stop::error_of([&begin[..], &arguments[1], b"'. Try ACL HELP."].concat())
}

fn acl_cat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 3 {
        return Err(too_many(&arguments));
    }
    let Some(name) = arguments.get(2) else {
        context.reply.array(CATEGORIES.len());
        for category in CATEGORIES {
            context.reply.string(category.as_bytes());
        }
        return Ok(());
    };
    if !is_category(name) {
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

fn no_file(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error(
        "ERR This Redis instance is not configured to use an ACL file. Users are kept with the \
         objects: each change is kept at once",
    ))
}

/// The bits of a password that `ACL GENPASS` makes, if it is not told, and at most.
const BITS: i64 = 256;
const BITS_MAX: i64 = 4096;

/// The hashes from which `ACL GENPASS` has made passwords. The servers of a process share it, as
/// they have the same secret: a number that two servers used would make the same password twice.
static PASSWORDS_MADE: AtomicU64 = AtomicU64::new(0);

fn acl_genpass(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 3 {
        return Err(too_many(&arguments));
    }
    let bits = match arguments.get(2) {
        None => BITS,
        Some(text) => integer_of(text).ok_or(stop::NOT_AN_INTEGER)?,
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Stop::error(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        ));
    }
    let Some(secret) = context.state.options.secret else {
        return Err(Stop::error("ERR The server has no random numbers that are secret"));
    };
    let digits = (bits as usize).div_ceil(4);
    let mut password = String::new();
    while password.len() < digits {
        let number = PASSWORDS_MADE.fetch_add(1, Ordering::Relaxed);
        let hash = Sha256::new().chain_update(secret);
        let hash = hash.chain_update(number.to_le_bytes()).finalize();
        password.extend(hash.iter().map(|byte| format!("{byte:02x}")));
    }
    password.truncate(digits);
    context.reply.string(password.as_bytes());
    Ok(())
}

fn acl_getuser(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { state, reply, .. } = context;
    let Some(user) = state.settings.users.named(&arguments[2]) else {
        reply.null();
        return Ok(());
    };
    reply.map(6);
    reply.string(b"flags");
    reply.set(user.flags().count());
    user.flags().for_each(|flag| reply.string(flag.as_bytes()));
    reply.string(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.string(hash.as_bytes()));
    let selector = |reply: &mut super::writer::Writer<'_>, it: &acl::Selector| {
        reply.string(b"commands");
        reply.string(&it.commands_text());
        reply.string(b"keys");
        reply.string(&it.keys_text());
        reply.string(b"channels");
        reply.string(&it.channels_text());
    };
    selector(reply, &user.root);
    reply.string(b"selectors");
    reply.array(user.selectors.len());
    for it in &user.selectors {
        reply.map(3);
        selector(reply, it);
    }
    Ok(())
}

fn acl_setuser(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let name = &arguments[2];
    if name.iter().any(|byte| byte.is_ascii_whitespace() || matches!(*byte, 0 | 0x0b)) {
        return Err(Stop::error("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = merged(from(arguments, 3)).map_err(|begin| {
        let text = b"ERR Unmatched parenthesis in acl selector starting at '";
        Stop::error_of([&text[..], begin, b"'."].concat())
    })?;
    let state = &mut *context.state;
    let before = state.settings.users.named(name).cloned();
    let mut user = before.as_ref().map_or_else(|| User::new(name), |user| User::clone(user));
    for rule in &rules {
        user.apply(&state.names, rule).map_err(|wrong| {
            let begin = b"ERR Error in ACL SETUSER modifier '";
            let end = format!("': {}", wrong.text());
            Stop::error_of([&begin[..], rule, end.as_bytes()].concat())
        })?;
    }
    let default = state.settings.users.default_user();
    let is_default = name == acl::DEFAULT;
    let has_other_password =
        is_default && (&default.passwords, default.is_open) != (&user.passwords, user.is_open);
    if has_other_password && !state.settings.may_set_password {
        return Err(Stop::error(
            "ERR The password of the user 'default' is an option of the servers: set \
             server.redis_password, alike for all servers",
        ));
    }
    // An error changes nothing in memory: in a MULTI, the next commands and EXEC itself go on.
    let mut users = state.settings.users.clone();
    users.insert(user);
    users.save(&mut context.objects)?;
    state.settings.users = users;
    if has_other_password {
        state.settings.password = None;
    }
    end_listeners(context, name);
    context.ok();
    Ok(())
}

/// Closes the connections of a user that listen to channels to which the user may not listen.
fn end_listeners(context: &mut Context<'_>, name: &[u8]) {
    let Some(user) = context.state.settings.users.named(name).map(Arc::clone) else { return };
    let clients = context.state.clients.values();
    let ended = clients.filter(|client| {
        let mut named = client.channels.iter().chain(&client.shard_channels);
        client.is_authenticated
            && client.user_name() == name
            && (named.any(|channel| !user.may_listen(channel, false))
                || client.patterns.iter().any(|pattern| !user.may_listen(pattern, true)))
    });
    let ended: Vec<ClientId> = ended.map(|client| client.id).collect();
    end(context, &ended);
}

/// Closes connections.
fn end(context: &mut Context<'_>, clients: &[ClientId]) {
    for client in clients {
        if *client == context.client {
            context.ends = true;
        } else {
            context.ended.push(*client);
        }
    }
}

fn acl_deluser(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if from(arguments, 2).any(|name| name == acl::DEFAULT) {
        return Err(Stop::error("ERR The 'default' user cannot be removed"));
    }
    let mut users = context.state.settings.users.clone();
    let removed: Vec<&[u8]> = from(arguments, 2).filter(|name| users.remove(name)).collect();
    if !removed.is_empty() {
        users.save(&mut context.objects)?;
        context.state.settings.users = users;
    }
    for name in &removed {
        let clients = context.state.clients.values();
        let own = clients.filter(|client| client.user_name() == *name);
        let own: Vec<ClientId> = own.map(|client| client.id).collect();
        end(context, &own);
    }
    context.reply.integer(removed.len() as i64);
    Ok(())
}

fn acl_dryrun(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (user, name) = (&arguments[2], &arguments[3]);
    let Some(user) = context.state.settings.users.named(user) else {
        return Err(Stop::error_of([b"ERR User '", user, b"' not found"].concat()));
    };
    let names = &context.state.names;
    let Some(command) = names.command(name).and_then(|it| named(it, arguments.get(4))) else {
        return Err(Stop::error_of([b"ERR Command '", name, b"' not found"].concat()));
    };
    if !command.takes(arguments.len() - 3) {
        return Err(stop::wrong_arity(command.name));
    }
    let words: Vec<&[u8]> = from(arguments, 3).collect();
    match user.check(names, command, &words) {
        Ok(()) => context.ok(),
        Err(denied) => {
            let text = denied.long_text(user, command, &words);
            context.reply.string(&text);
        }
    }
    Ok(())
}

fn acl_log(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match (arguments.get(2), arguments.len()) {
        (None, _) => acl::reply_log(context, 10),
        (Some(word), 3) if is(word, "RESET") => {
            context.state.acl_log.reset();
            context.ok();
        }
        (Some(count), 3) => {
            let count = integer_of(count).ok_or(stop::NOT_AN_INTEGER)?;
            acl::reply_log(context, usize::try_from(count).unwrap_or(0));
        }
        _ => return Err(too_many(&arguments)),
    }
    Ok(())
}

impl Denied {
    /// Returns the error for a command of a transaction that was allowed when it was queued.
    pub(super) fn error_in_exec(self) -> Stop {
        let reason = match self {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => {
                "no permission to access one of the channels used as arguments to the command"
            }
        };
        Stop::error_of(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {reason}"
        ))
    }
}
