//! Tests of the blocking client, against a shard on this machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thunderhead_client::{
    Action, Answer, Blocking, Error, MapSource, Number, Obstacle, Operation, TabletMap,
};
use thunderhead_log::{
    Condition, KeyHash, Log, LogId, Memory, NoReplication, Options as LogOptions, TableId,
    TabletRange,
};
use thunderhead_master::Shard;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::{Caller, Node};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{Random, World, os};
use thunderhead_wire::operations::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use thunderhead_wire::{LeaseId, Status};

const TABLE: TableId = TableId(1);

fn world() -> World {
    os::world_without_files().expect("an event descriptor")
}

/// Ends the server's thread, also if the test panics.
struct End<'a>(&'a AtomicBool, Alarm);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.ring();
    }
}

/// Runs a test with a client and a shard.
fn with_client(options: Options, test: impl FnOnce(&mut Blocking<TabletMap>)) {
    let stop = &AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let world = world();
            let (clock, alarm) = (world.clock.clone(), world.alarm.clone());
            let memory = Memory::new(64 << 20).unwrap();
            let replicator = Box::new(NoReplication::default());
            let log_options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
            let mut log = Log::new(&memory, LogId(1), log_options, replicator).unwrap();
            log.create_tablet(TabletRange::whole(TABLE)).unwrap();
            let transport = OsTransport::new(&world, options).unwrap();
            let mut node = Node::new(world, Box::new(transport), Shard::new(log));
            let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            tell.send((address, alarm)).unwrap();
            os::run(&mut node, &clock, Polling::default(), || stop.load(Ordering::Relaxed));
        });
        let (address, alarm) = told.recv().unwrap();
        let _end = End(stop, alarm);
        let mut map = TabletMap::default();
        map.insert(TabletRange::whole(TABLE), address);
        test(&mut client(options, map));
    });
}

#[allow(clippy::disallowed_methods, reason = "a listener that does not speak our protocol")]
fn listener() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap()
}

fn client<M: MapSource>(options: Options, source: M) -> Blocking<M> {
    let world = world();
    let transport = Box::new(OsTransport::new(&world, options).unwrap());
    let caller = Caller::new(&world, transport, Polling::default());
    Blocking::new(LeaseId(1), Random::from_seed(1), world.clock, caller, source)
}

#[test]
fn everything_is_done_over_both_transports() {
    for shared_memory in [false, true] {
        with_client(Options { shared_memory, ..Options::default() }, |client| {
            assert_eq!(client.get(TABLE, b"k"), Ok(None));
            let version = client.put(TABLE, b"k", b"v", Condition::Absent).unwrap();
            assert_eq!(client.get(TABLE, b"k"), Ok(Some((version, b"v".to_vec()))));
            let refused = client.put(TABLE, b"k", b"w", Condition::Absent);
            assert_eq!(refused, Err(Error::ConditionFailed { version }));
            assert_eq!(client.delete(TABLE, b"k", Condition::Always), Ok(Some(version)));
            assert_eq!(client.delete(TABLE, b"k", Condition::Always), Ok(None));
            let sum = client.increment(TABLE, b"n", Number::Integer(5)).unwrap().1;
            assert_eq!(sum, Number::Integer(5));
            assert_eq!(
                client.increment(TABLE, b"f", Number::Float(0.5)).unwrap().1,
                Number::Float(0.5)
            );

            let operation = |number: u64, action| {
                let key = number.to_be_bytes().to_vec();
                Operation { table: TABLE, key, condition: Condition::Always, action }
            };
            let writes: Vec<_> =
                (0..1000).map(|it| operation(it, Action::Write(vec![it as u8; 500]))).collect();
            assert!(client.all(writes).iter().all(|it| matches!(it, Ok(Answer::Written(_)))));
            let reads = (0..1001).map(|it| operation(it, Action::Read)).collect();
            let found = client.all(reads);
            for (number, found) in found[..1000].iter().enumerate() {
                let Ok(Answer::Found { value, .. }) = found else { panic!("{found:?}") };
                assert_eq!(value, &vec![number as u8; 500]);
            }
            assert_eq!(found[1000], Ok(Answer::Absent));
            // The answer to many large reads is too long for one message, so the client reads them
            // one by one.
            let large = (0..20).map(|it| operation(it, Action::Write(vec![7; 100_000]))).collect();
            assert!(client.all(large).iter().all(Result::is_ok));
            let found = client.all((0..20).map(|it| operation(it, Action::Read)).collect());
            assert!(
                found.iter().all(
                    |it| matches!(it, Ok(Answer::Found { value, .. }) if value.len() == 100_000)
                )
            );
            assert!(client.all(Vec::new()).is_empty());

            let mut keys: Vec<_> = client.scan(TABLE).map(|it| it.unwrap().key).collect();
            let walked = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!((walked, keys.len()), (1002, 1002), "1000 objects and two numbers");
            let nowhere: Vec<_> = client.scan(TableId(9)).collect();
            assert_eq!(nowhere, [Err(Error::NoSuchTable(TableId(9)))]);
        });
    }
}

