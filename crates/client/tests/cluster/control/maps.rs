//! Operations request the map of their own tables only. A session keeps the newest map, and does
//! not request it too often.

use super::{Stage, only};
use std::time::Duration;
use thunderhead_client::control::Map;
use thunderhead_client::{Error, Question, Reply, TableId};
use thunderhead_rpc::Opcode;

#[test]
fn a_session_refuses_a_map_older_than_one_it_has_seen() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(Question::Map(None));
    assert!(stage.answered().is_ok());
    stage.ask(Question::Map(Some("t".to_owned())));
    let call = only(stage.calls(), Opcode::Map);
    let old = thunderhead_client::control::to_body(&Map::default());
    stage.session.answered(stage.now, call.number, Ok(&old));
    let Ok(Reply::Map(map)) = stage.answered() else {
        panic!("another coordinator has the newer map")
    };
    assert_eq!((map.tables.len(), map.version), (1, 2));
}

/// The cluster has more tables than fit into a message. Questions for the whole map get it in
/// pages, and operations request only their own tables.
#[test]
fn a_client_of_a_large_cluster_asks_for_its_own_tables() {
    let mut stage = Stage::new();
    let tables: Vec<TableId> = (0..7).map(|number| stage.create(&format!("t{number}"))).collect();
    stage.cluster.page = 3;
    for question in [Question::Map(None), Question::ClusterStatus] {
        stage.ask(question.clone());
        let map = match stage.answered() {
            Ok(Reply::Map(map)) => map,
            Ok(Reply::Cluster(status)) => status.map,
            other => panic!("{other:?}"),
        };
        let ids: Vec<TableId> = map.tables.iter().map(|table| table.id).collect();
        assert_eq!((ids, map.more), (tables.clone(), None), "{question:?}");
    }
    let asked = stage.count(Opcode::Map);
    assert_eq!(asked, 5, "three pages of the map, and two after the status");
    // As when a client connects.
    stage.ask(Question::News);
    let Ok(Reply::Map(map)) = stage.answered() else { panic!("no map") };
    assert!(map.is_part && map.tables.is_empty(), "{map:?}");
    let asked = asked + 1;
    assert_eq!(stage.count(Opcode::Map), asked, "the answer is not paged");
    stage.write(tables[2]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 1);
    // Another table needs a request of its own.
    stage.write(tables[1]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 2);
    stage.write(tables[2]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 2, "the table is known");
    // A table that does not exist is requested once.
    stage.write(TableId(99));
    assert_eq!(stage.written(), Err(Error::NoSuchTable(TableId(99))));
    assert_eq!(stage.count(Opcode::Map), asked + 3);
}

#[test]
fn a_client_that_connects_keeps_the_map_of_a_small_cluster() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.ask(Question::News);
    let Ok(Reply::Map(map)) = stage.answered() else { panic!("no map") };
    assert_eq!(map.tables.len(), 1);
    let asked = stage.count(Opcode::Map);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked, "the map is known");
}

/// The coordinator's answer omits the requested table.
#[test]
fn an_answer_without_the_requested_table_delays_the_next_request() {
    let mut stage = Stage::new();
    stage.write(TableId(5));
    for _ in 0..20 {
        for call in stage.calls() {
            match call.opcode {
                Opcode::Map => {
                    let empty = Map { version: 7, is_part: true, ..Map::default() };
                    let body = thunderhead_client::control::to_body(&empty);
                    stage.session.answered(stage.now, call.number, Ok(&body));
                }
                _ => stage.answer(&call),
            }
        }
        stage.pass(Duration::from_millis(1));
    }
    let asked = stage.count(Opcode::Map);
    assert!((1..=4).contains(&asked), "{asked} times in 20 ms");
}
