//! Trees beside models, with nodes so short that the trees are high.

use super::super::collection::{self, Collection};
use super::super::header::Header;
use super::super::overlay::Overlay;
use super::super::pages::{COUNTER, PageKey};
use super::super::store::{Kind, PAGES, Refusal, Store};
use super::super::transaction::Transaction;
use super::super::{Memory, stop::Stop};
use super::node::{Inner, separator};
use super::*;
use crate::resp::events::Events;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KEY: &[u8] = b"key";
const VALUE_BYTES_MAX: usize = 4096;

/// A store with one collection.
struct Bed {
    store: Memory,
    overlay: Overlay,
    events: Events,
    form: Form,
    kind: Kind,
}

impl Bed {
    fn new(form: Form, node_bytes_max: usize) -> Bed {
        let form = Form { node_bytes_max, ..form };
        let kind = if form.order == Order::Position { Kind::List } else { Kind::Hash };
        Bed {
            store: Memory::new(0),
            overlay: Overlay::default(),
            events: Events::default(),
            form,
            kind,
        }
    }

    fn objects(&mut self) -> Transaction<'_> {
        Transaction::new(
            &mut self.store,
            &mut self.overlay,
            &mut self.events,
            0,
            VALUE_BYTES_MAX,
            true,
        )
    }

    /// Executes a change as a command does.
    fn try_change<R>(
        &mut self,
        change: &mut dyn FnMut(&mut Collection<'_>, &mut Transaction<'_>) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let (form, kind) = (self.form, self.kind);
        let mut objects = self.objects();
        let found = Collection::find(&mut objects, KEY, kind, &[form])?;
        let mut collection = found.unwrap_or_else(|| Collection::new(&objects, KEY, kind, &[form]));
        let result = change(&mut collection, &mut objects)?;
        collection.close(&mut objects)?;
        objects.commit()?;
        Ok(result)
    }

    fn change<R>(
        &mut self,
        mut change: impl FnMut(&mut Collection<'_>, &mut Transaction<'_>) -> Result<R, Stop>,
    ) -> R {
        let result = self.try_change(&mut change).unwrap();
        self.check();
        result
    }

    /// Returns all items, read in one direction.
    fn items(&mut self, is_forward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (form, kind) = (self.form, self.kind);
        let mut objects = self.objects();
        let found = Collection::to_read(&mut objects, KEY, kind, &[form]).unwrap();
        let Some(mut collection) = found else { return Vec::new() };
        let begin = if is_forward { 0 } else { u64::MAX };
        let mut cursor = collection.tree().cursor(&mut objects, begin).unwrap();
        let mut all = Vec::new();
        loop {
            let item = match is_forward {
                true => cursor.next(&mut objects).unwrap(),
                false => cursor.previous(&mut objects).unwrap(),
            };
            let Some((key, value)) = item else { break };
            all.push((key.to_vec(), value.to_vec()));
        }
        if !is_forward {
            all.reverse();
        }
        all
    }

    /// Checks the shape of the tree, and that there are no other pages.
    fn check(&mut self) {
        let form = self.form;
        let mut objects = self.objects();
        let header = objects.peek(KEY).unwrap().map(|found| found.value.to_vec());
        let mut live = BTreeSet::new();
        if let Some(bytes) = header {
            let header = Header::parse(&bytes).unwrap();
            let pages = Pages::of(0, KEY, &header);
            let mut leaves = Vec::new();
            let root = Node::parse(form, header.root(0).unwrap()).unwrap();
            check_node(form, &pages, &mut objects, &root, &mut live, &mut leaves, 0);
            assert_eq!(header.live, live.len() as u64, "live pages");
            assert_eq!(header.id == 0, live.is_empty());
            if header.id != 0 {
                let owner = pages.read(&mut objects, 0).unwrap();
                assert_eq!(owner, KEY);
                let keys = live.iter().map(|page| PageKey::new(header.id, *page).bytes().to_vec());
                let mut keys: BTreeSet<Vec<u8>> = keys.collect();
                keys.insert(PageKey::new(header.id, 0).bytes().to_vec());
                assert_eq!(self.page_keys(), keys);
                return;
            }
        }
        assert_eq!(self.page_keys(), BTreeSet::new());
    }

    /// Returns the keys of all pages, without the counter.
    fn page_keys(&mut self) -> BTreeSet<Vec<u8>> {
        let (mut keys, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let mut visit = |key: &[u8], _: &super::super::store::Found<'_>| {
                if key != COUNTER {
                    keys.insert(key.to_vec());
                }
            };
            cursor = self.store.walk(PAGES, cursor, &mut visit).unwrap();
            if cursor == 0 {
                return keys;
            }
        }
    }

    fn height(&mut self) -> usize {
        let form = self.form;
        let mut objects = self.objects();
        let Some(found) = objects.peek(KEY).unwrap() else { return 0 };
        let bytes = found.value.to_vec();
        let header = Header::parse(&bytes).unwrap();
        let pages = Pages::of(0, KEY, &header);
        let (mut height, mut bytes) = (1, header.root(0).unwrap().to_vec());
        while let Node::Inner(Inner { children, .. }) = Node::parse(form, &bytes).unwrap() {
            bytes = pages.read(&mut objects, children[0].page).unwrap().to_vec();
            height += 1;
        }
        height
    }
}

