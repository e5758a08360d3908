//! What is known of the clients whose updates are remembered here.

use crate::outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_log::{Cursor, Log};
use thunderhead_wire::operations::Identity;

/// The clients, by their leases.
#[derive(Default)]
pub(crate) struct Clients(BTreeMap<u64, Client>);

#[derive(Default)]
struct Client {
    /// The client has the answers to all updates before this one.
    first: u64,
    /// Updates from there on of which the log has a record.
    recorded: BTreeSet<u64>,
}

impl Clients {
    /// The clients of whose updates a log has records.
    pub(crate) fn of(log: &Log) -> Clients {
        let mut clients = Clients::default();
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            cursor = log.scan_completions(at, |lease, sequence, record| {
                let client = clients.0.entry(lease).or_default();
                client.recorded.insert(sequence);
                if let Some((first, _)) = Outcome::of_record(&record.to_vec()) {
                    client.first = client.first.max(first);
                }
            });
        }
        clients
    }

    /// Hears how far a client has its answers, and forgets the records of those, but for the last:
    /// from that one it is known, after a crash, which updates are stragglers. False for an update
    /// whose answer the client has.
    pub(crate) fn heard(&mut self, log: &mut Log, identity: Identity) -> bool {
        let client = self.0.entry(identity.lease()).or_default();
        let first = identity.first_unacknowledged();
        if first > client.first {
            client.first = first;
            let last = client.recorded.last().copied().unwrap_or_default();
            let kept = client.recorded.split_off(&first.min(last));
            for sequence in std::mem::replace(&mut client.recorded, kept) {
                log.forget_completion(identity.lease(), sequence);
            }
        }
        identity.sequence() >= client.first
    }

    /// The log has a record of an update now.
    pub(crate) fn recorded(&mut self, identity: Identity) {
        self.0.entry(identity.lease()).or_default().recorded.insert(identity.sequence());
    }

    /// Records that are kept.
    pub(crate) fn records(&self) -> usize {
        self.0.values().map(|client| client.recorded.len()).sum()
    }
}
