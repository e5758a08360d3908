//! A walk over a table lists every object of its range once, over several tablets and with pages of
//! any size.

use crate::{Pair, TABLE, status};
use std::collections::BTreeMap;
use thunderhead_log::{NoReplication, TableId, TabletRange};
use thunderhead_rpc::Opcode;
use thunderhead_wire::operations::{EnumerateHead, FoundHead, PageHead};
use thunderhead_wire::{KeyHash, Status};
use zerocopy::{FromBytes, IntoBytes};

/// Walks over a range as a client does, and returns how often each key was listed.
fn walk(pair: &mut Pair, range: TabletRange, bytes: u32) -> BTreeMap<Vec<u8>, usize> {
    let mut seen = BTreeMap::new();
    let mut pieces = vec![(range, 0)];
    while let Some((range, cursor)) = pieces.pop() {
        let request = EnumerateHead::new(range, cursor, bytes);
        let answer = pair.call(Opcode::Enumerate, request.as_bytes()).unwrap();
        let (page, mut rest) = PageHead::read_from_prefix(&answer).unwrap();
        while let Some((found, behind)) = FoundHead::take(rest) {
            assert!(range.contains(TABLE, KeyHash::of(found.key)));
            *seen.entry(found.key.to_vec()).or_default() += 1;
            rest = behind;
        }
        assert!(rest.is_empty());
        if page.last() < range.last {
            pieces.push((TabletRange { first: KeyHash(page.last().0 + 1), ..range }, cursor));
        }
        if let Some(cursor) = page.cursor() {
            pieces.push((TabletRange { last: page.last(), ..range }, cursor));
        }
    }
    seen
}

#[test]
fn a_table_is_enumerated_over_its_tablets_while_it_grows() {
    let mut pair = Pair::new(8 << 20, Box::new(NoReplication::default()));
    let log = pair.node.service().log();
    log.drop_tablet(TabletRange::whole(TABLE));
    let third = u64::MAX / 3;
    for (first, last) in [(0, third), (third + 1, 2 * third), (2 * third + 1, u64::MAX)] {
        let range = TabletRange { table: TABLE, first: KeyHash(first), last: KeyHash(last) };
        log.create_tablet(range).unwrap();
    }
    for number in 0..3000u64 {
        log.write(TABLE, &number.to_be_bytes(), &[1; 50]).unwrap();
    }
    let whole = TabletRange::whole(TABLE);
    for bytes in [1, 500, u32::MAX] {
        let seen = walk(&mut pair, whole, bytes);
        assert_eq!(seen.len(), 3000);
        assert!(seen.values().all(|times| *times == 1));
    }
    // This part of the range begins and ends within tablets.
    let part = TabletRange { first: KeyHash(third / 2), last: KeyHash(third * 2 + 5), ..whole };
    let seen = walk(&mut pair, part, 1000);
    let inside = |number: &u64| part.contains(TABLE, KeyHash::of(&number.to_be_bytes()));
    assert_eq!(seen.len(), (0..3000u64).filter(inside).count());
    // A page has one large value, however many there are in a bucket.
    let log = pair.node.service().log();
    for number in 0..200u64 {
        log.write(TABLE, &number.to_be_bytes(), &[2; 8000]).unwrap();
    }
    assert_eq!(walk(&mut pair, whole, 8000).len(), 3000);
    let elsewhere = TabletRange { table: TableId(99), ..whole };
    let request = EnumerateHead::new(elsewhere, 0, 100);
    assert_eq!(status(&pair.call(Opcode::Enumerate, request.as_bytes())), Status::Moved);
    let reversed = TabletRange { first: KeyHash(9), last: KeyHash(3), ..whole };
    assert!(walk(&mut pair, reversed, 100).is_empty());
}
