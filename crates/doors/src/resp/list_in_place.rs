//! Changes at the ends of a large list, where they lie in the bytes of its header.
//!
//! Most changes of a queue or a stack add an element to an end, or take one from it. They decode
//! nothing and copy the header once. All other changes are left to [`List`](super::list::List),
//! which leaves the same bytes.

use super::header::Header;
use super::list::{End, may_be_listpack_again, must_be_quicklist};
use super::list_ends::{END_BYTES_MAX, Lengths, element_at};
use super::stop::Stop;
use super::store::{Found, Kind};
use super::transaction::Transaction;
use super::varint;
use std::ops::Range;

/// The numbers in front of the ends take no more bytes.
const HEAD_BYTES_MAX: usize = 64;

/// A header of a large list, in its bytes.
struct Place<'a> {
    header: Header<'a>,
    bytes: &'a [u8],
    /// The place of the length of the ends. Only numbers follow up to the left end.
    head: usize,
    lengths: Lengths,
    left: Range<usize>,
    right: Range<usize>,
}

impl<'a> Place<'a> {
    /// Returns the header of a list with pages and ends; `None` of any other object.
    fn of(bytes: &'a [u8]) -> Option<Place<'a>> {
        let header = Header::with_pages(Kind::List, bytes)?;
        let mut roots = header.roots();
        let (root, ends) = (roots.next()?, roots.next()?);
        // Nothing else may follow.
        let is_last = std::ptr::eq(ends.as_ptr_range().end, bytes.as_ptr_range().end);
        if header.live == 0 || !is_last {
            return None;
        }
        let (lengths, begin) = Lengths::read(ends)?;
        let begin = bytes.len() - ends.len() + begin;
        let middle = begin + usize::try_from(lengths.left.1).ok()?;
        let head = bytes.len() - ends.len() - varint::length(ends.len() as u64);
        // A number may be longer than it need be in bytes that this server has not written.
        let is_usual = bytes.get(..head)?.ends_with(root);
        let (left, right) = (begin..middle, middle..bytes.len());
        is_usual.then_some(Place { header, bytes, head, lengths, left, right })
    }

    fn end(&self, end: End) -> (u64, Range<usize>) {
        match end {
            End::Left => (self.lengths.left.0, self.left.clone()),
            End::Right => (self.lengths.right.0, self.right.clone()),
        }
    }

    /// Returns the header with other bytes in place of some of an end.
    fn with(&self, lengths: Lengths, old: Range<usize>, new: &[&[u8]]) -> Vec<u8> {
        let added: usize = new.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(self.bytes.len() + added + HEAD_BYTES_MAX);
        out.extend_from_slice(&self.bytes[..self.head]);
        lengths.put(&mut out);
        out.extend_from_slice(&self.bytes[self.left.start..old.start]);
        new.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(&self.bytes[old.end..]);
        out
    }
}

/// Returns the header with one more element at an end, and the length of the list. `None` if more
/// than the end changes.
fn pushed(found: &Found<'_>, end: End, element: &[u8]) -> Option<(Vec<u8>, u64)> {
    let place = Place::of(found.value)?;
    let (header, own) = (&place.header, place.end(end).1);
    let mut length = Vec::with_capacity(10);
    varint::put(&mut length, element.len() as u64);
    let added = length.len() + element.len();
    let lengths = place.lengths.plus(end, 1, added as i64)?;
    let is_quicklist = must_be_quicklist(element, header.live, lengths.bytes());
    if own.len() + added > END_BYTES_MAX || is_quicklist && !header.is_large() {
        return None;
    }
    let at = if end == End::Left { own.start } else { own.end };
    Some((place.with(lengths, at..at, &[&length, element]), lengths.elements()))
}

/// Returns the header without the element at an end, and the place of this element in the header
/// before. `None` if more than the end changes.
fn popped(found: &Found<'_>, end: End) -> Option<(Vec<u8>, Range<usize>)> {
    let place = Place::of(found.value)?;
    let (count, own) = place.end(end);
    let index = if end == End::Left { 0 } else { count.checked_sub(1)? };
    let (item, element) = element_at(place.bytes, own, index)?;
    let is_last = end == End::Left || item.end == place.bytes.len();
    let lengths = place.lengths.plus(end, -1, -(item.len() as i64))?;
    let is_listpack = may_be_listpack_again(place.header.live, lengths.bytes());
    // A list whose ends are empty is written in another form.
    if !is_last || is_listpack && place.header.is_large() || lengths.bytes() == 0 {
        return None;
    }
    Some((place.with(lengths, item, &[]), element))
}

/// Adds an element at an end of a list, and returns the length of the list. Returns `None`, and
/// does nothing, if more than the header changes.
pub(super) fn push(
    objects: &mut Transaction<'_>,
    key: &[u8],
    end: End,
    element: &[u8],
) -> Result<Option<u64>, Stop> {
    let Some(found) = objects.find_kind(key, Kind::List)? else { return Ok(None) };
    let expires = found.expires;
    let Some((value, length)) = pushed(&found, end, element) else { return Ok(None) };
    objects.put(key, value, Kind::List, expires)?;
    Ok(Some(length))
}

/// Takes the element at an end of a list, and shows it. Returns `false`, and does nothing, if more
/// than the header changes.
pub(super) fn pop(
    objects: &mut Transaction<'_>,
    key: &[u8],
    end: End,
    show: impl FnOnce(&[u8]),
) -> Result<bool, Stop> {
    let Some(found) = objects.find_kind(key, Kind::List)? else { return Ok(false) };
    let expires = found.expires;
    let Some((value, element)) = popped(&found, end) else { return Ok(false) };
    show(&found.value[element]);
    objects.put(key, value, Kind::List, expires)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::Memory;
    use super::super::events::Events;
    use super::super::list::List;
    use super::super::overlay::Overlay;
    use super::super::store::Store;
    use super::*;
    use proptest::prelude::*;

    const KEY: &[u8] = b"list";

    /// A store with one list.
    #[derive(Default)]
    struct Bed {
        store: Option<Memory>,
        overlay: Overlay,
        events: Events,
        /// The changes that were done in place.
        in_place: usize,
    }

    impl Bed {
        /// Adds an element at an end, or takes one from it.
        fn change(&mut self, end: End, pushed: Option<&[u8]>, may_be_in_place: bool) -> Vec<u8> {
            let store = self.store.get_or_insert_with(|| Memory::new(0));
            let (overlay, events) = (&mut self.overlay, &mut self.events);
            let mut objects = Transaction::new(store, overlay, events, 0, 1 << 20, true);
            let mut reply = Vec::new();
            let is_done = may_be_in_place
                && match pushed {
                    Some(element) => {
                        let length = push(&mut objects, KEY, end, element).unwrap();
                        reply.extend(length.unwrap_or_default().to_be_bytes());
                        length.is_some()
                    }
                    None => pop(&mut objects, KEY, end, |it| reply.extend_from_slice(it)).unwrap(),
                };
            self.in_place += usize::from(is_done);
            if !is_done {
                let found = List::find(&mut objects, KEY).unwrap();
                match (pushed, found) {
                    (Some(element), found) => {
                        let mut list = found.unwrap_or_else(|| List::new(&objects, KEY));
                        list.push(&mut objects, end, element).unwrap();
                        reply = list.len().to_be_bytes().to_vec();
                        list.save(&mut objects).unwrap();
                    }
                    (None, Some(mut list)) => {
                        reply = list.pop(&mut objects, end).unwrap();
                        list.save(&mut objects).unwrap();
                    }
                    (None, None) => {}
                }
            }
            objects.commit().unwrap();
            reply
        }

        fn header(&mut self) -> Option<Vec<u8>> {
            let found = self.store.as_mut()?.find(0, KEY, false).unwrap();
            found.map(|found| found.value.to_vec())
        }
    }

    fn end() -> impl Strategy<Value = End> {
        prop::sample::select(vec![End::Left, End::Right])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_change_in_place_leaves_the_bytes_and_the_reply_of_the_usual_change(
            steps in prop::collection::vec((end(), prop::option::weighted(0.6, 0..200usize)), 1..400),
            begin in 0..300usize,
        ) {
            let (mut fast, mut slow) = (Bed::default(), Bed::default());
            let begin = (0..begin).map(|number| (End::Right, Some(number % 90)));
            for (number, (end, pushed)) in begin.chain(steps).enumerate() {
                let element = pushed.map(|length| vec![number as u8; length]);
                let replies = (
                    fast.change(end, element.as_deref(), true),
                    slow.change(end, element.as_deref(), false),
                );
                prop_assert_eq!(&replies.0, &replies.1);
                prop_assert_eq!(fast.header(), slow.header());
            }
        }

        #[test]
        fn any_header_is_no_panic(bytes in prop::collection::vec(0..8u8, 0..40)) {
            let found = Found { value: &bytes, kind: Kind::List, expires: None, version: 1 };
            for end in [End::Left, End::Right] {
                if let Some((value, element)) = popped(&found, end) {
                    prop_assert!(value.len() < bytes.len() && element.end <= bytes.len());
                }
                let _ = pushed(&found, end, b"element");
            }
        }
    }

    #[test]
    fn most_changes_of_a_queue_are_done_in_place() {
        let mut queue = Bed::default();
        for _ in 0..1000 {
            queue.change(End::Left, Some(&[7; 100]), true);
        }
        let pushed = queue.in_place;
        for _ in 0..900 {
            queue.change(End::Right, None, true);
        }
        assert!(pushed > 850 && queue.in_place - pushed > 750, "{pushed} {}", queue.in_place);
    }
}
