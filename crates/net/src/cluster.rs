//! Decides which cluster this end of a transport belongs to, and which peers it accepts.
//!
//! Ids of servers, masters and tables start at 1 in every cluster. An address may pass from a
//! server of one cluster to a server of another: a machine is reinstalled, or a pod gets an address
//! that was free. So both ends of a connection name their cluster in the greeting, and two ends
//! that name different clusters close the connection.
//!
//! An end that does not know its cluster yet says so, and every peer accepts it: a new server
//! before it is registered, a coordinator before it has read its metastore, a client before its
//! first connection. When such an end learns its cluster, the connections that it already has must
//! agree with it:
//!
//! ```text
//!  it learns X     greeted as unknown, and the other end said X        stays
//!                  greeted as unknown, and the other end said          is closed: the next one
//!                  nothing, or has not greeted yet                     is greeted as X
//!                  greeted as unknown, and the other end said Y        is closed: another cluster
//!                  not greeted by this end yet                         stays, and is greeted as X
//! ```
//!
//! **No connection has two ends that know different clusters.** Let one end learn cluster X first
//! and the other end learn cluster Y later. At that moment the first end's greeting said X, or
//! named no cluster, or has not arrived. By the table the second end closes the connection; or it
//! has not greeted yet, and then says Y, which the first end refuses. If neither greeting had
//! arrived when both ends learned, both greetings name no cluster, and the first to arrive is
//! refused ([`GreetingVerdict::Refused`] with [`Cause::ClusterLearned`]).

use crate::peer::{Cause, Peer};
use thunderhead_wire::ClusterId;

/// The cluster that this end belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnCluster {
    /// Not known yet: a new server, or a coordinator that has not read its metastore.
    #[default]
    Unknown,
    /// The cluster of the first peer that names one. For clients, which connect to a coordinator
    /// first.
    FirstMet,
    /// The given cluster.
    Known(ClusterId),
}

/// The verdict on a connection when the peer's greeting has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GreetingVerdict {
    /// Both ends may belong to one cluster.
    Welcome,
    /// Like `Welcome`, and this end belongs to that cluster from now on.
    Learned(ClusterId),
    /// The connection is closed.
    Refused(Cause),
}

impl OwnCluster {
    /// Returns the cluster, if it is known.
    #[must_use]
    pub fn known(self) -> Option<ClusterId> {
        match self {
            OwnCluster::Known(cluster) => Some(cluster),
            OwnCluster::Unknown | OwnCluster::FirstMet => None,
        }
    }

    /// Judges a connection on which this end named the cluster `said` and the peer named `theirs`.
    pub(crate) fn judge(
        self,
        said: Option<ClusterId>,
        theirs: Option<ClusterId>,
    ) -> GreetingVerdict {
        match (self, theirs) {
            (OwnCluster::Known(own), Some(theirs)) if own != theirs => {
                GreetingVerdict::Refused(Cause::WrongCluster)
            }
            // If the ends belonged to different clusters, neither would notice.
            (OwnCluster::Known(_), None) if said.is_none() => {
                GreetingVerdict::Refused(Cause::ClusterLearned)
            }
            (OwnCluster::FirstMet, Some(theirs)) => GreetingVerdict::Learned(theirs),
            _ => GreetingVerdict::Welcome,
        }
    }
}

/// Returns the cause for which a greeted connection must close now that this end has learned its
/// cluster, or `None` if it may stay.
pub(crate) fn ends_when_learned(learned: ClusterId, peer: Option<&Peer>) -> Option<Cause> {
    match peer.map(|peer| peer.agreement.cluster) {
        Some(Some(theirs)) if theirs == learned => None,
        Some(Some(_)) => Some(Cause::WrongCluster),
        Some(None) | None => Some(Cause::ClusterLearned),
    }
}

/// Logs that a peer was refused, with both clusters.
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
    fn ends_of_different_clusters_refuse_each_other() {
        let (a, b) = (ClusterId(1), ClusterId(2));
        let refused = GreetingVerdict::Refused(Cause::WrongCluster);
        assert_eq!(OwnCluster::Known(a).judge(Some(a), Some(b)), refused);
        // This end learned its cluster only after it had greeted.
        assert_eq!(OwnCluster::Known(a).judge(None, Some(b)), refused);
        assert_eq!(OwnCluster::Known(a).judge(None, Some(a)), GreetingVerdict::Welcome);
        assert_eq!(OwnCluster::Known(a).judge(Some(a), None), GreetingVerdict::Welcome);
        let again = GreetingVerdict::Refused(Cause::ClusterLearned);
        assert_eq!(OwnCluster::Known(a).judge(None, None), again);
        for theirs in [None, Some(b)] {
            assert_eq!(OwnCluster::Unknown.judge(None, theirs), GreetingVerdict::Welcome);
        }
        assert_eq!(OwnCluster::FirstMet.judge(None, None), GreetingVerdict::Welcome);
        assert_eq!(OwnCluster::FirstMet.judge(None, Some(b)), GreetingVerdict::Learned(b));
    }
}
