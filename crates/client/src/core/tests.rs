//! Tests of operations whose first attempt the caller made, and of the map version in messages.

use super::*;
use crate::operation::Action;
use thunderhead_net::Cause;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::operations::UpdatePart;
use thunderhead_wire::{Condition, LeaseId, MasterId, TableId, TabletRange, Version, control};
use zerocopy::FromBytes;

const NOW: Time = Time(1_000_000_000);
const TABLE: TableId = TableId(1);

/// Makes a core that knows the table's address, and begins a read whose first attempt had this
/// outcome.
fn behind(outcome: Result<&[u8], CallError>) -> Core {
    let mut core = Core::new(LeaseId(1), Random::from_seed(1));
    let mut map = TabletMap::default();
    map.insert(TabletRange::whole(TABLE), "10.0.0.1:7071".parse().unwrap());
    core.learn(NOW, map);
    let (key, condition) = (b"k".to_vec(), Condition::Always);
    let operation = Operation { table: TABLE, key, condition, action: Action::Read };
    core.begin_behind(NOW, operation, NOW + Duration::from_secs(10), outcome);
    core
}

fn refused(status: Status, hint: u32) -> Result<&'static [u8], CallError> {
    Err(CallError::Refused { status, hint, detail: 0 })
}

#[test]
fn a_failed_first_attempt_decides_the_next_step() {
    for lost in [CallError::Late, CallError::Broken, CallError::Unreachable(Cause::Refused)] {
        let mut core = behind(Err(lost));
        assert_eq!(core.next_output(), Some(Output::Learn), "{lost:?}: the tablet may have moved");
        assert_eq!(core.next_output(), None);
    }
    let mut core = behind(refused(Status::Moved, 0));
    assert_eq!(core.next_output(), Some(Output::Learn));
    let mut core = behind(refused(Status::Busy, 300));
    assert_eq!(core.next_output(), None);
    let again = core.deadline().unwrap();
    assert!(again > NOW + Duration::from_micros(300), "as long as the server asks");
    core.tick(again);
    assert!(matches!(core.next_output(), Some(Output::Call { opcode: Opcode::Read, .. })));
    assert_eq!(core.next_output(), None, "once");
}

#[test]
fn the_answer_to_the_first_attempt_is_the_result() {
    let result = |outcome| {
        let mut core = behind(outcome);
        assert_eq!(core.next_output(), None);
        let (_, results) = core.next_done().unwrap();
        assert!(core.is_idle());
        results
    };
    let found = Answer::Found { version: Version(7), value: b"v".to_vec() };
    let body = [&7u64.to_le_bytes()[..], b"v"].concat();
    assert_eq!(result(Ok(&body)), [Ok(found)]);
    assert_eq!(result(Ok(&[])), [Err(Error::Incomprehensible)]);
    assert_eq!(result(refused(Status::NotFound, 0)), [Ok(Answer::Absent)]);
    let wrong = result(refused(Status::Malformed, 0));
    assert_eq!(wrong, [Err(Error::Refused(Status::Malformed))]);
}

/// Returns the map version that each message of updates names, and how many updates it has, in the
/// order in which the core sends them.
fn sent(core: &mut Core) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    while let Some(output) = core.next_output() {
        let Output::Call { opcode, body, .. } = output else { panic!("the map is known") };
        let (identity, rest) = Identity::ref_from_prefix(&body).unwrap();
        let mut count = 1;
        if opcode == Opcode::UpdateMany {
            let mut rest = rest;
            count = 0;
            while let Some((_, behind)) = UpdatePart::take(rest) {
                (count, rest) = (count + 1, behind);
            }
        }
        found.push((identity.map_version(), count));
    }
    found
}

fn update(table: u64) -> Operation {
    Operation {
        table: TableId(table),
        key: b"k".to_vec(),
        condition: Condition::Always,
        action: Action::Write(b"v".to_vec()),
    }
}

