//! Finds the segments of a log from the backups' reports: plain data, no waiting.
//!
//! [`copies`] says which replicas count. Among the open segments that count, the
//! newest one whose replica holds a digest is the head, and the digest names the log. Backups are
//! asked for the contents of their open replicas (`HeadOf`), for the head and for every other
//! segment without a closed replica. Damaged replicas are never used. A replica whose backup is
//! silent for long is not used, if there are others.
//!
//! **Of usable open replicas, only the longest are used.** A shorter one whose epoch counts mostly
//! lacks only bytes that were not acknowledged. But its backup may have lost its memory, and the
//! master crashed before it noted that. Then the replica is as long as its part on the disk, its
//! end is intact, and acknowledged bytes are missing. The longest replica has all bytes that any
//! shorter one has, with any epochs: replicas of one head differ only in length. A shorter replica
//! is not a substitute during the round either. If the backups with the longest replica crash, the
//! round fails, and the next survey decides.
//!
//! The longest one may have a torn end, if a message of its master ended within an entry. It is
//! used all the same: that entry was not acknowledged, and backups verify all bytes before they
//! answer. Of replicas with the same length, torn ones are used only if no intact one is left.
//!
//! **An open replica is used only if it is a head's.** Every head begins with a digest that names
//! the head itself, and an open replica that counts has all of it. Survivors and side segments have
//! no digest. While they are open they may have any length, and no epoch distinguishes an abandoned
//! replica from a whole one. A digest that counts names them only after all their replicas were
//! closed, so there is a closed one to wait for.
//!
//! **A log that cannot be proved complete is not used.** It is incomplete if a segment that the
//! digest names has no replica, or only damaged ones. It is also incomplete if no replica at all
//! can be found: a shard takes tablets only once its log's first head is durable, so a master with
//! tablets has a log.

mod copies;

use copies::Copies;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use thunderhead_runtime::Time;
use thunderhead_wire::control::{Head, ReplicaInfo, TabletStatus};
use thunderhead_wire::{Epoch, Generation, MasterId, SegmentId, ServerId};

pub(crate) use copies::Copy;

/// A backup's report, with its generation and time.
pub(crate) struct BackupReport {
    pub(crate) generation: Generation,
    pub(crate) address: SocketAddr,
    /// The time of its last answer. From then on the backup accepts no more data from the crashed
    /// master.
    pub(crate) at: Time,
    pub(crate) replicas: Vec<ReplicaInfo>,
}

/// The answer about an open replica.
pub(crate) enum HeadAnswer {
    /// No answer yet; `long`: it was waited for long enough already.
    Waits { long: bool },
    /// The replica's contents.
    Said(Head),
    /// The replica cannot be used.
    Useless(String),
}

/// An open replica whose contents are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) segment: SegmentId,
    pub(crate) server: ServerId,
    pub(crate) address: SocketAddr,
}

/// A complete log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundLog {
    /// The head, then all other segments, each with its usable replicas, the best first.
    pub(crate) segments: Vec<(SegmentId, Vec<Copy>)>,
    /// The contents of its tablets, by the log's statistics.
    pub(crate) statistics: Vec<TabletStatus>,
    /// When the last backup with a usable replica was fenced.
    pub(crate) fenced: Time,
    /// The generations of these backups.
    pub(crate) generations: BTreeMap<ServerId, Generation>,
}

impl FoundLog {
    /// Returns the length of the whole log.
    pub(crate) fn bytes(&self) -> u64 {
        let longest = |copies: &[Copy]| copies.iter().map(|it| u64::from(it.length)).max();
        self.segments.iter().filter_map(|(_, copies)| longest(copies)).sum()
    }

    /// Returns the usable replicas of each backup.
    pub(crate) fn by_backup(&self) -> BTreeMap<ServerId, Vec<(SegmentId, Copy)>> {
        let mut all: BTreeMap<ServerId, Vec<(SegmentId, Copy)>> = BTreeMap::new();
        for (segment, copies) in &self.segments {
            for copy in copies {
                all.entry(copy.server).or_default().push((*segment, *copy));
            }
        }
        all
    }
}

