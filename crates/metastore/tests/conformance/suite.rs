//! The promises, each as a test that runs on any store.

use crate::client::{Client, holder, key, lease};
use crate::fixtures::Fixture;
use std::time::Duration;
use thunderhead_metastore::limits::{PAGE_ENTRIES_MAX, VALUE_BYTES_MAX};
use thunderhead_metastore::{
    Answer, Change, Error, Fence, Keeper, News, Prefix, Request, RequestId, Token, Version,
};

const TTL: Duration = Duration::from_secs(2);

fn under(name: &str) -> Prefix {
    Prefix::under(name).expect("a good prefix")
}

fn fence(name: &str, token: Token) -> Fence {
    Fence { lease: lease(name), token }
}

fn written(answer: Answer) -> Version {
    match answer {
        Answer::Written(version) => version,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn values_change_only_as_expected(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    assert_eq!(client.get("a/b"), None);
    let first = client.create("a/b", b"one");
    let entry = client.get("a/b").expect("it was made");
    assert_eq!((entry.version, entry.value.as_slice()), (first, b"one".as_slice()));

    let wrong = Version(first.0 + 1);
    let refused = [
        ("a/b", Change::Create(b"x".to_vec()), Some(first)),
        ("a/b", Change::Replace(wrong, b"x".to_vec()), Some(first)),
        ("a/b", Change::Delete(wrong), Some(first)),
        ("a/c", Change::Replace(first, b"x".to_vec()), None),
        ("a/c", Change::Delete(first), None),
        ("d/e/f", Change::Delete(first), None),
    ];
    for (name, change, current) in refused {
        assert_eq!(client.change(name, change, None), Answer::Conflict(current), "{name}");
    }

    let second = client.written("a/b", Change::Replace(first, b"".to_vec()));
    assert!(second > first);
    assert_eq!(client.get("a/b").map(|entry| entry.value), Some(Vec::new()));
    // A key may be the beginning of another.
    client.create("a", b"above");
    client.create("a/b/c", b"below");
    client.written("a/b", Change::Delete(second));
    assert_eq!(client.get("a/b"), None);
    assert_eq!(client.get("a").map(|entry| entry.value), Some(b"above".to_vec()));
    assert_eq!(client.get("a/b/c").map(|entry| entry.value), Some(b"below".to_vec()));
}

pub(crate) fn versions_grow_over_deletion(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    let first = client.create("k", b"same");
    let deleted = client.written("k", Change::Delete(first));
    let second = client.create("k", b"same");
    assert!(first < deleted && deleted < second, "{first:?} {deleted:?} {second:?}");
    for stale in [Change::Replace(first, b"x".to_vec()), Change::Delete(first)] {
        assert_eq!(client.change("k", stale, None), Answer::Conflict(Some(second)));
    }
}

pub(crate) fn values_have_their_limits(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    let token = client.acquire("l", 1, TTL).expect("the lease is free");
    let longest = format!("{}/{}", "ü".repeat(100), "k".repeat(311));
    let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| (at * 7 % 251) as u8).collect();
    let change = Change::Create(value.clone());
    written(client.change(&longest, change, Some(&fence("l", token))));
    assert!(client.get(&longest).is_some_and(|entry| entry.value == value));
    let long = Change::Create(vec![0; VALUE_BYTES_MAX + 1]);
    let request = Request::Write { key: key("k"), change: long, fence: None };
    assert!(matches!(client.try_ask(request), Err(Error::ValueTooLong { .. })));
    let request = Request::Acquire { lease: lease("m"), holder: holder(1), ttl: Duration::ZERO };
    assert!(matches!(client.try_ask(request), Err(Error::LeaseTime { .. })));
}

pub(crate) fn lists_are_whole_ordered_and_paged(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    let mut names = vec!["t".to_owned(), "t-1/a".to_owned(), "u".to_owned()];
    names.extend(["t/a", "t/a/b", "t/a-b", "t/a/b/c", "t/ab", "t/=a", "t/+a/x"].map(str::to_owned));
    names.extend((0..PAGE_ENTRIES_MAX + 20).map(|number| format!("t/n{:02}/{number}", number % 7)));
    let requests: Vec<RequestId> = names
        .iter()
        .map(|name| {
            let change = Change::Create(name.as_bytes().to_vec());
            client.submit(Request::Write { key: key(name), change, fence: None })
        })
        .collect();
    for request in requests {
        written(client.until("a write", |client| client.answer(request)).expect("it is written"));
    }
    names.sort();
    let below: Vec<&String> = names.iter().filter(|name| name.starts_with("t/")).collect();
    let found = client.list(&under("t"));
    assert_eq!(found.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), below);
    assert!(found.iter().all(|entry| entry.value == entry.key.as_str().as_bytes()));
    let all = client.list(&Prefix::all());
    assert_eq!(all.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), names);
    for (name, count) in [("t/a", 2), ("t/a/b", 1), ("t/a/b/c", 0), ("nothing/here", 0)] {
        assert_eq!(client.list(&under(name)).len(), count, "{name}");
    }
    // A page begins after any key, whether the key exists or not, even outside of the prefix.
    for (after, first) in
        [("t/a/b", Some("t/a/b/c")), ("t/a/bb", Some("t/ab")), ("s", Some("t/+a/x")), ("v", None)]
    {
        let request = Request::List { prefix: under("t"), after: Some(key(after)) };
        let Answer::Page(page) = client.ask(request) else { panic!("it must be a page") };
        assert_eq!(page.entries.first().map(|entry| entry.key.as_str()), first, "{after}");
    }
}

