//! A sleeping end is woken by its event, and only by that.

use super::super::channel::Channel;
use super::super::doorbell::Until;
use super::super::layout::{RING_BYTES_DEFAULT, RING_BYTES_MIN};
use super::{Numbers, pattern, pattern_byte, readable, readable_within, received, send_all};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_flush_wakes_an_end_that_sleeps_and_no_other() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    send_all(&mut here, b"awake");
    here.flush();
    assert!(!readable_within(there.socket(), 0), "an end that is awake needs no byte");
    assert_eq!(received(&mut there), b"awake");

    assert!(there.prepare_sleep(Until::Arrival));
    send_all(&mut here, b"asleep");
    assert!(!readable_within(there.socket(), 0), "a send by itself does not wake");
    here.flush();
    assert!(readable(there.socket()));
    assert!(!there.awake(true));
    assert!(!readable_within(there.socket(), 0), "the byte was taken out");
    assert_eq!(received(&mut there), b"asleep");

    here.flush();
    send_all(&mut here, b"again");
    here.flush();
    assert!(!readable_within(there.socket(), 0), "one sleep, one byte");
}

#[test]
fn an_end_does_not_go_to_sleep_when_its_event_has_happened() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    send_all(&mut here, b"there already");
    assert!(!there.prepare_sleep(Until::Arrival));
    assert!(!there.prepare_sleep(Until::Either));
    here.flush();
    assert!(!readable_within(there.socket(), 0), "the announcement was withdrawn");
    assert!(!there.prepare_sleep(Until::Room), "there is room");
    received(&mut there);
    assert!(there.prepare_sleep(Until::Arrival));
}

#[test]
fn an_end_that_waits_for_room_sleeps_although_bytes_have_arrived() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let bytes = vec![1; RING_BYTES_MIN];
    assert!(here.send(&[&bytes]).unwrap() < bytes.len());
    send_all(&mut there, b"not now");
    assert!(here.prepare_sleep(Until::Room));
    there.flush();
    assert!(!readable_within(here.socket(), 0), "it does not wait for bytes");
    received(&mut there);
    there.flush();
    assert!(readable(here.socket()));
    assert!(!here.awake(true));
    assert_eq!(here.send(&[&bytes[..100]]), Ok(100));
}

#[test]
fn an_end_that_goes_to_sleep_publishes_the_room_it_has_made() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    // Less than a quarter, which is not published without a sleep.
    send_all(&mut here, &[7; 500]);
    let bytes = vec![8; RING_BYTES_MIN];
    assert_eq!(received(&mut there).len(), 500);
    let sent = here.send(&[&bytes]).unwrap();
    assert!(sent < RING_BYTES_MIN - 500);
    assert!(here.prepare_sleep(Until::Room));
    assert!(!there.prepare_sleep(Until::Arrival), "the bytes that filled the ring have arrived");
    assert!(readable(here.socket()));
}

#[test]
fn the_end_of_the_peer_is_seen_asleep_and_awake() {
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    assert!(!here.peer_gone());
    assert!(here.prepare_sleep(Until::Arrival));
    send_all(&mut there, b"last words");
    there.flush();
    assert!(!here.peer_gone(), "asking while asleep takes no wake-up away");
    assert!(readable_within(here.socket(), 0));
    drop(there);
    assert!(readable(here.socket()));
    assert!(here.awake(true));
    assert!(here.peer_gone());
    assert!(here.awake(false), "once known, it stays known");
    assert_eq!(received(&mut here), b"last words");
    send_all(&mut here, b"to a dead peer");
    here.flush();
}

/// One end of an exchange in which both send and check a long stream.
struct Talker {
    channel: Channel,
    numbers: Numbers,
    sent: usize,
    arrived: usize,
    total: usize,
}

impl Talker {
    fn new(channel: Channel, seed: u64, total: usize) -> Talker {
        Talker { channel, numbers: Numbers(seed), sent: 0, arrived: 0, total }
    }

