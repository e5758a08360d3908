//! A toy service on the whole stack: registers with versions, conditional writes, deletes and
//! increments, durable in a journal on one machine, each update exactly once.
//!
//! It is small, but keeps the promises of the real thing: what was acknowledged survives any crash
//! and power loss, what was seen is never unsaid, a repeated request does nothing twice, versions
//! never go back. It runs in both worlds. [`Flaw`] breaks one promise at a time, to see that the
//! judge notices.

mod client;
mod journal;
mod protocol;
mod server;

pub use client::{Client, Recorder, Workload};
pub use journal::Journal;
pub use server::Register;

/// A promise that a register breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// Updates are acknowledged before they are durable.
    AcknowledgesEarly,
    /// Reads show what is not durable yet.
    ShowsUnsynced,
    /// Updates that come again are done again.
    ForgetsIdentities,
    /// After a failed sync, what can be read back is taken for durable.
    TrustsFailedSync,
    /// A deleted register that is made anew begins at its first version again.
    VersionsGoBack,
}

impl Flaw {
    /// All that break something.
    pub const ALL: [Flaw; 5] = [
        Flaw::AcknowledgesEarly,
        Flaw::ShowsUnsynced,
        Flaw::ForgetsIdentities,
        Flaw::TrustsFailedSync,
        Flaw::VersionsGoBack,
    ];
}
