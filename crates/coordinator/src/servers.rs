//! Servers: their identities, their states, and the server list that all of them get.

use crate::cluster::{ended, gone, raise_epoch};
use crate::formats;
use crate::knowledge::attempts::Need;
use crate::later_state;
use crate::leadership::{Leadership, RetryPauses, Task};
use crate::limits::{
    BUSY_HINT, LIVES_MAX, PLACE_BYTES_MAX, SERVERS_MAX, SHARD_BYTES_MAX, SHARDS_MAX, UNBORN_MAX,
};
use crate::probes;
use crate::recoveries;
use crate::refusal::{Outcome, Refusal};
use crate::stored::{ServerRecord, ShardRecord, to_value};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    Empty, Enlist, Enlisted, Known, RaiseEpoch, Register, Registered, ServerState, to_body,
};
use thunderhead_wire::{Generation, MasterId, SegmentId, ServerId, Status};

/// Gives a server its identity.
pub(crate) async fn register(leadership: &Rc<Leadership>, message: Register) -> Outcome {
    formats::admit(leadership, message.newest_format)?;
    if let Some(Known { cluster, server }) = message.known {
        if cluster != leadership.cluster().record.cluster {
            leadership.shared.note_foreign_peer(&server.to_string(), cluster);
            return Err(Status::WrongCluster.into());
        }
        later_state::compare(leadership, server, message.followed)?;
        if !leadership.cluster().has_given_out(server) {
            return Err(Status::UnknownServer.into());
        }
        if leadership.cluster().server(server).is_none_or(|it| it.forgotten) {
            return Err(Status::NoSuchServer.into());
        }
        return Ok(registered(leadership, server));
    }
    let others = others_of_that_place(leadership, &message).await;
    let _lock = leadership.try_lock_updates().await?;
    let missing = of_place(leadership, message.place).into_iter().map(|it| it.server);
    // The latest one, if several servers had their storage there.
    if let Some(server) = missing.filter(|it| !others.contains(it)).max() {
        tracing::warn!(%server, "the storage of a server is missing at its place");
        return Ok(answer(leadership, server, true));
    }
    let known = leadership
        .cluster()
        .servers()
        .find(|it| it.registered == message.nonce)
        .map(|it| it.server);
    if let Some(server) = known {
        return Ok(registered(leadership, server));
    }
    forget_unborn(leadership).await?;
    if leadership.cluster().servers_count() >= SERVERS_MAX {
        return Err(Status::NoSpace.into());
    }
    let server = ServerId(leadership.take_ids(|ids| ids.server += 1).await?.server);
    let record = ServerRecord {
        server,
        registered: message.nonce,
        log_seed: 0,
        lives: Vec::new(),
        generation: Generation(0),
        state: ServerState::Down,
        host: String::new(),
        rack: String::new(),
        shards: Vec::new(),
        backup: None,
        former: Vec::new(),
        forgotten: false,
        newest_format: message.newest_format,
    };
    leadership.put_server(record).await?;
    Ok(registered(leadership, server))
}

/// With so many servers that are down, the status says how to forget them. Servers whose storage is
/// new at each start leave one behind each time, until no server can register.
const DOWN_TOLD: usize = SERVERS_MAX / 10;

/// Returns a sentence for the status if so many servers are down that a newly started one will find
/// no room.
pub(crate) fn remarks(leadership: &Leadership) -> Option<String> {
    let cluster = leadership.cluster();
    let down = cluster.servers().filter(|it| {
        it.generation > Generation(0) && it.state == ServerState::Down && !it.forgotten
    });
    let (down, all) = (down.count(), cluster.servers_count());
    (down >= DOWN_TOLD).then(|| {
        format!(
            "{down} servers are down, and of {SERVERS_MAX} possible servers {all} exist: without room no server can \
             register; forget those that are down for good with `thunderhead server forget SERVER...`, and keep \
             the data directories of the others"
        )
    })
}

/// Returns the servers that had their storage in a place and were not forgotten.
fn of_place(leadership: &Leadership, place: u64) -> Vec<ServerRecord> {
    let cluster = leadership.cluster();
    let is_there = |it: &&ServerRecord| {
        place != 0 && !it.forgotten && it.backup.is_some_and(|backup| backup.place == place)
    };
    cluster.servers().filter(is_there).cloned().collect()
}

/// Returns the other servers whose place has the same name: they listen at other addresses and
/// answer there. Cloned machines may have the same host name.
async fn others_of_that_place(
    leadership: &Rc<Leadership>,
    message: &Register,
) -> BTreeSet<ServerId> {
    let mut others = BTreeSet::new();
    let Some(own) = message.address else { return others };
    for record in of_place(leadership, message.place) {
        let at = record.shards.first().map(|shard| shard.address);
        if at.is_some_and(|at| at != own) && probes::is_there(leadership, &record).await {
            others.insert(record.server);
        }
    }
    others
}

