//! The answers to `stats`.

use super::Limits;
use thunderhead_doors::memcached::{Mode, Request};
use thunderhead_log::Usage;

/// The version of memcached whose commands the door understands.
pub(super) const VERSION: &str = "1.6.18";

/// Counts of the door's work since the start of the server, or since `stats reset`.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: u64,
    pub(super) get: u64,
    pub(super) set: u64,
    pub(super) flush: u64,
    pub(super) touch: u64,
    pub(super) meta: u64,
    pub(super) get_hits: u64,
    pub(super) get_misses: u64,
    pub(super) delete_hits: u64,
    pub(super) delete_misses: u64,
    pub(super) incr_hits: u64,
    pub(super) incr_misses: u64,
    pub(super) decr_hits: u64,
    pub(super) decr_misses: u64,
    pub(super) cas_hits: u64,
    pub(super) cas_misses: u64,
    pub(super) cas_badval: u64,
    pub(super) touch_hits: u64,
    pub(super) touch_misses: u64,
    pub(super) too_large: u64,
    pub(super) no_memory: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) items: u64,
    /// Times at which a connection was interrupted so that others have their turn.
    pub(super) yields: u64,
}

impl Counts {
    /// Counts a request that was refused before it was executed.
    pub(super) fn count_refused(&mut self, answer: &[u8]) {
        self.too_large += u64::from(answer.starts_with(b"SERVER_ERROR object too large"));
    }

    /// Counts a request that was done: its accesses that found an object, and its other accesses,
    /// whether it has updated anything, and its answer.
    pub(super) fn count(
        &mut self,
        request: &Request<'_>,
        (found, missed, has_updated): (u64, u64, bool),
        answer: &[u8],
    ) {
        let is_there = found > 0;
        let one = |hits: &mut u64, misses: &mut u64| {
            *if is_there { hits } else { misses } += 1;
        };
        match request {
            Request::Get { touch, .. } => {
                // A touch finds each object twice.
                let found = if touch.is_some() { found / 2 } else { found };
                self.get += found + missed;
                self.get_hits += found;
                self.get_misses += missed;
                if touch.is_some() {
                    self.touch += found + missed;
                    self.touch_hits += found;
                    self.touch_misses += missed;
                }
            }
            Request::Store(store) => {
                self.set += 1;
                if store.cas.is_some() && store.mode == Mode::Set {
                    match answer {
                        b"STORED\r\n" => self.cas_hits += 1,
                        b"EXISTS\r\n" => self.cas_badval += 1,
                        b"NOT_FOUND\r\n" => self.cas_misses += 1,
                        _ => {}
                    }
                }
                self.count_set(has_updated, answer);
            }
            Request::MetaSet(..) => {
                self.set += 1;
                self.meta += 1;
                self.count_set(has_updated, answer);
            }
            Request::Delete { .. } | Request::MetaDelete(_) => {
                one(&mut self.delete_hits, &mut self.delete_misses);
            }
            Request::Arithmetic { is_decrement: false, .. } => {
                one(&mut self.incr_hits, &mut self.incr_misses);
            }
            Request::Arithmetic { .. } => one(&mut self.decr_hits, &mut self.decr_misses),
            Request::MetaArithmetic(meta) if meta.is_decrement => {
                one(&mut self.decr_hits, &mut self.decr_misses);
            }
            Request::MetaArithmetic(_) => one(&mut self.incr_hits, &mut self.incr_misses),
            Request::Touch { .. } => {
                self.touch += 1;
                one(&mut self.touch_hits, &mut self.touch_misses);
            }
            Request::MetaGet(_) => {
                self.meta += 1;
                self.get += 1;
                one(&mut self.get_hits, &mut self.get_misses);
            }
            Request::FlushAll { .. } => self.flush += 1,
            _ => {}
        }
    }

    /// Counts requests `mg` that only read.
    pub(super) fn count_read(&mut self, found: u64, missed: u64) {
        self.meta += found + missed;
        self.get += found + missed;
        self.get_hits += found;
        self.get_misses += missed;
    }

    fn count_set(&mut self, has_updated: bool, answer: &[u8]) {
        self.items += u64::from(has_updated);
        self.too_large += u64::from(answer.starts_with(b"SERVER_ERROR object too large"));
        self.no_memory += u64::from(answer.starts_with(b"SERVER_ERROR out of memory"));
    }
}

/// The state that `stats` shows beside the counts.
pub(super) struct Shown<'a> {
    pub(super) counts: &'a Counts,
    pub(super) limits: &'a Limits,
    pub(super) usage: Usage,
    pub(super) objects: u64,
    pub(super) connections: usize,
    pub(super) seconds: u64,
    pub(super) uptime: u64,
}

