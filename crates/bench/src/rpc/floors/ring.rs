//! Requests and replies through memory that two threads share.
//!
//! There is a ring of slots for requests and one for replies. A message is written word by word,
//! then its sequence number is published with release; the other side polls that number with
//! acquire. All words are atomic, so the ring would also work in memory shared by two processes.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::latencies::Latencies;
use super::{PATIENCE, REPLY_BYTES, REQUEST_BYTES, Stop, beside};

/// Slots in each direction, which is also the most requests in flight.
pub const SLOTS: usize = 64;

/// Polls without a result between two checks whether to give up.
const POLLS: u32 = 1024;

/// Round trips that share one reading of the clock, which costs a tenth of a round trip.
const ROUNDS_PER_SAMPLE: u64 = 16;

/// A measurement ends after this time, even if more round trips were requested.
const LIMIT: Duration = Duration::from_secs(60);

/// A message with its sequence number in the first word. It takes whole cache lines of eight words
/// each.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Slot<WORDS> {
    fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Writes a message and publishes it under its number.
    #[inline]
    fn publish<const BYTES: usize>(&self, sequence: u64, message: &[u8; BYTES]) {
        const { assert!(8 + BYTES <= 8 * WORDS, "the message must fit in the slot") };
        let (whole, rest) = message.as_chunks::<8>();
        for (word, bytes) in self.0[1..].iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.0[1 + whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        self.0[0].store(sequence, Ordering::Release);
    }

    /// Reads the message of a number, if it has been published.
    #[inline]
    fn take<const BYTES: usize>(&self, sequence: u64, message: &mut [u8; BYTES]) -> bool {
        const { assert!(8 + BYTES <= 8 * WORDS, "the message must fit in the slot") };
        if self.0[0].load(Ordering::Acquire) != sequence {
            return false;
        }
        let (whole, rest) = message.as_chunks_mut::<8>();
        for (word, bytes) in self.0[1..].iter().zip(whole.iter_mut()) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if !rest.is_empty() {
            let last = self.0[1 + whole.len()].load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        true
    }

    /// Polls for the message of a number. Returns false if `give_up` returns true, which is checked
    /// at intervals.
    #[inline]
    fn wait<const BYTES: usize>(
        &self,
        sequence: u64,
        message: &mut [u8; BYTES],
        give_up: impl Fn() -> bool,
    ) -> bool {
        loop {
            for _ in 0..POLLS {
                if self.take(sequence, message) {
                    return true;
                }
                spin_loop();
            }
            if give_up() {
                return false;
            }
        }
    }
}

/// A ring of requests and a ring of replies, for one client and one server.
#[derive(Debug)]
pub struct Ring {
    requests: Box<[Slot<8>]>,
    replies: Box<[Slot<24>]>,
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Ring {
    /// Returns an empty ring. Its memory is touched, so that no measurement includes that.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: (0..SLOTS).map(|_| Slot::empty()).collect(),
            replies: (0..SLOTS).map(|_| Slot::empty()).collect(),
        }
    }

    #[inline]
    fn request(&self, sequence: u64) -> &Slot<8> {
        &self.requests[sequence as usize % SLOTS]
    }

    #[inline]
    fn reply(&self, sequence: u64) -> &Slot<24> {
        &self.replies[sequence as usize % SLOTS]
    }
}

/// The client's half: requests are numbered from 1, and answered in that order.
struct Client<'a> {
    ring: &'a Ring,
    sent: u64,
    received: u64,
    request: [u8; REQUEST_BYTES],
    reply: [u8; REPLY_BYTES],
}

impl<'a> Client<'a> {
    fn new(ring: &'a Ring) -> Self {
        Self { ring, sent: 0, received: 0, request: [0; _], reply: [0; _] }
    }

    #[inline]
    fn send(&mut self) {
        self.sent += 1;
        self.request[..8].copy_from_slice(&self.sent.to_le_bytes());
        // A client uses its replies, and its requests come from elsewhere: neither may be optimized
        // away.
        self.ring.request(self.sent).publish(self.sent, black_box(&self.request));
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        self.received += 1;
        let slot = self.ring.reply(self.received);
        if !slot.take(self.received, &mut self.reply) {
            let began = Instant::now();
            let arrived = slot.wait(self.received, &mut self.reply, || began.elapsed() > PATIENCE);
            ensure!(arrived, "the server fell silent");
        }
        let answers = black_box(&self.reply)[..8] == self.received.to_le_bytes();
        ensure!(answers, "the server sent a wrong reply");
        Ok(())
    }
}