pub(crate) fn large_values_are_paged_too(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    let value = vec![42; VALUE_BYTES_MAX];
    let sizes: Vec<(String, usize)> = (0..12)
        .map(|number| (format!("big/{number:02}"), if number < 5 { 10 } else { value.len() }))
        .collect();
    for (name, size) in &sizes {
        client.create(name, &value[..*size]);
    }
    let request = Request::List { prefix: under("big"), after: None };
    let Answer::Page(page) = client.ask(request) else { panic!("it must be a page") };
    assert!(page.more, "not all of it fits in one page");
    let found = client.list(&under("big"));
    let found: Vec<(String, usize)> =
        found.iter().map(|entry| (entry.key.to_string(), entry.value.len())).collect();
    assert_eq!(found, sizes);
}

pub(crate) fn a_lease_has_one_holder_and_fences_writes(fixture: &mut dyn Fixture) {
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let who = Request::Holder { lease: lease("l") };
    assert_eq!(a.ask(who.clone()), Answer::Holder(None));
    let first = a.acquire("l", 1, TTL).expect("the lease is free");
    let held = b.acquire("l", 2, TTL).expect_err("a has it");
    assert_eq!((held.token, &held.by), (first, &holder(1)));
    assert_eq!(b.ask(who.clone()), Answer::Holder(Some(held)));

    let old = fence("l", first);
    let version = written(a.change("k", Change::Create(b"a".to_vec()), Some(&old)));
    let others = [fence("l", Token(first.0 + 1)), fence("m", first)];
    for other in &others {
        let change = Change::Replace(version, b"x".to_vec());
        assert_eq!(b.change("k", change, Some(other)), Answer::Deposed);
    }
    assert_eq!(a.ask(Request::Renew { fence: old.clone() }), Answer::Renewed);
    // Another lease is independent of the first.
    assert!(b.acquire("m", 2, TTL).is_ok());

    assert_eq!(a.ask(Request::Release { fence: old.clone() }), Answer::Released);
    assert_eq!(a.ask(who.clone()), Answer::Holder(None));
    let change = Change::Replace(version, b"x".to_vec());
    assert_eq!(a.change("k", change.clone(), Some(&old)), Answer::Deposed, "the lease is free");
    let second = b.acquire("l", 2, TTL).expect("it was released");
    assert!(second > first);
    assert_eq!(a.ask(Request::Renew { fence: old.clone() }), Answer::NotHeld);
    assert_eq!(a.ask(Request::Release { fence: old.clone() }), Answer::Released);
    assert_eq!(a.change("k", change.clone(), Some(&old)), Answer::Deposed);
    written(b.change("k", change, Some(&fence("l", second))));
}

