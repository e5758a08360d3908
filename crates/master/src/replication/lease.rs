//! Until when reads may be answered: the shard's read lease, which its backups give.
//!
//! A master that was declared crashed may not know it: it was stopped, or no message reaches it.
//! Then other masters recover its log and accept writes. From that moment its data is old, and it
//! must not answer reads with it. So it answers reads only while it is sure that its log was not
//! recovered: for [`READ_LEASE`] from the last moment for which it is sure.
//!
//! # Confirmations that count
//!
//! A recovery finds the end of a log in a replica of an open head with the epoch that counts. It
//! reads that replica only from a backup that it has *fenced* before: that backup accepts nothing
//! more from the master. So the log was not recovered before some time if at that time **every
//! backup that may have such a replica** was not fenced yet. Other backups, even most of them, do
//! not matter. The backups that matter are
//!
//! - those of each head that is not closed on all its backups, as far as this is acknowledged;
//! - the backups of such a head, from the moment when the first message was sent there. At that
//!   moment the backup had no byte to be read, and a recovery that fences it later does so after
//!   that moment: that is as good as a confirmation. So reads do not wait while the log changes
//!   heads;
//! - the backups of lost replicas, until the coordinator has noted the epoch by which the lost
//!   replica no longer counts. Their last confirmation counts as long as it lasts. Mostly the epoch
//!   is noted before; otherwise reads wait.
//!
//! The answer of a backup to any message confirms that the backup was not fenced when the message
//! was **sent**. If no messages are sent, or if the disk is slow, the shard asks every third of the
//! lease by a message without parts, which the backup answers at once. A backup answers only in the
//! generation that the message names. A generation that began after the backup was fenced has
//! learned from its first server list that the master has crashed. So the confirmation of any
//! generation covers all generations before it, and it does not matter which one had the replica.
//! The shard asks the backup of its own process like all others.
//!
//! Invisible replicas (they are to join an open head, and COMMIT was not sent) do not matter. The
//! number of replicas does not matter either: each of them would be enough for a recovery, so each
//! backup must confirm.
//!
//! # When the coordinator confirms
//!
//! The coordinator has no part in it, except for the epochs: its absence stops no reads. There is
//! one exception. If fewer than `min_replicas` remain, no epoch is noted, for the lost replica may
//! be the only replica that comes back. Its backup cannot confirm either. Then the shard asks the
//! coordinator whether this master was declared crashed (`confirm master`), as often as it would
//! ask a backup, but only once the previous question was answered: the shard asks until a
//! coordinator answers, so more questions would only pile up. Backups are fenced only after a
//! verdict, and only the leader that answers could have passed one. So when the question was sent,
//! no backup was fenced: the answer is worth as much as the confirmations of all backups.
//!
//! # A lease never shrinks
//!
//! A granted lease stays valid despite later events. An added head, or a replica in another
//! place, counts from the moment of its first message, which is later than all earlier
//! confirmations. So the shard computes the lease again only after a new confirmation, and reads
//! compare with one number.
//!
//! Before the first head is on its backups there is no lease. Without replicas no server can
//! recover the log, and the lease never ends. If a backup reports that the master is deposed, the
//! lease is over.
//!
//! # Which clock
//!
//! A read may be answered if at some moment **after its arrival** the lease was not over: at that
//! moment the data here was current. The time of a turn is taken before any message is received. A
//! process that was stopped in between takes messages that came long after for messages of that
//! time. So the shard reads the clock again for the first read of each batch of messages
//! ([`Context::now_or_later`](thunderhead_rpc::Context::now_or_later)): some twelve nanoseconds,
//! shared by the reads of the batch. The time at which the answer leaves does not matter. An answer
//! that waits for the log to be durable shows an entry that was written before the master was
//! fenced, since its backups acknowledged that entry.

use super::{InFlight, Request, Segment, State, To};
use std::collections::BTreeMap;
use std::time::Duration;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{OfMaster, READ_LEASE, to_body};
use thunderhead_wire::replication::ReplicateHead;
use thunderhead_wire::{LogPosition, ServerId, Status};
use zerocopy::IntoBytes;

/// After so long without a new word a backup is asked: twice before the lease is over.
const ASK_AFTER: Duration = Duration::from_millis(READ_LEASE.as_millis() as u64 / 3);

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Lease {
    /// Reads may be answered before this.
    pub(super) until: Time,
    /// For each backup: when its latest confirmed message was sent, and when it was last asked.
    words: BTreeMap<ServerId, (Time, Time)>,
    /// When the coordinator was last asked for its word.
    coordinator_asked: Time,
    /// The question to the coordinator that is not answered yet.
    question: Option<u64>,
}

