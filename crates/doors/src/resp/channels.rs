//! Channels: messages from clients to the clients that listen.

use super::client::Client;
use super::commands::{
    Command, FAST, Group, Keys, LOADING, NOSCRIPT, OF_SUBSCRIBERS, PUBSUB, STALE, by_subcommand,
};
use super::context::{Context, from};
use super::glob;
use super::parser::Arguments;
use super::server::{ClientId, State};
use super::stop::{Done, Stop};
use super::writer::{Version, Writer};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("subscribe", -2, PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS, subscribe)
        .about(Group::PubSub, "2.0.0", "Listens to channels."),
    Command::new(
        "unsubscribe",
        -1,
        PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS,
        unsubscribe,
    )
    .about(Group::PubSub, "2.0.0", "Listens no longer to channels."),
    Command::new(
        "psubscribe",
        -2,
        PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS,
        psubscribe,
    )
    .about(Group::PubSub, "2.0.0", "Listens to channels with names that match patterns."),
    Command::new(
        "punsubscribe",
        -1,
        PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS,
        punsubscribe,
    )
    .about(Group::PubSub, "2.0.0", "Listens no longer to patterns."),
    Command::new(
        "ssubscribe",
        -2,
        PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS,
        ssubscribe,
    )
    .keys(&[Keys::range("not_key", 1, -1, 1)])
    .about(Group::PubSub, "7.0.0", "Listens to channels of shards."),
    Command::new(
        "sunsubscribe",
        -1,
        PUBSUB | NOSCRIPT | LOADING | STALE | OF_SUBSCRIBERS,
        sunsubscribe,
    )
    .keys(&[Keys::range("not_key", 1, -1, 1)])
    .about(Group::PubSub, "7.0.0", "Listens no longer to channels of shards."),
    Command::new("publish", 3, PUBSUB | LOADING | STALE | FAST, publish).about(
        Group::PubSub,
        "2.0.0",
        "Sends a message to a channel.",
    ),
    Command::new("spublish", 3, PUBSUB | LOADING | STALE | FAST, spublish)
        .keys(&[Keys::one("not_key", 1)])
        .about(Group::PubSub, "7.0.0", "Sends a message to a channel of a shard."),
    Command::new("pubsub", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("pubsub|help", 2, LOADING | STALE, pubsub_help).about(
                Group::PubSub,
                "6.2.0",
                "Describes the subcommands.",
            ),
            Command::new("pubsub|numpat", 2, PUBSUB | LOADING | STALE, pubsub_numpat).about(
                Group::PubSub,
                "2.8.0",
                "Counts the patterns with listeners.",
            ),
            Command::new(
                "pubsub|shardchannels",
                -2,
                PUBSUB | LOADING | STALE,
                pubsub_shardchannels,
            )
            .about(
                Group::PubSub,
                "7.0.0",
                "Returns the channels of shards with listeners.",
            ),
            Command::new("pubsub|shardnumsub", -2, PUBSUB | LOADING | STALE, pubsub_shardnumsub)
                .about(Group::PubSub, "7.0.0", "Counts the listeners of channels of shards."),
            Command::new("pubsub|channels", -2, PUBSUB | LOADING | STALE, pubsub_channels).about(
                Group::PubSub,
                "2.8.0",
                "Returns the channels with listeners.",
            ),
            Command::new("pubsub|numsub", -2, PUBSUB | LOADING | STALE, pubsub_numsub).about(
                Group::PubSub,
                "2.8.0",
                "Counts the listeners of channels.",
            ),
        ])
        .about(Group::PubSub, "2.8.0", "Commands about channels."),
];

/// The clients that listen, by the names of channels or patterns.
type Listeners = BTreeMap<Vec<u8>, BTreeSet<ClientId>>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Channels {
    named: Listeners,
    patterns: Listeners,
    of_shards: Listeners,
}

/// The ways to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Named,
    Pattern,
    OfShard,
}

