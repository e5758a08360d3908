//! Bytes between two processes of one host, through memory that both have mapped.
//!
//! A [`Channel`] is one end. It has two streams of bytes, one in each direction, each through a
//! ring of records in shared memory. The layer above splits the bytes into frames. While both ends
//! are busy, neither calls the kernel: sending is a few stores, and receiving polls one cache line.
//! An idle end can sleep in epoll on the channel's Unix socket. Its peer wakes it through that
//! socket, which also reports the peer's death.
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
//! anything over the socket, and stop at any point. This end then receives arbitrary bytes, or gets
//! [`Corrupt`], or is not woken for that peer; nothing worse. A peer can use up memory of the size
//! of the rings.
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
pub use mapping::RetiredMapping;
