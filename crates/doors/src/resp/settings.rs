//! The settings that clients read and write with `CONFIG`.
//!
//! Many of them have no effect here. They exist because clients read them, or set them before their
//! work. They last until the server restarts. Only the password is kept: it belongs to the user
//! `default`, and the store keeps users.

use super::acl::Users;
use super::events::Kinds;
use super::glob;
use super::number::integer_of;
use super::options::ServerOptions;
use super::server::Server;
use std::collections::BTreeMap;

/// The objects that may be evicted when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// None: writes are refused.
    NoEviction,
    /// All objects, by a rule with this name.
    AllKeys(&'static str),
    /// The objects that expire, by a rule with this name.
    Volatile(&'static str),
}

const POLICIES: [Policy; 8] = [
    Policy::Volatile("volatile-lru"),
    Policy::Volatile("volatile-lfu"),
    Policy::Volatile("volatile-random"),
    Policy::Volatile("volatile-ttl"),
    Policy::AllKeys("allkeys-lru"),
    Policy::AllKeys("allkeys-lfu"),
    Policy::AllKeys("allkeys-random"),
    Policy::NoEviction,
];

impl Policy {
    pub(super) const NAMES: [&'static str; 8] = {
        let mut names = [""; 8];
        let mut at = 0;
        while at < POLICIES.len() {
            names[at] = POLICIES[at].name();
            at += 1;
        }
        names
    };

    /// Whether an object that expires then may be evicted.
    pub(super) fn caches(self, expires: Option<u64>) -> bool {
        match self {
            Policy::NoEviction => false,
            Policy::AllKeys(_) => true,
            Policy::Volatile(_) => expires.is_some(),
        }
    }

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Policy::NoEviction => "noeviction",
            Policy::AllKeys(name) | Policy::Volatile(name) => name,
        }
    }
}

/// The values of a setting.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// It cannot be changed.
    Fixed,
    /// `yes` or `no`.
    YesOrNo,
    /// Integers.
    Integer(i64, i64),
    /// Numbers of bytes, with a unit.
    Bytes,
    /// One of some words.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
}

use Values::{Bytes, Fixed, Integer, Text, Words, YesOrNo};

const ANY: Values = Integer(0, i64::MAX);

/// The most entries of `ACL LOG`, also if the setting allows more.
const ACL_ENTRIES_MAX: usize = 10_000;

