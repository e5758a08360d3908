//! `CLIENT`: commands about the connections of all clients.

use super::acl::Users;
use super::bounds;
use super::client::{Client, Replies};
use super::commands::{ADMIN, Command, Group, LOADING, NOSCRIPT, NOT_QUEUED, STALE, by_subcommand};
use super::connection::check_name;
use super::context::{Context, from, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::server::ClientId;
use super::stop::{self, Done, Stop};
use super::streams_groups::wrong_subcommand;
use super::tracking::{
    client_caching, client_getredir, client_tracking, client_trackinginfo, switch,
};
use super::writer::Version;
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[Command::new("client", -2, 0, by_subcommand)
    .subcommands(&[
        Command::new("client|help", 2, LOADING | STALE, client_help).about(
            Group::Connection,
            "5.0.0",
            "Describes the subcommands.",
        ),
        Command::new("client|no-touch", 3, NOSCRIPT | LOADING | STALE, client_no_touch).about(
            Group::Connection,
            "7.2.0",
            "Chooses whether reads count as uses of objects.",
        ),
        Command::new(
            "client|pause",
            -3,
            ADMIN | NOT_QUEUED | NOSCRIPT | LOADING | STALE,
            client_pause,
        )
        .about(
            Group::Connection,
            "3.0.0",
            "Delays the commands of all clients for some time.",
        ),
        Command::new("client|list", -2, ADMIN | NOSCRIPT | LOADING | STALE, client_list)
            .tips(&["nondeterministic_output"])
            .about(Group::Connection, "2.4.0", "Describes connections, one on each line."),
        Command::new("client|kill", -3, ADMIN | NOSCRIPT | LOADING | STALE, client_kill).about(
            Group::Connection,
            "2.4.0",
            "Closes connections.",
        ),
        Command::new("client|reply", 3, NOSCRIPT | LOADING | STALE, client_reply).about(
            Group::Connection,
            "3.2.0",
            "Switches replies on or off.",
        ),
        Command::new("client|setname", 3, NOSCRIPT | LOADING | STALE, client_setname)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Connection, "2.6.9", "Names the connection."),
        Command::new("client|getname", 2, NOSCRIPT | LOADING | STALE, client_getname).about(
            Group::Connection,
            "2.6.9",
            "Returns the name of the connection.",
        ),
        Command::new("client|id", 2, NOSCRIPT | LOADING | STALE, client_id).about(
            Group::Connection,
            "5.0.0",
            "Returns the number of the connection.",
        ),
        Command::new("client|no-evict", 3, ADMIN | NOSCRIPT | LOADING | STALE, client_no_evict)
            .about(
                Group::Connection,
                "7.0.0",
                "Accepted without effect: connections are not closed for memory.",
            ),
        Command::new("client|getredir", 2, NOSCRIPT | LOADING | STALE, client_getredir).about(
            Group::Connection,
            "6.0.0",
            "Returns the number of the client that is told about changes instead.",
        ),
        Command::new(
            "client|unblock",
            -3,
            ADMIN | NOT_QUEUED | NOSCRIPT | LOADING | STALE,
            client_unblock,
        )
        .about(Group::Connection, "5.0.0", "Ends the waiting of another client."),
        Command::new("client|tracking", -3, NOSCRIPT | LOADING | STALE, client_tracking).about(
            Group::Connection,
            "6.0.0",
            "Tells the client about changes of the keys that it has read, or no longer.",
        ),
        Command::new("client|trackinginfo", 2, NOSCRIPT | LOADING | STALE, client_trackinginfo)
            .about(Group::Connection, "6.2.0", "Returns how the client is told about changes."),
        Command::new("client|setinfo", 4, NOSCRIPT | LOADING | STALE, client_setinfo)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Connection, "7.2.0", "Names the library of the client."),
        Command::new("client|info", 2, NOSCRIPT | LOADING | STALE, client_info)
            .tips(&["nondeterministic_output"])
            .about(Group::Connection, "6.2.0", "Describes the connection."),
        Command::new("client|caching", 3, NOSCRIPT | LOADING | STALE, client_caching).about(
            Group::Connection,
            "6.0.0",
            "Says whether the keys of the next command count as read.",
        ),
        Command::new(
            "client|unpause",
            2,
            ADMIN | NOT_QUEUED | NOSCRIPT | LOADING | STALE,
            client_unpause,
        )
        .about(Group::Connection, "6.2.0", "Ends a delay of commands."),
    ])
    .about(Group::Connection, "2.4.0", "Commands about connections.")
    .categories("")];

fn client_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "client");
    Ok(())
}

fn client_id(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let number = context.client().number;
    context.reply.integer(number as i64);
    Ok(())
}

fn client_setname(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_name(&arguments[2])?;
    context.client().name = arguments[2].to_vec();
    context.ok();
    Ok(())
}

fn client_getname(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let name = context.client().name.clone();
    if name.is_empty() {
        context.reply.null()
    } else {
        context.reply.string(&name)
    }
    Ok(())
}

