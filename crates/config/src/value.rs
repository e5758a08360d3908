//! The kinds of values of keys, and their text.

use crate::address::{Address, parse_host};
use crate::units::{bytes_text, duration_text, parse_bytes, parse_duration};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Bytes, with a minimum and a maximum.
    Bytes(u64, u64),
    /// A length of time, with a minimum and a maximum in milliseconds.
    Time(u64, u64),
    /// A whole number, with a minimum and a maximum.
    Count(u64, u64),
    /// `true` or `false`.
    Flag,
    /// An IP address and a port to listen on. Port 0 means any free port.
    Listen,
    /// A host without a port.
    Host,
    /// Hosts with ports.
    Addresses,
    /// A path on this machine.
    Path,
    /// Text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A [`Durability`].
    Durability,
    /// A [`Metastore`].
    Metastore,
}

/// A key's value. [`Kind::parse`] reads the text of its `Display`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes.
    Bytes(u64),
    /// A length of time.
    Time(Duration),
    /// A whole number.
    Count(u64),
    /// True or false.
    Flag(bool),
    /// An address to listen on.
    Listen(SocketAddr),
    /// Hosts with ports.
    Addresses(Vec<Address>),
    /// Text: a host, a path or a word.
    Text(String),
    /// When a write is acknowledged.
    Durability(Durability),
    /// The metastore of a coordinator.
    Metastore(Metastore),
}

impl Kind {
    /// Parses a value.
    ///
    /// # Errors
    /// A description of the problem and the allowed values, for people.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Bytes(min, max) => {
                let bytes = parse_bytes(text)?;
                within(bytes, min, max, bytes_text).map(Value::Bytes)
            }
            Kind::Time(min, max) => {
                let time = parse_duration(text)?;
                let limits = [min, max].map(Duration::from_millis);
                within(time, limits[0], limits[1], duration_text).map(Value::Time)
            }
            Kind::Count(min, max) => {
                let count = text
                    .trim()
                    .parse()
                    .map_err(|_| format!("it must be a whole number from {min} to {max}"))?;
                within(count, min, max, |count| count.to_string()).map(Value::Count)
            }
            Kind::Flag => match text.trim() {
                "true" | "on" | "yes" => Ok(Value::Flag(true)),
                "false" | "off" | "no" => Ok(Value::Flag(false)),
                _ => Err("it must be true or false".to_owned()),
            },
            Kind::Listen => text.trim().parse().map(Value::Listen).map_err(|_| {
                "it must be an IP address and a port, such as 127.0.0.1:7070, 0.0.0.0:7070 or \
                 [::]:7070"
                    .to_owned()
            }),
            Kind::Host => parse_host(text).map(Value::Text),
            Kind::Addresses => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let addresses: Vec<Address> = parts.map(str::parse).collect::<Result<_, _>>()?;
                match addresses.is_empty() {
                    true => Err("give at least one address, as HOST:PORT".to_owned()),
                    false => Ok(Value::Addresses(addresses)),
                }
            }
            Kind::Path | Kind::Text => {
                match text.is_empty() || text.chars().any(char::is_control) {
                    true => Err("it must not be empty or contain control characters".to_owned()),
                    false => Ok(Value::Text(text.to_owned())),
                }
            }
            Kind::Choice(words) => match words.iter().find(|word| **word == text.trim()) {
                Some(word) => Ok(Value::Text((*word).to_owned())),
                None => Err(format!("it must be one of: {}", words.join(", "))),
            },
            Kind::Durability => text.parse().map(Value::Durability),
            Kind::Metastore => text.parse().map(Value::Metastore),
        }
    }

    /// Returns the allowed values, in a few words.
    #[must_use]
    pub fn allowed(self) -> String {
        match self {
            Kind::Bytes(min, max) => format!("bytes, {} to {}", bytes_text(min), bytes_text(max)),
            Kind::Time(min, max) => {
                let [min, max] = [min, max].map(|it| duration_text(Duration::from_millis(it)));
                format!("time, {min} to {max}")
            }
            Kind::Count(min, max) => format!("number, {min} to {max}"),
            Kind::Flag => "true or false".to_owned(),
            Kind::Listen => "IP:PORT".to_owned(),
            Kind::Host => "host name or IP address".to_owned(),
            Kind::Addresses => "list of HOST:PORT".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Text => "text".to_owned(),
            Kind::Choice(words) => words.join(", "),
            Kind::Durability => "replicated, interval:TIME, synced".to_owned(),
            Kind::Metastore => {
                "embedded[:PATH], etcd:URL[,URL…], zookeeper:HOST:PORT[,HOST:PORT…]".to_owned()
            }
        }
    }
}