/// If very many servers were registered and have never begun a generation, forgets the first of
/// them.
async fn forget_unborn(leadership: &Rc<Leadership>) -> Result<(), Refusal> {
    let unborn: Vec<ServerId> = {
        let cluster = leadership.cluster();
        let unborn =
            cluster.servers().filter(|it| it.generation == Generation(0) && it.former.is_empty());
        unborn.map(|it| it.server).collect()
    };
    if let [first, ..] = unborn[..]
        && unborn.len() >= UNBORN_MAX
    {
        leadership.remove_server(first).await?;
    }
    Ok(())
}

/// Forgets a server for good, at an operator's command.
pub(crate) async fn forget(leadership: &Rc<Leadership>, server: ServerId) -> Outcome {
    let _lock = leadership.try_lock_updates().await?;
    let Some(mut record) = leadership.cluster().server(server).cloned() else {
        let was_known = leadership.cluster().has_given_out(server);
        return if was_known { Ok(to_body(&Empty {})) } else { Err(Status::NoSuchServer.into()) };
    };
    if record.state == ServerState::Up {
        return Err(Status::ServerIsUp.into());
    }
    if record.forgotten {
        return Ok(to_body(&Empty {}));
    }
    match recoveries::need(leadership, server) {
        Need::No => {}
        Need::Unknown => return Err(Refusal { status: Status::InProgress, hint: BUSY_HINT }),
        Need::Missing => return Err(Status::MayBeNeeded.into()),
    }
    tracing::info!(%server, "a server will be forgotten");
    if record.former.is_empty() {
        leadership.remove_server(server).await?;
    } else {
        record.forgotten = true;
        leadership.put_server(record).await?;
    }
    Ok(to_body(&Empty {}))
}

fn registered(leadership: &Leadership, server: ServerId) -> Vec<u8> {
    answer(leadership, server, false)
}

fn answer(leadership: &Leadership, server: ServerId, is_missing: bool) -> Vec<u8> {
    let record = &leadership.cluster().record;
    let settings = record.settings.clone();
    let (cluster, format) = (record.cluster, record.format);
    to_body(&Registered { cluster, server, is_missing, settings, format })
}

/// Begins a generation of a server. Its former generation ends by that.
pub(crate) async fn enlist(leadership: &Rc<Leadership>, message: Enlist) -> Outcome {
    if !makes_sense(&message) {
        return Err(Status::Malformed.into());
    }
    if message.cluster != leadership.cluster().record.cluster {
        return Err(Status::WrongCluster.into());
    }
    let _lock = leadership.try_lock_updates().await?;
    formats::admit(leadership, message.newest_format)?;
    later_state::compare(leadership, message.server, message.followed)?;
    let old = leadership.cluster().server(message.server).filter(|it| !it.forgotten).cloned();
    let Some(old) = old else {
        // It was registered and is forgotten: this generation is over. Its next one registers
        // again.
        let was_known = leadership.cluster().has_given_out(message.server);
        let status = if was_known { Status::Deposed } else { Status::UnknownServer };
        return Err(status.into());
    };
    if old.lives.contains(&message.nonce) {
        let is_present = old.state == ServerState::Up && old.lives.last() == Some(&message.nonce);
        // A former or crashed generation does not return.
        return if is_present {
            Ok(enlisted(leadership, &old))
        } else {
            Err(Status::Deposed.into())
        };
    }
    end_whose_place_it_takes(leadership, &message).await?;
    let shards = message.shards.len() as u64;
    let first = leadership.take_ids(|ids| ids.master += shards).await?.master;
    let mut record = gone(&old);
    let masters = (first..).map(MasterId);
    record.shards = masters
        .zip(&message.shards)
        .map(|(master, address)| ShardRecord {
            master,
            address: *address,
            epochs: Vec::new(),
            floor: SegmentId::NONE,
        })
        .collect();
    record.generation.0 += 1;
    if record.log_seed == 0 {
        // Any number but 0. It is secret: a client's bytes must not look like entries of a log.
        record.log_seed = leadership.shared.random.borrow_mut().number().max(1);
    }
    record.state = ServerState::Up;
    record.lives.push(message.nonce);
    let excess = record.lives.len().saturating_sub(LIVES_MAX);
    record.lives.drain(..excess);
    (record.host, record.rack, record.backup) = (message.host, message.rack, message.backup);
    record.newest_format = message.newest_format;
    // The end of this generation is written into the same value, and must always fit.
    if to_value(&record).len() + record.shards.len() * SHARD_BYTES_MAX > VALUE_BYTES_MAX {
        let text = format!(
            "{} has {} unfinished former masters: it gets no further generation before some \
             are recovered",
            record.server,
            record.former.len()
        );
        leadership.shared.remark_event("lives", &text);
        return Err(Status::Busy.into());
    }
    leadership.put_server(record.clone()).await?;
    let ServerRecord { server, generation, host, .. } = &record;
    tracing::info!(%server, generation = generation.0, host, "a server is up");
    leadership.ensure_running(Task::Tell(record.server, record.generation));
    leadership.ensure_running(Task::Free(record.server, record.generation));
    for former in &record.former {
        leadership.ensure_running(Task::Recover(former.master));
    }
    Ok(enlisted(leadership, &record))
}