fn client_setinfo(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (option, value) = (&arguments[2], &arguments[3]);
    let is_name = is(option, "LIB-NAME");
    if !is_name && !is(option, "LIB-VER") {
        return Err(Stop::error_of([b"ERR Unrecognized option '", option, b"'"].concat()));
    }
    if !value.iter().all(u8::is_ascii_graphic) {
        let rest = b" cannot contain spaces, newlines or special characters.";
        return Err(Stop::error_of([b"ERR ", option, rest].concat()));
    }
    let client = context.client();
    let place = if is_name { &mut client.lib_name } else { &mut client.lib_version };
    *place = value.to_vec();
    context.ok();
    Ok(())
}

/// Returns the line of a client in `CLIENT LIST`.
pub(super) fn line(client: &Client, now_ms: u64) -> Vec<u8> {
    let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
    let mut flags = String::new();
    let [tracked, is_broken, is_broadcast] = client.tracking_flags();
    for (flag, is_set) in [
        ('O', client.is_monitor),
        ('P', client.is_subscriber()),
        ('x', client.multi.is_some()),
        ('b', client.waits.is_some()),
        tracked,
        is_broken,
        is_broadcast,
        ('e', client.evicts_not),
        ('T', client.touches_not),
    ] {
        if is_set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let multi = client.multi.as_ref().map_or(-1, |multi| multi.queued.len() as i64);
    let multi_bytes = client.multi.as_ref().map_or(0, |multi| multi.bytes);
    let version = if client.version == Version::Three { 3 } else { 2 };
    let mut line =
        format!("id={} addr={} laddr={} fd=0 name=", client.number, client.peer, client.local)
            .into_bytes();
    line.extend_from_slice(&client.name);
    line.extend_from_slice(
        format!(
            " age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={multi} watch={} \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={multi_bytes} rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem={multi_bytes} events=r cmd={} user=",
            seconds(client.opened_ms),
            seconds(client.active_ms),
            client.database,
            client.channels.len(),
            client.patterns.len(),
            client.shard_channels.len(),
            client.watched.len(),
            client.last,
        )
        .as_bytes(),
    );
    line.extend_from_slice(client.user_name());
    let rest = format!(" redir={} resp={version} lib-name=", client.redirect_number());
    line.extend_from_slice(rest.as_bytes());
    line.extend_from_slice(&client.lib_name);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&client.lib_version);
    let rest = format!(" io-thread=0 tot-net-in=0 tot-net-out=0 tot-cmds={}\n", client.commands);
    line.extend_from_slice(rest.as_bytes());
    line
}

fn client_info(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let now_ms = context.objects.now();
    let line = line(context.client(), now_ms);
    context.reply.verbatim(*b"txt", &line);
    Ok(())
}

/// The types of clients in filters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Normal,
    Subscriber,
    Other,
}

fn type_of(name: &[u8]) -> Result<Type, Stop> {
    match name {
        it if is(it, "normal") => Ok(Type::Normal),
        it if is(it, "pubsub") => Ok(Type::Subscriber),
        it if is(it, "master") || is(it, "replica") || is(it, "slave") => Ok(Type::Other),
        _ => Err(Stop::error_of([b"ERR Unknown client type '", name, b"'"].concat())),
    }
}

fn is_of_type(client: &Client, wanted: Type) -> bool {
    wanted == if client.is_subscriber() { Type::Subscriber } else { Type::Normal }
}

fn client_list(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let now_ms = context.objects.now();
    let (mut wanted, mut numbers) = (None, None);
    match (arguments.get(2), arguments.get(3)) {
        (None, _) => {}
        (Some(word), Some(name)) if is(word, "TYPE") && arguments.len() == 4 => {
            wanted = Some(type_of(name)?);
        }
        (Some(word), Some(_)) if is(word, "ID") => {
            let number = |text: &[u8]| integer_of(text).ok_or(Stop::error("ERR Invalid client ID"));
            numbers = Some(from(arguments, 3).map(number).collect::<Result<BTreeSet<_>, _>>()?);
        }
        _ => return Err(stop::SYNTAX),
    }
    let is_shown = |client: &&Client| {
        wanted.is_none_or(|wanted| is_of_type(client, wanted))
            && numbers.as_ref().is_none_or(|numbers| numbers.contains(&(client.number as i64)))
    };
    let clients = context.state.clients.values().filter(is_shown);
    let lines: Vec<u8> = clients.flat_map(|client| line(client, now_ms)).collect();
    context.reply.verbatim(*b"txt", &lines);
    Ok(())
}

/// The clients that `CLIENT KILL` closes.
struct Filter<'a> {
    number: Option<i64>,
    wanted: Option<Type>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    age_min: Option<i64>,
    user: Option<&'a [u8]>,
    skips_self: bool,
}

