//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH`.

use super::acl::Circumstance;
use super::client::{Multi, Queued};
use super::commands::{
    ALLOW_BUSY, AT_ONCE, Command, FAST, Group, Keys, LOADING, NOSCRIPT, PUBSUB, SKIP_SLOWLOG, STALE,
};
use super::context::{Context, from};
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Refusal;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("multi", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | AT_ONCE, multi)
        .about(
            Group::Transactions,
            "1.2.0",
            "Begins a transaction: commands are queued until EXEC.",
        ),
    Command::new("exec", 1, NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG | AT_ONCE, exec).about(
        Group::Transactions,
        "1.2.0",
        "Executes the queued commands as one.",
    ),
    Command::new("discard", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | AT_ONCE, discard)
        .about(Group::Transactions, "2.0.0", "Drops the queued commands."),
    Command::new("watch", -2, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY | AT_ONCE, watch)
        .keys(&[Keys::range("RO", 1, -1, 1)])
        .about(
            Group::Transactions,
            "2.2.0",
            "Makes the next EXEC depend on keys that must not change.",
        ),
    Command::new("unwatch", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, unwatch).about(
        Group::Transactions,
        "2.2.0",
        "Forgets the keys that were named with WATCH.",
    ),
];

fn multi(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let client = context.client();
    if client.multi.is_some() {
        return Err(Stop::error("ERR MULTI calls can not be nested"));
    }
    client.multi = Some(Multi::default());
    context.ok();
    Ok(())
}

fn discard(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    if context.client().multi.is_none() {
        return Err(Stop::error("ERR DISCARD without MULTI"));
    }
    context.state.end_transaction(context.client);
    context.ok();
    Ok(())
}

fn watch(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if context.client().multi.is_some() {
        return Err(Stop::error("ERR WATCH inside MULTI is not allowed"));
    }
    let database = context.objects.database;
    let mut versions = Vec::new();
    for key in from(arguments, 1) {
        versions.push(context.objects.peek(key)?.map(|found| found.version));
    }
    let id = context.client;
    for (key, version) in from(arguments, 1).zip(versions) {
        context.client().watched.entry((database, key.to_vec())).or_insert(version);
        context.state.watches.add(id, database, key);
    }
    context.ok();
    Ok(())
}

fn unwatch(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.state.unwatch(context.client);
    context.ok();
    Ok(())
}

/// Returns the error for a transaction that is not executed for a reason, which may be an error.
pub(super) fn aborted(reason: &str) -> Stop {
    let reason = reason.strip_prefix("ERR ").unwrap_or(reason);
    Stop::error_of(format!("EXECABORT Transaction discarded because of: {reason}"))
}

fn exec(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let client = context.client();
    let Some(multi) = &client.multi else { return Err(Stop::error("ERR EXEC without MULTI")) };
    if multi.is_broken {
        context.state.end_transaction(context.client);
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(Stop::error(text));
    }
    if check_watched(context)? {
        // After NotNow the client still has its transaction.
        context.objects.settle_gone()?;
        context.state.end_transaction(context.client);
        context.reply.null_array();
        return Ok(());
    }
    let Some(multi) = context.client().multi.take() else { return Ok(()) };
    // A command without keys may change the client, or the settings.
    let is_plain = multi.queued.iter().all(|queued| {
        let command = queued.command;
        !command.keys.is_empty() && !command.has(PUBSUB)
    });
    let before = (!is_plain).then(|| (context.client().clone(), context.state.settings.clone()));
    let done = execute(context, &multi.queued)
        .and_then(|()| context.check_reply())
        .and_then(|()| context.commit());
    // The error of the transaction may say that a field is gone. If the store cannot note that now,
    // EXEC is executed again, so it must find the same transaction again.
    let done = done.or_else(|stop| context.objects.settle_gone().and(Err(stop)));
    if done.is_err()
        && let Some((client, settings)) = before
    {
        context.state.settings = settings;
        context.state.restore(client);
    }
    match done {
        Ok(()) => context.state.unwatch(context.client),
        Err(Stop::Refused(Refusal::NotNow)) => {
            context.client().multi = Some(multi);
            return Err(Refusal::NotNow.into());
        }
        Err(stop) => {
            context.state.end_transaction(context.client);
            return Err(match stop {
                Stop::Refused(Refusal::Full) => aborted(stop::FULL),
                Stop::Refused(Refusal::TooLong) => aborted(stop::TOO_LONG),
                Stop::Refused(Refusal::TooMuch) => aborted(stop::TOO_MUCH),
                Stop::Ended(text) => aborted(&String::from_utf8_lossy(&text)),
                stop => stop,
            });
        }
    }
    Ok(())
}

/// Returns the error for an `EXEC` that is refused for a reason of its own.
pub(super) fn aborted_by(error: Stop) -> Stop {
    let Stop::Error(text) = error else { return error };
    let reason = text.strip_prefix(b"ERR ").unwrap_or(&text);
    Stop::error_of([b"EXECABORT Transaction discarded because of: ", reason].concat())
}

/// Whether a watched key has changed.
fn check_watched(context: &mut Context<'_>) -> Result<bool, Stop> {
    let client = context.client();
    if client.is_touched {
        return Ok(true);
    }
    let watched = std::mem::take(&mut client.watched);
    let mut changed = Ok(false);
    for ((database, key), version) in &watched {
        changed = match context.objects.peek_in(*database, key) {
            Ok(found) => Ok(found.map(|found| found.version) != *version),
            Err(stop) => Err(stop),
        };
        if changed != Ok(false) {
            break;
        }
    }
    context.client().watched = watched;
    changed
}

/// Executes commands, each with its reply.
fn execute(context: &mut Context<'_>, queued: &[Queued]) -> Done {
    context.may_wait = false;
    context.reply.array(queued.len());
    for queued in queued {
        context.check_reply()?;
        let when = (Circumstance::Multi, context.objects.now());
        let (id, own) = (context.client, queued.arguments());
        if let Err((denied, _)) = context.state.check_rights(id, queued.command, &own, when) {
            context.state.count_rejected(queued.command);
            context.state.write_error(&denied.error_in_exec(), &mut context.reply);
            continue;
        }
        let (length, signals) = (context.reply.length(), context.signals.len());
        let messages = context.messages.len();
        let begin = context.state.time();
        let done = (queued.command.execute)(context, queued.arguments());
        let took = context.state.took(begin);
        let now_ms = context.objects.now();
        let arguments = queued.arguments();
        context.state.show(context.client, queued.command, &arguments, now_ms, context.messages);
        let has_failed = !matches!(done, Ok(()) | Err(Stop::Wait(_)));
        context.state.count(queued.command, has_failed, took);
        context.state.note_slow(context.client, queued.command, &arguments, (now_ms, took));
        match done {
            Ok(()) => {}
            Err(Stop::Error(_) | Stop::Refused(Refusal::TooLong)) => {
                context.reply.truncate(length);
                context.signals.truncate(signals);
                context.messages.truncate(messages);
                context.objects.events.fail_command();
                if let Err(error) = &done {
                    context.state.write_error(error, &mut context.reply);
                }
            }
            Err(Stop::Wait(wait)) => {
                context.reply.truncate(length);
                if wait.is_array { context.reply.null_array() } else { context.reply.null() }
            }
            Err(stop) => return Err(stop),
        }
        context.note_tracking(queued.command, &arguments);
        context.publish_events();
    }
    Ok(())
}