pub(crate) fn a_lease_that_is_not_renewed_goes_to_another(fixture: &mut dyn Fixture) {
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let sent = b.now();
    let first = a.acquire("l", 1, TTL).expect("the lease is free");
    let second = b.until("the lease", |b| b.acquire("l", 2, TTL).ok());
    // A holder believes for seven eighths of the time to live.
    assert!(b.now().since(sent) > TTL * 7 / 8, "it was given away too early");
    assert!(second > first);
    let old = fence("l", first);
    assert_eq!(a.change("k", Change::Create(Vec::new()), Some(&old)), Answer::Deposed);
    assert_eq!(a.ask(Request::Renew { fence: old }), Answer::NotHeld);
}

pub(crate) fn a_holder_that_acquires_again_keeps_the_lease(fixture: &mut dyn Fixture) {
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let first = a.acquire("l", 1, TTL).expect("the lease is free");
    let again = a.acquire("l", 1, TTL).expect("it has it");
    assert!(again >= first);
    assert!(b.acquire("l", 2, TTL).is_err());
    let again = fence("l", again);
    assert_eq!(a.ask(Request::Renew { fence: again.clone() }), Answer::Renewed);
    written(a.change("k", Change::Create(Vec::new()), Some(&again)));
}

pub(crate) fn a_watch_reports_changes(fixture: &mut dyn Fixture) {
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let watch = a.watch(under("w"));
    let first = b.create("w/1", b"a");
    a.changed(watch);
    let second = b.written("w/1", Change::Replace(first, b"b".to_vec()));
    a.changed(watch);
    b.written("w/1", Change::Delete(second));
    a.changed(watch);
    assert_eq!(a.get("w/1"), None);
    let now = a.now();
    a.store.unwatch(watch);
    while a.store.poll(now).is_some() {}
    let other = a.watch(under("v"));
    b.create("v/1", b"a");
    a.changed(other);
}