impl<'a> Filter<'a> {
    fn of(arguments: Arguments<'a>, users: &Users) -> Result<Filter<'a>, Stop> {
        let (number, wanted, peer, local, age_min) = (None, None, None, None, None);
        let mut filter =
            Filter { number, wanted, peer, local, age_min, user: None, skips_self: true };
        if arguments.len() == 3 {
            (filter.peer, filter.skips_self) = (arguments.get(2), false);
            return Ok(filter);
        }
        for at in (2..arguments.len()).step_by(2) {
            let Some(value) = arguments.get(at + 1) else { return Err(stop::SYNTAX) };
            let positive = || integer_of(value).filter(|number| *number > 0);
            match &arguments[at] {
                it if is(it, "ID") => {
                    let error = Stop::error("ERR client-id should be greater than 0");
                    filter.number = Some(positive().ok_or(error)?);
                }
                it if is(it, "MAXAGE") => {
                    let error = Stop::error("ERR maxage is not an integer or out of range");
                    let age = integer_of(value).ok_or(error)?;
                    let error = Stop::error("ERR maxage should be greater than 0");
                    filter.age_min = Some(age).filter(|age| *age > 0);
                    filter.age_min.ok_or(error)?;
                }
                it if is(it, "TYPE") => filter.wanted = Some(type_of(value)?),
                it if is(it, "ADDR") => filter.peer = Some(value),
                it if is(it, "LADDR") => filter.local = Some(value),
                it if is(it, "USER") => {
                    if users.named(value).is_none() {
                        let text = [b"ERR No such user '", value, b"'"].concat();
                        return Err(Stop::error_of(text));
                    }
                    filter.user = Some(value);
                }
                it if is(it, "SKIPME") && is(value, "yes") => filter.skips_self = true,
                it if is(it, "SKIPME") && is(value, "no") => filter.skips_self = false,
                _ => return Err(stop::SYNTAX),
            }
        }
        Ok(filter)
    }

    fn takes(&self, client: &Client, own: ClientId, now_ms: u64) -> bool {
        let age = (now_ms.saturating_sub(client.opened_ms) / 1000) as i64;
        self.number.is_none_or(|number| number == client.number as i64)
            && self.wanted.is_none_or(|wanted| is_of_type(client, wanted))
            && self.peer.is_none_or(|peer| peer == client.peer.as_bytes())
            && self.local.is_none_or(|local| local == client.local.as_bytes())
            && self.user.is_none_or(|user| client.is_authenticated && user == client.user_name())
            && self.age_min.is_none_or(|least| age >= least)
            && !(self.skips_self && client.id == own)
    }
}

fn client_kill(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let filter = Filter::of(arguments, &context.state.settings.users)?;
    let (own, now_ms) = (context.client, context.objects.now());
    let clients = context.state.clients.values();
    let killed: Vec<ClientId> =
        clients.filter(|it| filter.takes(it, own, now_ms)).map(|it| it.id).collect();
    for client in &killed {
        if *client == own {
            context.ends = true;
        } else {
            context.ended.push(*client);
        }
    }
    match (arguments.len(), killed.len()) {
        (3, 0) => return Err(Stop::error("ERR No such client")),
        (3, _) => context.ok(),
        (_, count) => context.reply.integer(count as i64),
    }
    Ok(())
}

fn client_reply(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let client = context.client();
    match &arguments[2] {
        it if is(it, "ON") => {
            client.replies = Replies::On;
            context.ok();
        }
        it if is(it, "OFF") => client.replies = Replies::Off,
        it if is(it, "SKIP") => {
            if client.replies != Replies::Off {
                client.replies = Replies::SkipNext;
            }
        }
        _ => return Err(stop::SYNTAX),
    }
    Ok(())
}

fn client_no_evict(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    context.client().evicts_not = switch(&arguments[2])?;
    context.ok();
    Ok(())
}

fn client_no_touch(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    context.client().touches_not = switch(&arguments[2])?;
    context.ok();
    Ok(())
}

fn client_pause(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 4 {
        return Err(wrong_subcommand(arguments));
    }
    let only_writes = match arguments.get(3) {
        None => false,
        Some(mode) if is(mode, "ALL") => false,
        Some(mode) if is(mode, "WRITE") => true,
        Some(_) => return Err(Stop::error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let now = context.objects.now();
    let time = bounds::timeout(&arguments[2], now)?;
    context.state.paused.begin(now.saturating_add(time), only_writes);
    context.ok();
    Ok(())
}

fn client_unpause(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.state.paused.end(context.woken);
    context.ok();
    Ok(())
}

fn client_unblock(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 4 {
        return Err(wrong_subcommand(arguments));
    }
    let is_error = match arguments.get(3) {
        None => false,
        Some(reason) if is(reason, "TIMEOUT") => false,
        Some(reason) if is(reason, "ERROR") => true,
        Some(_) => {
            return Err(Stop::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let number = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let Context { state, messages, woken, .. } = context;
    let found = state.clients.values().find(|it| it.number as i64 == number);
    let is_done = found.map(|it| it.id).is_some_and(|id| {
        let error = is_error.then_some("UNBLOCKED client unblocked via CLIENT UNBLOCK");
        state.unblock(id, error, messages, woken)
    });
    context.reply.integer(i64::from(is_done));
    Ok(())
}
