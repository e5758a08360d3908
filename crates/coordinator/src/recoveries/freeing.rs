//! Frees the replicas of former masters that are no longer needed.

use super::inherited;
use crate::leadership::{Leadership, RetryPauses};
use std::rc::Rc;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::control::{MastersAfter, MastersHere, OfMaster, RestLeft, of_body};
use thunderhead_wire::{Generation, MasterId, ServerId, Status};

/// Task: tells a backup which masters' replicas are no longer needed, as long as its generation is
/// up.
pub(crate) async fn free_replicas(
    leadership: &Rc<Leadership>,
    server: ServerId,
    generation: Generation,
) {
    free_unknown(leadership, server, generation).await;
    let mut pauses = RetryPauses::default();
    loop {
        let seen = leadership.changed.seen();
        let Some(record) = leadership.record_of(server, generation) else { return };
        let Some(backup) = record.backup else { return };
        let Some(master) = to_free(leadership, server) else {
            match inherited::to_free(leadership, server) {
                None => leadership.changed.after(seen).await,
                Some(rest) => {
                    match leadership.call(backup.address, Opcode::FreeRest, &rest).await {
                        Ok(answer) => {
                            let left =
                                of_body::<RestLeft>(&answer).map_or(u64::MAX, |it| it.replicas);
                            inherited::on_rest_freed(leadership, server, &rest, left);
                            pauses = RetryPauses::default();
                        }
                        Err(_) => leadership.sleep(pauses.next()).await,
                    }
                }
            }
            continue;
        };
        match leadership.call(backup.address, Opcode::FreeMaster, &OfMaster { master }).await {
            Ok(_) => {
                leadership.freed.borrow_mut().entry(master).or_default().insert(server);
                leadership.changed.raise();
                pauses = RetryPauses::default();
            }
            Err(_) => leadership.sleep(pauses.next()).await,
        }
    }
}

/// Frees a backup's replicas of masters that are no longer needed: replicas that it should have
/// freed while it was down, and replicas that it freed in a former generation that ended before the
/// disk recorded it.
async fn free_unknown(leadership: &Rc<Leadership>, server: ServerId, generation: Generation) {
    let mut pauses = RetryPauses::default();
    let mut after = MasterId(0);
    while let Some(to) = leadership.record_of(server, generation).and_then(|record| record.backup) {
        let asked = leadership.call(to.address, Opcode::MastersHere, &MastersAfter { after }).await;
        let page = match asked {
            Ok(answer) => of_body::<MastersHere>(&answer),
            // A backup that does not know the question has no such replicas.
            Err(CallError::Refused { status: Status::UnknownOpcode, .. }) => return,
            Err(_) => None,
        };
        let Some(MastersHere { masters, more }) = page else {
            leadership.sleep(pauses.next()).await;
            continue;
        };
        let mut all_freed = true;
        for master in &masters {
            let is_of_no_use = {
                let cluster = leadership.cluster();
                let former = cluster.former(*master);
                former.is_some_and(|it| it.freeing) || cluster.is_done_with(*master)
            };
            if is_of_no_use {
                let message = OfMaster { master: *master };
                all_freed &=
                    leadership.call(to.address, Opcode::FreeMaster, &message).await.is_ok();
            }
        }
        match masters.last() {
            _ if !all_freed => leadership.sleep(pauses.next()).await,
            Some(last) if more && *last > after => {
                (after, pauses) = (*last, RetryPauses::default())
            }
            _ => return,
        }
    }
}

fn to_free(leadership: &Leadership, server: ServerId) -> Option<MasterId> {
    let freed = leadership.freed.borrow();
    let is_left = |master: &MasterId| freed.get(master).is_none_or(|by| !by.contains(&server));
    let cluster = leadership.cluster();
    let mut masters = cluster.formers().filter(|it| it.freeing).map(|it| it.master);
    masters.find(is_left)
}

/// Whether all backups that are up have freed a master's replicas. Backups that are down do not
/// count: after its restart a backup reports the masters of its replicas, and frees those of
/// unknown masters.
pub(super) fn all_freed(leadership: &Leadership, master: MasterId) -> bool {
    let freed = leadership.freed.borrow();
    let cluster = leadership.cluster();
    let mut backups = cluster.backups();
    backups.all(|it| freed.get(&master).is_some_and(|by| by.contains(&it.server)))
}
