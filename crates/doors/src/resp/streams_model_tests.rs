//! Random commands on streams, beside a simple model.

use super::models::execute;
use super::store::{PAGES, Store};
use super::testing::Door;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An id is a number of milliseconds and a number.
type Id = (u64, u64);

#[derive(Clone, Debug, Default)]
struct Pending {
    consumer: String,
    deliveries: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    last: Id,
    pending: BTreeMap<Id, Pending>,
    consumers: BTreeMap<String, ()>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<Id, String>,
    last: Id,
    groups: BTreeMap<String, Group>,
}

#[derive(Clone, Debug)]
enum Command {
    Add { ms: u64, bytes: usize },
    Delete(Vec<u64>),
    Trim(u64),
    Create(u8, u64),
    Destroy(u8),
    Deliver { group: u8, consumer: u8, count: u64, is_acknowledged: bool },
    Again { group: u8, consumer: u8, count: u64 },
    Acknowledge { group: u8, ids: Vec<u64> },
    Claim { group: u8, consumer: u8, ids: Vec<u64>, is_forced: bool },
    Forget { group: u8, consumer: u8 },
    DeleteReferenced { policy: u8, id: u64 },
    Range(u64, u64),
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let id = || 0..300u64;
    let ids = || prop::collection::vec(id(), 1..8);
    let (group, consumer) = (|| 0..2u8, || 0..3u8);
    let command = prop_oneof![
        12 => (0..3u64, prop_oneof![Just(10usize), Just(100), Just(1500)])
            .prop_map(|(ms, bytes)| Command::Add { ms, bytes }),
        2 => ids().prop_map(Command::Delete),
        1 => (0..200u64).prop_map(Command::Trim),
        2 => (group(), id()).prop_map(|(group, id)| Command::Create(group, id)),
        1 => group().prop_map(Command::Destroy),
        6 => (group(), consumer(), 1..40u64, prop::bool::weighted(0.1)).prop_map(
            |(group, consumer, count, is_acknowledged)| Command::Deliver {
                group, consumer, count, is_acknowledged
            }
        ),
        2 => (group(), consumer(), 1..20u64)
            .prop_map(|(group, consumer, count)| Command::Again { group, consumer, count }),
        3 => (group(), ids()).prop_map(|(group, ids)| Command::Acknowledge { group, ids }),
        2 => (group(), consumer(), ids(), any::<bool>()).prop_map(
            |(group, consumer, ids, is_forced)| Command::Claim { group, consumer, ids, is_forced }
        ),
        1 => (group(), consumer())
            .prop_map(|(group, consumer)| Command::Forget { group, consumer }),
        2 => (0..3u8, id())
            .prop_map(|(policy, id)| Command::DeleteReferenced { policy, id }),
        2 => (id(), id()).prop_map(|(begin, end)| Command::Range(begin, end)),
    ];
    prop::collection::vec(command, 1..120)
}

fn text(id: Id) -> String {
    format!("{}-{}", id.0, id.1)
}

fn bulk(string: &str) -> String {
    format!("${}\r\n{string}\r\n", string.len())
}

fn array(parts: &[String]) -> String {
    format!("*{}\r\n{}", parts.len(), parts.concat())
}

fn entry(id: Id, value: &str) -> String {
    array(&[bulk(&text(id)), array(&[bulk("f"), bulk(value)])])
}

impl Model {
    fn group(&mut self, group: u8) -> Option<&mut Group> {
        self.groups.get_mut(&format!("g{group}"))
    }

    fn is_referenced(&self, id: Id) -> bool {
        self.groups.values().any(|it| it.last < id || it.pending.contains_key(&id))
    }

