//! A toy service on the whole stack: registers with versions, conditional writes, deletes and
//! increments, durable in a journal on one machine, each update exactly once.
//!
//! It is small, but keeps the promises of the real store. An acknowledged update survives any crash
//! and power loss. An observed value is never taken back. A repeated request has no second effect.
//! Versions never go back. It runs in both worlds. [`Flaw`] breaks one promise at a time, to prove
//! that the judge notices.

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
    /// Reads show updates that are not durable yet.
    ShowsUnsynced,
    /// Repeated updates are executed again.
    ForgetsIdentities,
    /// After a failed sync, bytes that can be read back are taken for durable.
    TrustsFailedSync,
    /// A deleted register that is created again begins at its first version again.
    VersionsGoBack,
}

impl Flaw {
    /// All flaws that break a promise.
    pub const ALL: [Flaw; 5] = [
        Flaw::AcknowledgesEarly,
        Flaw::ShowsUnsynced,
        Flaw::ForgetsIdentities,
        Flaw::TrustsFailedSync,
        Flaw::VersionsGoBack,
    ];
}
