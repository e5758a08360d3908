//! The cluster port: its clients know the slots of keys, as clients of Redis Cluster do.
//!
//! This server has one *part* of all slots. Each part is a node, and the caller says which nodes
//! there are ([`Nodes`]). A client of the cluster port learns them with `CLUSTER SLOTS`, and gets
//! `-MOVED` for a key of another part. The rules of that port:
//!
//! - All keys of a command, or of a transaction, have one slot.
//! - There is only database 0.
//! - A client whose connection came through the port of another server executes only commands
//!   without keys. All other commands lead it to this server's own port.
//!
//! A client of the plain port may use any keys of the part. If there are several parts, the router
//! of the plain port sends only such commands here: see [`Router`](super::Router).

use super::client::Client;
use super::command_info::visit_keys;
use super::commands::{
    ADMIN, Command, FAST, Group, LOADING, NO_ASYNC_LOADING, NOSCRIPT, STALE, by_subcommand,
};
use super::context::Context;
use super::key_slots::{Parts, SLOTS, slot_of};
use super::number::integer_of;
use super::parser::Arguments;
use super::server::{ClientId, Server, State};
use super::stop::{Done, Stop};
use super::writer::Writer;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

const ABOUT: Group = Group::Cluster;

/// Returns a subcommand that only looks.
const fn looks(
    name: &'static str,
    arity: i32,
    execute: super::commands::Execute,
    since: &'static str,
    summary: &'static str,
) -> Command {
    looks_up(name, arity, execute, since, summary).tips(DIFFERS)
}

/// Returns a subcommand that only looks, and whose reply follows from the slots alone.
const fn looks_up(
    name: &'static str,
    arity: i32,
    execute: super::commands::Execute,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command::new(name, arity, STALE, execute).about(ABOUT, since, summary)
}

const DIFFERS: &[&str] = &["nondeterministic_output"];

/// Returns a subcommand that is refused.
const fn refused(name: &'static str, arity: i32, since: &'static str) -> Command {
    Command::new(name, arity, ADMIN | STALE | NO_ASYNC_LOADING, cluster_refused)
        .about(ABOUT, since, REFUSED)
}

const REFUSED: &str = "Refused: the servers manage the slots.";

