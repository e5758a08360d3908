//! Commands about the client's own connection. The file `clients.rs` has those about all
//! connections.

use super::acl;
use super::client::{Client, Replies};
use super::cluster::Port;
use super::commands::{
    ADMIN, ALLOW_BUSY, AT_ONCE, Command, FAST, Group, LOADING, NO_AUTH, NOSCRIPT, OF_SUBSCRIBERS,
    STALE,
};
use super::context::{Context, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Database;
use super::writer::Version;
use std::rc::Rc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hello", -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, hello)
        .about(
            Group::Connection,
            "6.0.0",
            "Chooses the version of the protocol, and may give a password and a name.",
        ),
    Command::new("auth", -2, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, auth).about(
        Group::Connection,
        "1.0.0",
        "Gives the password.",
    ),
    Command::new("ping", -1, FAST | OF_SUBSCRIBERS, ping)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(Group::Connection, "1.0.0", "Answers, to show that the server is there."),
    Command::new("echo", 2, LOADING | STALE | FAST, echo).about(
        Group::Connection,
        "1.0.0",
        "Returns its argument.",
    ),
    Command::new("select", 2, LOADING | STALE | FAST, select).about(
        Group::Connection,
        "1.0.0",
        "Chooses the database of the connection.",
    ),
    Command::new(
        "quit",
        -1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY | AT_ONCE | OF_SUBSCRIBERS,
        quit,
    )
    .about(Group::Connection, "1.0.0", "Ends the connection."),
    Command::new(
        "reset",
        1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY | AT_ONCE | OF_SUBSCRIBERS,
        reset,
    )
    .about(Group::Connection, "6.2.0", "Makes the connection as it was when it was opened."),
    Command::new("monitor", 1, ADMIN | NOSCRIPT | LOADING | STALE, monitor).about(
        Group::Server,
        "1.0.0",
        "Shows all commands as they are executed.",
    ),
];

/// The version of Redis, as clients see it. Clients decide by it, and by the name `redis`, which
/// commands they use. redis-py caches values only from this version on.
pub(super) const REDIS_VERSION: &str = "7.4.4";

fn ping(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 2 {
        return Err(stop::wrong_arity("ping"));
    }
    let client = context.client();
    let is_subscriber = client.version == Version::Two && client.is_subscriber();
    let text = arguments.get(1);
    if is_subscriber {
        context.reply.array(2);
        context.reply.string(b"pong");
        context.reply.string(text.unwrap_or_default());
    } else {
        match text {
            Some(text) => context.reply.string(text),
            None => context.reply.simple("PONG"),
        }
    }
    Ok(())
}

fn echo(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    context.reply.string(&arguments[1]);
    Ok(())
}

fn select(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let number = integer_of(&arguments[1]).ok_or(stop::NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        let text = "ERR value is out of range, value must between -2147483648 and 2147483647";
        return Err(Stop::error(text));
    }
    if number != 0 && context.is_of_cluster() {
        return Err(Stop::error("ERR SELECT is not allowed in cluster mode"));
    }
    let database = database_at(context, number)?;
    context.objects.database = database;
    context.client().database = database;
    context.ok();
    Ok(())
}

/// Reads the number of a database.
pub(super) fn database_of(
    context: &Context<'_>,
    text: &[u8],
    not_an_integer: Stop,
) -> Result<Database, Stop> {
    database_at(context, integer_of(text).ok_or(not_an_integer)?)
}

/// Reads a number that may be that of a database.
pub(super) fn database_number(text: &[u8], wrong: Stop) -> Result<i64, Stop> {
    let number = integer_of(text).filter(|number| i32::try_from(*number).is_ok());
    number.ok_or(wrong)
}

/// Returns the database with a number.
pub(super) fn database_at(context: &Context<'_>, number: i64) -> Result<Database, Stop> {
    let database = Database::try_from(number).map_err(|_| stop::DATABASE_OUT_OF_RANGE)?;
    let count = if context.is_of_cluster() { 1 } else { context.state.options.databases };
    match database < count {
        true => Ok(database),
        false => Err(stop::DATABASE_OUT_OF_RANGE),
    }
}

fn quit(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.ends = true;
    context.ok();
    Ok(())
}

const WRONG_PASSWORD: Stop =
    Stop::error("WRONGPASS invalid username-password pair or user is disabled.");