    /// Sends and receives until both streams are complete. Returns the end, because the peer may
    /// still be busy with the last bytes.
    fn run(mut self, largest: usize) -> Talker {
        let (mut out, mut into) = (Vec::new(), Vec::new());
        while self.sent < self.total || self.arrived < self.total {
            let moved = self.send_some(&mut out, largest) + self.receive_some(&mut into);
            if self.numbers.below(4) > 0 {
                self.channel.flush();
            }
            if moved == 0 {
                self.rest(largest);
            }
        }
        // The peer may wait for an unannounced event.
        self.channel.flush();
        self
    }

    /// Bounds how far an end runs ahead, because otherwise it would never sleep.
    fn may_send(&self, largest: usize) -> bool {
        self.sent < self.total && self.sent <= self.arrived + 16 * largest
    }

    fn send_some(&mut self, out: &mut Vec<u8>, largest: usize) -> usize {
        if !self.may_send(largest) {
            return 0;
        }
        let length = (1 + self.numbers.below(largest)).min(self.total - self.sent);
        pattern(self.sent, out, length);
        let (one, other) = out.split_at(self.numbers.below(length + 1));
        let sent = self.channel.send(&[one, other]).unwrap();
        self.sent += sent;
        sent
    }

    fn receive_some(&mut self, into: &mut Vec<u8>) -> usize {
        into.clear();
        let limit = 1 + self.numbers.below(5000);
        let bytes = self.channel.receive(into, limit).unwrap();
        for (at, byte) in into.iter().enumerate() {
            assert_eq!(*byte, pattern_byte(self.arrived + at), "at {}", self.arrived + at);
        }
        self.arrived += bytes;
        bytes
    }

    /// Polls for a while or not at all, and blocks if nothing happens.
    fn rest(&mut self, largest: usize) {
        for _ in 0..self.numbers.below(3) * 200 {
            if self.channel.ready() {
                return;
            }
            std::hint::spin_loop();
        }
        // Nothing moved, so the bytes that it may send did not fit.
        let until = if self.may_send(largest) { Until::Either } else { Until::Arrival };
        if self.channel.prepare_sleep(until) {
            self.sleep();
        }
    }

    /// Blocks until the peer wakes this end.
    fn sleep(&mut self) {
        assert!(readable(self.channel.socket()), "stuck at {} / {}", self.sent, self.arrived);
        assert!(!self.channel.awake(true), "the peer is there");
    }
}

/// Runs both ends. One is asleep before the other begins; the scheduler decides how often they
/// sleep later.
fn talk(ring_bytes: usize, total: usize, largest: usize) {
    let (mut here, there) = Channel::pair(ring_bytes).unwrap();
    assert!(here.prepare_sleep(Until::Arrival), "nothing has been sent");
    let (mut sleeper, other) = (Talker::new(here, 1, total), Talker::new(there, 2, total));
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(move || {
                sleeper.sleep();
                sleeper.run(largest)
            }),
            scope.spawn(move || other.run(largest)),
        ];
        // Both ends stay open until both are done.
        let _ends = threads.map(|thread| thread.join().expect("an exchange comes to its end"));
    });
}

#[test]
fn two_threads_that_sleep_and_wake_never_get_stuck_with_small_messages() {
    talk(RING_BYTES_MIN, 4 << 20, 100);
}

#[test]
fn two_threads_that_sleep_and_wake_never_get_stuck_with_messages_larger_than_the_ring() {
    talk(RING_BYTES_MIN, 16 << 20, 20_000);
}

#[test]
fn two_threads_that_sleep_and_wake_never_get_stuck_with_rings_of_the_usual_size() {
    talk(RING_BYTES_DEFAULT, 64 << 20, 50_000);
}

/// Spins for a random time, so that two threads meet at all distances.
fn dawdle(numbers: &mut Numbers, limit: usize) {
    for _ in 0..numbers.below(limit) {
        std::hint::black_box(&numbers);
    }
}