/// Ends the generation of a server whose address another one takes: two servers cannot listen at
/// one address, so the recorded one no longer runs. So the cluster does not wait for a server
/// without a storage that restarts under another id.
async fn end_whose_place_it_takes(
    leadership: &Rc<Leadership>,
    message: &Enlist,
) -> Result<(), Refusal> {
    let backup = message.backup.map(|backup| backup.address);
    let is_taken = |at: &SocketAddr| message.shards.contains(at) || backup == Some(*at);
    let others: Vec<ServerRecord> = {
        let cluster = leadership.cluster();
        let others = cluster.servers().filter(|it| it.server != message.server);
        let others = others.filter(|it| it.state == ServerState::Up);
        others.filter(|it| it.shards.iter().any(|at| is_taken(&at.address))).cloned().collect()
    };
    for old in others {
        let (server, at) = (old.server, old.shards.first().map(|shard| shard.address));
        let record = ended(&old);
        leadership.put_server(record.clone()).await?;
        for former in &record.former {
            leadership.ensure_running(Task::Recover(former.master));
        }
        let text = format!(
            "{} has taken the place of {server}{}; if both run, give each an address of its own",
            message.server,
            at.map_or_else(String::new, |at| format!(" at {at}")),
        );
        leadership.shared.remark_event("places", &text);
    }
    Ok(())
}

fn makes_sense(message: &Enlist) -> bool {
    let is_somewhere = |at: &SocketAddr| at.port() != 0 && !at.ip().is_unspecified();
    let different: BTreeSet<_> = message.shards.iter().collect();
    (1..=SHARDS_MAX).contains(&message.shards.len())
        && different.len() == message.shards.len()
        && message.shards.iter().all(is_somewhere)
        && message.backup.is_none_or(|backup| is_somewhere(&backup.address))
        && message.host.len() <= PLACE_BYTES_MAX
        && message.rack.len() <= PLACE_BYTES_MAX
}

fn enlisted(leadership: &Leadership, record: &ServerRecord) -> Vec<u8> {
    to_body(&Enlisted {
        generation: record.generation,
        masters: record.shards.iter().map(|shard| shard.master).collect(),
        log_seed: record.log_seed,
        servers: leadership.cluster().list(),
    })
}

/// Notes that a head lost a replica.
pub(crate) async fn raise(leadership: &Rc<Leadership>, message: RaiseEpoch) -> Outcome {
    let _lock = leadership.try_lock_updates().await?;
    let place = leadership.cluster().place(message.master);
    let record = place.and_then(|place| leadership.cluster().server(place.server).cloned());
    let Some(mut record) = record else { return Err(Status::Deposed.into()) };
    let shard = record.shards.iter_mut().find(|shard| shard.master == message.master);
    if shard.is_some_and(|shard| raise_epoch(shard, message.segment, message.epoch)) {
        leadership.put_server(record).await?;
    }
    Ok(to_body(&Empty {}))
}

/// Tells a master whether it was declared crashed. The master's reads may rest on the answer: see
/// the master's module `replication::lease`. Backups are fenced only after a verdict that this
/// leader knows.
pub(crate) fn confirm(leadership: &Leadership, master: MasterId) -> Outcome {
    match leadership.cluster().place(master) {
        Some(_) => Ok(to_body(&Empty {})),
        None => Err(Status::Deposed.into()),
    }
}

/// Task: tells a server every new server list, as long as its generation is up.
pub(crate) async fn tell(leadership: &Rc<Leadership>, server: ServerId, generation: Generation) {
    let mut told = None;
    let mut pauses = RetryPauses::default();
    loop {
        let seen = leadership.changed.seen();
        let Some(record) = leadership.record_of(server, generation) else { return };
        let Some(to) = record.shards.first().map(|shard| shard.address) else { return };
        let version = leadership.cluster().list_version();
        if told == Some(version) {
            leadership.changed.after(seen).await;
            continue;
        }
        let list = leadership.cluster().list();
        match leadership.call(to, Opcode::ServersChanged, &list).await {
            Ok(_) => (told, pauses) = (Some(version), RetryPauses::default()),
            Err(_) => leadership.sleep(pauses.next()).await,
        }
    }
}
