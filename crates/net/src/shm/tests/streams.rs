//! The bytes received are the bytes sent.

use super::super::RetiredMapping;
use super::super::channel::Channel;
use super::super::layout::{RING_BYTES_DEFAULT, RING_BYTES_MIN};
use super::{Numbers, pattern, pattern_byte, received, send_all};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Bytes that fit into an empty ring of the smallest size: four records of a quarter each.
const FULL: usize = RING_BYTES_MIN - 4 * 8;

#[test]
fn parts_arrive_as_one_stream() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_DEFAULT).unwrap();
    assert!(!there.ready());
    assert_eq!(here.send(&[b"one ", b"", b"two ", b"three"]), Ok(13));
    assert_eq!(here.send(&[]), Ok(0));
    assert_eq!(here.send(&[b"", b""]), Ok(0));
    send_all(&mut here, b", four");
    assert!(there.ready());
    assert_eq!(received(&mut there), b"one two three, four");
    assert!(!there.ready());
    assert_eq!(received(&mut there), b"");
    assert!(!here.ready(), "the two directions are separate");
}

#[test]
fn bytes_stay_while_pages_of_long_rings_are_faulted_in() {
    let (mut here, mut there) = Channel::pair(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..900_000).map(pattern_byte).collect();
    assert_eq!(here.send(&[&bytes]), Ok(bytes.len()));
    assert!(here.is_bare() && there.is_bare(), "all at once would take a millisecond");
    let mut pieces = 0;
    while here.fault_in_some() | there.fault_in_some() {
        pieces += 1;
    }
    assert!((10..200).contains(&pieces) && !here.is_bare());
    assert_eq!(received(&mut there), bytes);
    let (short, _) = Channel::pair(RING_BYTES_DEFAULT).unwrap();
    assert!(short.is_bare(), "sixty pages at once would be a long turn");
}

#[test]
fn a_read_ends_before_a_long_buffer_grows_and_the_next_read_goes_on() {
    let (mut here, mut there) = Channel::pair(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..400_000).map(pattern_byte).collect();
    send_all(&mut here, &bytes);
    let mut into = Vec::with_capacity(100_000);
    let (full, limit) = (into.capacity(), usize::MAX);
    let first = there.receive(&mut into, limit).unwrap();
    assert!((full - 5000..=full).contains(&first) && into.capacity() == full, "{first} bytes");
    // A caller that keeps the bytes gets a longer buffer.
    there.receive(&mut into, limit).unwrap();
    assert!(into.len() > full && into[..] == bytes[..into.len()]);
    // A caller that has used the bytes reads on into the same memory.
    let (used, longer) = (into.len(), into.capacity());
    assert!(used <= 300_000, "{used} bytes");
    into.clear();
    let mut rest = Vec::new();
    while there.receive(&mut into, limit).unwrap() > 0 {
        rest.append(&mut into);
    }
    assert!(rest == bytes[used..] && into.capacity() == longer);
}

#[test]
fn closed_rings_are_unmapped_in_pieces_and_the_peer_receives_what_was_sent() {
    let (mut here, mut there) = Channel::pair(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..900_000).map(pattern_byte).collect();
    assert_eq!(here.send(&[&bytes]), Ok(bytes.len()));
    assert!((10..100).contains(&pieces_of(here.retire())));
    assert_eq!(received(&mut there), bytes);
    assert!(there.peer_gone());
    assert!((10..100).contains(&pieces_of(there.retire())));
}

/// Unmaps all, and returns in how many pieces.
fn pieces_of(mut mapping: RetiredMapping) -> usize {
    let mut pieces = 1;
    while mapping.give_back_some() {
        pieces += 1;
    }
    assert!(!mapping.give_back_some(), "nothing is left");
    pieces
}

#[test]
fn a_limit_ends_a_call_at_the_next_record() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    for part in [b"aaaa", b"bbbb", b"cccc"] {
        send_all(&mut here, part);
    }
    let mut into = b"before ".to_vec();
    assert_eq!(there.receive(&mut into, 0), Ok(0));
    assert_eq!(there.receive(&mut into, 5), Ok(8));
    assert_eq!(into, b"before aaaabbbb");
    assert_eq!(there.receive(&mut into, 5), Ok(4));
}

#[test]
fn a_full_ring_takes_no_more_until_there_is_room() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let bytes: Vec<u8> = (0..2 * FULL).map(pattern_byte).collect();
    for _ in 0..3 {
        assert_eq!(here.send(&[&bytes]), Ok(FULL));
        assert_eq!(here.send(&[&bytes[FULL..]]), Ok(0));
        assert_eq!(received(&mut there), bytes[..FULL]);
        assert_eq!(here.send(&[&bytes[FULL..FULL + 100]]), Ok(100));
        assert_eq!(received(&mut there), bytes[FULL..FULL + 100]);
        // The next round begins with a ring that is empty, and both ends know it.
        assert!(there.prepare_sleep(super::super::doorbell::Until::Arrival));
        let _ = there.awake(false);
    }
}