/// Keeps this thread on one of the first two cores that it may use. Otherwise two threads that wake
/// each other are put on one core, where they never run at once.
fn keep_to_core(number: usize) {
    let mine = sched_getaffinity(None).expect("a thread may ask where it runs");
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core));
    if let Some(core) = cores.nth(number) {
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one).expect("a thread may stay where it may run");
    }
}

/// Receives one record and never sleeps. It also looks for the next record, so that the line is in
/// this core's cache and the sender's next store takes longer.
fn receive_awake(channel: &mut Channel) {
    let mut into = Vec::new();
    while channel.receive(&mut into, 1).unwrap() == 0 {
        std::thread::yield_now();
    }
    let _ = channel.ready();
}

/// Sends repeatedly to an end that goes to sleep at the same moment. To make a mistake likely, the
/// sender first sends a byte while the other end is awake, which brings the sleeper's word into its
/// cache. Then it sends a record of several lines, whose stores may still be pending when it reads
/// that word.
#[test]
fn bytes_that_arrive_just_as_an_end_goes_to_sleep_wake_it() {
    const ROUNDS: usize = 100_000;
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_to_core(1);
            let _let_go = LetGo(&[&arrived]);
            let mut numbers = Numbers(3);
            for round in 1..=ROUNDS {
                receive_awake(&mut there);
                dawdle(&mut numbers, 1500);
                if there.prepare_sleep(Until::Arrival) {
                    assert!(readable(there.socket()), "stuck in round {round}");
                    assert!(!there.awake(true));
                }
                receive_awake(&mut there);
                arrived.store(round, Ordering::Release);
            }
        });
        keep_to_core(0);
        let mut numbers = Numbers(4);
        for round in 1..=ROUNDS {
            await_round(&arrived, round - 1);
            for (bytes, limit) in [(1, 1), (1 + numbers.below(900), 1000)] {
                dawdle(&mut numbers, limit);
                // This fails only if the other thread has stopped.
                if here.send(&[&[b'!'; 900][..bytes]]) != Ok(bytes) {
                    return;
                }
                here.flush();
            }
        }
    });
}

/// Makes room repeatedly for an end that goes to sleep for room at the same moment.
#[test]
fn room_that_is_made_just_as_an_end_goes_to_sleep_wakes_it() {
    const ROUNDS: usize = 50_000;
    let (mut here, mut there) = Channel::pair(RING_BYTES_MIN).unwrap();
    let (started, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_to_core(1);
            let _let_go = LetGo(&[&started, &finished]);
            let mut numbers = Numbers(5);
            let bytes = [5; 2 * RING_BYTES_MIN];
            for round in 1..=ROUNDS {
                assert!(there.send(&[&bytes]).unwrap() < bytes.len());
                started.store(round, Ordering::Release);
                // Longer than the other thread, which sees the start later.
                dawdle(&mut numbers, 3000);
                if there.prepare_sleep(Until::Room) {
                    assert!(readable(there.socket()), "stuck in round {round}");
                    assert!(!there.awake(true));
                }
                await_round(&finished, round);
            }
        });
        keep_to_core(0);
        let (mut numbers, mut into) = (Numbers(6), Vec::new());
        for round in 1..=ROUNDS {
            await_round(&started, round);
            dawdle(&mut numbers, 1000);
            into.clear();
            here.receive(&mut into, 1000).unwrap();
            here.flush();
            // Takes the rest, so that the next round fills a nearly empty ring.
            here.receive(&mut into, usize::MAX).unwrap();
            here.flush();
            finished.store(round, Ordering::Release);
        }
    });
}

/// Lets the other thread continue when this one panics, so that the test fails and does not hang.
struct LetGo<'a>(&'a [&'a AtomicUsize]);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|counter| counter.store(usize::MAX, Ordering::Release));
    }
}

/// Waits for the other thread, without using the channel.
fn await_round(counter: &AtomicUsize, round: usize) {
    let mut spins = 0;
    while counter.load(Ordering::Acquire) < round {
        spins += 1;
        if spins % 1000 == 0 {
            std::thread::yield_now();
        }
    }
}
