//! A handler that holds its input gets one message a poll. The remaining input is not lost, and
//! delays no other connection for long.

use crate::{FEATURES, Heard, Pair, every_transport, limits, message, on_this_machine};
use std::collections::BTreeMap;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Cause, ConnectionId, Transport, Via};
use thunderhead_runtime::os;

#[test]
fn a_poll_delivers_no_message_after_its_handler_holds_the_input() {
    const EACH: usize = 200;
    for mut pair in every_transport() {
        pair.at_server.holds = true;
        let connections = [pair.open(), pair.open(), pair.open()];
        let length = |number: usize| if number % 50 == 49 { 150_000 } else { 1_000 };
        for number in 0..EACH {
            for connection in connections {
                let mut sent = message(length(number));
                sent[..8].copy_from_slice(&(number as u64).to_le_bytes());
                pair.send(connection, &sent);
            }
        }
        let mut before = 0;
        while before < 3 * EACH {
            pair.turn();
            let count = pair.at_server.messages.len();
            assert!(count <= before + 1, "{}: {} messages in a poll", pair.name, count - before);
            before = count;
        }
        let mut numbers: BTreeMap<ConnectionId, Vec<u64>> = BTreeMap::new();
        for (from, received) in &pair.at_server.messages {
            let number = u64::from_le_bytes(*received.first_chunk().unwrap());
            assert_eq!(received[8..], message(length(number as usize))[8..]);
            numbers.entry(*from).or_default().push(number);
        }
        assert_eq!(numbers.len(), 3);
        for mut of_one in numbers.into_values() {
            if pair.name == "datagrams" {
                of_one.sort_unstable();
            }
            assert!(of_one.into_iter().eq(0..EACH as u64), "{}", pair.name);
        }
    }
}

#[test]
fn a_connection_with_much_input_does_not_hold_up_others() {
    for mut pair in every_transport().into_iter().filter(|it| it.via != Via::Simulated) {
        pair.at_server.holds = true;
        let (busy, other) = (pair.open(), pair.open());
        for _ in 0..400 {
            pair.send(busy, &message(10_000));
        }
        pair.send(other, &message(10));
        pair.until("all received", |it| it.at_server.messages.len() == 401);
        let at = pair.at_server.messages.iter().position(|(_, it)| it.len() == 10).unwrap();
        assert!(at < 200, "{}: after {at} others", pair.name);
    }
}

#[test]
fn a_peer_that_leaves_while_input_is_held_is_heard_to_the_end() {
    for echoes in [false, true] {
        for mut pair in every_transport().into_iter().filter(|it| it.via != Via::Simulated) {
            (pair.at_server.holds, pair.at_server.echoes) = (true, echoes);
            let connection = pair.open();
            for _ in 0..20 {
                pair.send(connection, &message(1_000));
            }
            pair.client.flush();
            pair.client.close(connection, Cause::ByPeer);
            pair.until("closed", |it| !it.at_server.closed.is_empty());
            assert_eq!(pair.at_server.messages.len(), 20, "{} {echoes}", pair.name);
        }
    }
}

/// Opens a connection from a further client of a server.
fn another(pair: &mut Pair, shared_memory: bool) -> (OsTransport, Heard, ConnectionId) {
    let options =
        Options { limits: limits(), features: FEATURES, shared_memory, ..Options::default() };
    let mut client = OsTransport::new(&os::world_without_files().unwrap(), options).unwrap();
    let mut heard = Heard::default();
    let connection = client.connect(pair.address);
    for _ in 0..1_000_000 {
        client.poll(pair.now, &mut heard);
        client.flush();
        pair.turn();
        if !heard.opened.is_empty() {
            return (client, heard, connection);
        }
    }
    panic!("{}: never opened", pair.name);
}

/// Rings whose messages hold the input of every poll.
#[test]
fn sockets_are_served_while_rings_are_always_full() {
    let features = (FEATURES, FEATURES);
    let mut pair = on_this_machine("shm", "127.0.0.1:0", true, limits(), features);
    let busy = pair.open();
    pair.at_server.holds = true;
    let fill = |pair: &mut Pair| {
        for _ in 0..4 {
            pair.send(busy, &message(1_000));
        }
    };
    (0..50).for_each(|_| fill(&mut pair));
    // A new connection is accepted and served, and its answer is the proof.
    let (mut client, mut heard, connection) = another(&mut pair, false);
    pair.at_server.echoes = true;
    client.send(connection, &[b"to a socket"]);
    let mut turns = 0;
    while heard.messages.is_empty() {
        fill(&mut pair);
        pair.turn();
        client.poll(pair.now, &mut heard);
        client.flush();
        turns += 1;
        assert!(turns < 100, "not answered after {turns} turns");
    }
}

#[test]
fn a_long_answer_leaves_while_input_of_others_is_held() {
    for shared_memory in [false, true] {
        let features = (FEATURES, FEATURES);
        let mut pair = on_this_machine("both", "127.0.0.1:0", shared_memory, limits(), features);
        let busy = pair.open();
        let (mut client, mut heard, connection) = another(&mut pair, shared_memory);
        client.send(connection, &[b"first"]);
        while pair.at_server.messages.is_empty() {
            client.poll(pair.now, &mut heard);
            pair.turn();
        }
        let from = pair.at_server.messages[0].0;
        pair.at_server.holds = true;
        (0..2_000).for_each(|_| pair.send(busy, &message(30)));
        pair.server.send(from, &[&message(1 << 20)]);
        while heard.messages.is_empty() {
            pair.turn();
            client.poll(pair.now, &mut heard);
            client.flush();
        }
        let before = pair.at_server.messages.len();
        assert!(before < 1_000, "{before} messages of another connection came first");
    }
}