impl Lease {
    /// When a backup's last word was, for a replica to which something was first sent at `first`.
    pub(super) fn word(&self, server: ServerId, first: Time) -> Time {
        self.words.get(&server).map_or(first, |(word, _)| first.max(*word))
    }

    /// Notes that a backup has handled a message sent at this time.
    pub(super) fn confirmed(&mut self, server: ServerId, sent: Time) {
        let (word, _) = self.words.entry(server).or_default();
        *word = sent.max(*word);
    }
}

impl Segment {
    /// The backups that may have an open replica, with the time of the first message to them.
    fn holders(&self) -> impl Iterator<Item = (ServerId, Time)> {
        let may_count = self.slots.iter().filter(|slot| slot.may_count && !self.is_whole);
        may_count.filter_map(|slot| Some((slot.server?, slot.sent_at)))
    }
}

impl State {
    /// Looks at the lease again, after there is a new word.
    pub(super) fn renew_lease(&mut self) {
        if self.settings.replicas == 0 || self.is_deposed || self.durable == LogPosition::default()
        {
            return;
        }
        let mut least: Option<Time> = None;
        for id in &self.heads {
            let Some(segment) = self.segments.get(id) else { return };
            let words = segment.holders().map(|(server, first)| self.lease.word(server, first));
            let lost = segment.lost_word.filter(|_| !segment.is_whole);
            least = words.chain(lost).chain(least).min();
        }
        if let Some(least) = least {
            self.lease.until = self.lease.until.max(least + READ_LEASE);
        }
    }

    /// The coordinator has answered whether this master was declared crashed.
    pub(super) fn confirmed(
        &mut self,
        number: u64,
        sent: Time,
        outcome: &Result<&[u8], CallError>,
    ) {
        self.lease.question.take_if(|question| *question == number);
        match outcome {
            Err(CallError::Refused { status: Status::Deposed, .. }) => self.depose(),
            Ok(_) if !self.is_deposed && self.durable > LogPosition::default() => {
                self.lease.until = self.lease.until.max(sent + READ_LEASE);
            }
            _ => {}
        }
    }

    /// Asks the coordinator to confirm, if the confirmation of a lost backup grows old. Returns
    /// when to ask next; `None` also while a question is in flight.
    fn ask_coordinator(&mut self) -> Option<Time> {
        if self.lease.question.is_some() {
            return None;
        }
        let heads = self.heads.iter().filter_map(|id| self.segments.get(id));
        let lost = heads.filter(|it| !it.is_whole).filter_map(|it| it.lost_word).min()?;
        let at = lost.max(self.lease.coordinator_asked) + ASK_AFTER;
        if at > self.now {
            return Some(at);
        }
        let (now, number) = (self.now, self.number());
        (self.lease.coordinator_asked, self.lease.question) = (now, Some(number));
        self.statistics.confirmations += 1;
        self.in_flight.push(InFlight::of_coordinator(number, now));
        let body = to_body(&OfMaster { master: self.settings.master });
        let (to, opcode) = (To::Coordinator, Opcode::ConfirmMaster);
        self.outgoing.push_back(Request { number, to, opcode, body }.into());
        None
    }

    /// Asks backups from which nothing was heard for a while.
    pub(super) fn ask_for_words(&mut self) {
        let next = self.ask_coordinator().unwrap_or(Time::NEVER);
        let (now, mut next, mut due) = (self.now, next, Vec::new());
        for segment in self.heads.iter().filter_map(|id| self.segments.get(id)) {
            for (server, first) in segment.holders() {
                let asked = self.lease.words.get(&server).map_or(Time(0), |(_, asked)| *asked);
                let at = self.lease.word(server, first).max(asked) + ASK_AFTER;
                if at > now {
                    next = next.min(at);
                } else if !due.contains(&server) {
                    due.push(server);
                }
            }
        }
        for server in due {
            let Some(backup) = self.servers.get(server) else { continue };
            let to = To::Backup(server, backup.address);
            let life = (server, backup.generation);
            let mut body = self.spare.pop().unwrap_or_default();
            let head = ReplicateHead::new(self.settings.master, self.servers.version, life);
            body.extend_from_slice(head.as_bytes());
            self.lease.words.entry(server).or_default().1 = now;
            next = next.min(now + ASK_AFTER);
            let number = self.number();
            self.statistics.confirmations += 1;
            self.in_flight.push(InFlight::of_backup(number, now, life, Vec::new()));
            let request = Request { number, to, opcode: Opcode::Replicate, body };
            self.outgoing.push_back(request.into());
        }
        if next != Time::NEVER {
            self.wake_at(next);
        }
    }
}
