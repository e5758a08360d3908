//! The refusal of a request: the status, and how long the sender waits before it sends again.
//!
//! It is a type of its own so that a hint cannot be taken for a detail, a length or a cost, which
//! are numbers too.

use thunderhead_wire::Status;

/// The reason why a request was refused, and the microseconds to wait before it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    /// 0: the sender waits as long as its own policy says, if it sends again at all.
    pub(crate) hint_us: u32,
}

impl Refusal {
    /// A refusal with a hint.
    #[inline]
    pub(crate) fn with_hint(status: Status, hint_us: u32) -> Refusal {
        Refusal { status, hint_us }
    }
}

/// A refusal without a hint.
impl From<Status> for Refusal {
    #[inline]
    fn from(status: Status) -> Refusal {
        Refusal { status, hint_us: 0 }
    }
}
