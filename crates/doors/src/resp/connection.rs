//! Commands about the connection.

use super::commands::{
    ALLOW_BUSY, AT_ONCE, Command, FAST, Group, LOADING, NO_AUTH, NOSCRIPT, OF_SUBSCRIBERS, STALE,
};
use super::context::Context;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Database;
use super::writer::Version;

pub(super) const COMMANDS: &[Command] = &[
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
];

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
    let database = database_of(context, &arguments[1], stop::NOT_AN_INTEGER)?;
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
    let number = integer_of(text).ok_or(not_an_integer)?;
    let database = Database::try_from(number).map_err(|_| stop::DATABASE_OUT_OF_RANGE)?;
    match database < context.state.options.databases {
        true => Ok(database),
        false => Err(stop::DATABASE_OUT_OF_RANGE),
    }
}

fn quit(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.ends = true;
    context.ok();
    Ok(())
}