pub(super) const COMMANDS: &[Command] = &[
    Command::new("asking", 1, FAST, asking)
        .about(Group::Cluster, "3.0.0", "Has no effect: no slot moves alone.")
        .categories("@connection"),
    Command::new("readonly", 1, LOADING | STALE | FAST, asking)
        .about(Group::Cluster, "3.0.0", "Has no effect: the nodes have no replicas for reads.")
        .categories("@connection"),
    Command::new("readwrite", 1, LOADING | STALE | FAST, asking)
        .about(Group::Cluster, "3.0.0", "Has no effect: the nodes have no replicas for reads.")
        .categories("@connection"),
    Command::new("cluster", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("cluster|slots", 2, LOADING | STALE, slots)
                .about(ABOUT, "3.0.0", "Returns the nodes of all slots.")
                .tips(DIFFERS),
            Command::new("cluster|shards", 2, LOADING | STALE, shards)
                .about(ABOUT, "7.0.0", "Returns the nodes with their slots.")
                .tips(DIFFERS),
            looks("cluster|nodes", 2, nodes, "3.0.0", "Describes the nodes, each in a line."),
            looks("cluster|info", 2, info, "3.0.0", "Describes the state of the cluster."),
            looks_up("cluster|myid", 2, my_id, "3.0.0", "Returns the id of this node."),
            looks("cluster|myshardid", 2, my_id, "7.2.0", "Returns the id of this node."),
            looks_up("cluster|keyslot", 3, key_slot, "3.0.0", "Returns the slot of a key."),
            looks_up(
                "cluster|countkeysinslot",
                3,
                count_keys,
                "3.0.0",
                "Counts the keys of a slot. It visits all keys of the node.",
            ),
            looks(
                "cluster|getkeysinslot",
                4,
                find_keys,
                "3.0.0",
                "Returns keys of a slot. It visits the keys of the node.",
            ),
            looks("cluster|links", 2, links, "7.0.0", "Returns nothing: there are no links."),
            Command::new("cluster|replicas", 3, ADMIN | STALE, replicas)
                .about(ABOUT, "5.0.0", "Returns nothing: see the nodes.")
                .tips(DIFFERS),
            Command::new("cluster|slaves", 3, ADMIN | STALE, replicas)
                .about(ABOUT, "3.0.0", "Returns nothing: see the nodes.")
                .tips(DIFFERS),
            Command::new("cluster|count-failure-reports", 3, ADMIN | STALE, failure_reports)
                .about(ABOUT, "3.0.0", "Returns 0: the coordinator alone finds failures.")
                .tips(DIFFERS),
            Command::new("cluster|help", 2, LOADING | STALE, help).about(
                ABOUT,
                "5.0.0",
                "Describes the subcommands.",
            ),
            refused("cluster|addslots", -3, "3.0.0"),
            refused("cluster|addslotsrange", -4, "7.0.0"),
            refused("cluster|bumpepoch", 2, "3.0.0").tips(DIFFERS),
            refused("cluster|delslots", -3, "3.0.0"),
            refused("cluster|delslotsrange", -4, "7.0.0"),
            refused("cluster|failover", -2, "3.0.0"),
            refused("cluster|flushslots", 2, "3.0.0"),
            refused("cluster|forget", 3, "3.0.0"),
            refused("cluster|meet", -4, "3.0.0"),
            refused("cluster|replicate", 3, "3.0.0"),
            Command::new("cluster|reset", -2, ADMIN | STALE | NOSCRIPT, cluster_refused)
                .about(ABOUT, "3.0.0", REFUSED),
            refused("cluster|saveconfig", 2, "3.0.0"),
            refused("cluster|set-config-epoch", 3, "3.0.0"),
            refused("cluster|setslot", -4, "3.0.0"),
            Command::new("cluster|slot-stats", -4, LOADING | STALE, cluster_refused)
                .about(ABOUT, "8.2.0", "Refused: the servers do not count the uses of slots.")
                .tips(&["nondeterministic_output", "request_policy:all_shards"]),
        ])
        .about(Group::Cluster, "3.0.0", "Describes the nodes and the slots of keys."),
];

/// The port to which a client is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Port {
    /// The usual port. Its clients know nothing of slots.
    #[default]
    Plain,
    /// The cluster port of this node.
    Cluster,
    /// The cluster port of another server, which forwards the connection.
    Forwarded,
}

/// A node: the shard with a part of the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Forty hexadecimal digits.
    pub id: String,
    /// The host under which clients reach it.
    pub host: String,
    /// Its cluster port.
    pub port: u16,
    /// Whether it serves. Otherwise it is the last node that has served its slots.
    pub is_up: bool,
}

impl Node {
    fn address(&self) -> String {
        // An address of IPv6 has no brackets in Redis's replies: the last colon is before the port.
        format!("{}:{}", self.host, self.port)
    }
}

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    parts: Parts,
    own: u32,
    /// The node of each part, if one is known.
    nodes: Vec<Option<Node>>,
}

impl Nodes {
    /// All slots in one part, which is this server's.
    pub(super) fn alone() -> Nodes {
        Nodes { parts: Parts::ONE, own: 0, nodes: vec![None] }
    }

    /// Returns the nodes of some parts, one for each. This server has the part `own`. Returns
    /// `None` if the numbers make no sense.
    #[must_use]
    pub fn new(own: u32, nodes: Vec<Option<Node>>) -> Option<Nodes> {
        let parts = Parts::new(u32::try_from(nodes.len()).ok()?)?;
        (own < parts.count()).then_some(Nodes { parts, own, nodes })
    }

    fn node(&self, part: u32) -> Option<&Node> {
        self.nodes.get(part as usize)?.as_ref()
    }

    fn own_slots(&self) -> RangeInclusive<u16> {
        self.parts.slots(self.own)
    }