#[test]
fn a_ring_with_little_room_takes_what_fits() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let bytes: Vec<u8> = (0..FULL).map(pattern_byte).collect();
    // Fills all but two lines.
    send_all(&mut here, &bytes[..FULL - 128]);
    assert_eq!(here.send(&[&bytes[FULL - 128..], b"and more"]), Ok(120));
    assert_eq!(here.send(&[b"!"]), Ok(0));
    assert_eq!(received(&mut there), bytes[..FULL - 8]);
}

#[test]
fn payload_that_looks_like_headers_is_never_taken_for_one() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let fake = super::super::ring::header(56).to_le_bytes();
    let bytes = fake.repeat(128);
    let mut numbers = Numbers(7);
    for _ in 0..2000 {
        // Varying sizes shift the records, so that line starts fall everywhere.
        let length = 1 + numbers.below(bytes.len());
        let sent = here.send(&[&bytes[..length]]).unwrap();
        if numbers.below(3) == 0 {
            let _ = there.ready();
        }
        assert_eq!(received(&mut there), bytes[..sent]);
        assert_eq!(received(&mut there), b"");
    }
}

#[test]
fn rings_of_impossible_sizes_are_refused() {
    for bytes in [0, 1, 2048, 4097, 12288, 128 << 20, usize::MAX] {
        let error = Channel::pair(bytes).err().expect("the size is impossible");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    assert_eq!(Channel::pair(RING_BYTES_MIN).unwrap().0.ring_bytes(), RING_BYTES_MIN);
}

/// A step of a random history: the acting end, the call, and the numbers of bytes.
#[derive(Clone, Debug)]
enum Step {
    Send { server: bool, lengths: Vec<usize> },
    Receive { server: bool, limit: usize },
    Sleep { server: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![4 => 0..200usize, 1 => 0..6000usize];
    let lengths = prop::collection::vec(length, 0..5);
    let step = prop_oneof![
        4 => (any::<bool>(), lengths).prop_map(|(server, lengths)| Step::Send { server, lengths }),
        4 => (any::<bool>(), 0..3000usize)
            .prop_map(|(server, limit)| Step::Receive { server, limit }),
        1 => any::<bool>().prop_map(|server| Step::Sleep { server }),
    ];
    prop::collection::vec(step, 1..200)
}

/// A model of one direction: the bytes in flight and the progress of each end.
#[derive(Default)]
struct Model {
    on_the_way: VecDeque<u8>,
    sent: usize,
}

fn check_send(model: &mut Model, end: &mut Channel, lengths: &[usize]) {
    let mut bytes = Vec::new();
    pattern(model.sent, &mut bytes, lengths.iter().sum());
    let mut rest = &bytes[..];
    let parts: Vec<&[u8]> = lengths
        .iter()
        .map(|length| {
            let part;
            (part, rest) = rest.split_at(*length);
            part
        })
        .collect();
    let sent = end.send(&parts).unwrap();
    // Unpublished room is less than a quarter, and so is the waste of four headers and paddings.
    if bytes.len() + model.on_the_way.len() * 64 <= RING_BYTES_MIN / 2 {
        assert_eq!(sent, bytes.len(), "a nearly empty ring takes everything");
    }
    model.on_the_way.extend(&bytes[..sent]);
    model.sent += sent;
}

fn check_receive(model: &mut Model, end: &mut Channel, limit: usize) {
    let mut into = Vec::new();
    let expected = limit.min(model.on_the_way.len());
    let bytes = end.receive(&mut into, limit).unwrap();
    assert_eq!(bytes, into.len());
    assert!((expected..limit.max(1) + RING_BYTES_MIN / 4).contains(&bytes), "{limit}: {bytes}");
    assert!(model.on_the_way.drain(..bytes).eq(into));
}

proptest! {
    #[test]
    fn any_history_of_two_ends_is_that_of_two_queues(steps in steps()) {
        let (mut server, mut client) = Channel::pair(RING_BYTES_MIN).unwrap();
        let (mut to_client, mut to_server) = (Model::default(), Model::default());
        for step in steps {
            match step {
                Step::Send { server: true, lengths } => {
                    check_send(&mut to_client, &mut server, &lengths);
                }
                Step::Send { server: false, lengths } => {
                    check_send(&mut to_server, &mut client, &lengths);
                }
                Step::Receive { server: true, limit } => {
                    check_receive(&mut to_server, &mut server, limit);
                }
                Step::Receive { server: false, limit } => {
                    check_receive(&mut to_client, &mut client, limit);
                }
                Step::Sleep { server: end } => {
                    let (channel, arriving) = match end {
                        true => (&mut server, &to_server),
                        false => (&mut client, &to_client),
                    };
                    let may = channel.prepare_sleep(super::super::doorbell::Until::Arrival);
                    prop_assert_eq!(may, arriving.on_the_way.is_empty());
                    let _ = channel.awake(false);
                }
            }
            prop_assert_eq!(server.ready(), !to_server.on_the_way.is_empty());
            prop_assert_eq!(client.ready(), !to_client.on_the_way.is_empty());
        }
    }
}
