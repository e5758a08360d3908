//! The configuration: its keys, the sources of their values, and the problems in them.
//!
//! There is [one table of keys](KEYS). From it follow the names in the file, in the environment and
//! on the command line, the defaults, the reference in `docs/configuration.md`, and the suggestions
//! in errors.
//!
//! ```text
//!  flag         --memory 8GiB                  comes before
//!  environment  THUNDERHEAD_SERVER_MEMORY      comes before
//!  file         [server] memory = "8GiB"       comes before
//!  default
//! ```
//!
//! [`Sources::resolve`] combines the sources. The result is either an [`Effective`] configuration,
//! in which each value knows its [`Origin`], or all [`Problems`] at once, each with its place, its
//! key and the allowed values. [`Effective::config`] returns the same configuration as plain typed
//! structs.
//!
//! Quantities carry their unit in the text: `8GiB`, `100ms`. A bare number is refused, because its
//! meaning cannot be seen.
//!
//! The crate reads no environment and no clock, and depends on no other crate of ours. A crate that
//! makes a log or a backup decides the meaning of its settings.
#![forbid(unsafe_code)]

mod address;
mod error;
mod keys;
mod sources;
mod typed;
mod units;
mod value;

pub use address::Address;
pub use error::{Problem, Problems, Warning};
pub use keys::{KEYS, Key, by_name, nearest};
pub use sources::{Effective, File, Origin, Setting, Sources};
pub use typed::{
    ClientConfig, ClusterConfig, Config, CoordinatorConfig, DevConfig, LogConfig, ProbeConfig,
    ServerConfig,
};
pub use units::{bytes_text, duration_text, parse_bytes, parse_duration};
pub use value::{Durability, Kind, LogFormat, LogLevel, Metastore, Polling, Value};
