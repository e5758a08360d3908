//! Which cluster this end of a transport belongs to, and with whom it speaks.
//!
//! Ids of servers, masters and tables start at 1 in every cluster. An address may pass from a server of
//! one cluster to a server of another one: a machine is built anew, a pod gets an address that was free.
//! So both ends of a connection say in their greeting to which cluster they belong, and two ends that
//! name different clusters close it.
//!
//! An end that does not know its cluster yet says so, and is welcome everywhere: a new server before it
//! is registered, a coordinator before it has read its metastore, a client before it has met one. What
//! such an end learns must hold for the connections that it has by then:
//!
//! ```text
//!  it learns X     greeted as unknown, and the other end said X        stays
//!                  greeted as unknown, and the other end said          is closed: the next one
//!                  nothing, or has not greeted yet                     is greeted as X
//!                  greeted as unknown, and the other end said Y        is closed: another cluster
//!                  not greeted by this end yet                         stays, and is greeted as X
//! ```
//!
//! **No connection has two ends that know different clusters.** Of two ends that come to know X and Y, let
//! one learn later than the other. When it does, the other end's greeting said X, or nothing, or has not
//! come: by the table the connection is closed; or this end has not greeted yet, and then says Y, which the
//! other end refuses. If neither greeting had come when both learned, both said nothing, and the first
//! greeting that comes is refused ([`Meeting::Refused`] with [`Cause::ClusterLearned`]).

use crate::peer::{Cause, Peer};
use thunderhead_wire::ClusterId;

/// The cluster that this end belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnCluster {
    /// Not known yet: a new server, or a coordinator that has not read its metastore.
    #[default]
    Unknown,
    /// The cluster of the first end that names one: a client, whose first connection is to a coordinator.
    FirstMet,
    /// This one.
    Known(ClusterId),
}

/// What becomes of a connection when the other end's greeting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Both may be of one cluster.
    Welcome,
    /// The same, and this end belongs to that cluster from now on.
    Learned(ClusterId),
    /// It is closed.
    Refused(Cause),
}

impl OwnCluster {
    /// The cluster, if it is known.
    #[must_use]
    pub fn known(self) -> Option<ClusterId> {
        match self {
            OwnCluster::Known(cluster) => Some(cluster),
            OwnCluster::Unknown | OwnCluster::FirstMet => None,
        }
    }

    /// What becomes of a connection on which this end `said` its cluster and the other end `theirs`.
    pub(crate) fn meet(self, said: Option<ClusterId>, theirs: Option<ClusterId>) -> Meeting {
        match (self, theirs) {
            (OwnCluster::Known(own), Some(theirs)) if own != theirs => {
                Meeting::Refused(Cause::WrongCluster)
            }
            // Neither end would notice if they were of different clusters.
            (OwnCluster::Known(_), None) if said.is_none() => {
                Meeting::Refused(Cause::ClusterLearned)
            }
            (OwnCluster::FirstMet, Some(theirs)) => Meeting::Learned(theirs),
            _ => Meeting::Welcome,
        }
    }
}

/// Why a connection that this end has greeted does not outlast that it learns its cluster, if it does not.
pub(crate) fn ends_when_learned(learned: ClusterId, peer: Option<&Peer>) -> Option<Cause> {
    match peer.map(|peer| peer.agreement.cluster) {
        Some(Some(theirs)) if theirs == learned => None,
        Some(Some(_)) => Some(Cause::WrongCluster),
        Some(None) | None => Some(Cause::ClusterLearned),
    }
}

/// Says that a peer was refused, and both names.
pub(crate) fn tell_refused(
    peer: std::net::SocketAddr,
    own: Option<ClusterId>,
    theirs: Option<ClusterId>,
) {
    let name = |it: Option<ClusterId>| it.map_or("no cluster yet".to_owned(), |it| it.to_string());
    tracing::warn!(
        %peer,
        own = name(own),
        theirs = name(theirs),
        "connection closed: {}",
        Cause::WrongCluster
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_different_clusters_do_not_meet() {
        let (a, b) = (ClusterId(1), ClusterId(2));
        let refused = Meeting::Refused(Cause::WrongCluster);
        assert_eq!(OwnCluster::Known(a).meet(Some(a), Some(b)), refused);
        // Also where this end has learned its cluster only after it had greeted.
        assert_eq!(OwnCluster::Known(a).meet(None, Some(b)), refused);
        assert_eq!(OwnCluster::Known(a).meet(None, Some(a)), Meeting::Welcome);
        assert_eq!(OwnCluster::Known(a).meet(Some(a), None), Meeting::Welcome);
        let again = Meeting::Refused(Cause::ClusterLearned);
        assert_eq!(OwnCluster::Known(a).meet(None, None), again);
        for theirs in [None, Some(b)] {
            assert_eq!(OwnCluster::Unknown.meet(None, theirs), Meeting::Welcome);
        }
        assert_eq!(OwnCluster::FirstMet.meet(None, None), Meeting::Welcome);
        assert_eq!(OwnCluster::FirstMet.meet(None, Some(b)), Meeting::Learned(b));
    }
}
