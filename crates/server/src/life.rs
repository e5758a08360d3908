//! What the threads of one server process share during one life: who they are, who else there is, and
//! that it is time to end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
pub struct Life(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    identity: Option<Arc<Identity>>,
    list: Arc<ServerList>,
    addresses: Vec<SocketAddr>,
    ended: Option<Ended>,
    is_leaving: bool,
    /// Nodes that are not done with leaving.
    staying: usize,
    alarms: Vec<Alarm>,
}

impl Life {
    /// A life that begins.
    #[must_use]
    pub fn new() -> Life {
        Life::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        state.ring();
    }

    /// There is a list; true if it is newer.
    pub(crate) fn learn(&self, list: ServerList) -> bool {
        let mut state = self.state();
        let is_newer = state.learn(list);
        if is_newer {
            state.ring();
        }
        is_newer
    }

    /// It is over. Only the first reason counts.
    pub fn end(&self, why: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        state.ring();
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// Asks all to bring to an end what they have begun, and then to end.
    pub fn leave(&self) {
        let mut state = self.state();
        state.is_leaving = true;
        state.ring();
    }

    /// Whether it was asked to end.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state().is_leaving
    }

    /// A node has brought everything to an end. The last one ends the life.
    pub(crate) fn has_left(&self) {
        let mut state = self.state();
        state.staying = state.staying.saturating_sub(1);
        if state.staying == 0 {
            state.ended.get_or_insert(Ended::Asked);
        }
        // The last one may have waited for this one.
        state.ring();
    }

    /// Nodes that are not done with leaving.
    pub(crate) fn staying(&self) -> usize {
        self.state().staying
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

    fn ring(&self) {
        self.alarms.iter().for_each(Alarm::ring);
    }
}
