//! An etcd cluster, used through the gateway that speaks JSON over HTTP.
//!
//! Every etcd since 3.4 has the gateway, which maps one to one to the v3 API. This crate does not
//! use the gRPC client crates. They run the protocol compiler at each build, a program that a
//! machine may not have, and they bring an asynchronous runtime for simple questions and answers.
//! The price is a third more bytes on the wire.
//!
//! | stored | place |
//! | --- | --- |
//! | a value | key `{root}/keys/{key}`; its version is etcd's `mod_revision` |
//! | a lease | key `{root}/leases/{name}`, bound to an etcd lease; its token is `create_revision` |
//!
//! - A write is one transaction: it compares the `create_revision` of the lease's key with the
//!   token, and the `mod_revision` of the value with the expected version.
//! - Reads go through etcd's consensus: none is stale.
//! - A request whose answer does not come in time is unknown, unless it only reads; a read goes to
//!   the next endpoint. A request that could not be sent also goes to the next endpoint.
//! - etcd grants leases in whole seconds and none below a few heartbeats: they last a little longer
//!   than requested, never shorter.
//! - The fingerprint of a watch is the highest `mod_revision` below the prefix together with the
//!   number of its keys. Two moments with the same fingerprint have the same keys and values: every
//!   change in between either raises the highest revision or lowers the number.

mod gateway;

use crate::driven::{Answers, Driven, Driver, Lane, Lanes};
use crate::error::{Error, OpenError};
use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, VALUE_BYTES_MAX};
use crate::request::{Answer, Change, Entry, Fence, Held, Holder, Page, Request, Token, Version};
use gateway::{Gateway, Repeat, decode, encode, number, range};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::workers::Workers;

/// The way to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The addresses of its members, as `host:port`.
    pub endpoints: Vec<String>,
    /// The text with which all keys begin, so that several clusters can share it.
    pub root: Key,
    /// How long one endpoint may take to answer. A lease must survive one request without an
    /// answer: it is renewed after a quarter of its length.
    pub patience: Duration,
    /// How often a watch looks.
    pub watch_every: Duration,
}

impl Options {
    /// Returns the usual options for some endpoints.
    #[must_use]
    pub fn new(endpoints: Vec<String>, root: Key) -> Options {
        let (patience, watch_every) = (Duration::from_secs(2), Duration::from_millis(500));
        Options { endpoints, root, patience, watch_every }
    }
}

/// Returns a client of a cluster, with two workers. The cluster need not run yet.
///
/// # Errors
/// If there are no endpoints, or the machine refuses further threads.
pub fn client(
    options: &Options,
    workers: &mut dyn Workers,
    alarm: Alarm,
) -> Result<Driven, OpenError> {
    if options.endpoints.is_empty() {
        return Err(OpenError::Options("name at least one endpoint of etcd".into()));
    }
    if let Some(bad) = options.endpoints.iter().find(|it| !it.contains(':') || it.contains('/')) {
        return Err(OpenError::Options(format!("{bad:?} is not an endpoint: write host:port")));
    }
    let answers = Answers::new(alarm);
    let mut lane = |name| Lane::start(name, Client::new(options), workers, &answers);
    let lanes = Lanes::Two { keys: lane("etcd-keys")?, leases: lane("etcd-leases")? };
    Ok(Driven::new(lanes, answers, options.watch_every))
}

struct Client {
    gateway: Gateway,
    root: String,
    /// The etcd leases behind the leases that this client holds.
    granted: BTreeMap<(LeaseName, Token), u64>,
}

/// The number of keys in the first request of a list. Together their values do not exceed a page.
const CHUNK_FIRST: usize = 4;

/// The number of keys in a later request if the values before were small. The gateway still accepts
/// the answer if all values have the largest size.
const CHUNK_MAX: usize = 32;

const _: () = assert!((CHUNK_MAX * VALUE_BYTES_MAX * 3 / 2) as u64 <= gateway::ANSWER_BYTES_MAX);

impl Client {
    fn new(options: &Options) -> Client {
        Client {
            gateway: Gateway::new(&options.endpoints, options.patience),
            root: options.root.as_str().to_owned(),
            granted: BTreeMap::new(),
        }
    }

    fn path_of(&self, key: &Key) -> String {
        format!("{}/keys/{key}", self.root)
    }

    fn lease_path(&self, lease: &LeaseName) -> String {
        format!("{}/leases/{lease}", self.root)
    }

    /// Returns the first key below a prefix and the first key after it.
    fn bounds(&self, prefix: &Prefix) -> (String, String) {
        let begin = format!("{}/keys/{}", self.root, prefix.as_str());
        // The prefix ends with a slash, and `0` is the character after the slash.
        let end = format!("{}0", begin.strip_suffix('/').unwrap_or(&begin));
        (begin, end)
    }

    fn read(&mut self, range: &Value) -> Result<Value, Error> {
        let answer = self.gateway.call("/v3/kv/range", range, Repeat::Harmless)?;
        answer.ok_or_else(|| Error::unavailable("it does not know the v3 API"))
    }

