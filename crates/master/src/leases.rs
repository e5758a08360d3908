//! Asks the coordinator about leases: about those of new clients at once, about all now and then.
//!
//! One question is out at a time. What becomes known meanwhile is in the next one.

use crate::asking::{Asking, QuestionId};
use crate::clients::Clients;
use std::collections::BTreeSet;
use thunderhead_rpc::{CallError, Context, Opcode};
use thunderhead_wire::control::{self, CheckLeases, LeasesChecked};

/// Leases in one question: looking so many up takes less than a slice.
const LEASES_MAX: usize = 256;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Leases {
    asked: Option<Asked>,
    /// The last lease of a round over all of them.
    round: Option<u64>,
    /// Another round follows this one.
    again: bool,
}

struct Asked {
    question: QuestionId,
    leases: Vec<u64>,
    /// They were asked about because an update waits.
    wanted: bool,
}

impl Leases {
    /// It is time to ask about all.
    pub(crate) fn begin_round(&mut self) {
        self.round.get_or_insert(0);
    }

    /// A tablet has come: new updates of it need leases that are open now, so all are asked about. Those that the present
    /// round has passed have another one.
    pub(crate) fn begin_anew(&mut self) {
        self.again = self.round.is_some();
        self.begin_round();
    }

    /// Asks what there is to be asked.
    pub(crate) fn ask(
        &mut self,
        context: &mut Context<'_>,
        asking: &mut Asking,
        clients: &mut Clients,
    ) {
        if self.asked.is_some() {
            return;
        }
        let wanted = clients.wants_to_ask();
        let leases = if wanted {
            clients.take_wanted(LEASES_MAX)
        } else if let Some(last) = self.round {
            let leases = clients.known_after(last, LEASES_MAX);
            self.round = leases.last().copied();
            if self.round.is_none() && std::mem::take(&mut self.again) {
                self.round = Some(0);
            }
            leases
        } else {
            return;
        };
        if leases.is_empty() {
            return;
        }
        let body = control::to_body(&CheckLeases { leases: leases.clone() });
        let question = asking.ask(context, Opcode::CheckLeases, body);
        self.asked = Some(Asked { question, leases, wanted });
    }

    /// A question was answered; true if it was this one's.
    pub(crate) fn answered(
        &mut self,
        clients: &mut Clients,
        question: QuestionId,
        outcome: &Result<Vec<u8>, CallError>,
    ) -> bool {
        let Some(asked) = self.asked.take_if(|asked| asked.question == question) else {
            return false;
        };
        // Without an answer that can be read nothing is known: whoever waits asks again.
        let answer = outcome.as_ref().ok().and_then(|body| control::of_body(body));
        if let Some(LeasesChecked { ended, map_version }) = answer {
            let ended: BTreeSet<u64> = ended.into_iter().collect();
            clients.checked(&asked.leases, (&ended, map_version), asked.wanted);
        }
        true
    }
}