/// Checks a name and a password for a command.
fn check_password(context: &mut Context<'_>, word: &[u8], user: &[u8], given: &[u8]) -> Done {
    let known = context.state.settings.users.named(user);
    if !known.is_some_and(|known| known.lets_in(given)) {
        let now_ms = context.objects.now();
        let (object, user) = (word.to_vec(), user.to_vec());
        context.state.note_refused(context.client, "auth", (object, user), now_ms);
        return Err(WRONG_PASSWORD);
    }
    let client = context.client();
    client.is_authenticated = true;
    client.user = (user != acl::DEFAULT).then(|| Rc::from(user));
    context.state.changes_limits = true;
    Ok(())
}

fn auth(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match (arguments.get(1), arguments.get(2), arguments.len()) {
        (Some(password), None, 2) => {
            if context.state.settings.users.default_user().is_open {
                return Err(Stop::error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            check_password(context, &arguments[0], acl::DEFAULT, password)?;
        }
        (Some(user), Some(password), 3) => check_password(context, &arguments[0], user, password)?,
        _ => return Err(stop::SYNTAX),
    }
    context.ok();
    Ok(())
}

/// Checks the name of a connection.
pub(super) fn check_name(name: &[u8]) -> Done {
    match name.iter().all(u8::is_ascii_graphic) {
        true => Ok(()),
        false => Err(Stop::error(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn hello(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let version = match arguments.get(1) {
        None => None,
        Some(text) => match integer_of(text) {
            Some(2) => Some(Version::Two),
            Some(3) => Some(Version::Three),
            Some(_) => return Err(Stop::error("NOPROTO unsupported protocol version")),
            None => {
                return Err(Stop::error("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let (mut name, mut given_password, mut at) = (None, None, 2);
    while let Some(word) = arguments.get(at) {
        match (arguments.get(at + 1), arguments.get(at + 2)) {
            (Some(user), Some(password)) if is(word, "AUTH") => {
                given_password = Some((user, password));
                at += 3;
            }
            (Some(given), _) if is(word, "SETNAME") => {
                check_name(given)?;
                name = Some(given);
                at += 2;
            }
            _ => {
                let text = [b"ERR Syntax error in HELLO option '", word, b"'"].concat();
                return Err(Stop::error_of(text));
            }
        }
    }
    if let Some((user, password)) = given_password {
        check_password(context, &arguments[0], user, password)?;
    }
    let client = context.client();
    if !client.is_authenticated {
        return Err(Stop::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client.name = name.to_vec();
    }
    if let Some(version) = version {
        client.version = version;
    }
    let (version, number) = (client.version, client.number as i64);
    let mode = if client.port == Port::Plain { "standalone" } else { "cluster" };
    let reply = &mut context.reply;
    reply.set_version(version);
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.string(name.as_bytes());
        reply.string(value.as_bytes());
    }
    reply.string(b"proto");
    reply.integer(if version == Version::Three { 3 } else { 2 });
    reply.string(b"id");
    reply.integer(number);
    for (name, value) in [("mode", mode), ("role", "master")] {
        reply.string(name.as_bytes());
        reply.string(value.as_bytes());
    }
    reply.string(b"modules");
    reply.array(0);
    Ok(())
}

fn reset(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let is_stranger = !context.state.lets_in_all();
    let Context { state, client, .. } = context;
    state.end_transaction(*client);
    let Some(client) = state.clients.get_mut(client) else { return Ok(()) };
    state.channels.forget(client);
    state.tracking.forget(client);
    state.monitors -= usize::from(client.is_monitor);
    let Client { id, port, number, opened_ms, active_ms, commands, .. } = *client;
    let (peer, local) = (std::mem::take(&mut client.peer), std::mem::take(&mut client.local));
    let (lib_name, lib_version) =
        (std::mem::take(&mut client.lib_name), std::mem::take(&mut client.lib_version));
    // The client may have asked for no reply to this command.
    let replies = if client.replies == Replies::Skip { Replies::Skip } else { Replies::On };
    *client = Client {
        port,
        active_ms,
        commands,
        lib_name,
        lib_version,
        last: "reset",
        is_authenticated: !is_stranger,
        replies,
        ..Client::new(id, number, &peer, &local, opened_ms)
    };
    state.changes_limits = true;
    context.objects.database = 0;
    context.reply.set_version(Version::Two);
    context.reply.simple("RESET");
    Ok(())
}

fn monitor(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let is_new = !std::mem::replace(&mut context.client().is_monitor, true);
    context.state.monitors += usize::from(is_new);
    context.ok();
    Ok(())
}