impl Way {
    const ALL: [Way; 3] = [Way::Named, Way::Pattern, Way::OfShard];

    fn names(self, client: &mut Client) -> &mut BTreeSet<Vec<u8>> {
        match self {
            Way::Named => &mut client.channels,
            Way::Pattern => &mut client.patterns,
            Way::OfShard => &mut client.shard_channels,
        }
    }

    fn listeners(self, channels: &mut Channels) -> &mut Listeners {
        match self {
            Way::Named => &mut channels.named,
            Way::Pattern => &mut channels.patterns,
            Way::OfShard => &mut channels.of_shards,
        }
    }

    /// Returns the number that a client is told: of channels and patterns, or of those of shards.
    fn count(self, client: &Client) -> i64 {
        let count = match self {
            Way::Named | Way::Pattern => client.subscriptions(),
            Way::OfShard => client.shard_channels.len(),
        };
        count as i64
    }
}

impl Channels {
    /// Returns the numbers of channels and of patterns with listeners.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.named.len() as u64, self.patterns.len() as u64)
    }

    /// Lets a client listen to nothing any more.
    pub(super) fn forget(&mut self, client: &mut Client) {
        for way in Way::ALL {
            for name in std::mem::take(way.names(client)) {
                remove(way.listeners(self), &name, client.id);
            }
        }
    }

    /// Lets a client listen to all that it names.
    pub(super) fn remember(&mut self, client: &mut Client) {
        for way in Way::ALL {
            for name in way.names(client).clone() {
                way.listeners(self).entry(name).or_default().insert(client.id);
            }
        }
    }
}

fn remove(listeners: &mut Listeners, name: &[u8], client: ClientId) {
    if let Some(clients) = listeners.get_mut(name) {
        clients.remove(&client);
        if clients.is_empty() {
            listeners.remove(name);
        }
    }
}

fn begin(context: &mut Context<'_>, arguments: Arguments<'_>, way: Way, word: &str) -> Done {
    for name in from(arguments, 1) {
        let id = context.client;
        let client = context.client();
        way.names(client).insert(name.to_vec());
        let count = way.count(client);
        way.listeners(&mut context.state.channels).entry(name.to_vec()).or_default().insert(id);
        context.reply.push(3);
        context.reply.string(word.as_bytes());
        context.reply.string(name);
        context.reply.integer(count);
    }
    Ok(())
}

fn end(context: &mut Context<'_>, arguments: Arguments<'_>, way: Way, word: &str) -> Done {
    let names: Vec<Vec<u8>> = match arguments.len() {
        1 => way.names(context.client()).iter().cloned().collect(),
        _ => from(arguments, 1).map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        let id = context.client;
        let client = context.client();
        way.names(client).remove(name);
        let count = way.count(client);
        remove(way.listeners(&mut context.state.channels), name, id);
        context.reply.push(3);
        context.reply.string(word.as_bytes());
        context.reply.string(name);
        context.reply.integer(count);
    }
    if names.is_empty() {
        let count = way.count(context.client());
        context.reply.push(3);
        context.reply.string(word.as_bytes());
        context.reply.null();
        context.reply.integer(count);
    }
    Ok(())
}

fn subscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    begin(context, arguments, Way::Named, "subscribe")
}

fn psubscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    begin(context, arguments, Way::Pattern, "psubscribe")
}

fn ssubscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    begin(context, arguments, Way::OfShard, "ssubscribe")
}

fn unsubscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    end(context, arguments, Way::Named, "unsubscribe")
}

fn punsubscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    end(context, arguments, Way::Pattern, "punsubscribe")
}

fn sunsubscribe(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    end(context, arguments, Way::OfShard, "sunsubscribe")
}

/// The bytes of one message, in the versions that were needed.
#[derive(Default)]
struct Encoded([Option<Vec<u8>>; 2]);

