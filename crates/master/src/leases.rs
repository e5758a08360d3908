//! Asks the coordinator about leases: about those of new clients at once, about all now and then.
//!
//! One question is in flight at a time. Leases that become known meanwhile are in the next one.

use crate::clients::Clients;
use crate::coordinator_client::{CoordinatorClient, QuestionId};
use crate::owner::Owner;
use std::collections::BTreeSet;
use thunderhead_rpc::{CallError, Context, Opcode};
use thunderhead_wire::LeaseId;
use thunderhead_wire::control::{self, CheckLeases, LeasesChecked};

/// Leases in one question: looking so many up takes less than a slice.
const LEASES_MAX: usize = 256;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Leases {
    asked: Option<LeaseQuestion>,
    /// The last lease of a round over all of them.
    round: Option<LeaseId>,
    /// The last question was about wanted leases. The next question continues the round, however
    /// many leases are wanted.
    is_rounds_turn: bool,
    /// Another round follows this one.
    again: bool,
}

struct LeaseQuestion {
    question: QuestionId,
    leases: Vec<LeaseId>,
    /// They were asked about because an update waits.
    wanted: bool,
}

impl Leases {
    /// It is time to ask about all.
    pub(crate) fn begin_round(&mut self) {
        self.round.get_or_insert(LeaseId::NONE);
    }

    /// Begins to ask about all leases, because a tablet has come: its new updates need leases that
    /// are open now. Leases that the present round has passed get another round.
    pub(crate) fn begin_anew(&mut self) {
        self.again = self.round.is_some();
        self.begin_round();
    }

    /// Asks about the leases that are due.
    pub(crate) fn ask(
        &mut self,
        context: &mut Context<'_>,
        coordinator: &mut CoordinatorClient,
        clients: &mut Clients,
    ) {
        if self.asked.is_some() {
            return;
        }
        let Some((leases, wanted)) = self.next(clients) else { return };
        let body = control::to_body(&CheckLeases { leases: leases.clone() });
        let question = coordinator.ask(context, Owner::Leases, Opcode::CheckLeases, body);
        self.asked = Some(LeaseQuestion { question, leases, wanted });
    }

    /// The leases of the next question, and whether updates wait for the answer.
    fn next(&mut self, clients: &mut Clients) -> Option<(Vec<LeaseId>, bool)> {
        if let Some(last) = self.round
            && (self.is_rounds_turn || !clients.wants_to_ask())
        {
            self.is_rounds_turn = false;
            let leases = clients.known_after(last, LEASES_MAX);
            self.round = leases.last().copied();
            if self.round.is_none() && std::mem::take(&mut self.again) {
                self.round = Some(LeaseId::NONE);
            }
            if !leases.is_empty() {
                return Some((leases, false));
            }
        }
        self.is_rounds_turn = true;
        let leases = clients.take_wanted(LEASES_MAX);
        (!leases.is_empty()).then_some((leases, true))
    }

    /// Handles the coordinator's answer to a question about leases.
    pub(crate) fn answered(
        &mut self,
        clients: &mut Clients,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
    ) {
        let Some(asked) = self.asked.take_if(|asked| asked.question == question) else { return };
        // An unreadable answer changes nothing: a client that waits asks again.
        let answer = outcome.as_ref().ok().and_then(|body| control::of_body(body));
        if let Some(LeasesChecked { ended, map_version }) = answer {
            let ended: BTreeSet<LeaseId> = ended.into_iter().collect();
            clients.checked(&asked.leases, (&ended, map_version), asked.wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_wire::Sequence;

    #[test]
    fn a_round_over_all_leases_ends_though_some_are_wanted_all_the_time() {
        let (mut leases, mut clients) = (Leases::default(), Clients::default());
        let count = 10 * LEASES_MAX as u64;
        for lease in 1..=count {
            clients.came(LeaseId(lease), Sequence(2), &[]);
        }
        leases.begin_round();
        let mut rounds = BTreeSet::new();
        for number in 0..22 {
            // New clients come with each answer.
            for lease in 0..LEASES_MAX as u64 {
                clients.want(LeaseId((number + 2) << 32 | lease));
            }
            let (asked, wanted) = leases.next(&mut clients).expect("there is something to ask");
            assert_eq!(asked.iter().all(|lease| *lease > LeaseId(count)), wanted);
            if !wanted {
                rounds.extend(asked);
            }
        }
        assert_eq!((rounds.len() as u64, leases.round), (count, None));
        // With nothing in between it goes on with the wanted ones.
        assert!(leases.next(&mut clients).is_some_and(|(_, wanted)| wanted));
    }
}
