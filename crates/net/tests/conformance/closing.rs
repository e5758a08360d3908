//! A closed connection ends once on both sides, with the right cause. The other connections stay
//! open.

use crate::{every_transport, message};
use std::net::SocketAddr;
use thunderhead_net::Cause;

#[test]
fn a_message_that_is_too_long_closes_its_connection_and_no_other() {
    for mut pair in every_transport() {
        let (bad, good) = (pair.open(), pair.open());
        pair.send(bad, &message((1 << 20) + 1));
        pair.until("closed", |it| !it.at_client.closed.is_empty());
        assert_eq!(pair.at_client.closed[0].0, bad);
        assert_eq!(pair.at_server.closed[0].1, Cause::TooLong, "{}", pair.name);
        assert_eq!(pair.server.counters().closed(Cause::TooLong), 1);
        pair.send(good, b"still here");
        pair.until("received", |it| !it.at_server.messages.is_empty());
        assert!(pair.client.peer(bad).is_none());
    }
}

#[test]
fn a_closed_connection_closes_once_on_both_sides() {
    for mut pair in every_transport() {
        let connection = pair.open();
        pair.send(connection, b"last words");
        pair.client.close(connection, Cause::ByUs);
        // A message sent afterwards is dropped.
        pair.send(connection, b"too late");
        pair.until("closed", |it| !it.at_server.closed.is_empty());
        for _ in 0..100 {
            pair.turn();
        }
        let heard: Vec<&[u8]> = pair.at_server.messages.iter().map(|it| it.1.as_slice()).collect();
        // With reordering, the close may arrive before the last message.
        assert!(heard == [b"last words"] || pair.name == "datagrams" && heard.is_empty());
        assert_eq!(pair.at_server.closed.len(), 1);
        assert_eq!(pair.at_server.closed[0].1, Cause::ByPeer);
        assert!(pair.at_client.closed.is_empty(), "the closing end is not told");
        assert_eq!((pair.server.counters().open, pair.client.counters().open), (0, 0));
        let next = pair.open();
        assert_ne!(next, connection, "ids are not used again");
    }
}

#[test]
fn an_address_without_a_listener_refuses() {
    for mut pair in every_transport() {
        let nowhere = SocketAddr::new(pair.address.ip(), 1);
        let connection = pair.client.connect(nowhere);
        pair.until("refused", |it| !it.at_client.closed.is_empty());
        assert_eq!(pair.at_client.closed, [(connection, Cause::Refused)], "{}", pair.name);
    }
}

#[test]
fn a_message_sent_before_the_connection_is_open_closes_it() {
    for mut pair in every_transport() {
        let connection = pair.client.connect(pair.address);
        pair.send(connection, b"too early");
        pair.until("closed on both sides", |it| {
            !it.at_client.closed.is_empty() && !it.at_server.closed.is_empty()
        });
        let (closed, why) = pair.at_client.closed[0];
        assert_eq!(closed, connection, "{}", pair.name);
        assert!([Cause::ByPeer, Cause::Reset].contains(&why), "{}: {why}", pair.name);
        assert_eq!(pair.at_server.closed[0].1, Cause::NotOurs, "{}", pair.name);
        assert!(pair.at_server.opened.is_empty() && pair.at_server.messages.is_empty());
    }
}
