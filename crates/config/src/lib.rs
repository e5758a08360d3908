//! The configuration: what can be set, where it comes from, and what is wrong with it.
//!
//! There is [one table of keys](KEYS). From it follow the names in the file, in the environment and
//! on the command line, the defaults, the reference in `docs/cli.md`, and what errors suggest.
//!
//! ```text
//!  flag         --memory 8GiB                  comes before
//!  environment  THUNDERHEAD_SERVER_MEMORY      comes before
//!  file         [server] memory = "8GiB"       comes before
//!  default
//! ```
//!
//! [`Sources::resolve`] brings them together: an [`Effective`] configuration, in which each value
//! knows its [`Origin`], or all [`Problems`] at once, each with its place, its key and what is allowed.
//! [`Effective::config`] is the same as plain typed structs, for those who use it.
//!
//! Quantities carry their unit in the text: `8GiB`, `100ms`. A bare number is refused, for nobody
//! can see what it means.
//!
//! The crate reads no environment and no clock, and knows no other crate of ours: what the words
//! mean to a log or a backup is said where that is made.
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
