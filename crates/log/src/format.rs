//! The log as bytes: entries, checksums, digests, and readers that trust none of them.
//!
//! This is the lowest layer of the crate. It knows neither memory nor indexes, so backups can cut
//! and look at segments with it. `docs/format.md` describes every byte.

pub(crate) mod entry;
pub mod filter;
pub mod fuzzing;
pub mod inspect;
pub(crate) mod metadata;
pub(crate) mod outcomes;
pub(crate) mod testing;
pub(crate) mod unnamed_survivors;
pub(crate) mod varint;