    fn transact(&mut self, transaction: &Value) -> Result<Value, Error> {
        let answer = self.gateway.call("/v3/kv/txn", transaction, Repeat::Once)?;
        answer
            .ok_or_else(|| Error::unavailable("it does not know the v3 API, or the lease is gone"))
    }

    fn entry(&self, found: &Value) -> Result<Entry, Error> {
        let path = String::from_utf8(decode(&found["key"])?).map_err(Error::damaged)?;
        let key = path.strip_prefix(&format!("{}/keys/", self.root)).unwrap_or(&path);
        let key = Key::new(key).map_err(Error::damaged)?;
        let version = Version(number(&found["mod_revision"]));
        Ok(Entry { key, version, value: decode(&found["value"])? })
    }

    fn get(&mut self, key: &Key) -> Result<Option<Entry>, Error> {
        let answer = self.read(&range(&self.path_of(key), None, 1))?;
        answer["kvs"].get(0).map(|found| self.entry(found)).transpose()
    }

    fn list(&mut self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let (mut begin, end) = self.bounds(prefix);
        // The first key after a key is the same text with a zero byte.
        begin = after.map_or(begin.clone(), |key| begin.max(format!("{}\0", self.path_of(key))));
        let (mut page, mut bytes, mut chunk) = (Page::default(), 0, CHUNK_FIRST);
        if begin >= end {
            return Ok(page);
        }
        loop {
            let limit = chunk.min(PAGE_ENTRIES_MAX - page.entries.len());
            let answer = self.read(&range(&begin, Some(&end), limit))?;
            let before = bytes;
            page.more = answer["more"].as_bool().unwrap_or(false);
            for found in answer["kvs"].as_array().into_iter().flatten() {
                if bytes >= PAGE_BYTES_MAX {
                    page.more = true;
                    return Ok(page);
                }
                let entry = self.entry(found)?;
                bytes += entry.value.len();
                begin = format!("{}\0", self.path_of(&entry.key));
                page.entries.push(entry);
            }
            if !page.more || page.entries.len() >= PAGE_ENTRIES_MAX || bytes >= PAGE_BYTES_MAX {
                return Ok(page);
            }
            // Small values are fetched many at a time, large ones few.
            let is_small = (bytes - before) * 8 < PAGE_BYTES_MAX;
            chunk = if is_small { (chunk * 4).min(CHUNK_MAX) } else { CHUNK_FIRST };
        }
    }

    fn compare_fence(&self, fence: &Fence) -> Value {
        json!({
            "key": encode(self.lease_path(&fence.lease)),
            "target": "CREATE", "result": "EQUAL", "create_revision": fence.token.0.to_string(),
        })
    }

    fn write(
        &mut self,
        key: &Key,
        change: &Change,
        fence: Option<&Fence>,
    ) -> Result<Answer, Error> {
        let path = self.path_of(key);
        let expected = change.expected().map_or(0, |version| version.0);
        let mut compare = vec![json!({
            "key": encode(&path),
            "target": "MOD", "result": "EQUAL", "mod_revision": expected.to_string(),
        })];
        let mut look = range(&path, None, 1);
        look["keys_only"] = json!(true);
        let mut otherwise = vec![json!({ "request_range": look })];
        if let Some(fence) = fence {
            compare.push(self.compare_fence(fence));
            let held = range(&self.lease_path(&fence.lease), None, 1);
            otherwise.push(json!({ "request_range": held }));
        }
        let does = match change.value() {
            Some(value) => {
                json!({ "request_put": { "key": encode(&path), "value": encode(value) } })
            }
            None => json!({ "request_delete_range": { "key": encode(&path) } }),
        };
        let transaction = json!({ "compare": compare, "success": [does], "failure": otherwise });
        let answer = self.transact(&transaction)?;
        if answer["succeeded"].as_bool().unwrap_or(false) {
            return Ok(Answer::Written(Version(number(&answer["header"]["revision"]))));
        }
        let found = |at: usize| &answer["responses"][at]["response_range"]["kvs"][0];
        if fence.is_some_and(|it| number(&found(1)["create_revision"]) != it.token.0) {
            return Ok(Answer::Deposed);
        }
        let current = Some(Version(number(&found(0)["mod_revision"])));
        Ok(Answer::Conflict(current.filter(|version| version.0 != 0)))
    }

    /// Returns a lease's holder, and the etcd lease behind it.
    fn holder(&mut self, lease: &LeaseName) -> Result<Option<(Held, u64)>, Error> {
        let answer = self.read(&range(&self.lease_path(lease), None, 1))?;
        answer["kvs"].get(0).map(held).transpose()
    }

    /// Renews an etcd lease. Returns whether it still exists.
    fn keep_alive(&mut self, id: u64) -> Result<bool, Error> {
        let body = json!({ "ID": id.to_string() });
        let answer = self.gateway.call("/v3/lease/keepalive", &body, Repeat::Harmless)?;
        Ok(answer.is_some_and(|answer| number(&answer["result"]["TTL"]) > 0))
    }

