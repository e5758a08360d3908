//! Tables that lie beside each other, in a whole cluster: servers crash one after the other, also
//! during a recovery. The tables are on one shard afterwards, and have all their objects.

use crate::detection::{PATIENCE, begun, is_served, took};
use crate::scenario::user::User;
use crate::scenario::world::World;
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, TableInfo};
use thunderhead_client::{Action, Answer, Condition, Operation, Question, Reply, TableId};
use thunderhead_wire::MasterId;

/// The number of tables beside the first one.
const OTHERS: u64 = 5;

const KEYS: u64 = 20;

/// Makes the tables, and writes objects into each.
async fn make(user: User) {
    let mut tables = Vec::new();
    for number in 0..=OTHERS {
        let name = format!("group {number}");
        let wish = match tables.first() {
            None => CreateTable::spread(name, 1),
            Some(first) => CreateTable::beside(name, *first),
        };
        match user.client.ask(Question::CreateTable(wish), PATIENCE).await {
            Ok(Reply::Table(table)) if table.beside == tables.first().copied() => {
                tables.push(table.id);
            }
            other => return user.seeing.fail(format!("a table is not made: {other:?}")),
        }
    }
    let value = |table: TableId, key: u64| Action::Write(format!("{table} {key}").into_bytes());
    let answers = do_all(&user, &tables, value).await;
    if answers.iter().any(Option::is_none) {
        return user.seeing.fail("an object is not written".to_owned());
    }
    user.client.close();
}

/// Reads all objects.
async fn check(user: User) {
    let Ok(Reply::Map(map)) = user.client.ask(Question::Map(None), PATIENCE).await else {
        return user.seeing.fail("there is no map".to_owned());
    };
    let tables: Vec<TableId> = of_group(&map.tables).map(|it| it.id).collect();
    let answers = do_all(&user, &tables, |_, _| Action::Read).await;
    let all = tables.iter().flat_map(|table| (0..KEYS).map(move |key| (*table, key)));
    for ((table, key), answer) in all.zip(answers) {
        let expected = format!("{table} {key}").into_bytes();
        if !matches!(&answer, Some(Answer::Found { value, .. }) if *value == expected) {
            return user.seeing.fail(format!("object {key} of {table} is {answer:?}"));
        }
    }
    user.client.close();
}

async fn do_all(
    user: &User,
    tables: &[TableId],
    action: impl Fn(TableId, u64) -> Action,
) -> Vec<Option<Answer>> {
    let mut answers = Vec::new();
    for table in tables {
        let one = |key: u64| Operation {
            table: *table,
            key: key.to_le_bytes().to_vec(),
            condition: Condition::Always,
            action: action(*table, key),
        };
        let results = user.client.all((0..KEYS).map(one).collect(), PATIENCE).await;
        answers.extend(results.into_iter().map(Result::ok));
    }
    answers
}

fn of_group(tables: &[TableInfo]) -> impl Iterator<Item = &TableInfo> {
    tables.iter().filter(|table| table.name.starts_with("group "))
}

/// Returns the masters of the group's tables.
fn owners(world: &World) -> BTreeSet<MasterId> {
    let Some((map, _)) = world.known() else { return BTreeSet::new() };
    of_group(&map.tables).flat_map(|it| &it.tablets).map(|tablet| tablet.master).collect()
}

fn server_of(world: &World, master: MasterId) -> Option<usize> {
    let (_, list) = world.known()?;
    let has = |it: &&thunderhead_wire::control::ServerInfo| {
        it.shards.iter().any(|shard| shard.master == master)
    };
    let server = list.servers.iter().find(has)?.server;
    (0..4).find(|number| world.identity(*number).is_some_and(|(id, _)| id == server))
}

fn finish(world: &mut World) {
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0));
    assert_eq!(world.seeing.seen.borrow().failures, [""; 0]);
}

#[test]
fn a_group_is_on_one_shard_again_after_any_crashes() {
    for seed in 0..16 {
        let mut world = begun(300 + seed, 1 + seed as usize % 2);
        world.add_user("maker", make);
        finish(&mut world);
        let all = owners(&world);
        assert_eq!(all.len(), 1, "seed {seed}");
        let first = server_of(&world, *all.first().unwrap()).expect("the server is up");
        world.stop(first, Duration::from_secs(8));
        world.run_for(Duration::from_millis(200 + 90 * seed));
        // The server that has the tables by then, or another one.
        let by_now = owners(&world).last().and_then(|master| server_of(&world, *master));
        let second = by_now.filter(|it| *it != first).unwrap_or((first + 1) % 4);
        world.stop(second, Duration::from_secs(2));
        if seed % 3 == 0 {
            let leader = world.leader_host();
            world.simulation.crash(leader);
            world.simulation.after(Duration::from_secs(6), move |it| it.start(leader));
        }
        took(&mut world, "all tables are served", |world| is_served(world) && world.is_whole());
        assert_eq!(owners(&world).len(), 1, "seed {seed}");
        world.add_user("reader", check);
        finish(&mut world);
    }
}