/// The conclusion from the reports so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// Send these questions.
    Ask(Vec<Question>),
    /// Wait for answers.
    Wait,
    /// The log is complete.
    Complete(FoundLog),
    /// This is missing.
    Missing(String),
}

/// The reports so far.
#[derive(Default)]
pub(crate) struct Survey {
    /// Open replicas of older segments do not count.
    pub(crate) floor: SegmentId,
    pub(crate) reports: BTreeMap<ServerId, BackupReport>,
    pub(crate) head_answers: BTreeMap<(SegmentId, ServerId), HeadAnswer>,
}

/// The state of a segment without a closed replica.
enum OpenSegment {
    Ask(Vec<Question>),
    Wait,
    Usable(Vec<Copy>, Head),
    Useless(String),
}

impl Survey {
    /// Drops the reports of a generation that has ended.
    pub(crate) fn forget(&mut self, server: ServerId) {
        self.reports.remove(&server);
        self.head_answers.retain(|(_, by), _| *by != server);
    }

    fn copies(&self, epochs: &[(SegmentId, Epoch)]) -> Copies {
        let mut copies = Copies::new(epochs, self.floor);
        for (server, report) in &self.reports {
            copies.add(*server, report.address, &report.replicas);
        }
        copies
    }

    fn open(&self, copies: &Copies, segment: SegmentId) -> OpenSegment {
        let mut usable = Vec::new();
        let (mut to_ask, mut wait, mut why) = (Vec::new(), false, Vec::new());
        for copy in copies.of(segment) {
            let Copy { server, address, .. } = copy;
            match self.head_answers.get(&(segment, server)) {
                None => to_ask.push(Question { segment, server, address }),
                Some(HeadAnswer::Waits { long }) => {
                    wait |= !long;
                    why.push(format!("{server} has not answered"));
                }
                Some(HeadAnswer::Said(head)) => {
                    match head.digest.as_ref().is_some_and(|it| it.contains(&segment)) {
                        true => usable.push((copy, head)),
                        false => {
                            why.push(format!("{server}: it is open and has no digest of its own"));
                        }
                    }
                }
                Some(HeadAnswer::Useless(damage)) => why.push(format!("{server}: {damage}")),
            }
        }
        if !to_ask.is_empty() {
            return OpenSegment::Ask(to_ask);
        }
        if wait {
            return OpenSegment::Wait;
        }
        let longest = usable.iter().map(|(copy, _)| copy.length).max();
        usable.retain(|(copy, _)| Some(copy.length) == longest);
        let has_intact = usable.iter().any(|(_, head)| head.torn.is_none());
        usable.retain(|(_, head)| head.torn.is_none() || !has_intact);
        match usable.first() {
            Some((_, head)) => {
                let head = (*head).clone();
                OpenSegment::Usable(usable.into_iter().map(|(copy, _)| copy).collect(), head)
            }
            None => OpenSegment::Useless(why.join(", ")),
        }
    }

    /// Returns the conclusion for the log of a master.
    pub(crate) fn conclusion(
        &self,
        crashed: MasterId,
        epochs: &[(SegmentId, Epoch)],
    ) -> Conclusion {
        let copies = self.copies(epochs);
        if copies.is_empty() {
            return Conclusion::Missing(format!(
                "the log of {crashed} cannot be rebuilt: none of {} backups has a replica of it",
                self.reports.len()
            ));
        }
        let mut reasons = String::new();
        for segment in copies.open() {
            match self.open(&copies, segment) {
                OpenSegment::Ask(questions) => return Conclusion::Ask(questions),
                OpenSegment::Wait => return Conclusion::Wait,
                OpenSegment::Useless(why) => {
                    reasons += &format!("; {segment} cannot be used: {why}");
                }
                OpenSegment::Usable(usable, head) => {
                    return self.conclusion_for_head(crashed, &copies, (segment, usable), &head);
                }
            }
        }
        Conclusion::Missing(format!(
            "the log of {crashed} cannot be proved complete: no backup has an open head with a digest that counts{reasons}"
        ))
    }

