//! The failures of attempts: when the next attempt follows, and which masters are avoided.

use crate::knowledge::attempts::{Attempt, Stage, shortened};
use crate::leadership::Leadership;
use crate::limits::RECOVERY_PAUSE_MAX;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_wire::MasterId;

impl Attempt {
    /// Notes a failure. The next attempt follows after a pause, which grows.
    pub(super) fn on_failure(&mut self, leadership: &Leadership, trouble: String) {
        self.trouble = Some(shortened(trouble));
        self.failures += 1;
        let pauses = Backoff::new(leadership.shared.options.recovery_pause, RECOVERY_PAUSE_MAX);
        let pause = pauses.limit(self.failures - 1);
        self.enter(Stage::Resting(leadership.now() + pause, leadership.cluster().list_version()));
    }

    /// Notes that these masters do not finish their parts while other tablets wait for a new round.
    pub(super) fn on_stuck(&mut self, leadership: &Leadership, masters: &[MasterId]) {
        for master in masters {
            *self.refused.entry(*master).or_default() += 1;
        }
        self.patience = self.patience.saturating_mul(2);
        let names: Vec<String> = masters.iter().take(8).map(ToString::to_string).collect();
        self.on_failure(
            leadership,
            format!(
                "{} did not finish in time, and the other tablets wait for it",
                names.join(", ")
            ),
        );
    }
}
