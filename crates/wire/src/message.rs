//! The heads of requests and replies: the first bytes of a frame of the kind *message*.
//!
//! ```text
//!  request    0 id u64    8 opcode u16   10 flags u16 (bit 15 clear)   12 timeout_us u32   16 body
//!  reply      0 id u64    8 status u16   10 flags u16 (bit 15 set)     12 hint u32         16 body
//! ```
//!
//! Both are views of the bytes as they came: nothing is parsed, nothing copied. A receiver ignores
//! flags that it does not know. A flag that must not be ignored needs a feature bit.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The flag that tells a reply from a request.
pub const IS_REPLY: u16 = 1 << 15;

/// Bytes before the body, of requests and replies alike.
pub const MESSAGE_HEAD_BYTES: usize = 16;

/// The head of a message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MessageHead {
    id: U64,
    /// Opcode of a request, status of a reply.
    code: U16,
    flags: U16,
    /// Time-out of a request in microseconds, 0 for none; a reply's hint.
    number: U32,
}

impl MessageHead {
    /// The head of a request.
    #[inline]
    #[must_use]
    pub fn request(id: u64, opcode: u16, timeout_us: u32) -> MessageHead {
        MessageHead {
            id: id.into(),
            code: opcode.into(),
            flags: 0.into(),
            number: timeout_us.into(),
        }
    }

    /// The head of a reply.
    #[inline]
    #[must_use]
    pub fn reply(id: u64, status: u16, hint: u32) -> MessageHead {
        MessageHead {
            id: id.into(),
            code: status.into(),
            flags: IS_REPLY.into(),
            number: hint.into(),
        }
    }

    /// The head and the body of a message.
    #[inline]
    #[must_use]
    pub fn split(message: &[u8]) -> Option<(&MessageHead, &[u8])> {
        MessageHead::ref_from_prefix(message).ok()
    }

    /// The id of the request; a reply has the id of the request that it answers.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id.get()
    }

    /// Whether it is a reply.
    #[inline]
    #[must_use]
    pub fn is_reply(&self) -> bool {
        self.flags.get() & IS_REPLY != 0
    }

    /// Opcode of a request, status of a reply.
    #[inline]
    #[must_use]
    pub fn code(&self) -> u16 {
        self.code.get()
    }

    /// Time-out of a request in microseconds, 0 for none. Of a reply, the number that belongs to
    /// its status: for "busy" the microseconds to wait.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_these_bytes() {
        let request = MessageHead::request(0x0102_0304_0506_0708, 0x1122, 0x3344_5566);
        let golden = [8, 7, 6, 5, 4, 3, 2, 1, 0x22, 0x11, 0, 0, 0x66, 0x55, 0x44, 0x33];
        assert_eq!(request.as_bytes(), golden);
        let reply = MessageHead::reply(7, 4, 1000);
        assert_eq!(reply.as_bytes(), [7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x80, 0xe8, 3, 0, 0]);
    }

    #[test]
    fn a_message_is_split_without_copying() {
        let head = MessageHead::request(9, 2, 50);
        let message = [head.as_bytes(), b"body"].concat();
        let (found, body) = MessageHead::split(&message).unwrap();
        assert_eq!((found, body), (&head, b"body".as_slice()));
        assert!(!found.is_reply());
        assert!(MessageHead::reply(9, 0, 0).is_reply());
        assert!(MessageHead::split(&message[..15]).is_none());
    }
}