    /// Returns the known nodes with their slots.
    fn known(&self) -> impl Iterator<Item = (RangeInclusive<u16>, &Node)> {
        let numbered = (0..).zip(&self.nodes);
        numbered.filter_map(|(part, node)| Some((self.parts.slots(part), node.as_ref()?)))
    }
}

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// The error for a key of another part on the plain port.
const OTHER_PART: &str =
    "CROSSSLOT The keys of this command are in another part of the keys, or in several parts";

/// The error for a script that uses a key of another part, without its code.
pub(super) const NOT_LOCAL: &str = "Script attempted to access a non local key in a cluster node";

/// Whether an error leads the client elsewhere: it is no reason of an `EXECABORT`.
pub(super) fn leads_elsewhere(error: &Stop) -> bool {
    let Stop::Error(text) = error else { return false };
    ["MOVED ", "CROSSSLOT ", "CLUSTERDOWN "].iter().any(|code| text.starts_with(code.as_bytes()))
}

/// The slots of some keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    None,
    One(u16),
    /// Different ones. Their parts may be the same.
    Several {
        first: u16,
        is_one_part: bool,
    },
}

impl Slots {
    fn add(&mut self, slot: u16, parts: Parts) {
        *self = match *self {
            Slots::None => Slots::One(slot),
            Slots::One(first) if first == slot => return,
            Slots::One(first) => {
                Slots::Several { first, is_one_part: parts.part_of(first) == parts.part_of(slot) }
            }
            Slots::Several { first, is_one_part } => Slots::Several {
                first,
                is_one_part: is_one_part && parts.part_of(first) == parts.part_of(slot),
            },
        };
    }
}

impl Server {
    /// Sets the port of a client that has just connected.
    pub fn set_port(&mut self, client: ClientId, port: Port) {
        if let Some(client) = self.state.clients.get_mut(&client) {
            client.port = port;
        }
    }

    /// Takes the nodes of the cluster.
    pub fn set_nodes(&mut self, nodes: Nodes) {
        self.state.nodes = Arc::new(nodes);
    }
}

impl State {
    /// Whether clients or keys of this server depend on slots.
    #[inline]
    fn depends_on_slots(&self, client: &Client) -> bool {
        client.port != Port::Plain || self.nodes.parts != Parts::ONE
    }

    /// Returns the slots whose keys a client may use in a row of commands, or `None` if it may use
    /// none.
    pub(super) fn slots_of_runs(&self, client: &Client) -> Option<RangeInclusive<u16>> {
        (client.port != Port::Forwarded).then(|| self.nodes.own_slots())
    }

    /// Whether [`State::slots_of_runs`] returns all slots.
    #[inline]
    pub(super) fn has_all_slots(&self) -> bool {
        self.nodes.parts == Parts::ONE
    }

    /// Checks that this server has the keys of a command, and may execute it on the client's port.
    #[inline]
    pub(super) fn check_slots(
        &self,
        client: &Client,
        command: &'static Command,
        arguments: &Arguments<'_>,
    ) -> Done {
        match self.depends_on_slots(client) {
            true => self.check_slots_of(client, command, arguments),
            false => Ok(()),
        }
    }

    fn check_slots_of(
        &self,
        client: &Client,
        command: &'static Command,
        arguments: &Arguments<'_>,
    ) -> Done {
        let nodes = &self.nodes;
        let is_of_cluster = client.port != Port::Plain;
        if is_of_cluster && matches!(command.name, "move" | "swapdb") {
            let name = command.name.to_ascii_uppercase();
            return Err(Stop::error_of(format!("ERR {name} is not allowed in cluster mode")));
        }
        let mut slots = Slots::None;
        let mut add = |key: &[u8]| slots.add(slot_of(key), nodes.parts);
        match &client.multi {
            Some(multi) if command.name == "exec" => {
                for queued in &multi.queued {
                    visit_keys(queued.command, &queued.arguments(), &mut add)?;
                }
            }
            _ => visit_keys(command, arguments, &mut add)?,
        }
        let slot = match slots {
            Slots::None => return Ok(()),
            Slots::Several { .. } if is_of_cluster => return Err(Stop::error(CROSS_SLOT)),
            Slots::Several { is_one_part: false, .. } => return Err(Stop::error(OTHER_PART)),
            Slots::One(slot) | Slots::Several { first: slot, .. } => slot,
        };
        let part = nodes.parts.part_of(slot);
        match (client.port, nodes.node(part)) {
            (Port::Plain | Port::Cluster, _) if part == nodes.own => Ok(()),
            (Port::Plain, _) => Err(Stop::error(OTHER_PART)),
            (_, Some(node)) if node.is_up => {
                Err(Stop::error_of(format!("MOVED {slot} {}", node.address())))
            }
            _ => Err(Stop::error("CLUSTERDOWN Hash slot not served")),
        }
    }