    /// Executes a command; returns its words and the reply that is expected.
    fn step(&mut self, command: &Command) -> (Vec<String>, String) {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let name = |consumer: &u8| format!("c{consumer}");
        let shown = |ids: &[u64]| ids.iter().map(|id| format!("{id}-0")).collect::<Vec<_>>();
        match command {
            Command::Add { ms, bytes } => {
                let id = match ms {
                    0 => (self.last.0, self.last.1 + 1),
                    ms => (self.last.0 + ms, 0),
                };
                let value = "v".repeat(*bytes);
                self.last = id;
                self.entries.insert(id, value.clone());
                (words(&format!("xadd s {} f {value}", text(id))), bulk(&text(id)))
            }
            Command::Delete(ids) => {
                let count =
                    ids.iter().filter(|id| self.entries.remove(&(**id, 0)).is_some()).count();
                (words(&format!("xdel s {}", shown(ids).join(" "))), format!(":{count}\r\n"))
            }
            Command::Trim(most) => {
                let mut count = 0;
                while self.entries.len() as u64 > *most {
                    self.entries.pop_first();
                    count += 1;
                }
                (words(&format!("xtrim s maxlen {most}")), format!(":{count}\r\n"))
            }
            Command::Create(group, id) => {
                let name = format!("g{group}");
                let line = words(&format!("xgroup create s {name} {id}-0 mkstream"));
                if self.groups.contains_key(&name) {
                    let error = "-BUSYGROUP Consumer Group name already exists\r\n";
                    return (line, error.to_owned());
                }
                self.groups.insert(name, Group { last: (*id, 0), ..Group::default() });
                (line, "+OK\r\n".to_owned())
            }
            Command::Destroy(group) => {
                let count = usize::from(self.groups.remove(&format!("g{group}")).is_some());
                (words(&format!("xgroup destroy s g{group}")), format!(":{count}\r\n"))
            }
            Command::Deliver { group, consumer, count, is_acknowledged } => {
                let noack = if *is_acknowledged { " noack" } else { "" };
                let line = words(&format!(
                    "xreadgroup group g{group} c{consumer} count {count}{noack} streams s >"
                ));
                let entries = self.entries.clone();
                let Some(group) = self.group(*group) else { return (line, String::new()) };
                group.consumers.insert(name(consumer), ());
                let new = entries.iter().filter(|(id, _)| **id > group.last);
                let new: Vec<_> = new.take(*count as usize).collect();
                if let Some((id, _)) = new.last() {
                    group.last = **id;
                }
                if !is_acknowledged {
                    for (id, _) in &new {
                        let pending = Pending { consumer: name(consumer), deliveries: 1 };
                        group.pending.insert(**id, pending);
                    }
                }
                let shown: Vec<_> = new.iter().map(|(id, value)| entry(**id, value)).collect();
                (
                    line,
                    match shown.is_empty() {
                        true => "*-1\r\n".to_owned(),
                        false => array(&[array(&[bulk("s"), array(&shown)])]),
                    },
                )
            }
            Command::Again { group, consumer, count } => {
                let line = words(&format!(
                    "xreadgroup group g{group} c{consumer} count {count} streams s 0"
                ));
                let entries = self.entries.clone();
                let Some(group) = self.group(*group) else { return (line, String::new()) };
                group.consumers.insert(name(consumer), ());
                let own = group.pending.iter_mut().filter(|it| it.1.consumer == name(consumer));
                let mut shown = Vec::new();
                for (id, pending) in own.take(*count as usize) {
                    shown.push(match entries.get(id) {
                        Some(value) => {
                            pending.deliveries += 1;
                            entry(*id, value)
                        }
                        None => array(&[bulk(&text(*id)), "*-1\r\n".to_owned()]),
                    });
                }
                (line, array(&[array(&[bulk("s"), array(&shown)])]))
            }
            Command::Acknowledge { group, ids } => {
                let line = words(&format!("xack s g{group} {}", shown(ids).join(" ")));
                let Some(group) = self.group(*group) else { return (line, ":0\r\n".to_owned()) };
                let is_removed = |id: &&u64| group.pending.remove(&(**id, 0)).is_some();
                let count = ids.iter().filter(is_removed).count();
                (line, format!(":{count}\r\n"))
            }
            Command::Claim { group, consumer, ids, is_forced } => {
                let force = if *is_forced { " force" } else { "" };
                let line = words(&format!(
                    "xclaim s g{group} c{consumer} 0 {}{force}",
                    shown(ids).join(" ")
                ));
                let entries = self.entries.clone();
                let Some(group) = self.group(*group) else { return (line, String::new()) };
                group.consumers.insert(name(consumer), ());
                let mut claimed = Vec::new();
                for id in ids.iter().map(|id| (*id, 0)) {
                    let Some(value) = entries.get(&id) else {
                        group.pending.remove(&id);
                        continue;
                    };
                    if *is_forced || group.pending.contains_key(&id) {
                        let pending = group
                            .pending
                            .entry(id)
                            .or_insert_with(|| Pending { consumer: String::new(), deliveries: 1 });
                        pending.consumer = name(consumer);
                        pending.deliveries += 1;
                        claimed.push(entry(id, value));
                    }
                }
                (line, array(&claimed))
            }
            Command::Forget { group, consumer } => {
                let line = words(&format!("xgroup delconsumer s g{group} c{consumer}"));
                let Some(group) = self.group(*group) else { return (line, String::new()) };
                group.consumers.remove(&name(consumer));
                let before = group.pending.len();
                group.pending.retain(|_, pending| pending.consumer != name(consumer));
                (line, format!(":{}\r\n", before - group.pending.len()))
            }
            Command::DeleteReferenced { policy, id } => {
                let policy = ["keepref", "delref", "acked"][usize::from(*policy)];
                let line = words(&format!("xdelex s {policy} ids 1 {id}-0"));
                let id = (*id, 0);
                let outcome = match self.entries.contains_key(&id) {
                    _ if policy == "acked" && self.is_referenced(id) => 2,
                    false => -1,
                    true => 1,
                };
                if outcome == 1 {
                    self.entries.remove(&id);
                }
                if policy == "delref" {
                    self.groups.values_mut().for_each(|it| drop(it.pending.remove(&id)));
                }
                (line, format!("*1\r\n:{outcome}\r\n"))
            }
            Command::Range(begin, end) => {
                let range = self.entries.iter().filter(|(id, _)| (*begin..=*end).contains(&id.0));
                let shown: Vec<_> = range.map(|(id, value)| entry(*id, value)).collect();
                (words(&format!("xrange s {begin} {end}")), array(&shown))
            }
        }
    }

