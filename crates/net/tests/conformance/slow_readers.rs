//! An end stops reading from a peer that does not take its replies, and closes the connection after
//! a while.

use crate::{every_transport, message};
use std::time::Duration;
use thunderhead_net::{Cause, Limits};

#[test]
fn a_peer_that_does_not_read_is_paused_and_finally_closed() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let (deaf, good) = (pair.open(), pair.open());
        let sent = message(64 << 10);
        let most = (Limits::default().waiting_bytes_high + (2 << 20)) as u64;
        for _ in 0..400 {
            pair.client.send(deaf, &[&sent]);
            pair.client.flush();
            (pair.advance)();
            // The client never polls, so it reads nothing.
            pair.server.poll(pair.now, &mut pair.at_server);
            pair.server.flush();
        }
        let taken = pair.at_server.messages.len() as u64 * sent.len() as u64;
        let in_sockets = 12 << 20;
        assert!(taken < most + in_sockets, "{}: {taken} bytes were taken", pair.name);
        for millis in [31_000, 900, 900] {
            pair.now = pair.now + Duration::from_millis(millis);
            for _ in 0..20 {
                pair.server.poll(pair.now, &mut pair.at_server);
                pair.server.flush();
            }
        }
        assert_eq!(pair.at_server.closed.len(), 1, "{}", pair.name);
        assert_eq!(pair.at_server.closed[0].1, Cause::NotReading, "{}", pair.name);
        pair.at_server.messages.clear();
        pair.send(good, b"unaffected");
        pair.until("received", |it| it.at_server.messages.iter().any(|it| it.1 == b"unaffected"));
    }
}

#[test]
fn a_paused_peer_continues_once_it_takes_its_replies() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let sent = message(64 << 10);
        for _ in 0..400 {
            pair.client.send(connection, &[&sent]);
            pair.client.flush();
            (pair.advance)();
            pair.server.poll(pair.now, &mut pair.at_server);
            pair.server.flush();
        }
        assert!(pair.at_server.messages.len() < 400, "{}: it was not paused", pair.name);
        pair.until("all answered", |it| {
            assert_eq!(it.at_client.closed, [], "{}", it.name);
            it.at_client.messages.len() == 400
        });
    }
}