pub(crate) fn two_writers_lose_no_update(fixture: &mut dyn Fixture) {
    const EACH: usize = 25;
    let mut clients = [fixture.client(), fixture.client()];
    clients[0].create("n", b"");
    let mut done = [0; 2];
    // Both clients have read before the first of them writes.
    while done.iter().all(|done| *done < EACH) {
        let read: Vec<_> = clients.iter_mut().map(|it| it.get("n").expect("it is there")).collect();
        let asked: Vec<RequestId> = (0..2)
            .map(|at| {
                let (mut value, version) = (read[at].value.clone(), read[at].version);
                value.push(at as u8);
                let change = Change::Replace(version, value);
                clients[at].submit(Request::Write { key: key("n"), change, fence: None })
            })
            .collect();
        for at in 0..2 {
            match clients[at].until("a write", |client| client.answer(asked[at])) {
                Ok(Answer::Written(_)) => done[at] += 1,
                Ok(Answer::Conflict(Some(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let value = clients[0].get("n").expect("it is there").value;
    let counted = [0, 1].map(|at| value.iter().filter(|by| **by == at).count());
    assert_eq!(counted, done);
}

pub(crate) fn values_and_tokens_survive_a_restart(fixture: &mut dyn Fixture) {
    let mut client = fixture.client();
    let token = client.acquire("l", 1, TTL).expect("the lease is free");
    let first = client.create("a", b"kept");
    let gone = client.create("b", b"gone");
    client.written("b", Change::Delete(gone));
    for _ in 0..2 {
        fixture.stop();
        let read = client.try_ask(Request::Get { key: key("a") });
        assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
        let change = Change::Create(b"c".to_vec());
        let write = client.try_ask(Request::Write { key: key("c"), change, fence: None });
        assert!(write.as_ref().is_err_and(Error::is_transient), "{write:?}");
        fixture.start();
        client.ask_patiently(&Request::Get { key: key("a") });
        let entry = client.get("a").expect("it was answered");
        assert_eq!((entry.version, entry.value.as_slice()), (first, b"kept".as_slice()));
        assert_eq!(client.get("b"), None);
    }
    assert!(client.create("b", b"again") > gone);
    assert!(client.written("a", Change::Replace(first, b"new".to_vec())) > first);
    let next = client.until("the lease", |client| client.acquire("l", 2, TTL).ok());
    assert!(next > token);
}

pub(crate) fn a_watch_survives_a_restart(fixture: &mut dyn Fixture) {
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let watch = a.watch(under("w"));
    fixture.stop();
    assert!(b.try_ask(Request::Get { key: key("w/1") }).is_err());
    fixture.start();
    b.ask_patiently(&Request::Get { key: key("w/1") });
    b.create("w/1", b"a");
    // The watch may also have reported earlier changes.
    a.until("the change", |a| {
        a.changed(watch);
        match a.try_ask(Request::Get { key: key("w/1") }) {
            Ok(Answer::Value(entry)) => entry,
            _ => None,
        }
    });
}

/// Breaks a client's connection, and checks the errors and the state after it is mended.
fn without_connection(fixture: &mut dyn Fixture, breaks: fn(&mut dyn Fixture)) {
    if !fixture.has_connections() {
        return;
    }
    let (mut a, mut b) = (fixture.client(), fixture.client());
    let first = a.create("k", b"0");
    let watch = a.watch(under("w"));
    breaks(fixture);
    let change = Change::Replace(first, b"1".to_vec());
    let write = a.try_ask(Request::Write { key: key("k"), change: change.clone(), fence: None });
    assert!(matches!(write, Err(Error::Unknown { .. } | Error::Unavailable { .. })), "{write:?}");
    let read = a.try_ask(Request::Get { key: key("k") });
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    // Other clients go on.
    assert!(b.get("k").is_some());
    b.create("w/1", b"a");
    fixture.mend(0);
    a.changed(watch);
    a.ask_patiently(&Request::Get { key: key("k") });
    // An unknown write may still happen; the next write settles it.
    let entry = a.get("k").expect("it is there");
    let again = a.change("k", Change::Replace(entry.version, b"2".to_vec()), None);
    let settled = a.get("k").expect("it is there");
    match again {
        Answer::Written(version) => {
            assert_eq!((settled.version, settled.value.as_slice()), (version, b"2".as_slice()));
        }
        Answer::Conflict(current) => {
            let may = write.is_err_and(|error| error.may_have_happened());
            assert!(may && current == Some(settled.version) && settled.value == b"1");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.change("k", change, None), Answer::Conflict(Some(settled.version)));
}

pub(crate) fn a_lost_connection_is_reported_and_mended(fixture: &mut dyn Fixture) {
    without_connection(fixture, |fixture| fixture.cut(0));
}

pub(crate) fn a_stalled_connection_is_reported_and_mended(fixture: &mut dyn Fixture) {
    without_connection(fixture, |fixture| fixture.stall(0));
}

pub(crate) fn lost_answers_leave_unknown_outcomes(fixture: &mut dyn Fixture) {
    without_connection(fixture, |fixture| fixture.deafen(0));
}

/// A program that keeps a lease.
struct Candidate {
    client: Client,
    keeper: Keeper,
    told: Vec<News>,
}

impl Candidate {
    fn new(fixture: &mut dyn Fixture, id: u64) -> Candidate {
        let keeper = Keeper::new(lease("leader"), holder(id), TTL);
        Candidate { client: fixture.client(), keeper, told: Vec::new() }
    }

    fn turn(&mut self) {
        self.client.pass();
        let now = self.client.now();
        for (id, result) in self.client.answers() {
            self.keeper.take(now, id, &result);
        }
        self.keeper.turn(now, self.client.store.as_mut());
        // A keeper asks for nothing while its owner has not read its news.
        self.told.extend(std::iter::from_fn(|| self.keeper.news()));
    }

    fn believes(&self) -> Option<Fence> {
        self.keeper.fence(self.client.now()).cloned()
    }
}

/// Gives turns to all candidates until a condition holds, and checks that no two believe.
fn turns_until(candidates: &mut [Candidate], goal: &str, is_so: impl Fn(&[Candidate]) -> bool) {
    let began = candidates[0].client.now();
    while !is_so(candidates) {
        for candidate in &mut *candidates {
            candidate.turn();
        }
        let believers = candidates.iter().filter(|it| it.believes().is_some()).count();
        assert!(believers <= 1, "two believe that they have it");
        let waited = candidates[0].client.now().since(began);
        assert!(waited < Duration::from_secs(60), "waited too long for {goal}");
    }
}

pub(crate) fn a_disconnected_keeper_stops_believing_first(fixture: &mut dyn Fixture) {
    if !fixture.has_connections() {
        return;
    }
    let mut both = [Candidate::new(fixture, 1), Candidate::new(fixture, 2)];
    turns_until(&mut both, "a leader", |both| both.iter().any(|it| it.believes().is_some()));
    let leader = usize::from(both[0].believes().is_none());
    let old = both[leader].believes().expect("it leads");
    fixture.stall(leader);
    turns_until(&mut both, "another leader", |both| both[1 - leader].believes().is_some());
    assert_eq!(both[leader].told, [News::Won(old.clone()), News::Lost(old.clone())]);
    let new = both[1 - leader].believes().expect("it leads");
    assert!(new.token > old.token);
    fixture.mend(leader);
    turns_until(&mut both, "the old leader to learn of it", |both| {
        both[leader].keeper.held_by().is_some_and(|held| held.token == new.token)
    });
    let late = &mut both[leader].client;
    assert_eq!(late.change("k", Change::Create(Vec::new()), Some(&old)), Answer::Deposed);
}

pub(crate) fn a_keeper_that_resigns_is_followed_at_once(fixture: &mut dyn Fixture) {
    let mut both = [Candidate::new(fixture, 1), Candidate::new(fixture, 2)];
    turns_until(&mut both, "a leader", |both| both.iter().any(|it| it.believes().is_some()));
    let leader = usize::from(both[0].believes().is_none());
    let now = both[leader].client.now();
    let Candidate { client, keeper, .. } = &mut both[leader];
    keeper.resign(now, client.store.as_mut());
    assert_eq!(both[leader].believes(), None);
    turns_until(&mut both, "another leader", |both| both[1 - leader].believes().is_some());
    assert_eq!(both[leader].keeper.deadline(), None, "it does not ask again");
}

pub(crate) fn a_keeper_survives_a_restart_or_reports_the_loss(fixture: &mut dyn Fixture) {
    let mut both = [Candidate::new(fixture, 1), Candidate::new(fixture, 2)];
    turns_until(&mut both, "a leader", |both| both.iter().any(|it| it.believes().is_some()));
    fixture.stop();
    fixture.start();
    let began = both[0].client.now();
    turns_until(&mut both, "time to pass", |both| both[0].client.now().since(began) > TTL);
    // The leader of this moment may still lose the lease to the restart; it learns that when it
    // writes.
    loop {
        turns_until(&mut both, "a leader", |both| both.iter().any(|it| it.believes().is_some()));
        let leader = usize::from(both[0].believes().is_none());
        let Some(fence) = both[leader].believes() else { continue };
        match both[leader].client.change("k", Change::Create(Vec::new()), Some(&fence)) {
            Answer::Written(_) => break,
            answer => assert_eq!(answer, Answer::Deposed),
        }
    }
}
