//! Decides which peers still get a connection when connections or descriptors run short.
//!
//! Clients are turned away first, while there is still room for the connections that keep the
//! cluster alive: replicas, probes, the coordinator's orders. If clients could fill up a server, it
//! would no longer answer its probes, and the coordinator would declare it crashed.
//!
//! ```text
//!  in use   0 ············ everyone ··········· │ ······· members ······· │ ··· own ··· │ limit
//! ```
//!
//! A *member* is a server or coordinator; the greeting says so ([`MEMBER`]), and no end verifies
//! it. *Own* is for descriptors that this end opens itself: requested connections, files, memory. A
//! connection accepted between the first two marks is *provisional*: it is closed unless it greets
//! as a member. If the room for members is full too, a new connection replaces the oldest
//! connection that has not greeted.
//!
//! The kernel gives each new descriptor the lowest free number. So a number at or above a mark says
//! that at least that many descriptors are in use in the whole process, opened by any code. No
//! counting is needed.
//!
//! [`MEMBER`]: thunderhead_wire::frame::MEMBER

use crate::peer::Limits;

/// Descriptors are reserved up to this number, or this part of the limit if that is less.
const RESERVED_MAX: u64 = 1024;
const RESERVED_PART: u64 = 4;

/// The kind of peer that may have the next connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// Only descriptors that this end opens itself fit.
    Own,
    /// Servers and coordinators fit too, but no clients.
    Members,
    /// There is room for all.
    Everyone,
}

impl Room {
    /// Returns the room that is left beside a number of connections.
    pub(crate) fn for_connections(connections: usize, limits: &Limits) -> Room {
        let Limits { connections_max, connections_reserved, .. } = *limits;
        if connections < connections_max {
            Room::Everyone
        } else if connections < connections_max.saturating_add(connections_reserved) {
            Room::Members
        } else {
            Room::Own
        }
    }

    /// Returns the room in which a descriptor with this number lies, if descriptors must be below
    /// `limit`.
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

/// Returns the most connections that this end may have, whichever end requested them.
pub(crate) fn connections_max(limits: &Limits) -> usize {
    limits.connections_max.saturating_add(limits.connections_reserved.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_turned_away_first_and_own_connections_never() {
        let limits = Limits { connections_max: 4, connections_reserved: 2, ..Limits::default() };
        let rooms = [3, 4, 5, 6, 7].map(|count| Room::for_connections(count, &limits));
        assert_eq!(rooms, [Room::Everyone, Room::Members, Room::Members, Room::Own, Room::Own]);
        assert_eq!(connections_max(&limits), 8);
        let unlimited = Limits { connections_max: usize::MAX, ..limits };
        assert_eq!(Room::for_connections(1 << 40, &unlimited), Room::Everyone);
    }

    #[test]
    fn descriptors_are_reserved_whatever_the_limit() {
        let rooms = |limit: u64, numbers: [u64; 4]| numbers.map(|number| Room::at(number, limit));
        let marks = [Room::Everyone, Room::Members, Room::Members, Room::Own];
        assert_eq!(rooms(1024, [767, 768, 895, 896]), marks);
        assert_eq!(
            rooms(1 << 19, [(1 << 19) - 1025, (1 << 19) - 1024, (1 << 19) - 513, (1 << 19) - 512]),
            marks
        );
        // No limit at all, and a limit too low for a reserve.
        assert_eq!(Room::at(1 << 40, u64::MAX), Room::Everyone);
        assert_eq!(Room::at(2, 3), Room::Everyone);
    }
}
