//! Bounds the bytes that all connections of a transport hold together, and chooses the connections
//! to close.
//!
//! Each connection has limits of its own, but thousands of connections at their limits would still
//! exceed the memory of a machine. There are two marks:
//!
//! - Above *half* of the budget, every connection that holds more than its share has to wait: no
//!   more bytes are taken from it until its peer has taken the bytes waiting for it, and no long
//!   message is begun.
//! - Above *all* of the budget, the connections that hold most are closed. Slightly more are closed
//!   than necessary, so that the next message does not trigger another search.
//!
//! This is plain logic, shared by all transports. It counts bytes of messages; a buffer may have
//! capacity for six times as many.

use crate::peer::ConnectionId;

/// The bytes that each connection may hold, however many connections there are.
const SHARE_MIN: usize = 16 << 10;

/// The mark above which connections that hold more than their share have to wait.
pub(crate) fn half(held_bytes_max: usize) -> usize {
    held_bytes_max / 2
}

/// The bytes that a connection may hold above that mark without having to wait.
pub(crate) fn share(held_bytes_max: usize, connections: usize, waiting_bytes_high: usize) -> usize {
    let even = half(held_bytes_max) / connections.max(1);
    even.max(SHARE_MIN).min(waiting_bytes_high)
}

/// Returns the connections to close because the budget is exceeded: the fewest, for they hold most.
pub(crate) fn largest_holders(
    held_bytes_max: usize,
    holders: impl Iterator<Item = (usize, ConnectionId)>,
) -> Vec<ConnectionId> {
    let mut holders: Vec<(usize, ConnectionId)> = holders.filter(|(bytes, _)| *bytes > 0).collect();
    let mut held: usize = holders.iter().map(|(bytes, _)| bytes).sum();
    if held <= held_bytes_max {
        return Vec::new();
    }
    let goal = held_bytes_max - held_bytes_max / 8;
    // Among equals the oldest is closed, so that simulations are repeatable.
    holders.sort_unstable_by_key(|(bytes, id)| (std::cmp::Reverse(*bytes), *id));
    let too_many = holders.into_iter().take_while(|(bytes, _)| {
        let goes = held > goal;
        held -= if goes { *bytes } else { 0 };
        goes
    });
    too_many.map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    #[test]
    fn the_connections_that_hold_most_are_closed_and_as_few_as_possible() {
        let closed = |held: &[usize]| -> Vec<u32> {
            let holders = held.iter().zip(0..).map(|(bytes, slot)| (*bytes, id(slot)));
            largest_holders(800, holders).into_iter().map(|it| it.slot).collect()
        };
        assert_eq!(closed(&[100, 0, 700]), [0; 0], "exactly the budget");
        assert_eq!(closed(&[100, 0, 701]), [2]);
        assert_eq!(
            closed(&[100, 300, 200, 250]),
            [1],
            "until an eighth of the budget is free again"
        );
        assert_eq!(closed(&[300, 300, 300, 300]), [0, 1]);
        assert_eq!(closed(&[usize::MAX / 2]), [0]);
    }

    #[test]
    fn a_share_is_even_within_a_minimum_and_the_usual_limit() {
        assert_eq!(share(256 << 20, 1000, 1 << 20), (128 << 20) / 1000);
        assert_eq!(share(256 << 20, 3, 1 << 20), 1 << 20);
        assert_eq!(share(256 << 20, 1_000_000, 1 << 20), SHARE_MIN);
        assert_eq!(share(0, 0, 1 << 20), SHARE_MIN);
    }
}
