//! Ends a leadership whose recorded state is earlier than the state that servers know.
//!
//! Servers name the latest state that they have followed: a leadership by its number, and ids that
//! were given out. If the recorded state is older, the metastore was restored from a copy, or a
//! later leader writes into it.

use crate::leadership::{Leadership, RetryPauses};
use crate::leases;
use crate::limits::{BUSY_HINT, IDS_PASSED_OVER};
use crate::refusal::Refusal;
use crate::stored::Ids;
use std::rc::Rc;
use thunderhead_wire::control::Followed;
use thunderhead_wire::{ServerId, Status};

/// Task: if servers know a later state of the cluster, this coordinator ends its leadership and
/// leads again as the latest. If two coordinators share the metastore, only the later one can
/// write that. Otherwise the metastore was restored from a copy: its next tokens were granted
/// before, and servers that have seen them refuse all commands.
pub(crate) async fn lead_above_all(leadership: &Rc<Leadership>) {
    let mut pauses = RetryPauses::default();
    loop {
        let seen = leadership.later.is_refused.seen();
        let Some(later) = later_state(leadership) else {
            leadership.later.is_refused.after(seen).await;
            continue;
        };
        let own = leadership.number(&leadership.cluster().record);
        if lead_above(leadership, leadership.later.followed.get().max(own)).await.is_err() {
            leadership.sleep(pauses.next()).await;
            continue;
        }
        let text = format!(
            "{later}: the metastore is an older copy, and later changes of the cluster are forgotten. \
             This coordinator leads again, as a later one"
        );
        leadership.give_up(&text).await;
    }
}

/// Compares the latest state that a server has followed with the recorded one. Refuses as long
/// as the recorded state is the earlier one: this leader must give out no ids, because that
/// state may have given them out.
pub(crate) fn compare(
    leadership: &Leadership,
    server: ServerId,
    followed: Followed,
) -> Result<(), Refusal> {
    let own = leadership.number(&leadership.cluster().record);
    if followed.leadership > own {
        leadership.on_later_leadership(server, followed.leadership);
    }
    let ids = leadership.cluster().ids;
    // Ids far above come from a damaged record. Skipping them would use up the ids.
    let is_skipped = |id: u64, next: u64| id.saturating_sub(next) < IDS_PASSED_OVER;
    let (mut master, mut of_server) = leadership.later.named.get();
    if is_skipped(followed.master.0, ids.master) {
        master = master.max(followed.master);
    }
    if is_skipped(server.0, ids.server) {
        of_server = of_server.max(server);
    }
    leadership.later.named.set((master, of_server));
    if later_state(leadership).is_none() {
        return Ok(());
    }
    leadership.later.is_refused.raise();
    Err(Refusal { status: Status::Busy, hint: BUSY_HINT })
}

/// Returns a description of the later state that servers know, if they know one.
fn later_state(leadership: &Leadership) -> Option<String> {
    let (own, followed) =
        (leadership.number(&leadership.cluster().record), leadership.later.followed.get());
    let (ids, (master, server)) = (leadership.cluster().ids, leadership.later.named.get());
    if followed > own {
        Some(format!("servers follow the leadership {followed}, and this one is only {own}"))
    } else if master.0 >= ids.master {
        Some(format!("servers know {master}, and this leadership has not given out its id"))
    } else if server.0 >= ids.server {
        Some(format!("{server} has an id that this leadership has not given out"))
    } else {
        None
    }
}

/// Writes that the numbers of the next leaderships are above a given one. Before that, it skips
/// all ids that the newer state may have given out: masters and leases of that state still
/// exist.
async fn lead_above(leadership: &Leadership, followed: u64) -> Result<(), Refusal> {
    let _lock = leadership.lock_updates().await;
    leases::pass_over(leadership, IDS_PASSED_OVER).await?;
    let mut record = leadership.cluster().record.clone();
    let Ids { master, server, .. } = leadership.cluster().ids;
    let from = |first: u64| (first, first.saturating_add(IDS_PASSED_OVER));
    let mut is_new = false;
    for (unknown, skipped) in
        [(&mut record.unknown_masters, from(master)), (&mut record.unknown_servers, from(server))]
    {
        if unknown.last() != Some(&skipped) {
            unknown.push(skipped);
            is_new = true;
        }
    }
    if is_new {
        // Before the ids, so that none of these masters ever counts as finished, and none of
        // these servers as forgotten.
        leadership.put_cluster(record.clone()).await?;
    }
    let pass_over = |id: &mut u64| *id = id.saturating_add(IDS_PASSED_OVER);
    leadership
        .take_ids(|ids| {
            let Ids { server, master, table, migration, recovery } = ids;
            [server, master, table, migration, recovery].into_iter().for_each(pass_over);
        })
        .await?;
    // Last: after a crash in between, servers refuse the next leader again, and it repeats
    // these steps.
    record.leadership_base = followed;
    leadership.put_cluster(record).await
}
