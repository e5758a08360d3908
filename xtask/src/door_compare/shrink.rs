//! Shrinks a failing sequence to the items that the failure needs.

/// Removes items as long as the sequence still fails. Larger runs of items go first. The result
/// still fails, and fails no longer without any one of its items, unless the tries ended before.
pub(super) fn shrink<T: Clone>(
    items: &[T],
    tries: usize,
    mut still_fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut kept = items.to_vec();
    let mut tries = tries;
    let mut run = kept.len();
    while run > 0 {
        let mut at = 0;
        let mut has_removed = false;
        while at < kept.len() {
            if tries == 0 {
                return kept;
            }
            tries -= 1;
            let end = (at + run).min(kept.len());
            let without = [&kept[..at], &kept[end..]].concat();
            if still_fails(&without) {
                kept = without;
                has_removed = true;
            } else {
                // Short runs are tried at every place: some items are needed only together.
                at = if run <= 3 { at + 1 } else { end };
            }
        }
        // With single items removed, others may be needed no longer.
        if !(run == 1 && has_removed) {
            run = if run <= 3 { run - 1 } else { run / 2 };
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_needed_items_stay_in_their_order() {
        let items: Vec<u32> = (0..100).collect();
        let mut asked = 0;
        let shrunk = shrink(&items, 1000, |kept| {
            asked += 1;
            let at = |wanted| kept.iter().position(|item| *item == wanted);
            matches!((at(7), at(63)), (Some(one), Some(other)) if one < other)
        });
        assert_eq!(shrunk, [7, 63]);
        assert!(asked < 200, "{asked}");
    }

    #[test]
    fn items_that_are_needed_in_pairs_go_in_pairs_if_they_are_neighbours() {
        // Like MULTI and EXEC: the sequence with one of them does not fail.
        let items = [1, 2, 9, 3, 4, 5, 6];
        let shrunk = shrink(&items, 1000, |kept| {
            kept.contains(&9) && kept.contains(&1) == kept.contains(&2)
        });
        assert_eq!(shrunk, [9]);
    }

    #[test]
    fn it_ends_after_the_given_tries() {
        let mut asked = 0;
        let shrunk = shrink(&[1; 50], 5, |_| {
            asked += 1;
            false
        });
        assert_eq!((shrunk.len(), asked), (50, 5));
    }

    #[test]
    fn nothing_stays_if_nothing_is_needed() {
        assert_eq!(shrink(&[1, 2, 3], 100, |_| true), [0; 0]);
    }
}