    /// Whether a script may execute a command with these keys here.
    pub(super) fn has_keys(&self, command: &'static Command, arguments: &Arguments<'_>) -> bool {
        let mut has_all = true;
        if self.nodes.parts != Parts::ONE {
            let own = self.nodes.own_slots();
            let mut visit = |key: &[u8]| has_all &= own.contains(&slot_of(key));
            let visited = visit_keys(command, arguments, &mut visit);
            has_all &= visited.is_ok();
        }
        has_all
    }
}

impl Context<'_> {
    /// Whether the client is connected to a cluster port.
    pub(super) fn is_of_cluster(&self) -> bool {
        self.state.clients.get(&self.client).is_some_and(|client| client.port != Port::Plain)
    }

    /// Whether keys of other slots may be on other nodes.
    pub(super) fn may_lack_keys(&self) -> bool {
        !self.state.has_all_slots() || self.is_of_cluster()
    }
}

/// Checks that the client uses the cluster port; returns the nodes.
fn nodes_of(context: &Context<'_>) -> Result<Arc<Nodes>, Stop> {
    match context.is_of_cluster() {
        true => Ok(Arc::clone(&context.state.nodes)),
        false => Err(Stop::error("ERR This instance has cluster support disabled")),
    }
}

fn asking(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    nodes_of(context)?;
    context.ok();
    Ok(())
}

fn cluster_refused(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    nodes_of(context)?;
    Err(Stop::error("ERR Thunderhead manages the slots and nodes by itself"))
}

fn slots(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let nodes = nodes_of(context)?;
    context.reply.array(nodes.known().count());
    for (slots, node) in nodes.known() {
        context.reply.array(3);
        context.reply.integer(i64::from(*slots.start()));
        context.reply.integer(i64::from(*slots.end()));
        context.reply.array(4);
        context.reply.string(node.host.as_bytes());
        context.reply.integer(i64::from(node.port));
        context.reply.string(node.id.as_bytes());
        context.reply.array(0);
    }
    Ok(())
}

fn text(reply: &mut Writer<'_>, name: &str, value: &str) {
    reply.string(name.as_bytes());
    reply.string(value.as_bytes());
}

fn shards(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let nodes = nodes_of(context)?;
    let reply = &mut context.reply;
    reply.array(nodes.known().count());
    for (slots, node) in nodes.known() {
        reply.map(2);
        reply.string(b"slots");
        reply.array(2);
        reply.integer(i64::from(*slots.start()));
        reply.integer(i64::from(*slots.end()));
        reply.string(b"nodes");
        reply.array(1);
        reply.map(7);
        text(reply, "id", &node.id);
        reply.string(b"port");
        reply.integer(i64::from(node.port));
        text(reply, "ip", &node.host);
        text(reply, "endpoint", &node.host);
        text(reply, "role", "master");
        reply.string(b"replication-offset");
        reply.integer(0);
        text(reply, "health", if node.is_up { "online" } else { "fail" });
    }
    Ok(())
}

fn nodes(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let nodes = nodes_of(context)?;
    let own = nodes.own_slots();
    let mut lines = String::new();
    for (slots, node) in nodes.known() {
        let myself = if slots == own { "myself," } else { "" };
        let (fails, link) = if node.is_up { ("", "connected") } else { (",fail", "disconnected") };
        let (id, address) = (&node.id, node.address());
        let (first, last) = (slots.start(), slots.end());
        let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
        // A string takes every text. The port of the bus is 0: there is none.
        let _ =
            writeln!(lines, "{id} {address}@0 {myself}master{fails} - 0 0 {first} {link} {range}");
    }
    context.reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
}

