//! Clients' leases: a value in the metastore for each open lease.
//!
//! The time of a lease's last renewal is kept only in memory: a new leader gives all leases their
//! whole time again. The leader writes that a lease is over (it deletes the value) before it tells
//! any server.
//!
//! A lease's number is a count and 24 random bits. The count is never used again. The bits prevent
//! a made-up number, which a server was told is no lease, from becoming a lease later.

use crate::knowledge::leases::RANDOM_BITS;
use crate::leadership::Leadership;
use crate::limits::{BUSY_HINT, LEASES_AT_ONCE, LEASES_MAX, METASTORE_HINT};
use crate::refusal::{Outcome, Refusal};
use crate::stored::{LEASE_IDS, LEASES, LeaseIds, key_of, to_value};
use crate::waiting::{all, within};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_metastore::Key;
use thunderhead_wire::control::{Empty, LeaseOpened, LeasesChecked, to_body};
use thunderhead_wire::{LeaseId, Status};

/// The pause before another attempt to write the end of a lease.
const AGAIN: Duration = Duration::from_secs(1);

/// Opens a lease for a client.
pub(crate) async fn open(leadership: &Rc<Leadership>) -> Outcome {
    let (leases, ttl) = (&leadership.leases, leadership.shared.options.lease_ttl);
    if leases.count() >= LEASES_MAX {
        let text = format!("{LEASES_MAX} clients have leases: more wait until some end");
        leadership.shared.remark_event("leases", &text);
        return Err(Refusal { status: Status::Busy, hint: METASTORE_HINT });
    }
    let count = loop {
        let (next, end) = leases.counts.get();
        if next < end {
            leases.counts.set((next + 1, end));
            break next;
        }
        let _extending = leases.extending.lock().await;
        let (next, end) = leases.counts.get();
        if next >= end {
            let further = LeaseIds { next: end + LEASES_AT_ONCE };
            leadership.write(&Key::new(LEASE_IDS)?, Some(to_value(&further))).await?;
            leases.counts.set((end, further.next));
        }
    };
    let random = leadership.shared.random.borrow_mut().below(1 << RANDOM_BITS);
    let lease = LeaseId(count << RANDOM_BITS | random);
    leadership.write(&key_of(LEASES, lease.0)?, Some(to_value(&Empty {}))).await?;
    leases.add(lease, leadership.now() + ttl);
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    Ok(to_body(&LeaseOpened { lease, ttl_ms, cluster: leadership.cluster().record.cluster }))
}

/// Skips numbers that a later state of the metastore may have given out.
pub(crate) async fn pass_over(leadership: &Leadership, numbers: u64) -> Result<(), Refusal> {
    let leases = &leadership.leases;
    let _extending = leases.extending.lock().await;
    let end = leases.counts.get().1.saturating_add(numbers).min(u64::MAX >> RANDOM_BITS);
    leadership.write(&Key::new(LEASE_IDS)?, Some(to_value(&LeaseIds { next: end }))).await?;
    leases.counts.set((end, end));
    Ok(())
}

/// Renews a client's lease.
pub(crate) fn renew(leadership: &Leadership, lease: LeaseId) -> Outcome {
    leadership.leases.extend(lease, leadership.now() + leadership.shared.options.lease_ttl)?;
    Ok(to_body(&Empty {}))
}

/// Tells a server which leases are over.
pub(crate) fn check(leadership: &Leadership, leases: &[LeaseId]) -> Outcome {
    let (ended, map_version) =
        (leadership.leases.ended(leases), leadership.cluster().map_version());
    Ok(to_body(&LeasesChecked { ended, map_version }))
}

/// Closes a client's lease. It may be closed already.
pub(crate) async fn close(leadership: &Rc<Leadership>, lease: LeaseId) -> Outcome {
    end(leadership, lease).await?;
    Ok(to_body(&Empty {}))
}

/// Writes that a lease is over, then takes that over.
async fn end(leadership: &Leadership, lease: LeaseId) -> Result<(), Refusal> {
    let leases = &leadership.leases;
    match leases.open.borrow_mut().get_mut(&lease) {
        None => return Ok(()),
        Some(known) if known.ending => {
            return Err(Refusal { status: Status::Busy, hint: BUSY_HINT });
        }
        Some(known) => {
            known.ending = true;
            leases.due.borrow_mut().remove(&(known.until, lease));
        }
    }
    let written = leadership.write(&key_of(LEASES, lease.0)?, None).await;
    let mut open = leases.open.borrow_mut();
    match &written {
        Ok(()) => {
            open.remove(&lease);
        }
        Err(_) => {
            if let Some(known) = open.get_mut(&lease) {
                (known.ending, known.until) = (false, leadership.now() + AGAIN);
                leases.due.borrow_mut().insert((known.until, lease));
                leases.added.raise();
            }
        }
    }
    written
}

/// Task: ends leases that have expired.
pub(crate) async fn expire(leadership: &Rc<Leadership>) {
    let leases = &leadership.leases;
    loop {
        let due = leases.due_at(leadership.now());
        if !due.is_empty() {
            let ends = due.into_iter().map(|lease| end(leadership, lease));
            // Failed ends are due again later.
            all(ends.collect()).await;
            continue;
        }
        let seen = leases.added.seen();
        let first = leases.due.borrow().first().map(|(until, _)| *until);
        match first {
            Some(until) => {
                let sleep = leadership.shared.tasks().sleep_until(until);
                let _ = within(sleep, leases.added.after(seen)).await;
            }
            None => leases.added.after(seen).await,
        }
    }
}
