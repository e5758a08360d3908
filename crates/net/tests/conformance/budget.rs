//! All connections of an end share one budget of memory. Only the largest holders wait or are
//! closed.

use crate::{Pair, every_transport_with, limits, message};
use thunderhead_net::{Cause, ConnectionId, Limits};

#[test]
fn all_connections_together_stay_within_their_budget() {
    let limits = Limits { held_bytes_max: 8 << 20, ..limits() };
    let sent = message(1 << 20);
    for mut pair in every_transport_with(limits) {
        let good = pair.open();
        for _ in 0..3 {
            pair.open();
        }
        let opened = pair.at_server.opened.clone();
        let (good_there, deaf) = (opened[0], &opened[1..]);
        let mut most = 0;
        // Three connections get much and do not read it; one gets little.
        for round in 0..60 {
            for connection in deaf {
                pair.server.send(*connection, &[&sent]);
                most = most.max(pair.server.counters().held_bytes);
            }
            if round % 10 == 0 {
                pair.server.send(good_there, &[b"a little"]);
            }
        }
        assert!(most <= limits.held_bytes_max as u64, "{}: {most}", pair.name);
        pair.until("said to the handler", |it| it.at_server.closed.len() == 3);
        assert!(
            pair.at_server
                .closed
                .iter()
                .all(|(id, why)| deaf.contains(id) && *why == Cause::HoldsMost)
        );
        assert_eq!(pair.server.counters().closed(Cause::HoldsMost), 3, "{}", pair.name);
        pair.until("received", |it| it.at_client.messages.iter().any(|it| it.0 == good));
        pair.at_server.messages.clear();
        pair.send(good, b"unaffected");
        pair.until("received", |it| it.at_server.messages.iter().any(|it| it.1 == b"unaffected"));
        pair.until("drained", |it| it.server.waiting_bytes(good_there) == 0);
    }
}

#[test]
fn above_half_the_budget_the_largest_holders_wait_and_others_are_served() {
    for via in ["tcp", "tcp6", "shm"] {
        // Only the common budget holds a connection back.
        let limits = Limits { held_bytes_max: 24 << 20, waiting_bytes_high: 60 << 20, ..limits() };
        let with = |limits| every_transport_with(limits).into_iter().find(|it| it.name == via);
        let (mut pair, mut deaf) = (with(limits).unwrap(), with(Limits::default()).unwrap());
        pair.at_server.echoes = true;
        let good = pair.open();
        let greedy: Vec<ConnectionId> = (0..3).map(|_| deaf.client.connect(pair.address)).collect();
        while deaf.at_client.opened.len() < 3 {
            deaf.client.poll(pair.now, &mut deaf.at_client);
            pair.turn();
        }
        let sent = message(256 << 10);
        for round in 0..200 {
            for connection in &greedy {
                // The client never polls, so it reads nothing.
                deaf.client.send(*connection, &[&sent]);
            }
            deaf.client.flush();
            pair.at_server.messages.clear();
            pair.send(good, &message(round));
            pair.until("served", |it| it.at_client.messages.len() > round);
        }
        let counters = pair.server.counters();
        assert!(counters.held_back > 0 && counters.held_bytes > 12 << 20, "{via} {counters:?}");
        assert_eq!(pair.at_server.closed, [], "{via}");
        // Once the client reads, everything arrives.
        let mut turns = 0;
        while pair.server.counters().held_bytes > 0 {
            deaf.client.poll(pair.now, &mut deaf.at_client);
            pair.turn();
            turns += 1;
            assert!(turns < 1_000_000, "{via}: {:?}", pair.server.counters());
        }
        assert!(deaf.at_client.messages.iter().all(|(_, received)| *received == sent));
        assert_eq!((deaf.at_client.closed.len(), pair.at_server.closed.len()), (0, 0));
    }
}

#[test]
fn above_half_the_budget_long_messages_are_queued_and_short_ones_are_not() {
    for via in ["tcp", "tcp6", "shm"] {
        let limits = Limits { held_bytes_max: 4 << 20, ..limits() };
        let mut pair = every_transport_with(limits).into_iter().find(|it| it.name == via).unwrap();
        let (long, short) = (pair.open(), pair.open());
        pair.open();
        let deaf = *pair.at_server.opened.last().unwrap();
        let turn = |pair: &mut Pair| {
            pair.client.flush();
            pair.server.poll(pair.now, &mut pair.at_server);
        };
        // The bytes waiting for a peer that does not read exceed half of the budget.
        let sent = message(256 << 10);
        while pair.server.counters().held_bytes < 5 << 19 {
            pair.server.send(deaf, &[&sent]);
            (0..100).for_each(|_| turn(&mut pair));
        }
        pair.client.send(long, &[&message(1 << 20)]);
        pair.client.send(short, &[b"short"]);
        for _ in 0..100 {
            turn(&mut pair);
        }
        let heard: Vec<&[u8]> = pair.at_server.messages.iter().map(|it| it.1.as_slice()).collect();
        assert!(heard == [b"short"], "{via}");
        assert_eq!(pair.server.counters().held_back, 1, "{via}");
        assert!(pair.server.counters().held_bytes < 3 << 20, "{via}: no more is held for it");
        pair.until("both came", |it| it.at_server.messages.len() == 2);
        assert!(pair.at_server.messages[1].1 == message(1 << 20), "{via}");
        assert_eq!((pair.at_client.closed.len(), pair.at_server.closed.len()), (0, 0));
        pair.until("nothing is held", |it| it.server.counters().held_bytes == 0);
    }
}