/// The settings with their values at the start.
const SETTINGS: &[(&str, Values, &str)] = &[
    ("acl-pubsub-default", Fixed, "resetchannels"),
    ("aclfile", Fixed, ""),
    ("acllog-max-len", ANY, "128"),
    ("active-expire-effort", Integer(1, 10), "1"),
    ("activedefrag", YesOrNo, "no"),
    ("activerehashing", YesOrNo, "yes"),
    ("appendfsync", Words(&["everysec", "always", "no"]), "always"),
    ("appendonly", Fixed, "no"),
    ("bind", Fixed, ""),
    ("busy-reply-threshold", ANY, "5000"),
    ("client-output-buffer-limit", Text, "normal 0 0 0 slave 0 0 0 pubsub 33554432 8388608 60"),
    ("client-query-buffer-limit", Bytes, "1073741824"),
    ("cluster-enabled", Fixed, "no"),
    ("daemonize", Fixed, "no"),
    ("databases", Fixed, "16"),
    ("dbfilename", Text, "dump.rdb"),
    ("dir", Fixed, "/"),
    ("dynamic-hz", YesOrNo, "yes"),
    ("enable-debug-command", Fixed, "no"),
    ("hash-max-listpack-entries", ANY, "512"),
    ("hash-max-listpack-value", ANY, "64"),
    ("hash-max-ziplist-entries", ANY, "512"),
    ("hash-max-ziplist-value", ANY, "64"),
    ("hll-sparse-max-bytes", Bytes, "3000"),
    ("hz", Integer(1, i64::MAX), "10"),
    ("io-threads", Fixed, "1"),
    ("latency-monitor-threshold", ANY, "0"),
    ("latency-tracking", YesOrNo, "yes"),
    ("lazyfree-lazy-eviction", YesOrNo, "no"),
    ("lazyfree-lazy-expire", YesOrNo, "no"),
    ("lazyfree-lazy-server-del", YesOrNo, "no"),
    ("lazyfree-lazy-user-del", YesOrNo, "no"),
    ("lazyfree-lazy-user-flush", YesOrNo, "no"),
    ("lfu-decay-time", ANY, "1"),
    ("lfu-log-factor", ANY, "10"),
    ("list-compress-depth", ANY, "0"),
    ("list-max-listpack-size", Integer(i64::MIN, i64::MAX), "-2"),
    ("list-max-ziplist-size", Integer(i64::MIN, i64::MAX), "-2"),
    ("logfile", Fixed, ""),
    ("loglevel", Words(&["debug", "verbose", "notice", "warning", "nothing"]), "notice"),
    ("lua-time-limit", ANY, "5000"),
    ("maxclients", Fixed, "10000"),
    ("maxmemory", Bytes, "0"),
    ("maxmemory-clients", Fixed, "0"),
    ("maxmemory-eviction-tenacity", Integer(0, 100), "10"),
    ("maxmemory-policy", Text, ""),
    ("maxmemory-samples", Integer(1, 64), "5"),
    ("min-replicas-max-lag", ANY, "10"),
    ("min-replicas-to-write", ANY, "0"),
    ("notify-keyspace-events", Text, ""),
    ("port", Fixed, "6379"),
    ("proto-max-bulk-len", Fixed, "0"),
    ("protected-mode", YesOrNo, "yes"),
    ("rdbcompression", YesOrNo, "yes"),
    ("repl-backlog-size", Bytes, "1048576"),
    ("repl-timeout", ANY, "60"),
    ("replica-read-only", YesOrNo, "yes"),
    ("replica-serve-stale-data", YesOrNo, "yes"),
    ("replicaof", Fixed, ""),
    ("requirepass", Text, ""),
    ("save", Text, ""),
    ("set-max-intset-entries", ANY, "512"),
    ("set-max-listpack-entries", ANY, "128"),
    ("set-max-listpack-value", ANY, "64"),
    ("slave-read-only", YesOrNo, "yes"),
    ("slaveof", Fixed, ""),
    ("slowlog-log-slower-than", Integer(-1, i64::MAX), "10000"),
    ("slowlog-max-len", ANY, "128"),
    ("stop-writes-on-bgsave-error", YesOrNo, "yes"),
    ("stream-node-max-bytes", Bytes, "4096"),
    ("stream-node-max-entries", ANY, "100"),
    ("tcp-backlog", Fixed, "511"),
    ("tcp-keepalive", ANY, "300"),
    ("timeout", ANY, "0"),
    ("tracking-table-max-keys", ANY, "1000000"),
    ("zset-max-listpack-entries", ANY, "128"),
    ("zset-max-listpack-value", ANY, "64"),
    ("zset-max-ziplist-entries", ANY, "128"),
    ("zset-max-ziplist-value", ANY, "64"),
];

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) policy: Policy,
    /// The password of the user `default`, if `requirepass` has set it.
    pub(super) password: Option<Vec<u8>>,
    pub(super) users: Users,
    pub(super) may_set_password: bool,
    /// The kinds of events that clients want.
    pub(super) events: Kinds,
    /// The microseconds from which on commands are in the slow log; none are if it is negative.
    pub(super) slower_than_us: i64,
    pub(super) slow_entries_max: usize,
    /// The milliseconds from which on the latency monitor notes commands; none if it is 0.
    pub(super) latency_ms: u64,
    /// Whether the calls of commands are counted by their time.
    pub(super) tracks_latency: bool,
    /// The most keys of clients that are told about changes; 0 is no limit.
    pub(super) tracked_keys_max: usize,
    values: BTreeMap<&'static str, Vec<u8>>,
}

impl Settings {
    pub(super) fn new(options: &ServerOptions) -> Settings {
        let policy = POLICIES.into_iter().find(|policy| policy.name() == options.policy);
        let policy = policy.unwrap_or(Policy::NoEviction);
        let values = SETTINGS.iter().map(|(name, _, value)| (*name, value.as_bytes().to_vec()));
        let mut values: BTreeMap<_, _> = values.collect();
        for (name, value) in [
            ("appendonly", if options.is_kept { "yes" } else { "no" }.to_owned()),
            ("databases", options.databases.to_string()),
            ("maxclients", options.clients_max.to_string()),
            ("maxmemory", options.memory_bytes.to_string()),
            ("port", options.port.to_string()),
            ("proto-max-bulk-len", options.string_bytes_max.to_string()),
        ] {
            values.insert(name, value.into_bytes());
        }
        let mut settings = Settings {
            policy,
            password: options.password.clone(),
            users: Users::new(options.password.as_deref()),
            may_set_password: options.may_set_password,
            events: Kinds::NONE,
            slower_than_us: -1,
            slow_entries_max: 0,
            latency_ms: 0,
            tracks_latency: false,
            tracked_keys_max: 0,
            values,
        };
        settings.read_often_used();
        settings
    }

    /// Reads the settings that every command looks at.
    fn read_often_used(&mut self) {
        let number = |name| self.values.get(name).and_then(|value| integer_of(value));
        let positive = |name| number(name).and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
        self.slower_than_us = number("slowlog-log-slower-than").unwrap_or(-1);
        self.slow_entries_max = positive("slowlog-max-len") as usize;
        self.tracked_keys_max = positive("tracking-table-max-keys") as usize;
        self.latency_ms = positive("latency-monitor-threshold");
        self.tracks_latency = self.values.get("latency-tracking").is_some_and(|it| it == b"yes");
    }