fn info(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let nodes = nodes_of(context)?;
    let served: usize =
        nodes.known().filter(|(_, node)| node.is_up).map(|(slots, _)| slots.len()).sum();
    let state = if served == usize::from(SLOTS) { "ok" } else { "fail" };
    let known = nodes.known().count();
    let fails = usize::from(SLOTS) - served;
    let lines = [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{SLOTS}"),
        format!("cluster_slots_ok:{served}"),
        "cluster_slots_pfail:0".to_owned(),
        format!("cluster_slots_fail:{fails}"),
        format!("cluster_known_nodes:{known}"),
        format!("cluster_size:{known}"),
        "cluster_current_epoch:1".to_owned(),
        "cluster_my_epoch:1".to_owned(),
        "cluster_stats_messages_sent:0".to_owned(),
        "cluster_stats_messages_received:0".to_owned(),
        "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
    ];
    let all: String = lines.iter().flat_map(|line| [line, "\r\n"]).collect();
    context.reply.verbatim(*b"txt", all.as_bytes());
    Ok(())
}

fn my_id(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let nodes = nodes_of(context)?;
    let id = nodes.node(nodes.own).map_or("", |node| &node.id);
    context.reply.string(id.as_bytes());
    Ok(())
}

fn key_slot(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    nodes_of(context)?;
    context.reply.integer(i64::from(slot_of(&arguments[2])));
    Ok(())
}

fn read_slot(text: &[u8]) -> Result<u16, Stop> {
    let number = integer_of(text).ok_or(Stop::error("ERR Invalid slot"))?;
    let slot = u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    slot.ok_or(Stop::error("ERR Invalid slot"))
}

/// Visits the keys of a slot until `visit` returns `false`.
fn walk_slot(context: &mut Context<'_>, slot: u16, visit: &mut dyn FnMut(&[u8]) -> bool) -> Done {
    if !context.state.nodes.own_slots().contains(&slot) {
        return Ok(());
    }
    let (mut cursor, mut goes_on) = (0, true);
    while goes_on {
        cursor = context
            .objects
            .walk(cursor, &mut |key, _| {
                if goes_on && slot_of(key) == slot {
                    goes_on = visit(key);
                }
            })?
            .next;
        goes_on &= cursor != 0;
    }
    Ok(())
}

fn count_keys(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    nodes_of(context)?;
    let slot = read_slot(&arguments[2])?;
    let mut count = 0;
    walk_slot(context, slot, &mut |_| {
        count += 1;
        true
    })?;
    context.reply.integer(count);
    Ok(())
}

fn find_keys(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    nodes_of(context)?;
    let slot = read_slot(&arguments[2])?;
    let count = integer_of(&arguments[3]).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(Stop::error("ERR Invalid number of keys"))?;
    let mut keys = Vec::new();
    if count > 0 {
        walk_slot(context, slot, &mut |key| {
            keys.push(key.to_vec());
            keys.len() < count
        })?;
    }
    context.reply.array(keys.len());
    keys.iter().for_each(|key| context.reply.string(key));
    Ok(())
}

fn links(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    nodes_of(context)?;
    context.reply.array(0);
    Ok(())
}

/// Checks that some node has an id.
fn check_id(context: &Context<'_>, id: &[u8]) -> Done {
    let nodes = nodes_of(context)?;
    match nodes.known().any(|(_, node)| node.id.as_bytes() == id) {
        true => Ok(()),
        false => Err(Stop::error_of([b"ERR Unknown node ", id].concat())),
    }
}

fn replicas(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_id(context, &arguments[2])?;
    context.reply.array(0);
    Ok(())
}

fn failure_reports(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_id(context, &arguments[2])?;
    context.reply.integer(0);
    Ok(())
}

fn help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    nodes_of(context)?;
    super::help::reply(context, "cluster");
    Ok(())
}
