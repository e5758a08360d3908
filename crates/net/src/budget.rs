//! What all connections of a transport may hold together, and which of them go when it is more.
//!
//! Each connection has limits of its own, but thousands of them would still be more than a machine
//! has. There are two marks:
//!
//! - From *half* of what is allowed on, whoever holds more than its share has to wait: nothing more
//!   is taken from it until its peer has taken what it was sent, and no long message is begun.
//! - Beyond *all* of it, those that hold most are closed, some more than need be, so that the next
//!   message does not have to look for them again.
//!
//! Plain logic, for every transport. What is counted is bytes of messages; a buffer may have room for
//! twice as many.

use crate::peer::ConnectionId;

/// What everybody may hold, however many there are.
const SHARE_MIN: usize = 16 << 10;

/// The mark from which on nothing more is taken from those that hold more than their share.
pub(crate) fn half(held_bytes_max: usize) -> usize {
    held_bytes_max / 2
}

/// What a connection may hold beyond that mark and still be listened to.
pub(crate) fn share(held_bytes_max: usize, connections: usize, waiting_bytes_high: usize) -> usize {
    let even = half(held_bytes_max) / connections.max(1);
    even.max(SHARE_MIN).min(waiting_bytes_high)
}

/// Those to be closed when more is held than allowed: as few as can be, for they hold most.
pub(crate) fn those_that_hold_most(
    held_bytes_max: usize,
    holders: impl Iterator<Item = (usize, ConnectionId)>,
) -> Vec<ConnectionId> {
    let mut holders: Vec<(usize, ConnectionId)> = holders.filter(|(bytes, _)| *bytes > 0).collect();
    let mut held: usize = holders.iter().map(|(bytes, _)| bytes).sum();
    if held <= held_bytes_max {
        return Vec::new();
    }
    let goal = held_bytes_max - held_bytes_max / 8;
    // Among equals the oldest goes, so that simulations stay the same.
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
    fn those_that_hold_most_go_and_no_more_than_need_be() {
        let closed = |held: &[usize]| -> Vec<u32> {
            let holders = held.iter().zip(0..).map(|(bytes, slot)| (*bytes, id(slot)));
            those_that_hold_most(800, holders).into_iter().map(|it| it.slot).collect()
        };
        assert_eq!(closed(&[100, 0, 700]), [0; 0], "as much as is allowed");
        assert_eq!(closed(&[100, 0, 701]), [2]);
        assert_eq!(closed(&[100, 300, 200, 250]), [1], "until there is some room again");
        assert_eq!(closed(&[300, 300, 300, 300]), [0, 1]);
        assert_eq!(closed(&[usize::MAX / 2]), [0]);
    }

    #[test]
    fn a_share_is_fair_but_never_nothing_and_never_more_than_usual() {
        assert_eq!(share(256 << 20, 1000, 1 << 20), (128 << 20) / 1000);
        assert_eq!(share(256 << 20, 3, 1 << 20), 1 << 20);
        assert_eq!(share(256 << 20, 1_000_000, 1 << 20), SHARE_MIN);
        assert_eq!(share(0, 0, 1 << 20), SHARE_MIN);
    }
}
