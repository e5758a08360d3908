//! What the threads of one server process share during one life: who they are, who else there is, and
//! that it is time to end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_wire::control::{ServerList, Settings};
use thunderhead_wire::{ClusterId, MasterId, ServerId};

/// Who a server is, once it has enlisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
    /// Which of its lives this is.
    pub generation: u64,
    /// Its masters, a shard each.
    pub masters: Vec<MasterId>,
    /// Where the ids of its logs come from, in all its lives; 0 for nowhere.
    pub log_seed: u64,
    /// What holds in the cluster.
    pub settings: Settings,
}

/// Why a life is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It was asked to, and everything is in order.
    #[error("the server has ended")]
    Asked,
    /// The cluster has given it up. It may begin a new life.
    #[error("the cluster has given this server up, or another one runs with its storage")]
    Deposed,
    /// It cannot go on, or could not even begin.
    #[error("{0}")]
    Failed(String),
}

/// One life of a server process. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Is told of every change, for who waits without an alarm.
    changed: Condvar,
    /// Grows with every change: who has seen this one need not look again.
    changes: AtomicU64,
    is_over: AtomicBool,
    /// The token of the newest leadership that has told this process anything.
    leadership: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    cluster: Option<ClusterId>,
    identity: Option<Arc<Identity>>,
    list: Arc<ServerList>,
    addresses: Vec<SocketAddr>,
    ended: Option<Ended>,
    is_leaving: bool,
    /// Nodes that have begun to serve.
    serving: usize,
    /// Nodes that are not done with leaving.
    staying: usize,
    alarms: Vec<Alarm>,
    /// The server's next life.
    next: Option<Life>,
}

impl Life {
    /// A life that begins.
    #[must_use]
    pub fn new() -> Life {
        Life::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node takes part, and is woken when something changes.
    pub fn join(&self, address: SocketAddr, alarm: Alarm) {
        let mut state = self.state();
        state.addresses.push(address);
        state.alarms.push(alarm);
        state.staying += 1;
    }

    /// Where the shards listen, in the order in which they joined.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.state().addresses.clone()
    }

    /// The cluster, once that is known: before the rest.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.state().cluster
    }

    /// The storage or the coordinator says to which cluster the server belongs.
    pub(crate) fn is_of(&self, cluster: ClusterId) {
        let mut state = self.state();
        if state.cluster != Some(cluster) {
            state.cluster = Some(cluster);
            self.changed(&state);
        }
    }

    /// Follows the coordinator that leads under this token. The error has the token of a later one,
    /// which this process has followed before.
    pub(crate) fn follow(&self, token: u64) -> Result<(), u64> {
        let newest = self.0.leadership.fetch_max(token, Ordering::AcqRel);
        if newest <= token { Ok(()) } else { Err(newest) }
    }

    /// Who it is, once that is known.
    #[must_use]
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.state().identity.clone()
    }

    /// Who else there is.
    #[must_use]
    pub fn list(&self) -> Arc<ServerList> {
        Arc::clone(&self.state().list)
    }

    /// The server has enlisted.
    pub(crate) fn enlisted(&self, identity: Identity, list: ServerList) {
        let mut state = self.state();
        state.identity = Some(Arc::new(identity));
        state.learn(list);
        self.changed(&state);
    }

    /// A node has begun to serve.
    pub(crate) fn serves(&self) {
        let mut state = self.state();
        state.serving += 1;
        self.changed(&state);
    }

    /// Waits until all nodes serve, or it is over: for a thread that has nothing else to do.
    pub fn wait_until_serving(&self) {
        let is_starting =
            |state: &mut State| state.serving < state.addresses.len() && state.ended.is_none();
        drop(self.0.changed.wait_while(self.state(), is_starting));
    }

    /// There is a list; true if it is newer.
    pub(crate) fn learn(&self, list: ServerList) -> bool {
        let mut state = self.state();
        let is_newer = state.learn(list);
        if is_newer {
            self.changed(&state);
        }
        is_newer
    }

    /// It is over. Only the first reason counts.
    pub fn end(&self, why: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        self.changed(&state);
    }

    /// Counts what has changed so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }

    /// Something has changed: all nodes are to look.
    fn changed(&self, state: &State) {
        self.0.is_over.store(state.ended.is_some(), Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::Release);
        state.alarms.iter().for_each(Alarm::ring);
        self.0.changed.notify_all();
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// Asks all to bring to an end what they have begun, and then to end; also in lives after this.
    pub fn leave(&self) {
        let mut life = self.clone();
        loop {
            let next = {
                let mut state = life.state();
                state.is_leaving = true;
                life.changed(&state);
                state.next.clone()
            };
            match next {
                Some(next) => life = next,
                None => return,
            }
        }
    }

    /// Begins the life after this one, which is over.
    pub(crate) fn begin_next(&self) -> Life {
        let mut state = self.state();
        let is_leaving = state.is_leaving;
        let next = state.next.get_or_insert_with(Life::new).clone();
        drop(state);
        if is_leaving {
            next.leave();
        }
        next
    }

    /// The latest of the lives after this one, or this one.
    #[must_use]
    pub fn latest(&self) -> Life {
        let mut life = self.clone();
        loop {
            let next = life.state().next.clone();
            match next {
                Some(next) => life = next,
                None => return life,
            }
        }
    }

    /// Whether it was asked to end.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state().is_leaving
    }

    /// Nodes that are not done with leaving.
    pub(crate) fn staying(&self) -> usize {
        self.state().staying
    }

    /// A node has brought everything to an end. The last one ends the life.
    pub(crate) fn has_left(&self) {
        let mut state = self.state();
        state.staying = state.staying.saturating_sub(1);
        if state.staying == 0 {
            state.ended.get_or_insert(Ended::Asked);
        }
        // Who waits for the others looks again.
        self.changed(&state);
    }
}

impl State {
    fn learn(&mut self, list: ServerList) -> bool {
        let is_newer = list.version > self.list.version;
        if is_newer {
            self.list = Arc::new(list);
        }
        is_newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_life_goes_on_when_all_of_it_serves_or_it_is_over() {
        let world = || thunderhead_runtime::os::world_without_files().unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        for is_over in [false, true] {
            let life = Life::new();
            (0..2).for_each(|_| life.join(at, world().alarm));
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| life.wait_until_serving());
                life.serves();
                assert!(!waits.is_finished(), "one of two");
                if is_over { life.end(Ended::Asked) } else { life.serves() }
            });
            life.wait_until_serving();
        }
    }

    #[test]
    fn a_life_follows_no_leadership_that_is_older_than_another_it_has_heard_of() {
        let life = Life::new();
        for (token, follows) in [(3, Ok(())), (3, Ok(())), (2, Err(3)), (5, Ok(())), (3, Err(5))] {
            assert_eq!(life.clone().follow(token), follows, "{token}");
        }
    }

    #[test]
    fn who_asks_a_life_to_end_asks_those_after_it() {
        let first = Life::new();
        let second = first.begin_next();
        let third = second.begin_next();
        assert!(!third.is_leaving());
        first.leave();
        assert!(second.is_leaving() && first.latest().is_leaving());
        third.end(Ended::Deposed);
        assert_eq!((first.ended(), first.latest().ended()), (None, Some(Ended::Deposed)));
        assert!(third.begin_next().is_leaving(), "also where it comes later");
    }
}
