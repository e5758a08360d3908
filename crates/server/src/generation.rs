//! The state that the threads of a server process share during one generation: the server's
//! identity, the list of servers, and whether the generation is to end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_wire::control::{Followed, ServerList, Settings};
use thunderhead_wire::{ClusterId, Generation, MasterId, ServerId};

/// The identity of a server that has enlisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
    /// The server's generation.
    pub generation: Generation,
    /// Its masters, one for each shard.
    pub masters: Vec<MasterId>,
    /// The seed of the ids of its logs, the same in all generations; 0 if there is none.
    pub log_seed: u64,
    /// The settings of the cluster.
    pub settings: Settings,
}

/// The reason for the end of a generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The server was asked to end, and has ended in order.
    #[error("the server has ended")]
    Asked,
    /// The cluster has declared the server crashed. It may begin a new generation.
    #[error(
        "the cluster has declared this server crashed, or another server runs with the same storage"
    )]
    Deposed,
    /// The server cannot continue, or could not begin.
    #[error("{0}")]
    Failed(String),
}

/// The state of one generation of a server, or of one run of a coordinator. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct GenerationState(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Is notified of every change, for threads that wait without an alarm.
    changed: Condvar,
    /// Grows with every change, so that a node sees cheaply whether there is a new one.
    changes: AtomicU64,
    is_over: AtomicBool,
    /// The token of the newest leadership that this server has followed, also in earlier
    /// generations.
    leadership: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    cluster: Option<ClusterId>,
    /// The cluster to which `leadership` and `master` belong.
    followed_of: Option<ClusterId>,
    /// The highest id of a master in a list of servers, also in earlier generations.
    master: MasterId,
    identity: Option<Arc<Identity>>,
    list: Arc<ServerList>,
    addresses: Vec<SocketAddr>,
    ended: Option<Ended>,
    is_leaving: bool,
    /// The number of nodes that have begun to serve.
    serving: usize,
    /// The number of nodes that have not finished leaving.
    staying: usize,
    alarms: Vec<Alarm>,
    /// The server's next generation.
    next: Option<GenerationState>,
}

impl GenerationState {
    /// Returns the state of a generation that begins.
    #[must_use]
    pub fn new() -> GenerationState {
        GenerationState::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node, which is woken by each change.
    pub fn join(&self, address: SocketAddr, alarm: Alarm) {
        let mut state = self.state();
        state.addresses.push(address);
        state.alarms.push(alarm);
        state.staying += 1;
    }

    /// Returns the addresses of the shards, in the order in which they joined.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.state().addresses.clone()
    }