fn within<T: PartialOrd + Copy>(
    value: T,
    min: T,
    max: T,
    text: impl Fn(T) -> String,
) -> Result<T, String> {
    match value >= min && value <= max {
        true => Ok(value),
        false => Err(format!("it must be from {} to {}", text(min), text(max))),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bytes(bytes) => f.write_str(&bytes_text(*bytes)),
            Value::Time(time) => f.write_str(&duration_text(*time)),
            Value::Count(count) => write!(f, "{count}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Listen(address) => write!(f, "{address}"),
            Value::Addresses(addresses) => f.write_str(&joined(addresses)),
            Value::Text(text) => f.write_str(text),
            Value::Durability(durability) => write!(f, "{durability}"),
            Value::Metastore(metastore) => write!(f, "{metastore}"),
        }
    }
}

fn joined(parts: &[impl ToString]) -> String {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    parts.join(",")
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is in the memory of all its backups, which outlasts their processes.
    #[default]
    Replicated,
    /// The same, and the backups write it to their disks after this interval.
    Interval(Duration),
    /// When it is on the disks of all its backups.
    Synced,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text.trim().split_once(':') {
            None if text.trim() == "replicated" => Ok(Durability::Replicated),
            None if text.trim() == "synced" => Ok(Durability::Synced),
            Some(("interval", time)) => {
                let time = parse_duration(time)?;
                let limits = [Duration::from_millis(1), Duration::from_secs(60)];
                within(time, limits[0], limits[1], duration_text).map(Durability::Interval)
            }
            _ => Err(format!("it must be one of: {}", Kind::Durability.allowed())),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Replicated => f.write_str("replicated"),
            Durability::Interval(time) => write!(f, "interval:{}", duration_text(*time)),
            Durability::Synced => f.write_str("synced"),
        }
    }
}

/// The metastore of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metastore {
    /// A file for one coordinator: this file, or one in the coordinator's directory.
    Embedded(Option<PathBuf>),
    /// A cluster of etcd, at these URLs.
    Etcd(Vec<String>),
    /// An ensemble of ZooKeeper, at these addresses.
    ZooKeeper(Vec<Address>),
}

impl FromStr for Metastore {
    type Err = String;

    fn from_str(text: &str) -> Result<Metastore, String> {
        let list = |rest: &str| -> Vec<String> {
            let parts = rest.split(',').map(|part| part.trim().to_owned());
            parts.filter(|part| !part.is_empty()).collect()
        };
        match text.trim().split_once(':') {
            None if text.trim() == "embedded" => Ok(Metastore::Embedded(None)),
            Some(("embedded", path)) if !path.is_empty() && !path.chars().any(char::is_control) => {
                Ok(Metastore::Embedded(Some(path.into())))
            }
            Some(("embedded", _)) => {
                Err("give a file, as embedded:PATH, or write `embedded`".to_owned())
            }
            Some(("etcd", rest)) => {
                let urls = list(rest);
                if urls.is_empty() {
                    return Err("give at least one URL: etcd:http://HOST:2379".to_owned());
                }
                for url in &urls {
                    let host = url.strip_prefix("http://").or(url.strip_prefix("https://"));
                    let host = host.map(|host| host.trim_end_matches('/'));
                    host.unwrap_or_default().parse::<Address>().map_err(|why| {
                        format!("{url:?} is not a URL like http://HOST:2379: {why}")
                    })?;
                }
                Ok(Metastore::Etcd(urls))
            }
            Some(("zookeeper", rest)) => {
                let addresses: Vec<Address> =
                    list(rest).iter().map(|part| part.parse()).collect::<Result<_, _>>()?;
                match addresses.is_empty() {
                    true => Err("give at least one server: zookeeper:HOST:2181".to_owned()),
                    false => Ok(Metastore::ZooKeeper(addresses)),
                }
            }
            _ => Err(format!("it must be one of: {}", Kind::Metastore.allowed())),
        }
    }
}

impl fmt::Display for Metastore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metastore::Embedded(None) => f.write_str("embedded"),
            Metastore::Embedded(Some(path)) => write!(f, "embedded:{}", path.display()),
            Metastore::Etcd(urls) => write!(f, "etcd:{}", urls.join(",")),
            Metastore::ZooKeeper(addresses) => write!(f, "zookeeper:{}", joined(addresses)),
        }
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The words, as they are written.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// Returns the value for a word.
            #[must_use]
            pub fn of_word(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $word,)*
                })
            }
        }
    };
}

words! {
    /// How a shard's thread waits when it has no work.
    Polling {
        /// It polls all the time: a whole core, and the lowest latency.
        Always = "always",
        /// It polls for a time that adapts to the load, then sleeps.
        Adaptive = "adaptive",
        /// It sleeps at once.
        Never = "never",
    }
}

words! {
    /// The least severe level that is logged.
    LogLevel {
        /// Errors.
        Error = "error",
        /// Also possible problems.
        Warn = "warn",
        /// Also changes of the cluster's state.
        Info = "info",
        /// Also decisions.
        Debug = "debug",
        /// Also all other events.
        Trace = "trace",
    }
}

words! {
    /// The format of log lines.
    LogFormat {
        /// Text for people.
        Text = "text",
        /// JSON for programs.
        Json = "json",
    }
}