    /// Ends an etcd lease. If that fails, the lease expires by itself.
    fn revoke(&mut self, id: u64) {
        let body = json!({ "ID": id.to_string() });
        let _ = self.gateway.call("/v3/lease/revoke", &body, Repeat::Harmless);
    }

    fn acquire(
        &mut self,
        lease: &LeaseName,
        holder: &Holder,
        ttl: Duration,
    ) -> Result<Answer, Error> {
        if let Some((held, id)) = self.holder(lease)? {
            if held.by.id != holder.id {
                return Ok(Answer::HeldBy(held));
            }
            if self.keep_alive(id)? {
                self.granted.insert((lease.clone(), held.token), id);
                return Ok(Answer::Acquired(held.token));
            }
        }
        let seconds = ttl.as_nanos().div_ceil(1_000_000_000);
        // An etcd lease whose grant does not reach this client expires by itself.
        let body = json!({ "TTL": seconds.to_string() });
        let granted = self.gateway.call("/v3/lease/grant", &body, Repeat::Harmless)?;
        let id = granted.map_or(0, |answer| number(&answer["ID"]));
        let path = encode(self.lease_path(lease));
        let says = json!({ "holder": holder.id.to_string(), "description": holder.description });
        let put =
            json!({ "key": path, "value": encode(says.to_string()), "lease": id.to_string() });
        let transaction = json!({
            "compare": [
                { "key": path, "target": "CREATE", "result": "EQUAL", "create_revision": "0" },
            ],
            "success": [{ "request_put": put }],
            "failure": [{ "request_range": { "key": path } }],
        });
        let answer = self.transact(&transaction)?;
        if answer["succeeded"].as_bool().unwrap_or(false) {
            let token = Token(number(&answer["header"]["revision"]));
            self.granted.insert((lease.clone(), token), id);
            return Ok(Answer::Acquired(token));
        }
        self.revoke(id);
        let found = &answer["responses"][0]["response_range"]["kvs"][0];
        Ok(Answer::HeldBy(held(found)?.0))
    }

    fn renew(&mut self, fence: &Fence) -> Result<Answer, Error> {
        let known = (fence.lease.clone(), fence.token);
        let id = match self.granted.get(&known) {
            Some(id) => *id,
            None => match self.holder(&fence.lease)? {
                Some((held, id)) if held.token == fence.token => id,
                _ => return Ok(Answer::NotHeld),
            },
        };
        // The lease's key may be gone although the etcd lease exists: an operator may have deleted
        // it.
        let lives = self.keep_alive(id)?
            && self.holder(&fence.lease)?.is_some_and(|(held, _)| held.token == fence.token);
        if lives {
            self.granted.insert(known, id);
            return Ok(Answer::Renewed);
        }
        self.granted.remove(&known);
        Ok(Answer::NotHeld)
    }

    fn release(&mut self, fence: &Fence) -> Result<Answer, Error> {
        let path = encode(self.lease_path(&fence.lease));
        let transaction = json!({
            "compare": [self.compare_fence(fence)],
            "success": [{ "request_delete_range": { "key": path } }],
        });
        self.transact(&transaction)?;
        if let Some(id) = self.granted.remove(&(fence.lease.clone(), fence.token)) {
            self.revoke(id);
        }
        Ok(Answer::Released)
    }
}

fn held(found: &Value) -> Result<(Held, u64), Error> {
    let says: Value = serde_json::from_slice(&decode(&found["value"])?).map_err(Error::damaged)?;
    let description = says["description"].as_str().unwrap_or("").to_owned();
    let by = Holder { id: number(&says["holder"]), description };
    let token = Token(number(&found["create_revision"]));
    Ok((Held { by, token }, number(&found["lease"])))
}

impl Driver for Client {
    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        match request {
            Request::Get { key } => self.get(key).map(Answer::Value),
            Request::List { prefix, after } => self.list(prefix, after.as_ref()).map(Answer::Page),
            Request::Write { key, change, fence } => self.write(key, change, fence.as_ref()),
            Request::Acquire { lease, holder, ttl } => self.acquire(lease, holder, *ttl),
            Request::Renew { fence } => self.renew(fence),
            Request::Release { fence } => self.release(fence),
            Request::Holder { lease } => {
                Ok(Answer::Holder(self.holder(lease)?.map(|(held, _)| held)))
            }
        }
    }

    fn fingerprint(&mut self, prefix: &Prefix) -> Result<u128, Error> {
        let (begin, end) = self.bounds(prefix);
        let mut newest = range(&begin, Some(&end), 1);
        newest["sort_target"] = json!("MOD");
        newest["sort_order"] = json!("DESCEND");
        newest["keys_only"] = json!(true);
        let answer = self.read(&newest)?;
        let revision = number(&answer["kvs"][0]["mod_revision"]);
        Ok(u128::from(revision) << 64 | u128::from(number(&answer["count"])))
    }
}