    /// Returns the cluster, once it is known. It is known before the rest of the identity.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.state().cluster
    }

    /// Sets the cluster, which the storage or the coordinator has named.
    pub(crate) fn set_cluster(&self, cluster: ClusterId) {
        let mut state = self.state();
        if state.followed_of.replace(cluster).is_some_and(|it| it != cluster) {
            self.0.leadership.store(0, Ordering::Release);
            state.master = MasterId(0);
        }
        if state.cluster != Some(cluster) {
            state.cluster = Some(cluster);
            self.announce_change(&state);
        }
    }

    /// Takes over the state of a cluster that an earlier generation has followed.
    pub(crate) fn continue_from(&self, cluster: ClusterId, followed: Followed) {
        let mut state = self.state();
        // A state that this process itself has followed is later.
        if *state.followed_of.get_or_insert(cluster) == cluster {
            self.0.leadership.fetch_max(followed.leadership, Ordering::AcqRel);
            state.master = state.master.max(followed.master);
        }
    }

    /// Returns the latest state of the cluster that this server has followed.
    pub(crate) fn followed(&self) -> Followed {
        let master = self.state().master;
        Followed { leadership: self.0.leadership.load(Ordering::Acquire), master }
    }

    /// Follows the coordinator that leads under this token. The error has the token of a later
    /// leadership, which this server has followed before.
    pub(crate) fn follow(&self, token: u64) -> Result<(), u64> {
        let newest = self.0.leadership.fetch_max(token, Ordering::AcqRel);
        if newest <= token { Ok(()) } else { Err(newest) }
    }

    /// Returns the identity, once it is known.
    #[must_use]
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.state().identity.clone()
    }

    /// Returns the newest known list of servers.
    #[must_use]
    pub fn list(&self) -> Arc<ServerList> {
        Arc::clone(&self.state().list)
    }

    /// Records that the server has enlisted.
    pub(crate) fn on_enlisted(&self, identity: Identity, list: ServerList) {
        let mut state = self.state();
        state.identity = Some(Arc::new(identity));
        state.learn(list);
        self.announce_change(&state);
    }

    /// Records that a node has begun to serve.
    pub(crate) fn on_node_serving(&self) {
        let mut state = self.state();
        state.serving += 1;
        self.announce_change(&state);
    }

    /// Blocks until all nodes serve, or the generation is over. Only for threads that have no other
    /// work.
    pub fn wait_until_serving(&self) {
        let is_starting =
            |state: &mut State| state.serving < state.addresses.len() && state.ended.is_none();
        drop(self.0.changed.wait_while(self.state(), is_starting));
    }

    /// Blocks until the generation is over, and returns the reason. Only for threads that have no
    /// other work.
    pub(crate) fn wait_until_over(&self) -> Ended {
        let lasts = |state: &mut State| state.ended.is_none();
        let state = self.0.changed.wait_while(self.state(), lasts);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.ended.clone().unwrap_or(Ended::Asked)
    }

    /// Stores a list of servers if it is newer than the known one. Returns whether it is.
    pub(crate) fn learn(&self, list: ServerList) -> bool {
        let mut state = self.state();
        let is_newer = state.learn(list);
        if is_newer {
            self.announce_change(&state);
        }
        is_newer
    }

    /// Ends the generation. Only the first reason counts.
    pub fn end(&self, why: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        self.announce_change(&state);
    }

    /// Returns the number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Whether the generation is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }

    /// Counts a change and wakes all nodes.
    fn announce_change(&self, state: &State) {
        self.0.is_over.store(state.ended.is_some(), Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::Release);
        state.alarms.iter().for_each(Alarm::ring);
        self.0.changed.notify_all();
    }

    /// Returns the reason of the end, if the generation is over.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// Asks all nodes to complete their work and end, also in later generations.
    pub fn leave(&self) {
        let mut generation = self.clone();
        loop {
            let next = {
                let mut state = generation.state();
                state.is_leaving = true;
                generation.announce_change(&state);
                state.next.clone()
            };
            match next {
                Some(next) => generation = next,
                None => return,
            }
        }
    }

    /// Begins the next generation. This one is over.
    pub(crate) fn begin_next(&self) -> GenerationState {
        let mut state = self.state();
        let is_leaving = state.is_leaving;
        let followed_of = state.followed_of;
        let next = state.next.get_or_insert_with(GenerationState::new).clone();
        drop(state);
        if let Some(cluster) = followed_of {
            next.continue_from(cluster, self.followed());
        }
        if is_leaving {
            next.leave();
        }
        next
    }

    /// Returns the latest generation, which may be this one.
    #[must_use]
    pub fn latest(&self) -> GenerationState {
        let mut generation = self.clone();
        loop {
            let next = generation.state().next.clone();
            match next {
                Some(next) => generation = next,
                None => return generation,
            }
        }
    }

    /// Whether the server was asked to end.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state().is_leaving
    }

    /// Returns the number of nodes that have not finished leaving.
    pub(crate) fn staying(&self) -> usize {
        self.state().staying
    }

    /// Records that a node has finished leaving. The last node ends the generation.
    pub(crate) fn on_node_left(&self) {
        let mut state = self.state();
        state.staying = state.staying.saturating_sub(1);
        if state.staying == 0 {
            state.ended.get_or_insert(Ended::Asked);
        }
        // This wakes the nodes that wait for the others.
        self.announce_change(&state);
    }
}

impl State {
    fn learn(&mut self, list: ServerList) -> bool {
        let is_newer = list.version > self.list.version;
        if is_newer {
            let shards = list.servers.iter().flat_map(|it| &it.shards);
            self.master = shards.map(|it| it.master).fold(self.master, MasterId::max);
            self.list = Arc::new(list);
        }
        is_newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_until_all_nodes_serve_or_the_generation_is_over() {
        let world = || thunderhead_runtime::os::world_without_files().unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        for is_over in [false, true] {
            let generation = GenerationState::new();
            (0..2).for_each(|_| generation.join(at, world().alarm));
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| generation.wait_until_serving());
                generation.on_node_serving();
                assert!(!waits.is_finished(), "one of two");
                if is_over { generation.end(Ended::Asked) } else { generation.on_node_serving() }
            });
            generation.wait_until_serving();
        }
    }

    #[test]
    fn a_process_follows_no_leadership_that_is_older_than_one_it_has_followed() {
        let generation = GenerationState::new();
        for (token, follows) in [(3, Ok(())), (3, Ok(())), (2, Err(3)), (5, Ok(())), (3, Err(5))] {
            assert_eq!(generation.clone().follow(token), follows, "{token}");
        }
    }

    #[test]
    fn the_next_generation_follows_no_leadership_that_is_older_than_one_followed_before() {
        let generation = GenerationState::new();
        let (cluster, other) = (ClusterId(7), ClusterId(8));
        generation.set_cluster(cluster);
        generation.follow(5).unwrap();
        let next = generation.begin_next();
        assert_eq!(next.followed(), Followed { leadership: 5, master: MasterId(0) });
        assert_eq!(next.follow(4), Err(5));
        next.set_cluster(cluster);
        assert_eq!(next.follow(4), Err(5));
        // A server without a storage may begin anew in another cluster.
        let next = next.begin_next();
        next.set_cluster(other);
        assert_eq!(next.follow(1), Ok(()));
    }

    #[test]
    fn asking_a_generation_to_end_asks_later_generations_too() {
        let first = GenerationState::new();
        let second = first.begin_next();
        let third = second.begin_next();
        assert!(!third.is_leaving());
        first.leave();
        assert!(second.is_leaving() && first.latest().is_leaving());
        third.end(Ended::Deposed);
        assert_eq!((first.ended(), first.latest().ended()), (None, Some(Ended::Deposed)));
        assert!(third.begin_next().is_leaving(), "also a generation that begins later");
    }
}
