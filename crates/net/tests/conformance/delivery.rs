//! Messages of any length arrive unchanged and once, however many are in flight.

use crate::{every_transport, message};
use std::collections::BTreeMap;

#[test]
fn messages_of_any_length_arrive_whole_and_unchanged() {
    let lengths = [0, 1, 3, 55, 56, 57, 4095, 4096, 65_535, 65_536, 65_537, 300_000, 1 << 20];
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        for length in lengths {
            let sent = message(length);
            // Callers also send in parts.
            let (head, body) = sent.split_at(length / 3);
            pair.client.send(connection, &[head, b"", body]);
            pair.until("answered", |it| !it.at_client.messages.is_empty());
            let (from, received) = pair.at_client.messages.remove(0);
            assert_eq!(from, connection);
            assert!(received == sent, "{} {length}", pair.name);
        }
    }
}

#[test]
fn many_messages_in_flight_all_arrive_once() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let mut expected: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for number in 0..2000u32 {
            let mut sent = message(number as usize % 300);
            sent.extend(number.to_le_bytes());
            pair.send(connection, &sent);
            *expected.entry(sent).or_default() += 1;
            if number % 100 == 0 {
                pair.turn();
            }
        }
        pair.until("all answered", |it| it.at_client.messages.len() == 2000);
        for (_, received) in &pair.at_client.messages {
            *expected.get_mut(received).unwrap() -= 1;
        }
        assert!(expected.values().all(|left| *left == 0));
    }
}

#[test]
fn heavy_traffic_in_both_directions_gets_through() {
    for mut pair in every_transport() {
        pair.at_server.echoes = true;
        let connection = pair.open();
        let sent = message(1 << 20);
        for _ in 0..40 {
            pair.client.send(connection, &[&sent]);
        }
        pair.until("all answered", |it| {
            assert_eq!(it.at_client.closed, [], "{}", it.name);
            it.at_client.messages.len() == 40
        });
        assert!(pair.at_client.messages.iter().all(|(_, received)| *received == sent));
    }
}
