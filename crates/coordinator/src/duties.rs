//! The tasks of a leader that go on until they are done: one task for each duty.
//!
//! A duty looks at the cluster, takes the next step, and looks again. Without a next step it waits
//! for a change. So it does not matter which task made the change, or under which leader.

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

/// A task of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Duty {
    /// Tells the server list to one generation of a server.
    Tell(ServerId, u64),
    /// Tells a server's backup which masters' replicas are no longer needed.
    Free(ServerId, u64),
    /// Makes masters take or drop a table's tablets.
    Settle(TableId),
    /// Moves a tablet to its new master, or cancels the move.
    Migrate(TableId, u64),
    /// Has a crashed master's tablets rebuilt and its replicas freed.
    Recover(MasterId),
    /// Ends leases that expire.
    Expire,
    /// Looks after servers that do not answer.
    Watch,
    /// Tries a metastore again that refused a write.
    TryMetastore,
    /// Leads servers again that follow a later leadership.
    LeadAbove,
    /// Keeps the list of coordinators.
    WatchCoordinators,
}

/// Begins a duty, unless it is in progress already.
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
        // It found no next step in this very turn.
        busy.duties.borrow_mut().remove(&duty);
    });
}

/// Begins all unfinished duties.
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
