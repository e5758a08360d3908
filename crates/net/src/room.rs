//! Who still gets a connection when connections or descriptors run short.
//!
//! Clients are turned away first, while there is still room for what keeps the cluster alive: replicas, probes,
//! the coordinator's orders. A server that clients could fill up would not answer its probes any more, and would
//! be declared crashed.
//!
//! ```text
//!  in use   0 ············ everyone ············ │ ········ members ········ │ ···· own ···· │ the limit
//! ```
//!
//! A *member* is a server or coordinator; the greeting says so ([`MEMBER`]), and nobody verifies it. *Own* is what
//! this end opens itself: connections that it asks for, files, memory. A connection that is accepted between the
//! first two marks is *provisional*: it is closed unless it greets as a member. If the room for members is full
//! too, a newcomer replaces the oldest connection that has not greeted.
//!
//! The kernel gives each new descriptor the lowest number that is free. So a number at or beyond a mark says that
//! at least so many descriptors are in use in the whole process, whatever opened them, without counting them.
//!
//! [`MEMBER`]: thunderhead_wire::frame::MEMBER

use crate::peer::Limits;

/// The most descriptors that are kept back, and the part of all that are kept back if that is less.
const RESERVED_MAX: u64 = 1024;
const RESERVED_PART: u64 = 4;

/// Who may have the next connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// The rest is for what this end opens itself.
    Own,
    /// The rest is for servers and coordinators, and for this end.
    Members,
    /// There is room.
    Everyone,
}

impl Room {
    /// Who may have a further connection beside so many.
    pub(crate) fn beside(connections: usize, limits: &Limits) -> Room {
        let Limits { connections_max, connections_reserved, .. } = *limits;
        if connections < connections_max {
            Room::Everyone
        } else if connections < connections_max.saturating_add(connections_reserved) {
            Room::Members
        } else {
            Room::Own
        }
    }

    /// Who may keep a descriptor with this number, where only lower ones than `limit` are allowed.
    pub(crate) fn at(descriptor: u64, limit: u64) -> Room {
        let reserved = (limit / RESERVED_PART).min(RESERVED_MAX);
        if descriptor < limit - reserved {
            Room::Everyone
        } else if descriptor < limit - reserved / 2 {
            Room::Members
        } else {
            Room::Own
        }
    }
}

/// The connections that this end may have at most, whoever asked for them.
pub(crate) fn connections_max(limits: &Limits) -> usize {
    limits.connections_max.saturating_add(limits.connections_reserved.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_turned_away_first_and_what_is_our_own_never() {
        let limits = Limits { connections_max: 4, connections_reserved: 2, ..Limits::default() };
        let rooms = [3, 4, 5, 6, 7].map(|count| Room::beside(count, &limits));
        assert_eq!(rooms, [Room::Everyone, Room::Members, Room::Members, Room::Own, Room::Own]);
        assert_eq!(connections_max(&limits), 8);
        let unlimited = Limits { connections_max: usize::MAX, ..limits };
        assert_eq!(Room::beside(1 << 40, &unlimited), Room::Everyone);
    }

    #[test]
    fn descriptors_are_kept_back_however_many_there_are() {
        let rooms = |limit: u64, numbers: [u64; 4]| numbers.map(|number| Room::at(number, limit));
        let marks = [Room::Everyone, Room::Members, Room::Members, Room::Own];
        assert_eq!(rooms(1024, [767, 768, 895, 896]), marks);
        assert_eq!(
            rooms(1 << 19, [(1 << 19) - 1025, (1 << 19) - 1024, (1 << 19) - 513, (1 << 19) - 512]),
            marks
        );
        // No limit at all, and one with which nothing can be kept back.
        assert_eq!(Room::at(1 << 40, u64::MAX), Room::Everyone);
        assert_eq!(Room::at(2, 3), Room::Everyone);
    }
}