    /// Returns the settings whose names match one of some patterns.
    pub(super) fn matching<'a>(
        &self,
        patterns: impl Iterator<Item = &'a [u8]>,
    ) -> BTreeMap<&'static str, Vec<u8>> {
        let mut found = BTreeMap::new();
        for pattern in patterns {
            for (name, value) in &self.values {
                if Settings::fits(pattern, name) {
                    let value = match *name {
                        "maxmemory-policy" => self.policy.name().as_bytes().to_vec(),
                        "notify-keyspace-events" => self.events.letters(),
                        "requirepass" => self.password.clone().unwrap_or_default(),
                        _ => value.clone(),
                    };
                    found.insert(*name, value);
                }
            }
        }
        found
    }

    /// Whether a pattern in any letters fits the name of a setting.
    pub(super) fn fits(pattern: &[u8], name: &str) -> bool {
        glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes())
    }

    /// Returns the longest HyperLogLog of the sparse encoding.
    pub(super) fn sketch_bytes_max(&self) -> usize {
        let value = self.values.get("hll-sparse-max-bytes").and_then(|value| integer_of(value));
        value.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }

    /// Returns the most entries of `ACL LOG`.
    pub(super) fn acl_entries_max(&self) -> usize {
        let value = self.values.get("acllog-max-len").and_then(|value| integer_of(value));
        value.and_then(|count| usize::try_from(count).ok()).unwrap_or(0).min(ACL_ENTRIES_MAX)
    }

    /// Returns the time that scripts may take, in milliseconds.
    pub(super) fn script_ms(&self) -> i64 {
        self.values.get("busy-reply-threshold").and_then(|text| integer_of(text)).unwrap_or(0)
    }

    /// Returns the name of a setting, in small letters.
    pub(super) fn name_of(name: &[u8]) -> Option<&'static str> {
        let mut names = SETTINGS.iter().map(|(name, _, _)| *name);
        names.find(|own| own.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// The reason, for people.
    pub(super) fn set(&mut self, name: &'static str, value: &[u8]) -> Result<(), String> {
        if name == "maxmemory-policy" {
            let mut policies = POLICIES.into_iter();
            let found = policies.find(|it| it.name().as_bytes().eq_ignore_ascii_case(value));
            self.policy = found.ok_or_else(|| one_of(POLICIES.into_iter().map(Policy::name)))?;
            return Ok(());
        }
        if name == "notify-keyspace-events" {
            let kinds = Kinds::parse(value);
            self.events = kinds.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            return Ok(());
        }
        if name == "requirepass" && !self.may_set_password {
            let advice = "it is an option of the servers: set server.redis_password alike for all";
            return Err(advice.to_owned());
        }
        if name == "requirepass" {
            self.password = (!value.is_empty()).then(|| value.to_vec());
            self.users.set_password(self.password.as_deref());
            return Ok(());
        }
        let Some((_, values, _)) = SETTINGS.iter().find(|(own, _, _)| *own == name) else {
            return Ok(());
        };
        let value = values.checked(value)?;
        // One setting has two names.
        for (one, other) in
            [("busy-reply-threshold", "lua-time-limit"), ("lua-time-limit", "busy-reply-threshold")]
        {
            if name == one {
                self.values.insert(other, value.clone());
            }
        }
        match values {
            _ if name == "maxmemory" => match self.values.get(name) == Some(&value) {
                true => Ok(()),
                false => Err("it is an option of the server: set it when the server starts".into()),
            },
            Fixed => Err("can't set immutable config".to_owned()),
            _ => {
                self.values.insert(name, value);
                self.read_often_used();
                Ok(())
            }
        }
    }
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words = words.collect::<Vec<_>>().join(", ");
    format!("argument(s) must be one of the following: {words}")
}

impl Values {
    /// Returns a value in its usual form.
    fn checked(self, value: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Fixed | Text => Ok(value.to_vec()),
            YesOrNo if value.eq_ignore_ascii_case(b"yes") => Ok(b"yes".to_vec()),
            YesOrNo if value.eq_ignore_ascii_case(b"no") => Ok(b"no".to_vec()),
            YesOrNo => Err("argument must be 'yes' or 'no'".to_owned()),
            Integer(least, most) => match integer_of(value) {
                None => Err("argument couldn't be parsed into an integer".to_owned()),
                Some(number) if (least..=most).contains(&number) => Ok(value.to_vec()),
                Some(_) => Err(format!("argument must be between {least} and {most} inclusive")),
            },
            Bytes => match bytes_of(value) {
                Some(bytes) => Ok(bytes.to_string().into_bytes()),
                None => Err("argument must be a memory value".to_owned()),
            },
            Words(words) => {
                let mut own = words.iter();
                match own.find(|word| word.as_bytes().eq_ignore_ascii_case(value)) {
                    Some(word) => Ok(word.as_bytes().to_vec()),
                    None => Err(one_of(words.iter().copied())),
                }
            }
        }
    }
}

/// Reads a number of bytes with a unit.
fn bytes_of(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..digits]).ok()?.parse::<u64>().ok()?;
    let factor = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}
impl Server {
    /// Returns the settings, which clients may have changed.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.state.settings.clone()
    }

    /// Takes the settings of a former server.
    pub fn take_settings(&mut self, settings: Settings) {
        let settings = Settings { users: settings.users.to_be_loaded(), ..settings };
        self.state.settings = settings;
    }
}