#[test]
fn a_key_or_a_value_of_a_wrong_length_is_refused_alone() {
    let options = Options { shared_memory: false, ..Options::default() };
    with_client(options, |client| {
        let (long, large) = (vec![b'k'; KEY_BYTES_MAX + 1], vec![7; VALUE_BYTES_MAX + 1]);
        let too_long = Error::Refused(Status::KeyTooLong);
        assert_eq!(client.get(TABLE, b""), Err(Error::Refused(Status::KeyEmpty)));
        assert_eq!(client.get(TABLE, &long), Err(too_long));
        assert_eq!(client.delete(TABLE, &long, Condition::Always), Err(too_long));
        let write = |key: &[u8], value: &[u8]| Operation {
            table: TABLE,
            key: key.to_vec(),
            condition: Condition::Always,
            action: Action::Write(value.to_vec()),
        };
        let read = |key: &[u8]| Operation { action: Action::Read, ..write(key, b"") };
        let results = client.all(vec![write(b"a", b"1"), write(b"b", &large), write(&long, b"2")]);
        assert!(matches!(results[0], Ok(Answer::Written(_))), "{results:?}");
        assert_eq!(results[1..], [Err(Error::Refused(Status::ValueTooLong)), Err(too_long)]);
        let results = client.all(vec![read(b""), read(b"a"), read(b"b")]);
        assert_eq!(results[0], Err(Error::Refused(Status::KeyEmpty)));
        assert!(matches!(&results[1], Ok(Answer::Found { value, .. }) if value == b"1"));
        assert_eq!(results[2], Ok(Answer::Absent));
        // The longest key is stored. The longest value is too long for segments of 1 MiB.
        client.put(TABLE, &long[1..], b"3", Condition::Always).unwrap();
        assert!(client.get(TABLE, &long[1..]).unwrap().is_some_and(|(_, value)| value == b"3"));
        let refused = client.put(TABLE, b"b", &large[1..], Condition::Always);
        assert_eq!(refused, Err(Error::Refused(Status::ValueTooLong)));
    });
}

#[test]
fn an_error_names_its_reason_and_whether_the_update_may_be_done() {
    let options = Options { shared_memory: false, ..Options::default() };
    with_client(options, |client| {
        let other = client.get(TableId(9), b"k");
        assert_eq!(other, Err(Error::NoSuchTable(TableId(9))));
        let empty = client.put(TABLE, b"", b"v", Condition::Always).unwrap_err();
        assert_eq!(empty.to_string(), "the key is empty; give at least one byte");
        assert!(!empty.is_unknown());
    });
    // No process listens at this address.
    let gone = listener().local_addr().unwrap();
    let mut map = TabletMap::default();
    map.insert(TabletRange::whole(TABLE), gone);
    let mut client = client(options, map);
    client.deadline = Some(Duration::from_millis(50));
    let error = client.put(TABLE, b"k", b"v", Condition::Always).unwrap_err();
    assert_eq!(error, Error::TimedOut(Obstacle::NoAnswer), "it was never sent");
    // A process listens but never sends a greeting, so the request is not sent either.
    let silent = listener();
    let mut map = TabletMap::default();
    map.insert(TabletRange::whole(TABLE), silent.local_addr().unwrap());
    let mut client = self::client(options, map);
    client.deadline = Some(Duration::from_millis(50));
    let error = client.get(TABLE, b"k").unwrap_err();
    assert_eq!(error, Error::TimedOut(Obstacle::NoAnswer));
}

/// A map source without a map.
struct Nowhere;

impl MapSource for Nowhere {
    fn map(&mut self) -> Option<TabletMap> {
        None
    }
}

#[test]
fn without_a_map_an_operation_ends_at_its_deadline() {
    let mut client = client(Options::default(), Nowhere);
    client.deadline = Some(Duration::from_millis(20));
    let error = client.put(TABLE, b"k", b"v", Condition::Always).unwrap_err();
    assert_eq!(error, Error::TimedOut(Obstacle::NoMap));
    assert!(!error.is_unknown());
}

/// Returns the maps from the last to the first, then the first again and again.
struct Maps(Vec<TabletMap>);

impl MapSource for Maps {
    fn map(&mut self) -> Option<TabletMap> {
        match self.0.as_slice() {
            [only] => Some(only.clone()),
            _ => self.0.pop(),
        }
    }
}

#[test]
fn a_read_finds_its_object_though_the_map_was_out_of_date() {
    let options = Options { shared_memory: false, ..Options::default() };
    with_client(options, |knows| {
        let version = knows.put(TABLE, b"k", b"v", Condition::Always).unwrap();
        let right = knows.session().core().map().clone();
        let server = right.find(TABLE, KeyHash::of(b"k")).unwrap();
        let found = |wrong: TabletMap, table| {
            client(options, Maps(vec![right.clone(), wrong])).get(table, b"k")
        };
        // No process listens at this address.
        let mut wrong = TabletMap::default();
        wrong.insert(TabletRange::whole(TABLE), listener().local_addr().unwrap());
        assert_eq!(found(wrong, TABLE), Ok(Some((version, b"v".to_vec()))));
        // The shard at this address does not have the table.
        let gone = TableId(2);
        let mut wrong = right.clone();
        wrong.insert(TabletRange::whole(gone), server);
        assert_eq!(found(wrong, gone), Err(Error::NoSuchTable(gone)));
    });
}
