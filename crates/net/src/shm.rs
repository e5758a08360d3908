//! Bytes between two processes of one host, through memory that both have mapped.
//!
//! A [`Channel`] is one end: two streams of bytes, one each way, each through a ring of records in
//! shared memory. Who sends frames makes them above this. As long as both ends are busy, neither
//! calls the kernel: sending is a few stores, and receiving is polling one cache line. An end that
//! has nothing to do can sleep in epoll on the channel's Unix socket, where its peer wakes it, and
//! which also tells it that the peer has died.
//!
//! ```text
//!   process of the server                                        process of the client
//!  ┌──────────────────────┐    memory: one page of positions    ┌──────────────────────┐
//!  │ Channel              │    and flags, and two rings         │ Channel              │
//!  │   Producer ──────────┼──► records, each on whole lines ────┼─► Consumer           │
//!  │   Consumer ◄─────────┼─── records ◄────────────────────────┼── Producer           │
//!  │   Doorbell ◄─────────┼──── Unix socket: one-byte wake-ups, ┼─► Doorbell           │
//!  └──────────────────────┘     end of file when one side dies  └──────────────────────┘
//! ```
//!
//! | file | holds | argues |
//! | --- | --- | --- |
//! | `layout.rs` | where everything is | |
//! | `mapping.rs` | the memory as atomic words | why touching it is safe |
//! | `ring.rs`, `ring/` | records, one way | why no stale byte is taken for a header |
//! | `doorbell.rs` | sleeping and waking | why no wake-up is lost |
//! | `channel.rs` | an end | |
//! | `handover.rs` | how a client gets the memory | |
//!
//! **The peer is not trusted.** It may write anything anywhere in the memory at any time, send
//! anything over the socket, and stop at any point. What it can do to this end by that is to make
//! it receive any bytes, or get [`Corrupt`], or not be woken for the peer's sake. It can use up
//! memory of the size of the rings.
//!
//! # A turn of an end
//!
//! ```
//! use thunderhead_net::shm::{Channel, Until};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut here, mut there) = Channel::pair(128 * 1024)?;
//! assert_eq!(there.send(&[b"hello, ", b"world"])?, 12);
//! there.flush();
//!
//! let mut bytes = Vec::new();
//! if here.prepare_sleep(Until::Arrival) {
//!     unreachable!("it would wait for here.socket() now, but something has arrived already");
//! }
//! here.receive(&mut bytes, 4096)?;
//! assert_eq!(bytes, b"hello, world");
//!
//! drop(there);
//! assert!(here.peer_gone());
//! # Ok(())
//! # }
//! ```

mod channel;
mod doorbell;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod layout;
mod mapping;
mod ring;
#[cfg(test)]
mod tests;

pub use channel::Channel;
pub use doorbell::Until;
pub use error::{Corrupt, HandoverError};
pub use handover::{Answer, Door, Knock, TOKEN_BYTES, Visit};
pub(crate) use layout::VERSION as LAYOUT_VERSION;
pub use layout::{RING_BYTES_DEFAULT, RING_BYTES_MAX, RING_BYTES_MIN};
