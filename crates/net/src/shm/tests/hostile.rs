//! A peer that writes arbitrary values harms only itself.

use super::super::doorbell::Until;
use super::super::error::Corrupt;
use super::super::fuzzing::{Hostile, fuzz_hostile, honest_and_hostile};
use super::super::layout::{End, LINE_BYTES, RING_BYTES_MIN};
use super::Numbers;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_word_that_is_no_header_is_corrupt() {
    let good = super::super::ring::header(1);
    let longest = RING_BYTES_MIN as u64 / 4 - 8;
    for bad in [1, u64::MAX, good ^ (1 << 40), good & !0xff, good + longest, good | (1 << 31)] {
        let (mut honest, hostile) = honest_and_hostile();
        let start = hostile.mapping.layout().ring_written_by(End::Client).start;
        hostile.write(start, bad);
        assert!(honest.ready());
        let error = honest.receive(&mut Vec::new(), 100).unwrap_err();
        assert_eq!(error, Corrupt::Header { position: 0, word: bad });
        assert!(!honest.prepare_sleep(Until::Arrival), "the owner must notice");
    }
}

#[test]
fn the_longest_record_is_received() {
    let (mut honest, hostile) = honest_and_hostile();
    let longest = RING_BYTES_MIN / 4 - 8;
    hostile.write_header(0, longest as u64);
    assert_eq!(honest.receive(&mut Vec::new(), 1), Ok(longest));
}

#[test]
fn bytes_received_before_the_corruption_stay() {
    let (mut honest, hostile) = honest_and_hostile();
    hostile.write_header(0, 3);
    hostile.write_header(1, 0);
    let mut into = Vec::new();
    assert!(matches!(honest.receive(&mut into, 100), Err(Corrupt::Header { position: 64, .. })));
    assert_eq!(into, [0, 0, 0]);
}

#[test]
fn impossible_positions_are_corrupt() {
    let bytes = vec![1; RING_BYTES_MIN];
    for (lines, beside) in [(65, 0), (u64::MAX / 64, 0), (1, 1), (1, 32), (0, 63)] {
        let (mut honest, hostile) = honest_and_hostile();
        assert!(honest.send(&[&bytes]).unwrap() > 0);
        let claimed = lines * LINE_BYTES + beside;
        hostile.write(hostile.mapping.layout().consumed_from(End::Server), claimed);
        assert!(!honest.prepare_sleep(Until::Room), "the owner must notice");
        let error = honest.send(&[&bytes]).unwrap_err();
        let produced = RING_BYTES_MIN as u64;
        assert_eq!(error, Corrupt::Consumed { claimed, before: 0, produced });
    }
}

#[test]
fn a_position_that_goes_back_is_corrupt() {
    let (mut honest, hostile) = honest_and_hostile();
    let bytes = vec![1; RING_BYTES_MIN];
    assert!(honest.send(&[&bytes]).unwrap() > 0);
    hostile.write_consumed(32);
    assert!(honest.send(&[&bytes]).unwrap() > 0);
    hostile.write_consumed(31);
    assert!(matches!(honest.send(&[b"!"]), Err(Corrupt::Consumed { before: 2048, .. })));
}

#[test]
fn forged_announcements_cause_superfluous_wake_ups_and_nothing_else() {
    let (mut honest, hostile) = honest_and_hostile();
    let word = hostile.mapping.layout().sleep_of(End::Client);
    for _ in 0..10_000 {
        hostile.write(word, u64::MAX);
        honest.send(&[b"!"]).unwrap();
        honest.flush();
        hostile.write_consumed(0);
        if honest.send(&[&[0; 64]]).is_err() {
            return;
        }
    }
    assert!(!honest.peer_gone(), "a socket that is full of wake-ups does not end the channel");
}

/// Writes at sensitive places until told to stop.
fn scribble(hostile: &Hostile, stop: &AtomicBool, seed: u64) {
    let mut numbers = Numbers(seed);
    while !stop.load(Ordering::Relaxed) {
        match numbers.below(64) {
            0 => hostile.write(numbers.below(1 << 16), numbers.next()),
            1 => hostile.write_consumed(numbers.next() % 128),
            _ => hostile.write_header(numbers.below(64), 1 + numbers.next() % 1016),
        }
    }
}

#[test]
fn an_end_survives_a_peer_that_writes_at_the_same_time() {
    for seed in 1..=100 {
        let (mut honest, hostile) = honest_and_hostile();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(&hostile, &stop, seed));
            let mut numbers = Numbers(!seed);
            let mut into = Vec::new();
            for _ in 0..1000 {
                into.clear();
                let limit = numbers.below(10_000);
                let received = honest.receive(&mut into, limit);
                assert!(into.len() < limit + RING_BYTES_MIN / 4);
                let sent = honest.send(&[&into, &[0; 100]]);
                honest.flush();
                if honest.prepare_sleep(Until::Either) {
                    let _ = honest.awake(true);
                }
                if received.is_err() || sent.is_err() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_history_with_a_hostile_peer_breaks_a_promise(
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        fuzz_hostile(&data);
    }
}
