//! Until when reads may be answered: the shard's read lease, which its backups give.
//!
//! A master that was given up may not know it: it was stopped, or hears of nobody. Its log is then
//! recovered elsewhere, and writes are accepted there. What it has is old from that moment, and it must
//! not tell. So it answers reads only while it is sure that nobody has recovered its log, for
//! [`READ_LEASE`] from the moment of which it is sure.
//!
//! # Whose word counts
//!
//! Whoever recovers a log finds its end in a replica of a head that is open, with the epoch that
//! counts; and it reads that only from a backup that it *fenced* before: that one takes nothing more
//! from the master. So the log was not recovered before some time if at that time **every backup that
//! may have such a replica** was not fenced yet. Others, also most of the backups, do not matter. They
//! are
//!
//! - those of each head that is not closed on all its backups, as far as this is acknowledged;
//! - of these, from the moment when something was first sent there. At that moment it had nothing that
//!   could be read, and who fences it later does so after it: that is as good as its word. So reads do
//!   not wait while the log changes heads;
//! - those that had a replica which was lost, until the coordinator has noted the epoch by which that
//!   one no longer counts. Their last word counts as long as it lasts: mostly the epoch is noted before.
//!   Else reads wait.
//!
//! A backup gives its word with the answer to any message, from the moment when that was **sent**.
//! While there are none, or the disk takes its time with them, it is asked every third of the lease
//! by a message without parts, which it answers at once. It does so only in the life that the message
//! names. A life that has begun after the backup was fenced has learned from the list with which it
//! began that the master is gone. So the word of any life is that of all lives before it, and it need
//! not be looked at which one had the replica. The backup of the same process is asked like all others.
//!
//! Replicas that are still invisible (they are to join an open head, and COMMIT was not sent) do not matter. How many
//! replicas there are does not matter either: each of them would be enough for a recovery, so each must give its word.
//!
//! # When the coordinator gives its word
//!
//! The coordinator has no part in it, but for the epochs: its absence stops no reads. There is one exception. Where
//! fewer than `min_replicas` are left, no epoch is noted, for the lost replica may be the only one that comes back. Its
//! backup cannot give its word either. Then the coordinator is asked whether this master was declared crashed
//! (`confirm master`), as often as a backup would be, but only once the question before was answered: the shard asks
//! until a coordinator answers, so more questions would only pile up. Backups are fenced only after a verdict, and only the leader that
//! answers could have passed one. So when the question was sent, no backup was fenced: the answer is worth as
//! much as the words of all backups.
//!
//! # What a lease found once is worth
//!
//! It holds, whatever comes later: a head that is added, a replica in another place, has the moment of
//! its first message, which is later than all words before. So it is only looked at again when there is
//! a new word, and what reads look at is one number.
//!
//! Before the first head is on its backups there is no lease. Without replicas there is nobody to
//! recover anything, and it never ends. Where a backup says that the master is deposed it is over.
//!
//! # Which clock
//!
//! A read may be answered if at some moment **after it had come** the lease was not over: at that
//! moment what was here was true. The time of a turn is taken before anything is received, and a
//! process that was stopped in between takes what came long after for what came at that time. So the
//! clock is read again for the first read of all that was received together
//! ([`Context::now_or_later`](thunderhead_rpc::Context::now_or_later)): some twelve nanoseconds, shared
//! by the reads of a batch. When the answer leaves does not matter. An answer that waits for the log to
//! be durable shows what was written before the master was fenced, as its backups acknowledged that.

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
    /// When what a backup has confirmed was sent, and when it was last asked.
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

    /// A backup has done what was sent to it at this time.
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

    /// Asks the coordinator for its word, where that of a lost backup grows old. Returns when it is to be asked next;
    /// `None` also while a question is not answered.
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
            self.in_flight.push(InFlight::of_backup(number, now, server, Vec::new()));
            let request = Request { number, to, opcode: Opcode::Replicate, body };
            self.outgoing.push_back(request.into());
        }
        if next != Time::NEVER {
            self.wake_at(next);
        }
    }
}
