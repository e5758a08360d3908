//! Decides which masters rebuild the parts of a crashed master's tablets.

use crate::stored::Part;
use std::collections::BTreeMap;
use thunderhead_wire::MasterId;
use thunderhead_wire::control::Taken;

/// The candidates for recovery masters.
pub(crate) struct Masters<'a> {
    /// The best first.
    pub(crate) all: &'a [MasterId],
    /// The first one has the number of the crashed master's shard.
    pub(crate) has_successor: bool,
    /// How often each could not do it.
    pub(crate) refused: &'a BTreeMap<MasterId, u32>,
    /// The number of parts that each has in progress.
    pub(crate) busy: BTreeMap<MasterId, usize>,
    /// The bytes for which each has room, as far as reported.
    pub(crate) room: BTreeMap<MasterId, u64>,
}

/// A part that needs a recovery master.
pub(crate) struct Wanted {
    pub(crate) load: u64,
    pub(crate) tablets: Vec<Taken>,
    /// The only master that can have it.
    pub(crate) by: Option<MasterId>,
}

/// Chooses recovery masters for the parts. Masters with room come first, then those with the fewest
/// refusals, then those with the least work, then the best. The first part goes to the shard with
/// the number of the crashed one, if it is up. If no master seems to have room, one is chosen all
/// the same, because sizes are estimates.
pub(crate) fn choose(parts: Vec<Wanted>, masters: Masters<'_>) -> (Vec<Part>, bool) {
    let Masters { all, has_successor, refused, mut busy, mut room } = masters;
    let (mut chosen, mut have_room) = (Vec::with_capacity(parts.len()), true);
    for (number, Wanted { load, tablets, by: only }) in parts.into_iter().enumerate() {
        let by_rank = has_successor && number == 0;
        let lacks_room = |master: &MasterId| room.get(master).is_some_and(|room| *room < load);
        let key = |(rank, master): &(usize, &MasterId)| {
            let has = if by_rank { 0 } else { busy.get(*master).copied().unwrap_or(0) };
            let against = refused.get(*master).copied().unwrap_or(0);
            (against + if lacks_room(master) { 2 } else { 0 }, has, *rank)
        };
        let can = |(_, master): &(usize, &MasterId)| only.is_none_or(|only| only == **master);
        let Some((_, by)) = all.iter().enumerate().filter(can).min_by_key(key) else { continue };
        have_room &= !lacks_room(by);
        *busy.entry(*by).or_default() += 1;
        if let Some(room) = room.get_mut(by) {
            *room = room.saturating_sub(load);
        }
        chosen.push(Part { by: *by, tablets });
    }
    (chosen, have_room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_to_the_successor_then_to_the_master_with_the_least_work() {
        let masters: Vec<_> = (1..=4).map(MasterId).collect();
        let nobody = BTreeMap::new();
        let by = |count, masters: Masters<'_>| {
            let part = || Wanted { load: 10, tablets: Vec::new(), by: None };
            let (parts, have_room) = choose((0..count).map(|_| part()).collect(), masters);
            (parts.into_iter().map(|it| it.by.0).collect::<Vec<_>>(), have_room)
        };
        let all = || Masters {
            all: &masters,
            has_successor: false,
            refused: &nobody,
            busy: BTreeMap::new(),
            room: BTreeMap::new(),
        };
        assert_eq!(by(6, all()), (vec![1, 2, 3, 4, 1, 2], true));
        let busy = BTreeMap::from([(MasterId(1), 2), (MasterId(3), 1)]);
        assert_eq!(by(3, Masters { busy: busy.clone(), ..all() }).0, [2, 4, 2]);
        assert_eq!(by(3, Masters { busy, has_successor: true, ..all() }).0, [1, 2, 4]);
        // A master that could not do it comes last, and is chosen again if no other is better.
        let refused = BTreeMap::from([(MasterId(1), 1), (MasterId(2), 2)]);
        let two = Masters { all: &masters[..2], refused: &refused, ..all() };
        assert_eq!(by(1, two).0, [1]);
        assert_eq!(by(2, Masters { refused: &refused, has_successor: true, ..all() }).0, [3, 4]);
        assert!(by(2, Masters { all: &[], ..all() }).0.is_empty());
        // A master with room comes first, and each part uses room up.
        let room: BTreeMap<_, _> = masters.iter().copied().zip([5, 10, 25, 9]).collect();
        let short = Masters { room: room.clone(), has_successor: true, ..all() };
        assert_eq!(by(3, short), (vec![2, 3, 3], true));
        assert!(!by(4, Masters { room, ..all() }).1, "one master is chosen all the same");
        // A part that only one master can have goes there, though another one is better.
        let part = |by| Wanted { load: 10, tablets: Vec::new(), by };
        let (chosen, _) = choose(vec![part(Some(MasterId(3))), part(None)], all());
        assert_eq!(chosen.iter().map(|it| it.by.0).collect::<Vec<_>>(), [3, 1]);
    }
}