/// Answers each request of a new ring with a reply that begins with it, polling, until asked to
/// end.
pub fn serve_ring(ring: &Ring, stop: &Stop) {
    let mut request = [0; REQUEST_BYTES];
    let mut reply = [0; REPLY_BYTES];
    let mut sequence = 1;
    while ring.request(sequence).wait(sequence, &mut request, || stop.is_raised()) {
        reply[..REQUEST_BYTES].copy_from_slice(&request);
        ring.reply(sequence).publish(sequence, black_box(&reply));
        sequence += 1;
    }
}

/// Measures round trips through a ring between two threads; both poll. Each recorded latency is the
/// mean of 16 round trips, so that reading the clock does not count.
///
/// # Errors
/// When the server falls silent.
pub fn ping_pong_ring(rounds: u64) -> Result<Latencies> {
    beside_server(|ring| {
        let mut client = Client::new(ring);
        let mut latencies = Latencies::new();
        let samples = rounds.div_ceil(ROUNDS_PER_SAMPLE);
        let warm_up = samples / 10;
        let began = Instant::now();
        let mut before = began;
        for sample in 0..warm_up + samples {
            for _ in 0..ROUNDS_PER_SAMPLE {
                client.send();
                client.receive()?;
            }
            let after = Instant::now();
            if sample >= warm_up {
                latencies.record(after.duration_since(before) / ROUNDS_PER_SAMPLE as u32);
            }
            if after.duration_since(began) > LIMIT {
                break;
            }
            before = after;
        }
        Ok(latencies)
    })
}

/// Measures requests a second through a ring between two polling threads, with several in flight,
/// over some time after a warm-up of a tenth of that.
///
/// # Errors
/// When more requests than slots are to be in flight, or none, or when the server falls silent.
pub fn ring_throughput(in_flight: usize, duration: Duration) -> Result<f64> {
    ensure!(
        (1..=SLOTS).contains(&in_flight),
        "the ring has {SLOTS} slots: {in_flight} requests cannot be in flight"
    );
    beside_server(|ring| {
        let mut client = Client::new(ring);
        (0..in_flight).for_each(|_| client.send());
        exchange(&mut client, Instant::now() + duration / 10)?;
        let (began, before) = (Instant::now(), client.received);
        let ended = exchange(&mut client, began + duration)?;
        let requests = (client.received - before) as f64;
        Ok(requests / ended.duration_since(began).as_secs_f64())
    })
}

/// Sends a request for every reply, at least until a time, and returns the end.
fn exchange(client: &mut Client<'_>, until: Instant) -> Result<Instant> {
    loop {
        // One reading of the clock for many requests.
        for _ in 0..256 {
            client.receive()?;
            client.send();
        }
        let now = Instant::now();
        if now >= until {
            return Ok(now);
        }
    }
}

fn beside_server<T>(client: impl FnOnce(&Ring) -> Result<T>) -> Result<T> {
    let ring = Ring::new();
    beside(
        |stop| {
            serve_ring(&ring, stop);
            Ok(())
        },
        || client(&ring),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_returns_the_published_message() {
        let slot = Slot::<24>::empty();
        let message: [u8; REPLY_BYTES] = std::array::from_fn(|index| index as u8);
        let mut read = [0; REPLY_BYTES];
        assert!(!slot.take(7, &mut read));
        slot.publish(7, &message);
        assert!(!slot.take(8, &mut read));
        assert!(slot.take(7, &mut read));
        assert_eq!(read, message);
    }

    #[test]
    fn round_trips_and_requests_are_counted() -> Result<()> {
        assert_eq!(ping_pong_ring(1600)?.count(), 100);
        for in_flight in [1, SLOTS] {
            assert!(ring_throughput(in_flight, Duration::from_millis(20))? > 0.0);
        }
        assert!(ring_throughput(SLOTS + 1, Duration::ZERO).is_err());
        Ok(())
    }
}