    /// Returns the conclusion once a digest names the segments.
    fn conclusion_for_head(
        &self,
        crashed: MasterId,
        copies: &Copies,
        (head, head_copies): (SegmentId, Vec<Copy>),
        said: &Head,
    ) -> Conclusion {
        let digest = said.digest.as_deref().unwrap_or_default();
        let missing = copies.missing(digest);
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter().take(8).map(ToString::to_string).collect();
            let more = missing.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Conclusion::Missing(format!(
                "the log of {crashed} is incomplete: {} of its {} segments are on no backup: {}{more}",
                missing.len(),
                digest.len(),
                names.join(", ")
            ));
        }
        let mut segments = vec![(head, head_copies)];
        let (mut to_ask, mut wait) = (Vec::new(), false);
        for segment in digest.iter().rev().copied().filter(|it| *it != head) {
            if !copies.is_open(segment) {
                segments.push((segment, copies.of(segment)));
                continue;
            }
            match self.open(copies, segment) {
                OpenSegment::Ask(questions) => to_ask.extend(questions),
                OpenSegment::Wait => wait = true,
                OpenSegment::Usable(copies, _) => segments.push((segment, copies)),
                OpenSegment::Useless(why) => {
                    return Conclusion::Missing(format!(
                        "the log of {crashed} cannot be rebuilt: {segment} is damaged in every copy: {why}"
                    ));
                }
            }
        }
        match (to_ask.is_empty(), wait) {
            (false, _) => Conclusion::Ask(to_ask),
            (true, true) => Conclusion::Wait,
            (true, false) => {
                let used = segments.iter().flat_map(|(_, copies)| copies).map(|it| it.server);
                let used: BTreeSet<ServerId> = used.collect();
                let reports = self.reports.iter().filter(|(server, _)| used.contains(server));
                Conclusion::Complete(FoundLog {
                    fenced: reports.clone().map(|(_, it)| it.at).max().unwrap_or_default(),
                    generations: reports.map(|(server, it)| (*server, it.generation)).collect(),
                    segments,
                    statistics: said.statistics.clone(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::Random;

    const GONE: MasterId = MasterId(5);

    fn replica(segment: u64, epoch: u64, closed: bool) -> ReplicaInfo {
        ReplicaInfo { segment: SegmentId(segment), epoch: Epoch(epoch), length: 100, closed }
    }

    fn open_replica(segment: u64, epoch: u64, length: u32) -> ReplicaInfo {
        ReplicaInfo { length, ..replica(segment, epoch, false) }
    }

    fn hear(survey: &mut Survey, server: u64, replicas: Vec<ReplicaInfo>) {
        let address = ([10, 0, 0, server as u8], 1).into();
        let report =
            BackupReport { generation: Generation(1), address, at: Time(server), replicas };
        survey.reports.insert(ServerId(server), report);
    }

    fn head(digest: &[u64]) -> Head {
        let digest = Some(digest.iter().map(|it| SegmentId(*it)).collect());
        Head { digest, ..Head::default() }
    }

    fn say(survey: &mut Survey, segment: u64, server: u64, answer: HeadAnswer) {
        survey.head_answers.insert((SegmentId(segment), ServerId(server)), answer);
    }

    fn torn(head: Head) -> HeadAnswer {
        HeadAnswer::Said(Head { torn: Some("cut short".into()), ..head })
    }

    fn order(conclusion: &Conclusion) -> Vec<(u64, Vec<u64>)> {
        let Conclusion::Complete(found) = conclusion else { panic!("{conclusion:?}") };
        let servers = |it: &[Copy]| it.iter().map(|copy| copy.server.0).collect();
        found.segments.iter().map(|(id, copies)| (id.0, servers(copies))).collect()
    }

    #[test]
    fn the_newest_open_head_with_a_digest_names_the_log() {
        let mut survey = Survey::default();
        let missing = survey.conclusion(GONE, &[]);
        assert!(matches!(&missing, Conclusion::Missing(why) if why.contains("none of 0 backups")));
        hear(&mut survey, 1, vec![replica(1, 0, true), replica(3, 0, false)]);
        hear(&mut survey, 2, vec![replica(2, 0, true), replica(3, 0, false), replica(4, 0, false)]);
        let Conclusion::Ask(questions) = survey.conclusion(GONE, &[]) else {
            panic!("the head is asked")
        };
        assert_eq!(questions.iter().map(|it| it.segment.0).collect::<Vec<_>>(), [4]);
        say(&mut survey, 4, 2, HeadAnswer::Waits { long: false });
        assert_eq!(survey.conclusion(GONE, &[]), Conclusion::Wait);
        // A segment without a digest is not a head. The next one is asked for at all backups at
        // once.
        say(&mut survey, 4, 2, HeadAnswer::Said(Head::default()));
        let Conclusion::Ask(questions) = survey.conclusion(GONE, &[]) else {
            panic!("the next one")
        };
        let asked: Vec<_> = questions.iter().map(|it| (it.segment.0, it.server.0)).collect();
        assert_eq!(asked, [(3, 1), (3, 2)]);
        say(&mut survey, 3, 1, torn(head(&[1, 3])));
        say(&mut survey, 3, 2, HeadAnswer::Waits { long: false });
        assert_eq!(survey.conclusion(GONE, &[]), Conclusion::Wait, "an intact replica may follow");
        say(&mut survey, 3, 2, HeadAnswer::Said(head(&[1, 2, 3])));
        let conclusion = survey.conclusion(GONE, &[]);
        assert_eq!(order(&conclusion), [(3, vec![2]), (2, vec![2]), (1, vec![1])]);
        assert!(matches!(conclusion, Conclusion::Complete(FoundLog { fenced: Time(2), .. })));
        // A torn replica is used if the other one stays silent, or is worse.
        for other in [HeadAnswer::Waits { long: true }, HeadAnswer::Useless("a hole".into())] {
            say(&mut survey, 3, 2, other);
            assert_eq!(
                order(&survey.conclusion(GONE, &[])).len(),
                2,
                "the digest of the torn replica"
            );
        }
        say(&mut survey, 3, 1, HeadAnswer::Useless("burnt".into()));
        let missing = survey.conclusion(GONE, &[]);
        assert!(
            matches!(&missing, Conclusion::Missing(why)
            if why.contains("burnt") && why.contains("segment 4 cannot be used: server 2: it is open and")),
            "{missing:?}"
        );
    }

    #[test]
    fn other_open_segments_are_asked_for_and_missing_ones_are_named() {
        let mut survey = Survey::default();
        hear(&mut survey, 1, vec![replica(1, 0, false), replica(2, 1, false)]);
        hear(&mut survey, 2, vec![replica(1, 0, false), replica(2, 2, false)]);
        let epochs = [(SegmentId(2), Epoch(2))];
        let Conclusion::Ask(questions) = survey.conclusion(GONE, &epochs) else {
            panic!("the head")
        };
        let asked: Vec<_> = questions.iter().map(|it| (it.segment.0, it.server.0)).collect();
        assert_eq!(asked, [(2, 2)], "the other replica has an older epoch");
        say(&mut survey, 2, 2, HeadAnswer::Said(head(&[1, 2])));
        let Conclusion::Ask(questions) = survey.conclusion(GONE, &epochs) else {
            panic!("the other")
        };
        assert_eq!(questions.len(), 2);
        say(&mut survey, 1, 1, torn(head(&[1])));
        say(&mut survey, 1, 2, HeadAnswer::Said(head(&[1])));
        assert_eq!(order(&survey.conclusion(GONE, &epochs)), [(2, vec![2]), (1, vec![2])]);
        for server in [1, 2] {
            say(&mut survey, 1, server, HeadAnswer::Useless("burnt".into()));
        }
        let missing = survey.conclusion(GONE, &epochs);
        assert!(matches!(&missing, Conclusion::Missing(why) if why.contains("every copy")));
        say(&mut survey, 2, 2, HeadAnswer::Said(head(&[1, 2, 7, 8])));
        let missing = survey.conclusion(GONE, &epochs);
        assert!(
            matches!(&missing, Conclusion::Missing(why)
            if why.contains("2 of its 4") && why.contains("segment 7, segment 8")),
            "{missing:?}"
        );
        // Reports of another generation no longer count.
        survey.forget(ServerId(2));
        let missing = survey.conclusion(GONE, &epochs);
        assert!(matches!(&missing, Conclusion::Missing(why) if why.contains("segment 1 cannot")));
        assert_eq!(survey.head_answers.len(), 1);
    }

    /// Backup 1 lost its memory, and its replica begins with the part on its disk. The master
    /// crashed before it noted that.
    #[test]
    fn a_shorter_open_replica_is_not_used_beside_a_longer_one() {
        let mut survey = Survey::default();
        // The epoch of backup 2 is older, but it counts.
        for (server, epoch, length) in [(1, 1, 60), (2, 0, 90), (3, 1, 90), (4, 1, 80)] {
            let older = open_replica(1, 0, length);
            hear(&mut survey, server, vec![older, open_replica(2, epoch, length)]);
            say(&mut survey, 1, server, HeadAnswer::Said(head(&[1])));
            say(&mut survey, 2, server, HeadAnswer::Said(head(&[1, 2])));
        }
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![2, 3]), (1, vec![2, 3])]);
        // A torn end may be an entry that was not acknowledged.
        say(&mut survey, 2, 2, torn(head(&[1, 2])));
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![3]), (1, vec![2, 3])]);
        say(&mut survey, 2, 3, torn(head(&[1, 2])));
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![2, 3]), (1, vec![2, 3])]);
        // Damaged replicas are no reason to wait, however long they are.
        for server in [2, 3] {
            say(&mut survey, 1, server, HeadAnswer::Useless("burnt".into()));
        }
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![2, 3]), (1, vec![4])]);
        // The backups with the longest replicas have crashed.
        for server in [2, 3] {
            survey.forget(ServerId(server));
        }
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![4]), (1, vec![4])]);
    }

    /// A backup has a part of a survivor that was made again elsewhere.
    #[test]
    fn an_open_copy_that_is_not_a_heads_is_not_used_and_a_closed_one_is_awaited() {
        let mut survey = Survey::default();
        hear(&mut survey, 1, vec![replica(1, 0, false), replica(2, 0, false)]);
        say(&mut survey, 2, 1, HeadAnswer::Said(head(&[1, 2])));
        for said in [HeadAnswer::Said(Head::default()), torn(Head::default()), torn(head(&[2]))] {
            say(&mut survey, 1, 1, said);
            let missing = survey.conclusion(GONE, &[]);
            assert!(
                matches!(&missing, Conclusion::Missing(why) if why.contains("no digest of its own"))
            );
        }
        hear(&mut survey, 3, vec![replica(1, 1, true)]);
        assert_eq!(order(&survey.conclusion(GONE, &[])), [(2, vec![1]), (1, vec![3])]);
    }

    /// For all answers, a found log is complete, from replicas that count, on backups that were
    /// fenced before, and of open replicas from the longest; and the questions come to an end.
    #[test]
    fn a_found_log_is_complete_for_all_answers() {
        let (mut complete, mut missing, mut shorter) = (0, 0, 0);
        for seed in 0..3000 {
            let mut random = Random::from_seed(seed);
            let segments = random.within(1..6);
            let digest: Vec<u64> = (1..=segments).collect();
            let epochs = [(SegmentId(segments), Epoch(random.below(2)))];
            let mut survey = Survey::default();
            let mut truth = BTreeMap::new();
            for server in 1..=random.within(1..5) {
                let mut replicas = Vec::new();
                for segment in 1..=segments {
                    if random.chance(0.3) {
                        continue;
                    }
                    let closed = segment < segments && random.chance(0.8);
                    let epoch = random.below(2);
                    let length = if closed { 100 } else { 98 + random.below(3) as u32 };
                    replicas.push(ReplicaInfo { length, ..replica(segment, epoch, closed) });
                    truth.insert((segment, server), (closed, epoch, length));
                }
                hear(&mut survey, server, replicas);
            }
            let mut turns = 0;
            let conclusion = loop {
                turns += 1;
                assert!(turns < 50, "seed {seed}: the questions never end");
                let Conclusion::Ask(questions) = survey.conclusion(GONE, &epochs) else {
                    break survey.conclusion(GONE, &epochs);
                };
                assert!(!questions.is_empty());
                for Question { segment, server, .. } in questions {
                    let known: Vec<u64> =
                        digest.iter().copied().filter(|it| *it <= segment.0).collect();
                    let answer = match random.below(4) {
                        0 => torn(head(&known)),
                        1 => HeadAnswer::Useless("burnt".into()),
                        2 => HeadAnswer::Waits { long: random.chance(0.5) },
                        _ => HeadAnswer::Said(head(&known)),
                    };
                    assert!(survey.head_answers.insert((segment, server), answer).is_none());
                }
            };
            let Conclusion::Complete(found) = conclusion else {
                missing += 1;
                continue;
            };
            complete += 1;
            let newest = found.segments[0].0;
            let mut ids: Vec<u64> = found.segments.iter().map(|(id, _)| id.0).collect();
            ids.sort_unstable();
            assert_eq!(ids, (1..=newest.0).collect::<Vec<_>>(), "seed {seed}");
            for (segment, copies) in &found.segments {
                assert!(!copies.is_empty(), "seed {seed}");
                let is_open = !copies[0].closed;
                let mut torn = BTreeSet::new();
                for copy in copies {
                    let (closed, epoch, length) = truth[&(segment.0, copy.server.0)];
                    assert_eq!((copy.closed, copy.length), (closed, length), "seed {seed}");
                    assert!(closed || length == copies[0].length, "seed {seed}: it is shorter");
                    let current = epochs[0].1.0 * u64::from(*segment == epochs[0].0);
                    assert!(
                        closed || epoch >= current,
                        "seed {seed}: a replica that does not count"
                    );
                    assert!(survey.reports[&copy.server].at <= found.fenced, "seed {seed}");
                    match survey.head_answers.get(&(*segment, copy.server)) {
                        Some(HeadAnswer::Useless(_)) => panic!("seed {seed}: a damaged replica"),
                        Some(HeadAnswer::Said(head)) => _ = torn.insert(head.torn.is_some()),
                        Some(HeadAnswer::Waits { .. }) => {
                            panic!("seed {seed}: a replica of a silent backup")
                        }
                        // An open replica may equal a closed one.
                        None => assert!(copies[0].closed, "seed {seed}: no question was sent"),
                    }
                }
                assert!(torn.len() < 2, "seed {seed}: torn replicas beside intact ones");
                // No other usable replica that counts is longer, or as long and intact.
                let others = truth.iter().filter(|((id, _), _)| is_open && *id == segment.0);
                for ((_, server), (_, epoch, length)) in others {
                    let answer = survey.head_answers.get(&(*segment, ServerId(*server)));
                    let Some(HeadAnswer::Said(head)) = answer else { continue };
                    let current = epochs[0].1.0 * u64::from(*segment == epochs[0].0);
                    let is_longer = *length > copies[0].length;
                    let is_better =
                        *length == copies[0].length && head.torn.is_none() && torn.contains(&true);
                    shorter += u64::from(*length < copies[0].length);
                    assert!(
                        *epoch < current || !(is_longer || is_better),
                        "seed {seed}: {server} has a better replica of {segment}"
                    );
                }
            }
        }
        assert!(complete > 300 && missing > 300 && shorter > 100, "{complete} {missing} {shorter}");
    }
}