/// Checks a node and all below it; returns the first and the last key, and the depth.
fn check_node(
    form: Form,
    pages: &Pages<'_>,
    objects: &mut Transaction<'_>,
    node: &Node,
    live: &mut BTreeSet<u64>,
    leaves: &mut Vec<(usize, usize)>,
    depth: usize,
) -> (Vec<u8>, Vec<u8>, usize) {
    let bytes = node.bytes(form);
    assert_eq!(node.encode(form).len(), bytes);
    match node {
        Node::Leaf(leaf) => {
            assert!(bytes <= form.node_bytes_max || node.len() == 1, "a leaf of {bytes} bytes");
            let keys: Vec<&[u8]> = leaf.items.iter().map(|item| leaf.key(item)).collect();
            if form.has_keys() && (depth > 0 || form.order == Order::Bytes) {
                let is_less = |pair: &[&[u8]]| Sought::new(form, pair[0]).compare(pair[1]).is_lt();
                assert!(keys.windows(2).all(is_less), "the order of a leaf");
            }
            leaves.push((bytes, node.len()));
            let first = keys.first().copied().unwrap_or_default();
            let last = keys.last().copied().unwrap_or_default();
            (first.to_vec(), last.to_vec(), depth)
        }
        Node::Inner(inner) => {
            assert!(bytes <= form.node_bytes_max || node.len() < 4);
            assert!(!inner.children.is_empty());
            let mut ends: Vec<(Vec<u8>, Vec<u8>, usize)> = Vec::new();
            for (index, child) in inner.children.iter().enumerate() {
                assert!(live.insert(child.page), "a page has one parent");
                let bytes = pages.read(objects, child.page).unwrap().to_vec();
                let below = Node::parse(form, &bytes).unwrap();
                assert!(child.count == below.count() || !form.has_counts, "the count of a child");
                assert!(child.count > 0);
                let it = check_node(form, pages, objects, &below, live, leaves, depth + 1);
                if let Some(before) = ends.last() {
                    assert_eq!(before.2, it.2, "all leaves are on one level");
                    let own = inner.separator(&inner.children[index]);
                    assert!(Sought::new(form, &before.1).is_below(own) || !form.has_keys());
                    assert!(!Sought::new(form, &it.0).is_below(own));
                }
                ends.push(it);
            }
            let last = ends.pop().unwrap();
            let first = ends.first().unwrap_or(&last).0.clone();
            (first, last.1, last.2)
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Set(u8, Vec<u8>),
    Remove(u8),
    Range(u16, u8),
    Insert(u16, Vec<u8>),
    Push(Vec<u8>),
    Replace(u16, Vec<u8>),
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![20 => 0..12usize, 3 => 12..60usize, 1 => 60..300usize];
    length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length))
}