fn map_of(version: u64, is_part: bool, tables: &[u64]) -> control::Map {
    let tables = tables.iter().map(|id| table_at(*id)).collect();
    control::Map { version, is_part, tables, ..control::Map::default() }
}

/// A shard begins to work on the first operations while the client prepares the others. A batch is
/// not divided for that.
#[test]
fn many_lone_operations_travel_in_several_messages() {
    let until = NOW + Duration::from_secs(10);
    let mut core = Core::new(LeaseId(1), Random::from_seed(1));
    core.told(NOW, NOW, &map_of(1, false, &[1]));
    for _ in 0..100 {
        core.begin(NOW, vec![update(1)], until);
    }
    assert_eq!(sent(&mut core), [(1, 40), (1, 40), (1, 20)]);
    core.begin(NOW, vec![update(1); 100], until);
    assert_eq!(sent(&mut core), [(1, 100)], "a batch stays together");
    for _ in 0..3 {
        core.begin(NOW, vec![update(1); 30], until);
    }
    assert_eq!(sent(&mut core), [(1, 60), (1, 30)], "two batches have enough parts");
    core.begin(NOW, vec![update(1); 130], until);
    assert_eq!(sent(&mut core), [(1, 128), (1, 2)], "a shard accepts no more");
}

#[test]
fn a_message_names_the_map_version_of_its_updates_tables() {
    let updates = || [1, 1, 2, 3].map(update).to_vec();
    let mut core = Core::new(LeaseId(1), Random::from_seed(1));
    core.told(NOW, NOW, &map_of(10, false, &[1, 2, 3]));
    core.begin(NOW, updates(), NOW + Duration::from_secs(10));
    assert_eq!(sent(&mut core), [(10, 4)], "the whole map has one version");
    // The core learns a newer version of one table, which says nothing about the others.
    core.told(NOW, NOW, &map_of(20, true, &[2]));
    core.begin(NOW, updates(), NOW + Duration::from_secs(10));
    assert_eq!(sent(&mut core), [(10, 3), (20, 1)]);
}

/// An answer on its way may be older than a table that the client has created since it asked.
#[test]
fn an_answer_to_an_earlier_question_does_not_say_that_a_new_table_is_missing() {
    let news = |version, since, tables| control::Map { since, ..map_of(version, false, tables) };
    let read = |table| Operation { action: Action::Read, ..update(table) };
    let [asked, missed, heard] = [1, 2, 3].map(|ms| NOW + Duration::from_millis(ms));
    let deadline = NOW + Duration::from_secs(10);
    let mut core = Core::new(LeaseId(1), Random::from_seed(1));
    core.told(NOW, NOW, &news(10, 0, &[1]));
    core.begin(asked, vec![read(3)], deadline);
    assert_eq!(core.next_output(), Some(Output::Learn));
    let request = core.map_request();
    assert_eq!(request.tables, [(TableId(3), 10)]);
    core.begin(missed, vec![read(2)], deadline);
    assert_eq!(core.next_output(), None, "the first answer is still to come");
    core.told(heard, asked, &news(10, 10, &[]));
    let (_, results) = core.next_done().unwrap();
    assert_eq!(results, [Err(Error::NoSuchTable(TableId(3)))], "it was missed before");
    assert_eq!(core.next_done(), None, "nothing is known of the other one");
    assert_eq!(core.next_output(), Some(Output::Learn));
    core.told(heard, heard, &news(11, 10, &[2]));
    assert!(matches!(core.next_output(), Some(Output::Call { opcode: Opcode::Read, .. })));
}

fn table_at(id: u64) -> control::TableInfo {
    let tablet = control::TabletInfo {
        first: KeyHash::MIN,
        last: KeyHash::MAX,
        master: MasterId(1),
        address: Some("10.0.0.1:7071".parse().unwrap()),
    };
    control::TableInfo {
        id: TableId(id),
        name: id.to_string(),
        tablets: vec![tablet],
        since: 0,
        beside: None,
        options: Default::default(),
    }
}
