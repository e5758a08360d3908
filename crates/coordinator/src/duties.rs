//! What a leader has to see to until it is done: one task for each.
//!
//! A duty looks at the cluster, takes the next step, and looks again; when there is nothing to do
//! it waits for a change. So it does not matter who made the change, or under which leader.

use crate::formats;
use crate::leases;
use crate::migrations;
use crate::probes;
use crate::recoveries;
use crate::reign::Reign;
use crate::servers;
use crate::tables;
use std::rc::Rc;
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{MasterId, ServerId, TableId};

/// Something to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Duty {
    /// A server in one of its lives is told who there is.
    Tell(ServerId, u64),
    /// Its backup is told whose replicas are not needed any more.
    Free(ServerId, u64),
    /// A table's tablets are taken, or dropped, by their masters.
    Settle(TableId),
    /// A tablet that moves gets where it goes, or stays.
    Migrate(TableId, u64),
    /// A master that is gone: its tablets are rebuilt, its replicas freed.
    Recover(MasterId),
    /// Leases end.
    Expire,
    /// Servers are looked after.
    Watch,
    /// A metastore that refused a write is tried again.
    TryMetastore,
    /// Servers that follow a later leadership are led again.
    LeadAbove,
    /// The leader knows which coordinators there are.
    WatchCoordinators,
}

/// Begins a duty, unless somebody is at it already.
pub(crate) fn employ(reign: &Rc<Reign>, duty: Duty) {
    if !reign.duties.borrow_mut().insert(duty) {
        return;
    }
    let busy = Rc::clone(reign);
    reign.spawn(async move {
        match duty {
            Duty::Tell(server, generation) => servers::tell(&busy, server, generation).await,
            Duty::Free(server, generation) => servers::free(&busy, server, generation).await,
            Duty::Settle(table) => tables::settle(&busy, table).await,
            Duty::Migrate(table, number) => migrations::see_to(&busy, table, number).await,
            Duty::Recover(master) => recoveries::see_to(&busy, master).await,
            Duty::Expire => leases::expire(&busy).await,
            Duty::Watch => probes::watch(&busy).await,
            Duty::TryMetastore => busy.try_metastore().await,
            Duty::LeadAbove => busy.lead_above_all().await,
            Duty::WatchCoordinators => formats::watch(&busy).await,
        }
        // It found nothing more to do in this very turn.
        busy.duties.borrow_mut().remove(&duty);
    });
}

/// Begins all that is unfinished.
pub(crate) fn employ_all(reign: &Rc<Reign>) {
    let mut duties = vec![
        Duty::Expire,
        Duty::Watch,
        Duty::TryMetastore,
        Duty::LeadAbove,
        Duty::WatchCoordinators,
    ];
    let cluster = reign.cluster();
    for server in cluster.servers() {
        if server.state == ServerState::Up {
            duties.push(Duty::Tell(server.server, server.generation));
            duties.push(Duty::Free(server.server, server.generation));
        }
        duties.extend(server.former.iter().map(|former| Duty::Recover(former.master)));
    }
    let unsettled = |dropped: bool, all_taken: bool| dropped || !all_taken;
    for table in cluster.tables() {
        if unsettled(table.dropped, table.tablets.iter().all(|tablet| tablet.taken)) {
            duties.push(Duty::Settle(table.id));
        }
        let moving = table.tablets.iter().filter_map(|tablet| tablet.migrating);
        duties.extend(moving.map(|migrating| Duty::Migrate(table.id, migrating.number)));
    }
    drop(cluster);
    duties.into_iter().for_each(|duty| employ(reign, duty));
}
