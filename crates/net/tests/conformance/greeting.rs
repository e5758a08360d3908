//! Both ends of a connection are greeted before any message. Ends of different clusters exchange no
//! message.

use crate::{FEATURES, every_transport};
use thunderhead_net::{Cause, OwnCluster};
use thunderhead_wire::ClusterId;

#[test]
fn both_ends_are_greeted_before_anything_else() {
    for mut pair in every_transport() {
        let connection = pair.open();
        let peer = pair.client.peer(connection).unwrap();
        assert_eq!(peer.via, pair.via, "{}", pair.name);
        assert_eq!(peer.address, pair.address);
        assert_eq!(peer.agreement.features, FEATURES);
        assert_eq!(peer.agreement.message_bytes_max, 1 << 20);
        let there = pair.server.peer(pair.at_server.opened[0]).unwrap();
        assert_eq!(there.agreement.version, 1);
        assert_eq!((pair.server.counters().accepted, pair.client.counters().connected), (1, 1));
    }
}

const ONE: OwnCluster = OwnCluster::Known(ClusterId(1));
const OTHER: OwnCluster = OwnCluster::Known(ClusterId(2));

#[test]
fn ends_of_different_clusters_exchange_no_message() {
    for mut pair in every_transport() {
        pair.server.set_cluster(ONE);
        pair.client.set_cluster(OTHER);
        let connection = pair.client.connect(pair.address);
        pair.until("closed", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        let (name, closed) = (pair.name, &pair.at_client.closed);
        // The end of the connection may arrive before the greeting that names the cause.
        let overtakes = name == "datagrams" && closed[0].1 == Cause::ByPeer;
        assert!(*closed == [(connection, Cause::WrongCluster)] || overtakes, "{name}: {closed:?}");
        assert!(pair.at_client.opened.is_empty() && pair.at_server.opened.is_empty(), "{name}");
        // The end that refuses knows the cluster of the other.
        let strangers = [&pair.server, &pair.client].map(|end| end.counters().foreign_peer);
        let clusters = strangers.map(|it| it.map(|it| it.cluster));
        let one_is = |at: usize, id| clusters[at] == Some(ClusterId(id));
        assert!(one_is(0, 2) || one_is(1, 1), "{name}: {strangers:?}");
        pair.client.set_cluster(ONE);
        let connection = pair.open();
        pair.send(connection, b"hello");
        pair.until("received", |it| it.at_server.messages.len() == 1);
    }
}

#[test]
fn an_end_without_a_cluster_is_welcome_and_keeps_the_first_that_it_learns() {
    for mut pair in every_transport() {
        pair.server.set_cluster(ONE);
        pair.open();
        assert_eq!(pair.client.cluster(), OwnCluster::Unknown);
        pair.client.set_cluster(OwnCluster::FirstMet);
        let first = pair.open();
        assert_eq!(pair.client.cluster(), ONE, "{}", pair.name);
        assert_eq!(pair.client.peer(first).unwrap().agreement.cluster, Some(ClusterId(1)));
        // A server of another cluster takes over that address.
        pair.server.set_cluster(OTHER);
        pair.until("closed", |it| it.at_client.closed.len() == 2);
        let again = pair.client.connect(pair.address);
        pair.until("closed", |it| it.at_client.closed.len() == 3);
        let (closed, why) = pair.at_client.closed[2];
        let overtakes = pair.name == "datagrams" && why == Cause::ByPeer;
        assert!(closed == again && (why == Cause::WrongCluster || overtakes), "{}", pair.name);
    }
}

#[test]
fn an_end_that_learns_its_cluster_is_greeted_again_unless_the_peer_named_it() {
    for mut pair in every_transport() {
        let unknown = pair.open();
        pair.server.set_cluster(ONE);
        // A message sent before the other end notices is dropped.
        pair.send(unknown, b"dropped");
        pair.until("closed", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        assert_eq!(pair.at_server.closed[0].1, Cause::ClusterLearned, "{}", pair.name);
        let known = pair.open();
        pair.client.set_cluster(ONE);
        pair.send(known, b"hello");
        pair.until("received", |it| !it.at_server.messages.is_empty());
        assert_eq!(pair.at_server.messages[0].1, b"hello", "{}", pair.name);
        assert_eq!((pair.at_client.closed.len(), pair.at_server.closed.len()), (1, 1));
    }
}
