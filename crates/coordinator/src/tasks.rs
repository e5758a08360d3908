//! The tasks of a leader, which go on until they are done.
//!
//! A task looks at the cluster, takes the next step, and looks again. Without a next step it waits
//! for a change. So it does not matter which other task made the change, or under which leader.

use crate::formats;
use crate::later_state;
use crate::leadership::{Leadership, Task};
use crate::leases;
use crate::migrations;
use crate::probes;
use crate::recoveries;
use crate::servers;
use crate::tables;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Does the work of a task.
pub(crate) fn run(busy: Rc<Leadership>, task: Task) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        match task {
            Task::Tell(server, generation) => servers::tell(&busy, server, generation).await,
            Task::Free(server, generation) => {
                recoveries::free_replicas(&busy, server, generation).await
            }
            Task::Settle(table) => tables::settle(&busy, table).await,
            Task::Migrate(table, number) => migrations::finish(&busy, table, number).await,
            Task::Recover(master) => recoveries::finish(&busy, master).await,
            Task::Expire => leases::expire(&busy).await,
            Task::Watch => probes::watch(&busy).await,
            Task::TryMetastore => busy.try_metastore().await,
            Task::LeadAbove => later_state::lead_above_all(&busy).await,
            Task::WatchCoordinators => formats::watch(&busy).await,
        }
    })
}
