//! The names of a leader's tasks, and which of them are in progress.
//!
//! The work itself is in the modules above (module `tasks`), which ask for a task by its name.

use super::Leadership;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{Generation, MasterId, ServerId, TableId};

/// A task of the leader: one kind of unfinished work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Tells the server list to one generation of a server.
    Tell(ServerId, Generation),
    /// Tells a server's backup which masters' replicas are no longer needed.
    Free(ServerId, Generation),
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

/// Does the work of a task.
pub(crate) type RunTask = fn(Rc<Leadership>, Task) -> Pin<Box<dyn Future<Output = ()>>>;

impl Leadership {
    /// Begins a task, unless it is in progress already.
    pub(crate) fn ensure_running(self: &Rc<Self>, task: Task) {
        if !self.running_tasks.borrow_mut().insert(task) {
            return;
        }
        let busy = Rc::clone(self);
        self.spawn(async move {
            (busy.run_task)(Rc::clone(&busy), task).await;
            // It found no next step in this very turn.
            busy.running_tasks.borrow_mut().remove(&task);
        });
    }

    /// Begins all tasks that the recorded state needs.
    pub(super) fn ensure_all_running(self: &Rc<Self>) {
        let mut tasks = vec![
            Task::Expire,
            Task::Watch,
            Task::TryMetastore,
            Task::LeadAbove,
            Task::WatchCoordinators,
        ];
        let cluster = self.cluster();
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
        tasks.into_iter().for_each(|task| self.ensure_running(task));
    }
}