fn acts(grows: u32, shrinks: u32) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        grows => (any::<u8>(), value()).prop_map(|(key, value)| Act::Set(key, value)),
        shrinks => any::<u8>().prop_map(Act::Remove),
        1 => (any::<u16>(), 0..12u8).prop_map(|(at, count)| Act::Range(at, count)),
        grows => (any::<u16>(), value()).prop_map(|(at, value)| Act::Insert(at, value)),
        grows => value().prop_map(Act::Push),
        2 => (any::<u16>(), value()).prop_map(|(at, value)| Act::Replace(at, value)),
    ];
    prop::collection::vec(act, 1..120)
}

/// Acts by which a tree grows, and then shrinks.
fn history() -> impl Strategy<Value = Vec<Act>> {
    (acts(10, 3), acts(2, 12), acts(6, 6)).prop_map(|(one, two, three)| [one, two, three].concat())
}

/// Keys with a common beginning, so that separators are long.
fn key_of(number: u8) -> Vec<u8> {
    let prefix = if number.is_multiple_of(3) {
        "prefix-".repeat(usize::from(number % 5))
    } else {
        String::new()
    };
    format!("{prefix}{number:x}").into_bytes()
}

/// Returns the order of a key beside other keys.
fn order_of(form: Form, key: &[u8]) -> (u64, Vec<u8>) {
    (if form.order == Order::Hashed { hash(key) } else { 0 }, key.to_vec())
}

fn keyed(form: Form, node_bytes_max: usize, acts: &[Act]) -> usize {
    let mut bed = Bed::new(form, node_bytes_max);
    let mut model: BTreeMap<(u64, Vec<u8>), Vec<u8>> = BTreeMap::new();
    let mut height = 0;
    for act in acts {
        match act {
            Act::Set(..) | Act::Insert(..) | Act::Push(_) | Act::Replace(..) => {
                let (number, value) = match act {
                    Act::Set(number, value) => (*number, value),
                    Act::Insert(number, value) | Act::Replace(number, value) => {
                        (*number as u8, value)
                    }
                    Act::Push(value) => (value.len() as u8, value),
                    Act::Remove(_) | Act::Range(..) => continue,
                };
                let key = key_of(number);
                let value = if form.has_values { value.clone() } else { Vec::new() };
                let is_new = bed.change(|it, objects| it.tree().set(objects, &key, &value));
                assert_eq!(is_new, model.insert(order_of(form, &key), value).is_none());
            }
            Act::Remove(number) => {
                let key = key_of(*number);
                let was_there = bed.change(|it, objects| it.tree().remove(objects, &key));
                assert_eq!(was_there, model.remove(&order_of(form, &key)).is_some());
            }
            // Positions need counts.
            Act::Range(..) if !form.has_counts => {}
            Act::Range(at, count) => {
                let all = bed.items(true);
                let at = usize::from(*at) % (all.len() + 1);
                let gone = all.iter().skip(at).take(usize::from(*count));
                for (key, _) in gone {
                    model.remove(&order_of(form, key));
                }
                let (at, count) = (at as u64, u64::from(*count));
                bed.change(|it, objects| it.tree().remove_range(objects, at, count));
            }
        }
        height = height.max(bed.height());
        let all = bed.items(true);
        assert_eq!(all, bed.items(false));
        let by_key: BTreeMap<_, _> =
            all.iter().map(|(key, value)| (order_of(form, key), value.clone())).collect();
        assert_eq!(by_key, model);
        assert_eq!(all.len(), model.len());
        if bed.height() > 1 || form.order == Order::Bytes {
            let keys: Vec<_> = model.keys().map(|(_, key)| key.clone()).collect();
            assert!(all.iter().map(|(key, _)| key).eq(&keys), "the order of the items");
        }
        for (place, (key, value)) in all.iter().enumerate() {
            let found = bed.change(|it, objects| it.tree().get(objects, key));
            assert_eq!(found.as_ref(), Some(value));
            if form.has_counts {
                let rank = bed.change(|it, objects| it.tree().rank(objects, key));
                assert_eq!(rank, (place as u64, true));
            }
            if place > 3 {
                break;
            }
        }
        let absent = bed.change(|it, objects| it.tree().get(objects, b"absent"));
        assert_eq!(absent, None);
    }
    bed.change(|it, objects| it.tree().remove_range(objects, 0, u64::MAX));
    assert_eq!(bed.items(true), []);
    height
}