fn line(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    out.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
}

/// Writes the answer to `stats` with these words behind it; false if there is no such group.
pub(super) fn write(shown: &Shown<'_>, words: &[&[u8]], out: &mut Vec<u8>) -> bool {
    match words.first().copied() {
        None => general(shown, out),
        Some(b"settings") => settings(shown, out),
        Some(b"items") => items(shown, out),
        Some(b"slabs") => slabs(shown, out),
        Some(b"sizes") => line(out, "sizes_status", "disabled"),
        Some(b"conns") => line(out, "curr_connections", shown.connections),
        Some(b"detail") => {
            return match words.get(1) {
                Some(&b"on" | &b"off") => {
                    out.extend_from_slice(b"OK\r\n");
                    true
                }
                Some(&b"dump") => {
                    out.extend_from_slice(b"END\r\n");
                    true
                }
                _ => {
                    out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n");
                    true
                }
            };
        }
        Some(_) => return false,
    }
    out.extend_from_slice(b"END\r\n");
    true
}

fn general(shown: &Shown<'_>, out: &mut Vec<u8>) {
    let Shown { counts, limits, usage, .. } = shown;
    line(out, "pid", std::process::id());
    line(out, "uptime", shown.uptime);
    line(out, "time", shown.seconds);
    line(out, "version", VERSION);
    line(out, "server", "thunderhead");
    line(out, "pointer_size", usize::BITS);
    line(out, "max_connections", limits.connections);
    line(out, "curr_connections", shown.connections);
    line(out, "total_connections", counts.connections);
    line(out, "cmd_get", counts.get);
    line(out, "cmd_set", counts.set);
    line(out, "cmd_flush", counts.flush);
    line(out, "cmd_touch", counts.touch);
    line(out, "cmd_meta", counts.meta);
    line(out, "get_hits", counts.get_hits);
    line(out, "get_misses", counts.get_misses);
    line(out, "delete_misses", counts.delete_misses);
    line(out, "delete_hits", counts.delete_hits);
    line(out, "incr_misses", counts.incr_misses);
    line(out, "incr_hits", counts.incr_hits);
    line(out, "decr_misses", counts.decr_misses);
    line(out, "decr_hits", counts.decr_hits);
    line(out, "cas_misses", counts.cas_misses);
    line(out, "cas_hits", counts.cas_hits);
    line(out, "cas_badval", counts.cas_badval);
    line(out, "touch_hits", counts.touch_hits);
    line(out, "touch_misses", counts.touch_misses);
    line(out, "store_too_large", counts.too_large);
    line(out, "store_no_memory", counts.no_memory);
    line(out, "bytes_read", counts.bytes_read);
    line(out, "bytes_written", counts.bytes_written);
    line(out, "limit_maxbytes", limits.memory_bytes);
    line(out, "accepting_conns", 1);
    line(out, "conn_yields", counts.yields);
    line(out, "threads", 1);
    line(out, "bytes", usage.live_bytes);
    line(out, "curr_items", shown.objects);
    line(out, "total_items", counts.items);
    line(out, "evictions", usage.evicted);
    line(out, "expired_removed", usage.expired);
}

fn settings(shown: &Shown<'_>, out: &mut Vec<u8>) {
    let limits = shown.limits;
    line(out, "maxbytes", limits.memory_bytes);
    line(out, "maxconns", limits.connections);
    line(out, "evictions", if limits.evicts { "on" } else { "off" });
    line(out, "num_threads", 1);
    line(out, "item_size_max", limits.value_bytes);
    line(out, "cas_enabled", "yes");
    line(out, "auth_enabled_sasl", "no");
    line(out, "binding_protocol", "ascii");
    line(out, "flush_enabled", if limits.may_flush { "yes" } else { "no" });
}

fn items(shown: &Shown<'_>, out: &mut Vec<u8>) {
    if shown.objects > 0 {
        line(out, "items:1:number", shown.objects);
        line(out, "items:1:mem_requested", shown.usage.live_bytes);
        line(out, "items:1:evicted", shown.usage.evicted);
        line(out, "items:1:outofmemory", shown.counts.no_memory);
    }
}

fn slabs(shown: &Shown<'_>, out: &mut Vec<u8>) {
    // There are no slabs: objects of all sizes share one log.
    line(out, "active_slabs", 0);
    line(out, "total_malloced", shown.usage.log_bytes);
}
