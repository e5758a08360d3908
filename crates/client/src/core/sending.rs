//! Builds messages from the ready parts: which parts share a message, and the bytes of a message.

use super::{Call, CallNumber};
use super::{
    Core, ENOUGH_PARTS, MESSAGE_BYTES, Output, PARTS_MAX, Part, PartId, Route, State, patience,
};
use crate::error::Obstacle;
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::Sequence;
use thunderhead_wire::operations::Identity;
use zerocopy::IntoBytes;

/// The parts of messages, by route, each with the shortest timeout of its parts.
#[derive(Default)]
struct Messages {
    by_route: BTreeMap<Route, (Duration, Vec<PartId>)>,
    /// The route of the latest parts, which the next part mostly has too: to compare it with one
    /// route is faster than to search for it.
    latest: Option<(Route, (Duration, Vec<PartId>))>,
}

impl Messages {
    fn add(&mut self, route: Route, timeout: Duration, part: PartId) {
        match &mut self.latest {
            Some((latest, (shortest, parts))) if *latest == route => {
                *shortest = timeout.min(*shortest);
                parts.push(part);
            }
            _ => {
                let (shortest, mut parts) =
                    self.by_route.remove(&route).unwrap_or((timeout, Vec::new()));
                parts.push(part);
                self.keep_latest();
                self.latest = Some((route, (timeout.min(shortest), parts)));
            }
        }
    }

    fn keep_latest(&mut self) {
        self.by_route.extend(self.latest.take());
    }

    /// Takes the message that is first in the order of routes. A lone one never enters the map,
    /// which would allocate.
    fn take_first(&mut self) -> Option<(Route, (Duration, Vec<PartId>))> {
        if self.by_route.is_empty() {
            return self.latest.take();
        }
        self.keep_latest();
        self.by_route.pop_first()
    }
}

impl Core {
    /// Sends all ready parts, together if they go to the same shard.
    pub(super) fn send_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let mut messages = Messages::default();
        let mut is_lost = false;
        for (ticket, at) in std::mem::take(&mut self.ready) {
            let Some(batch) = self.batches.get_mut(&ticket) else { continue };
            let timeout = patience(batch.deadline.since(self.now));
            let Some(part) = batch.parts.get_mut(at) else { continue };
            if !matches!(part.state, State::Ready) {
                continue;
            }
            let to = self.map.find(part.operation.table, part.hash);
            if to.is_none() {
                is_lost = true;
                self.stale.entry(part.operation.table).or_insert(self.now);
            }
            let is_new = part.operation.is_update() && part.update_id.is_none();
            if is_new && self.identities.lease().is_none() {
                (part.state, part.obstacle) = (State::Unleased, Obstacle::NoCoordinator);
                self.unleased.insert((ticket, at));
                continue;
            }
            let Some(to) = to else {
                (part.state, part.obstacle) = (State::Lost, Obstacle::NoMap);
                self.lost.insert((ticket, at));
                continue;
            };
            part.state = State::Sent;
            part.sent += 1;
            let lease = if is_new {
                self.identities.lease()
            } else {
                part.update_id.map(|update_id| update_id.lease)
            };
            let table = part.operation.table;
            let map = if lease.is_some() { self.map.table_version(table) } else { 0 };
            let route = Route {
                to,
                lease,
                map,
                alone: part.is_alone.then_some((ticket, at)),
                haste: timeout.as_nanos().leading_zeros(),
                expires: part.operation.decides_expiry(),
            };
            messages.add(route, timeout, (ticket, at));
        }
        while let Some((route, (timeout, parts))) = messages.take_first() {
            // Sequences are assigned only now, so that those of a message are consecutive: a shard
            // records the outcomes of a message together.
            for part in &parts {
                let batch = self.batches.get_mut(&part.0);
                let part = batch.and_then(|batch| batch.parts.get_mut(part.1));
                if let Some(part) = part
                    && part.operation.is_update()
                    && part.update_id.is_none()
                {
                    part.update_id = self.identities.take();
                }
            }
            self.send(route, timeout, &parts);
        }
        if is_lost {
            self.ask_for_map(self.now);
        }
    }

    fn part(&self, (ticket, at): PartId) -> Option<&Part> {
        self.batches.get(&ticket)?.parts.get(at)
    }

    /// Sends parts to a shard, in as many messages as needed.
    fn send(&mut self, route: Route, timeout: Duration, mut parts: &[PartId]) {
        let count_max = if route.lease.is_some() { PARTS_MAX } else { self.reads_max };
        while !parts.is_empty() {
            let (mut count, mut bytes, mut latest) = (0, 0, None);
            for part in parts.iter().take(count_max) {
                bytes += self.part(*part).map_or(0, |part| part.operation.bytes());
                let is_enough = count >= ENOUGH_PARTS && latest != Some(part.0);
                if count > 0 && (bytes > MESSAGE_BYTES || is_enough) {
                    break;
                }
                (count, latest) = (count + 1, Some(part.0));
            }
            let (these, others) = parts.split_at(count);
            parts = others;
            let Some(first) = these.first().and_then(|part| self.part(*part)) else { continue };
            let identity = |update_id| self.identities.identity(update_id).with_map(route.map);
            let identity = first.update_id.map(identity);
            let (opcode, body) = if these.len() == 1 {
                let operation = &first.operation;
                (operation.opcode(), operation.body(identity.unwrap_or(Identity::NONE)))
            } else {
                let mut body = Vec::with_capacity(bytes);
                if let Some(identity) = identity {
                    body.extend_from_slice(identity.as_bytes());
                }
                for part in these.iter().filter_map(|part| self.part(*part)) {
                    let sequence =
                        part.update_id.map_or(Sequence::NONE, |update_id| update_id.sequence);
                    part.operation.put(sequence, &mut body);
                }
                let is_update = route.lease.is_some();
                (if is_update { Opcode::UpdateMany } else { Opcode::ReadMany }, body)
            };
            let (is_many, is_read) = (these.len() > 1, route.lease.is_none());
            let call = Call { parts: these.to_vec(), is_many, is_read };
            let number = CallNumber(self.number());
            self.calls.insert(number, call);
            self.outputs.push_back(Output::Call { number, to: route.to, opcode, body, timeout });
        }
    }
}