    /// Returns the questions for the contents, and their answers.
    fn contents(&self) -> Vec<(String, String)> {
        let mut contents = vec![("xlen s".to_owned(), format!(":{}\r\n", self.entries.len()))];
        let mut all: Vec<_> = self.entries.iter().map(|(id, it)| entry(*id, it)).collect();
        contents.push(("xrange s - +".to_owned(), array(&all)));
        all.reverse();
        contents.push(("xrevrange s + -".to_owned(), array(&all)));
        for (name, group) in &self.groups {
            let shown = |(id, it): (&Id, &Pending)| {
                let count = format!(":{}\r\n", it.deliveries);
                array(&[bulk(&text(*id)), bulk(&it.consumer), ":0\r\n".to_owned(), count])
            };
            let all: Vec<_> = group.pending.iter().map(shown).collect();
            contents.push((format!("xpending s {name} - + 10000"), array(&all)));
            for consumer in group.consumers.keys() {
                let own = group.pending.iter().filter(|(_, it)| it.consumer == *consumer);
                let own: Vec<_> = own.map(shown).collect();
                contents.push((format!("xpending s {name} - + 10000 {consumer}"), array(&own)));
            }
        }
        contents
    }
}

fn check(commands: &[Command]) {
    let (mut door, mut model) = (Door::new(), Model::default());
    let mut run = |words: &[String]| {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        String::from_utf8(execute(&mut door, &words)).unwrap()
    };
    run(&["xadd", "s", "1-0", "f", "v"].map(str::to_owned));
    (model.last, model.entries) = ((1, 0), BTreeMap::from([((1, 0), "v".to_owned())]));
    for command in commands {
        let (words, expected) = model.step(command);
        let reply = run(&words);
        match expected.is_empty() {
            true => assert!(reply.starts_with("-NOGROUP"), "{words:?} {reply}"),
            false => assert_eq!(reply, expected, "{words:?}"),
        }
    }
    for (line, expected) in model.contents() {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(run(&words), expected, "{line}");
    }
    // A deleted stream leaves no page: only the counter of ids stays.
    run(&["del", "s"].map(str::to_owned));
    while door.server.sweep(&mut door.store, 1000, &mut crate::resp::Output::default()).has_more {}
    assert!(door.store.objects(PAGES).unwrap() <= 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn streams_are_like_their_model(commands in commands()) {
        check(&commands);
    }
}
