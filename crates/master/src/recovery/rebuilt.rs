//! Masters of which a shard has rebuilt a part. It does not take their logs back any more
//! ([`super::take_back`]).

use std::collections::BTreeSet;
use thunderhead_wire::MasterId;

/// Masters that are remembered one by one.
const REBUILT_MAX: usize = 1024;

/// Masters of which a part was rebuilt, or was to be.
#[derive(Default)]
pub(super) struct RebuiltMasters {
    masters: BTreeSet<MasterId>,
    /// All masters up to this one count as rebuilt: of very many the first are not remembered.
    up_to: MasterId,
}

impl RebuiltMasters {
    pub(super) fn has(&self, master: MasterId) -> bool {
        master <= self.up_to || self.masters.contains(&master)
    }

    pub(super) fn note(&mut self, master: MasterId) {
        self.masters.insert(master);
        if self.masters.len() > REBUILT_MAX {
            self.up_to = self.masters.pop_first().unwrap_or_default();
        }
    }

    pub(super) fn clear(&mut self) {
        self.masters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rebuilt_master_is_forgotten_and_not_all_are_remembered() {
        let mut rebuilt = RebuiltMasters::default();
        let masters = || (1..10 * REBUILT_MAX as u64).map(|number| MasterId(2 * number));
        for master in masters() {
            assert!(!rebuilt.has(master));
            rebuilt.note(master);
        }
        assert!(masters().all(|master| rebuilt.has(master)));
        assert_eq!(rebuilt.masters.len(), REBUILT_MAX);
    }
}
