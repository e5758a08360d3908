//! A server accepts a limited number of connections, and reserves some of them for members.

use crate::{FEATURES, every_transport, every_transport_of, limits};
use thunderhead_net::{Cause, ConnectionId, Limits, Via};
use thunderhead_wire::frame::MEMBER;

#[test]
fn more_connections_than_allowed_are_turned_away_and_the_others_stay() {
    for mut pair in every_transport() {
        // The client has the same limit; this checks the server's.
        let mut other = every_transport().into_iter().find(|it| it.name == pair.name).unwrap();
        if pair.via == Via::Simulated {
            continue;
        }
        let held: Vec<ConnectionId> = (0..4).map(|_| pair.open()).collect();
        other.client.connect(pair.address);
        while other.at_client.closed.is_empty() {
            other.client.poll(pair.now, &mut other.at_client);
            other.client.flush();
            pair.turn();
        }
        assert_eq!(pair.server.counters().closed(Cause::TooMany), 1, "{}", pair.name);
        for connection in held {
            pair.send(connection, b"still here");
        }
        pair.until("received", |it| it.at_server.messages.len() == 4);
        // Now the client's own limit.
        let fifth = pair.client.connect(pair.address);
        pair.until("turned away", |it| it.at_client.closed.contains(&(fifth, Cause::TooMany)));
    }
}

#[test]
fn members_are_accepted_when_clients_are_turned_away() {
    const RESERVED: usize = 2;
    let limits = Limits { connections_reserved: RESERVED, ..limits() };
    for (client_features, accepted) in [(FEATURES, 0), (FEATURES | MEMBER, RESERVED)] {
        for mut pair in every_transport_of(limits, FEATURES | MEMBER, client_features) {
            for _ in 0..limits.connections_max {
                pair.open();
            }
            for number in 0..RESERVED + 1 {
                let (opened, closed) = (pair.at_server.opened.len(), pair.at_client.closed.len());
                let connection = pair.client.connect(pair.address);
                pair.until("accepted or turned away", |it| {
                    it.at_server.opened.len() > opened || it.at_client.closed.len() > closed
                });
                let is_accepted = pair.at_client.closed.iter().all(|(id, _)| *id != connection);
                assert_eq!(is_accepted, number < accepted, "{} {number}", pair.name);
            }
            let refused = (RESERVED + 1 - accepted) as u64;
            assert_eq!(pair.server.counters().closed(Cause::TooMany), refused, "{}", pair.name);
            let is_refusal = pair.at_client.closed.iter().any(|(_, why)| *why == Cause::Refused);
            assert!(!is_refusal, "{}: a full server does not look like a dead one", pair.name);
        }
    }
}
