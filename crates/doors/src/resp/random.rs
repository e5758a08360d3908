//! Items of collections that are chosen by chance.

use super::collection::Collection;
use super::context::Context;
use super::server::State;
use super::stop::Done;
use super::store::Refusal;
use super::writer::Writer;
use std::collections::BTreeSet;

/// The longest reply of items that may be shown more than once. There would be no other bound.
const REPLY_BYTES_MAX: usize = 6 << 20;

/// The bytes of the shortest string in a reply.
const STRING_BYTES_MIN: u64 = 6;

/// Returns a number below a bound.
pub(super) fn below(state: &mut State, bound: u64) -> u64 {
    ((u128::from(state.random()) * u128::from(bound)) >> 64) as u64
}

/// The items that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All of so many items.
    All(u64),
    /// Different ones: their number, and that of all items.
    Different(u64, u64),
    /// Any ones, each perhaps several times: their number, and that of all items.
    Any(u64, u64),
}

impl Choice {
    /// Returns the meaning of a number in a command: a negative one is for items that may be
    /// chosen several times.
    pub(super) fn of(count: i64, length: u64) -> Choice {
        match u64::try_from(count) {
            Ok(count) if count >= length => Choice::All(length),
            Ok(count) => Choice::Different(count, length),
            Err(_) => Choice::Any(count.unsigned_abs(), length),
        }
    }

    /// Returns the number of items that the reply shows.
    pub(super) fn shown(self) -> usize {
        let (Choice::All(count) | Choice::Different(count, _) | Choice::Any(count, _)) = self;
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

/// Returns different positions below a length, in their order.
pub(super) fn positions(state: &mut State, count: u64, length: u64) -> BTreeSet<u64> {
    let mut chosen = BTreeSet::new();
    // Each set of positions is equally likely (Floyd's algorithm).
    for last in length.saturating_sub(count)..length {
        let position = below(state, last + 1);
        if !chosen.insert(position) {
            chosen.insert(last);
        }
    }
    chosen
}

/// Returns the place of an item among all, from its place among the items that are not skipped.
/// The places of skipped items are in their order.
fn place(skipped: &[u64], place: u64) -> u64 {
    // Before the item with the number n of the skipped ones, there are so many others.
    let (mut low, mut high) = (0, skipped.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match skipped[middle] - middle as u64 <= place {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    place + low as u64
}

/// Shows the chosen items. Items at some places, which are in their order, are skipped and not
/// counted.
pub(super) fn choose(
    context: &mut Context<'_>,
    collection: &Collection<'_>,
    skipped: &[u64],
    choice: Choice,
    mut show: impl FnMut(&mut Writer<'_>, &[u8], &[u8]),
) -> Done {
    let Context { objects, reply, state, .. } = context;
    match choice {
        Choice::All(_) => {
            let mut items = collection.cursor(objects, 0)?;
            let mut skipped = skipped.iter().copied().peekable();
            for place in 0.. {
                let Some((key, value)) = items.next(objects)? else { break };
                if skipped.next_if_eq(&place).is_none() {
                    show(reply, key, value);
                }
            }
        }
        Choice::Different(count, length) => {
            for position in positions(state, count, length) {
                let position = place(skipped, position);
                if let Some((key, value)) = collection.cursor(objects, position)?.next(objects)? {
                    show(reply, key, value);
                }
            }
        }
        Choice::Any(count, length) => {
            let begin = reply.length();
            if count > REPLY_BYTES_MAX as u64 / STRING_BYTES_MIN {
                return Err(Refusal::TooLong.into());
            }
            for _ in 0..count {
                let position = place(skipped, below(state, length));
                if let Some((key, value)) = collection.cursor(objects, position)?.next(objects)? {
                    show(reply, key, value);
                }
                if reply.length() - begin > REPLY_BYTES_MAX {
                    return Err(Refusal::TooLong.into());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_leave_out_skipped_items() {
        for skipped in [&[][..], &[0], &[0, 1, 2], &[3, 4, 9], &[1, 3, 5, 7]] {
            let left: Vec<u64> = (0..20).filter(|place| !skipped.contains(place)).collect();
            let found = (0..left.len() as u64).map(|number| place(skipped, number));
            assert!(found.eq(left.iter().copied()), "{skipped:?}");
        }
    }
}
