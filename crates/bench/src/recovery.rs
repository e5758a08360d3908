//! What recovery must show: `bench evaluate recovery`.
//!
//! Figures of whole recoveries come from clusters of processes that lose a server
//! ([`crash`](crate::crash)), as `thunderhead demo crash` shows them: seen by clients, from outside.
//! A recovery master alone is the log's rebuilding, in slices, on one core.

mod cold;
pub mod evaluate;
