//! The tasks of a leader, which go on until they are done.
//!
//! A task looks at the cluster, takes the next step, and looks again. Without a next step it waits
//! for a change. So it does not matter which other task made the change, or under which leader.

use crate::formats;
use crate::leadership::Leadership;
use crate::leases;
use crate::migrations;
use crate::probes;
use crate::recoveries;
use crate::servers;
use crate::tables;
use std::rc::Rc;
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{MasterId, ServerId, TableId};

/// A task of the leader: one kind of unfinished work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
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

/// Begins a task, unless it is in progress already.
pub(crate) fn ensure_running(leadership: &Rc<Leadership>, task: Task) {
    if !leadership.running_tasks.borrow_mut().insert(task) {
        return;
    }
    let busy = Rc::clone(leadership);
    leadership.spawn(async move {
        match task {
            Task::Tell(server, generation) => servers::tell(&busy, server, generation).await,
            Task::Free(server, generation) => servers::free(&busy, server, generation).await,
            Task::Settle(table) => tables::settle(&busy, table).await,
            Task::Migrate(table, number) => migrations::finish(&busy, table, number).await,
            Task::Recover(master) => recoveries::finish(&busy, master).await,
            Task::Expire => leases::expire(&busy).await,
            Task::Watch => probes::watch(&busy).await,
            Task::TryMetastore => busy.try_metastore().await,
            Task::LeadAbove => busy.lead_above_all().await,
            Task::WatchCoordinators => formats::watch(&busy).await,
        }
        // It found no next step in this very turn.
        busy.running_tasks.borrow_mut().remove(&task);
    });
}

/// Begins all tasks that the recorded state needs.
pub(crate) fn ensure_all_running(leadership: &Rc<Leadership>) {
    let mut tasks = vec![
        Task::Expire,
        Task::Watch,
        Task::TryMetastore,
        Task::LeadAbove,
        Task::WatchCoordinators,
    ];
    let cluster = leadership.cluster();
    for server in cluster.servers() {
        if server.state == ServerState::Up {
            tasks.push(Task::Tell(server.server, server.generation));
            tasks.push(Task::Free(server.server, server.generation));
        }
        tasks.extend(server.former.iter().map(|former| Task::Recover(former.master)));
    }
    let unsettled = |dropped: bool, all_taken: bool| dropped || !all_taken;
    for table in cluster.tables() {
        if unsettled(table.dropped, table.tablets.iter().all(|tablet| tablet.taken)) {
            tasks.push(Task::Settle(table.id));
        }
        let moving = table.tablets.iter().filter_map(|tablet| tablet.migrating);
        tasks.extend(moving.map(|migrating| Task::Migrate(table.id, migrating.number)));
    }
    drop(cluster);
    tasks.into_iter().for_each(|task| ensure_running(leadership, task));
}