fn listed(node_bytes_max: usize, acts: &[Act]) -> usize {
    let mut bed = Bed::new(Form::LIST, node_bytes_max);
    let mut model: Vec<Vec<u8>> = Vec::new();
    let mut height = 0;
    for act in acts {
        match act {
            Act::Set(at, value) => {
                // At one of the ends.
                let at = if at % 2 == 0 { 0 } else { model.len() };
                model.insert(at, value.clone());
                bed.change(|it, objects| it.tree().insert_at(objects, at as u64, &[], value));
            }
            Act::Insert(at, value) => {
                let at = usize::from(*at) % (model.len() + 1);
                model.insert(at, value.clone());
                bed.change(|it, objects| it.tree().insert_at(objects, at as u64, &[], value));
            }
            Act::Push(value) => {
                let at = model.len() as u64;
                model.push(value.clone());
                bed.change(|it, objects| it.tree().insert_at(objects, at, &[], value));
            }
            Act::Replace(at, value) => {
                if !model.is_empty() {
                    let at = usize::from(*at) % model.len();
                    model[at].clone_from(value);
                    bed.change(|it, objects| it.tree().replace_at(objects, at as u64, value));
                }
            }
            Act::Remove(number) => {
                let at = if number % 2 == 0 { 0 } else { model.len().saturating_sub(1) };
                if !model.is_empty() {
                    model.remove(at);
                }
                bed.change(|it, objects| it.tree().remove_range(objects, at as u64, 1));
            }
            Act::Range(at, count) => {
                let at = usize::from(*at) % (model.len() + 1);
                let end = model.len().min(at + usize::from(*count));
                model.drain(at..end);
                let (at, count) = (at as u64, u64::from(*count));
                bed.change(|it, objects| it.tree().remove_range(objects, at, count));
            }
        }
        height = height.max(bed.height());
        let all: Vec<_> = bed.items(true).into_iter().map(|(_, value)| value).collect();
        assert_eq!(all, model);
        assert_eq!(bed.items(false).len(), model.len());
    }
    height
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_hashed_tree_is_a_map(acts in history()) {
        keyed(Form::HASH, 64, &acts);
    }

    #[test]
    fn a_tree_without_counts_is_a_map_that_can_be_emptied(acts in history()) {
        keyed(Form::SCORES, 64, &acts);
    }

    #[test]
    fn a_cursor_is_put_before_a_hash(
        keys in prop::collection::btree_set(any::<u8>(), 0..100),
        sought in any::<u64>(),
    ) {
        let mut bed = Bed::new(Form::SCORES, 64);
        for key in &keys {
            bed.change(|it, objects| it.tree().set(objects, &[*key], &[]));
        }
        let expected: BTreeSet<u64> = keys.iter().map(|key| hash(&[*key])).collect();
        let expected: Vec<u64> = expected.range(sought..).copied().collect();
        let form = bed.form;
        let mut objects = bed.objects();
        let found = Collection::to_read(&mut objects, KEY, Kind::Hash, &[form]).unwrap();
        let mut seen = Vec::new();
        if let Some(mut found) = found {
            let mut cursor = found.tree().cursor_at_hash(&mut objects, sought).unwrap();
            while let Some((key, _)) = cursor.next(&mut objects).unwrap() {
                seen.push(hash(key));
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_hashed_tree_without_values_is_a_set(acts in history()) {
        keyed(Form::SET, 48, &acts);
    }

    #[test]
    fn a_tree_by_bytes_is_an_ordered_set(acts in history()) {
        keyed(Form::BYTES, 64, &acts);
    }

    #[test]
    fn a_tree_by_position_is_a_vector(acts in history()) {
        listed(64, &acts);
    }

    #[test]
    fn filled_trees_have_all_items(count in 0..400usize, length in 0..30usize) {
        let mut bed = Bed::new(Form::BYTES, 100);
        let key = |number: usize| format!("{number:06}{}", "x".repeat(length)).into_bytes();
        let keys: Vec<Vec<u8>> = (0..count).map(key).collect();
        bed.change(|it, objects| {
            it.tree().fill(objects, keys.iter().map(|key| (&**key, &[][..])))
        });
        let all: Vec<_> = bed.items(true).into_iter().map(|(key, _)| key).collect();
        prop_assert_eq!(all, keys);
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(0..6u8, 0..40), page in any::<[u8; 9]>()) {
        for form in [Form::LIST, Form::HASH, Form::SET, Form::BYTES] {
            let mut bed = Bed::new(form, 64);
            let mut objects = bed.objects();
            let kind = if form.order == Order::Position { Kind::List } else { Kind::Hash };
            objects.put(KEY, &bytes[..], kind, None).unwrap();
            for number in 0..4 {
                let key = PageKey::new(1, number);
                objects.put_in(PAGES, key.bytes(), &page[..], Kind::String, None).unwrap();
            }
            let Ok(Some(mut it)) = Collection::to_read(&mut objects, KEY, kind, &[form]) else {
                continue;
            };
            let _ = it.len();
            let _ = it.tree().get(&mut objects, b"a");
            let _ = it.tree().rank(&mut objects, b"a");
            if let Ok(mut cursor) = it.tree().cursor(&mut objects, 1) {
                for _ in 0..100 {
                    let _ = cursor.next(&mut objects);
                }
            }
            let _ = it.tree().insert_at(&mut objects, 1, b"a", b"b");
            let _ = it.tree().set(&mut objects, b"a", b"b");
            let _ = it.tree().remove_range(&mut objects, 0, 3);
            let _ = it.close(&mut objects);
            let _ = collection::copy(&mut objects, kind, &bytes, 1, b"other");
        }
    }
}

#[test]
fn many_items_make_high_trees_and_go_again() {
    for form in [Form::HASH, Form::SET, Form::BYTES] {
        let mut bed = Bed::new(form, 128);
        let key = |number: u32| format!("{}", number.wrapping_mul(2_654_435_761)).into_bytes();
        for number in 0..3000 {
            let is_new =
                bed.try_change(&mut |it, objects| it.tree().set(objects, &key(number), b""));
            assert_eq!(is_new, Ok(true));
        }
        bed.check();
        assert!(bed.height() >= 4, "{}", bed.height());
        for number in 0..3000 {
            let was_there =
                bed.try_change(&mut |it, objects| it.tree().remove(objects, &key(number)));
            assert_eq!(was_there, Ok(true));
            if number % 100 == 0 {
                bed.check();
            }
        }
        bed.check();
        assert_eq!(bed.height(), 0);
    }
}

#[test]
fn leaves_are_at_least_three_eighths_full() {
    let mut bed = Bed::new(Form::SET, 256);
    let key = |number: u32| format!("{}", number.wrapping_mul(2_654_435_761)).into_bytes();
    for number in 0..2000u32 {
        bed.try_change(&mut |it, objects| it.tree().set(objects, &key(number), b"")).unwrap();
        if number > 200 && number % 3 != 0 {
            let old = key(number - 200);
            bed.try_change(&mut |it, objects| it.tree().remove(objects, &old)).unwrap();
        }
    }
    let form = bed.form;
    let mut objects = bed.objects();
    let value = objects.peek(KEY).unwrap().unwrap().value.to_vec();
    let header = Header::parse(&value).unwrap();
    let (pages, mut leaves) = (Pages::of(0, KEY, &header), Vec::new());
    let root = Node::parse(form, header.root(0).unwrap()).unwrap();
    check_node(form, &pages, &mut objects, &root, &mut BTreeSet::new(), &mut leaves, 0);
    assert!(leaves.len() > 10);
    for (bytes, _) in &leaves {
        assert!(*bytes >= 256 / 8 * 3 - 12, "{bytes} of 256 bytes");
    }
}

#[test]
fn a_list_that_grows_at_an_end_has_full_leaves() {
    for is_end in [true, false] {
        let mut bed = Bed::new(Form::LIST, 256);
        for number in 0..2000u64 {
            let at = if is_end { number } else { 0 };
            bed.try_change(&mut |it, objects| it.tree().insert_at(objects, at, &[], b"element"))
                .unwrap();
        }
        bed.check();
        let pages = bed.page_keys().len();
        assert!(pages <= 2000 * 8 / 255 + 12, "{pages} pages");
    }
}

#[test]
fn a_small_tree_keeps_the_order_of_insertion() {
    let mut bed = Bed::new(Form::HASH, 1024);
    let keys: Vec<Vec<u8>> = (0..20).map(|number| format!("field{number}").into_bytes()).collect();
    for key in &keys {
        bed.change(|it, objects| it.tree().set(objects, key, b"value"));
    }
    let all: Vec<_> = bed.items(true).into_iter().map(|(key, _)| key).collect();
    assert_eq!(all, keys);
    assert_eq!(bed.page_keys().len(), 0);
}

#[test]
fn a_change_that_is_refused_leaves_no_trace() {
    for form in [Form::HASH, Form::LIST] {
        let mut bed = Bed::new(form, 64);
        for number in 0..300u64 {
            let key = format!("{}", number * 7919 % 1000).into_bytes();
            let mut change = |it: &mut Collection<'_>, objects: &mut Transaction<'_>| {
                let length = it.len()?;
                match form.order {
                    Order::Position if number % 3 == 2 => {
                        it.tree().remove_range(objects, length / 2, 2)
                    }
                    Order::Position => it.tree().insert_at(objects, length / 2, &[], &key),
                    _ if number % 3 == 2 => it.tree().remove_range(objects, 0, 2),
                    _ => it.tree().set(objects, &key, b"value").map(|_| ()),
                }
            };
            for calls in 0.. {
                let before = bed.store.content();
                bed.store.refuses_after = Some(calls);
                match bed.try_change(&mut change) {
                    Ok(()) => break,
                    Err(stop) => assert_eq!(stop, Stop::Refused(Refusal::NotNow)),
                }
                assert_eq!(bed.store.content(), before);
            }
            bed.store.refuses_after = None;
            bed.check();
        }
    }
}

#[test]
fn an_item_that_is_too_long_is_refused_before() {
    let mut bed = Bed::new(Form::HASH, 64);
    let objects = bed.objects();
    let long = vec![b'x'; VALUE_BYTES_MAX];
    assert_eq!(Form::HASH.check(&objects, b"a", &long), Err(Refusal::TooLong.into()));
    assert_eq!(Form::HASH.check(&objects, b"a", &long[100..]), Ok(()));
    assert_eq!(Form::BYTES.check(&objects, &long[..2000], b""), Err(Refusal::TooLong.into()));
    bed.change(|it, objects| it.tree().set(objects, b"a", &long[100..]));
    bed.change(|it, objects| it.tree().set(objects, b"b", &long[100..]));
    assert_eq!(bed.page_keys().len(), 3);
}

#[test]
fn a_copy_has_the_same_items_in_other_pages() {
    let mut bed = Bed::new(Form::HASH, 64);
    for number in 0..200u32 {
        let key = number.to_string().into_bytes();
        bed.try_change(&mut |it, objects| it.tree().set(objects, &key, b"value")).unwrap();
    }
    let items = bed.items(true);
    let mut objects = bed.objects();
    let value = objects.peek(KEY).unwrap().unwrap().value.to_vec();
    let copy = collection::copy(&mut objects, Kind::Hash, &value, 0, b"copy").unwrap();
    objects.put(b"copy", copy, Kind::Hash, None).unwrap();
    objects.remove(KEY).unwrap();
    objects.commit().unwrap();
    let form = bed.form;
    let mut objects = bed.objects();
    let mut it = Collection::to_read(&mut objects, b"copy", Kind::Hash, &[form]).unwrap().unwrap();
    let mut cursor = it.tree().cursor(&mut objects, 0).unwrap();
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next(&mut objects).unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    assert_eq!(all, items);
}

#[test]
fn separators_are_short() {
    assert_eq!(separator(Form::BYTES, b"abcx", b"abdy"), b"abd");
    assert_eq!(separator(Form::BYTES, b"ab", b"abc"), b"abc");
    assert_eq!(separator(Form::LIST, b"", b""), b"");
    assert!(separator(Form::SET, b"a", b"b").len() <= 8);
}