impl Encoded {
    fn of(&mut self, version: Version, parts: &[&[u8]]) -> Vec<u8> {
        let place = usize::from(version == Version::Three);
        let bytes = self.0[place].get_or_insert_with(|| {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, version);
            writer.push(parts.len());
            for part in parts {
                writer.string(part);
            }
            bytes
        });
        bytes.clone()
    }
}

/// Sends a message to some clients; returns their number.
fn send(
    state: &State,
    messages: &mut Vec<(ClientId, Vec<u8>)>,
    clients: &BTreeSet<ClientId>,
    parts: &[&[u8]],
) -> i64 {
    let mut encoded = Encoded::default();
    for client in clients.iter().filter_map(|id| state.clients.get(id)) {
        messages.push((client.id, encoded.of(client.version, parts)));
    }
    clients.len() as i64
}

fn publish(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (channel, text) = (&arguments[1], &arguments[2]);
    let count = send_to_listeners(context.state, context.messages, channel, text);
    context.reply.integer(count);
    Ok(())
}

/// Sends a message to the clients that listen to a channel, or to a pattern that matches its name;
/// returns their number.
pub(super) fn send_to_listeners(
    state: &State,
    messages: &mut Vec<(ClientId, Vec<u8>)>,
    channel: &[u8],
    text: &[u8],
) -> i64 {
    let channels = &state.channels;
    let mut count = 0;
    if let Some(clients) = channels.named.get(channel) {
        count += send(state, messages, clients, &[b"message", channel, text]);
    }
    for (pattern, clients) in &channels.patterns {
        if glob::matches(pattern, channel) {
            count += send(state, messages, clients, &[b"pmessage", pattern, channel, text]);
        }
    }
    count
}

fn spublish(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (channel, text) = (&arguments[1], &arguments[2]);
    let Context { state, messages, .. } = context;
    let count = match state.channels.of_shards.get(channel) {
        Some(clients) => send(state, messages, clients, &[b"smessage", channel, text]),
        None => 0,
    };
    context.reply.integer(count);
    Ok(())
}

/// Replies with the names that match a pattern.
fn reply_names(context: &mut Context<'_>, way: Way, pattern: Option<&[u8]>) {
    let listeners = way.listeners(&mut context.state.channels);
    let is_shown = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
    let names: Vec<&Vec<u8>> = listeners.keys().filter(is_shown).collect();
    context.reply.array(names.len());
    for name in names {
        context.reply.string(name);
    }
}

/// Replies with the numbers of clients that listen to some channels.
fn reply_counts(context: &mut Context<'_>, way: Way, arguments: Arguments<'_>) {
    context.reply.array(2 * (arguments.len() - 2));
    for name in from(arguments, 2) {
        let clients = way.listeners(&mut context.state.channels).get(name);
        let count = clients.map_or(0, BTreeSet::len);
        context.reply.string(name);
        context.reply.integer(count as i64);
    }
}

/// Refuses more than one pattern, with the sentence that Redis has for it.
fn check_pattern(arguments: Arguments<'_>) -> Done {
    if arguments.len() <= 3 {
        return Ok(());
    }
    let begin = b"ERR unknown subcommand or wrong number of arguments for '";
    Err(Stop::error_of([&begin[..], &arguments[1], b"'. Try PUBSUB HELP."].concat()))
}

fn pubsub_channels(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_pattern(arguments)?;
    reply_names(context, Way::Named, arguments.get(2));
    Ok(())
}

fn pubsub_shardchannels(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_pattern(arguments)?;
    reply_names(context, Way::OfShard, arguments.get(2));
    Ok(())
}

fn pubsub_numsub(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_counts(context, Way::Named, arguments);
    Ok(())
}

fn pubsub_shardnumsub(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_counts(context, Way::OfShard, arguments);
    Ok(())
}

fn pubsub_numpat(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.integer(context.state.channels.patterns.len() as i64);
    Ok(())
}

fn pubsub_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "pubsub");
    Ok(())
}
