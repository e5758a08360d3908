//! Objects of caches make room for newer ones.
use thunderhead_wire::{KeyHash, TableId};

use crate::{TABLE, Watch, log_with, replayed};
use thunderhead_log::{
    Attributes, Cleaner, Condition, Cursor, Error, Log, LogId, Memory, NoReplication, Options,
    Recorder, Step, TabletRange, Update, Version,
};

fn cached() -> Attributes {
    Attributes { is_cached: true, ..Attributes::NONE }
}

/// Writes an object of a cache; the cleaners make room. Returns how often it had to wait.
fn put(log: &mut Log, cleaner: &mut Cleaner, key: &[u8], value: &[u8]) -> u32 {
    let tries = put_late(log, cleaner, key, value);
    cleaner.step();
    log.turn();
    tries
}

/// Does so with a cleaner that works only while a write waits.
fn put_late(log: &mut Log, cleaner: &mut Cleaner, key: &[u8], value: &[u8]) -> u32 {
    let mut tries = 0;
    while let Err(error) = log.with_attributes(cached(), |log| log.write(TABLE, key, value)) {
        assert_eq!(error, Error::CleanerBehind, "a cache never refuses a write for good");
        tries += 1;
        assert!(tries < 500, "{:?}", log.usage());
        cleaner.step();
        log.turn();
    }
    tries
}

#[test]
fn a_cache_takes_any_number_of_objects_and_keeps_those_that_are_used() {
    let (watch, recorder) = (Watch::default(), Recorder::new());
    let mut log = log_with(256 << 10, recorder.clone(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    log.write(TABLE, b"durable", b"stays").unwrap();
    let mut hot_misses = 0;
    for number in 0..20_000u32 {
        put(&mut log, &mut cleaner, &number.to_be_bytes(), &[number as u8; 100]);
        // A few objects are used all the time.
        let hot = format!("hot-{}", number % 20).into_bytes();
        match log.read(TABLE, &hot).unwrap() {
            Some(object) => object.count_use(),
            None => {
                hot_misses += 1;
                put(&mut log, &mut cleaner, &hot, &[7; 100]);
            }
        }
    }
    assert!(log.usage().evicted > 15_000, "{:?}", log.usage());
    // Each of the twenty is missed once, when it is not there yet, and hardly ever later.
    assert!(hot_misses < 60, "{hot_misses} misses");
    let kept = (19_000..20_000u32)
        .filter(|number| log.read(TABLE, &number.to_be_bytes()).unwrap().is_some())
        .count();
    assert!(kept > 500, "the newest objects are there: {kept}");
    assert_eq!(log.read(TABLE, b"durable").unwrap().unwrap().value().to_vec(), b"stays");
    // An object that is no cache's does not make room.
    log.turn();
    let mut recovered = replayed(&recorder, usize::MAX, &watch);
    assert!(recovered.read(TABLE, b"durable").unwrap().is_some());
    let first = recovered.read(TABLE, &0u32.to_be_bytes()).unwrap();
    assert!(first.is_none(), "no recovery brings an evicted object back");
    assert!(put_version(&mut recovered, b"new") > Version(1));
}

#[test]
fn a_cache_of_which_every_object_is_used_takes_new_objects_without_a_wait() {
    let watch = Watch::default();
    let mut log = log_with(512 << 10, Recorder::new(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    for number in 0..6000u32 {
        put(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 100]);
    }
    for number in 0..6000u32 {
        if let Some(object) = log.read(TABLE, &number.to_be_bytes()).unwrap() {
            (0..3).for_each(|_| object.count_use());
        }
    }
    let evicted = log.usage().evicted;
    let mut waits = 0;
    for number in 10_000..12_000u32 {
        waits += put(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 100]);
        assert!(waits < 1000, "{:?}", log.usage());
    }
    assert!(log.usage().evicted > evicted + 1000, "{waits} waits, {:?}", log.usage());
}

#[test]
fn large_objects_replace_many_small_ones_without_a_wait() {
    for volatile in [false, true] {
        let watch = Watch::default();
        let mut log = log_with(512 << 10, Recorder::new(), &watch);
        if volatile {
            log.go_without_copies();
        }
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..20_000u32 {
            put(&mut log, &mut cleaner, &number.to_be_bytes(), b"tiny");
        }
        let mut waits = 0;
        for number in 0..2000u32 {
            waits += put(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 700]);
        }
        assert!(waits < 1000, "{waits} waits, {:?}", log.usage());
    }
}

#[test]
fn a_cache_without_copies_leaves_no_tombstones_and_combines_its_segments() {
    for volatile in [false, true] {
        let watch = Watch::default();
        let mut log = log_with(512 << 10, Recorder::new(), &watch);
        if volatile {
            log.go_without_copies();
        }
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..30_000u32 {
            // Every other write replaces one of a few objects.
            let key = if number % 2 == 0 { number } else { 1 + number % 512 };
            put(&mut log, &mut cleaner, &key.to_be_bytes(), &[1; 60]);
        }
        let usage = log.usage();
        assert!(usage.passes > 100 && usage.evicted > 10_000, "{usage:?}");
        assert_eq!(usage.residuals == 0, volatile, "{usage:?}");
        assert_eq!(usage.compactions == 0, volatile, "{usage:?}");
        let last = log.read(TABLE, &29_998u32.to_be_bytes()).unwrap();
        assert_eq!(last.unwrap().value().to_vec(), [1; 60]);
    }
}

fn put_version(log: &mut Log, key: &[u8]) -> Version {
    log.with_attributes(cached(), |log| log.write(TABLE, key, b"v")).unwrap().version
}

#[test]
fn a_memory_full_of_other_objects_refuses_the_writes_of_a_cache_at_once() {
    let watch = Watch::default();
    let mut log = log_with(256 << 10, Recorder::new(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    let mut number = 0u32;
    let full = loop {
        match log.write(TABLE, &number.to_be_bytes(), &[1; 100]) {
            Ok(_) => number += 1,
            Err(Error::CleanerBehind) => {}
            Err(error) => break error,
        }
        cleaner.step();
        log.turn();
    };
    assert!(matches!(full, Error::MemoryFull { .. }));
    let refused = log.with_attributes(cached(), |log| log.write(TABLE, b"c", &[1; 100]));
    assert!(matches!(refused, Err(Error::MemoryFull { .. })), "{refused:?}");
    for number in 0..number {
        assert!(log.read(TABLE, &number.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn keys_of_evicted_objects_are_noted_while_the_user_wants_them() {
    for volatile in [false, true] {
        let watch = Watch::default();
        let mut log = log_with(256 << 10, Recorder::new(), &watch);
        if volatile {
            log.go_without_copies();
        }
        check_noted_keys(log);
    }
}

fn check_noted_keys(mut log: Log) {
    let mut cleaner = log.cleaner().unwrap();
    let mut number = 0u32;
    let mut fill = |log: &mut Log, evictions: u64| {
        let before = log.usage().evicted;
        while log.usage().evicted < before + evictions {
            number += 1;
            assert!(number < 100_000, "{:?}", log.usage());
            let key = number.to_be_bytes();
            let written = log.with_attributes(cached(), |log| log.write(TABLE, &key, &[0; 100]));
            written.ok();
            cleaner.step();
            log.turn();
        }
        log.usage().evicted - before
    };
    fill(&mut log, 10);
    assert_eq!(log.take_evicted_keys(), []);
    log.note_evicted_keys(true);
    let evicted = fill(&mut log, 50);
    let keys = log.take_evicted_keys();
    assert_eq!(keys.len() as u64, evicted);
    for (table, key) in keys {
        assert_eq!((table, log.read(TABLE, &key).unwrap().is_none()), (TABLE, true));
    }
    log.note_evicted_keys(false);
    fill(&mut log, 10);
    assert_eq!(log.take_evicted_keys(), []);
}

#[test]
fn an_evicted_object_that_is_kept_stops_the_eviction_until_it_is_taken() {
    let watch = Watch::default();
    let mut log = log_with(256 << 10, Recorder::new(), &watch);
    log.keep_evicted(|object| object.value().to_vec()[0] == b'K');
    let mut cleaner = log.cleaner().unwrap();
    let mut number = 0u32;
    let mut write = |log: &mut Log, first: u8| {
        number += 1;
        let value = [&[first][..], &[0; 99]].concat();
        let written =
            log.with_attributes(cached(), |log| log.write(TABLE, &number.to_be_bytes(), &value));
        cleaner.step();
        log.turn();
        written.is_ok()
    };
    let mut tries = 0;
    while log.usage().evicted == 0 {
        write(&mut log, b'K');
        tries += 1;
        assert!(tries < 10_000, "{:?}", log.usage());
    }
    // Each object is kept, so one was evicted, and nothing else is until it is taken.
    for _ in 0..500 {
        write(&mut log, b'K');
    }
    assert_eq!(log.usage().evicted, 1);
    let kept = log.take_evicted();
    assert_eq!((kept.len(), kept[0].table, kept[0].value[0]), (1, TABLE, b'K'));
    assert!(kept[0].attributes.is_cached);
    // The user frees memory meanwhile.
    log.pause_eviction(true);
    for _ in 0..500 {
        write(&mut log, b'K');
    }
    assert_eq!((log.usage().evicted, log.take_evicted()), (1, vec![]));
    log.pause_eviction(false);
    let mut tries = 0;
    while log.usage().evicted < 10 {
        write(&mut log, b'K');
        tries += log.take_evicted().len();
        assert!(tries < 20, "each was taken");
    }
    // Objects that are not kept stop nothing.
    let mut kept = 1;
    for _ in 0..10_000 {
        write(&mut log, b'p');
        kept = log.take_evicted().len();
    }
    let before = log.usage().evicted;
    for _ in 0..500 {
        write(&mut log, b'p');
    }
    assert!(kept == 0 && log.usage().evicted > before + 100, "{:?}", log.usage());
}

/// Writes an object that is not evicted, while others make room. Returns the last refusal.
fn put_lasting(
    log: &mut Log,
    cleaner: &mut Cleaner,
    key: &[u8],
    value: &[u8],
) -> Result<u32, Error> {
    for tries in 0..200 {
        let new = Some((value, Attributes::NONE));
        match log.update_together(&[Update { table: TABLE, key, new }]) {
            Ok(_) => return Ok(tries),
            Err(Error::CleanerBehind) => {}
            Err(error) => return Err(error),
        }
        cleaner.step();
        log.turn();
    }
    Err(Error::CleanerBehind)
}

#[test]
fn a_write_is_refused_at_once_when_the_last_object_of_a_cache_is_evicted() {
    for volatile in [false, true] {
        let (watch, recorder) = (Watch::default(), Recorder::new());
        let mut log = log_with(256 << 10, recorder.clone(), &watch);
        if volatile {
            log.go_without_copies();
        }
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..3000u32 {
            put(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 100]);
        }
        // From now on nothing may be evicted, except the objects that are there.
        let full = (10_000..20_000u32).find_map(|number| {
            put_lasting(&mut log, &mut cleaner, &number.to_be_bytes(), &[2; 100]).err()
        });
        assert!(matches!(full, Some(Error::MemoryFull { .. })), "{full:?}");
        let left = (0..3000u32)
            .filter(|number| log.read(TABLE, &number.to_be_bytes()).unwrap().is_some())
            .count();
        assert_eq!(left, 0, "all make room before a write is refused");
        let again = log.update_together(&[Update {
            table: TABLE,
            key: b"again",
            new: Some((&[2; 100], Attributes::NONE)),
        }]);
        assert!(matches!(again, Err(Error::MemoryFull { .. })), "{again:?}");
    }
}

#[test]
fn an_object_of_a_cache_in_the_head_makes_room() {
    let watch = Watch::default();
    let mut log = log_with(512 << 10, Recorder::new(), &watch);
    let mut cleaner = log.cleaner().unwrap();
    let mut last = 0u32;
    while put_lasting(&mut log, &mut cleaner, &last.to_be_bytes(), &[2; 1000]).is_ok() {
        last += 1;
    }
    // Some memory is free for the only object of a cache, which is in the head then.
    for number in 0..6u32 {
        log.delete(TABLE, &number.to_be_bytes(), Condition::Always).unwrap();
    }
    put(&mut log, &mut cleaner, b"cached", &[1; 1000]);
    let mut written = 0;
    while put_lasting(&mut log, &mut cleaner, &last.to_be_bytes(), &[2; 1000]).is_ok() {
        (last, written) = (last + 1, written + 1);
    }
    assert!(log.read(TABLE, b"cached").unwrap().is_none(), "it was evicted");
    assert!(written >= 4, "{written} objects found room");
    // A replacement of it makes room, too.
    for number in last - 4..last {
        log.delete(TABLE, &number.to_be_bytes(), Condition::Always).unwrap();
    }
    for number in 0..50u32 {
        put(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 700]);
    }
}

/// A cache without copies, whose values take up to half a segment.
fn cache_without_copies() -> Log {
    cache_without_copies_of(8 << 20)
}

fn cache_without_copies_of(bytes: usize) -> Log {
    let memory = Memory::with_seglets(bytes, 4 << 10).unwrap();
    let options = Options { segment_bytes: 128 << 10, value_share: 2, ..Options::default() };
    let mut log = Log::new(&memory, LogId(5), options, Box::new(NoReplication::default())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log.go_without_copies();
    log
}

#[test]
fn a_cache_without_copies_fills_most_of_its_memory_and_keeps_objects_that_are_used() {
    let mut log = cache_without_copies();
    let mut cleaner = log.cleaner().unwrap();
    let (mut hot_misses, mut waits) = (0, 0);
    for number in 0..60_000u32 {
        waits += put(&mut log, &mut cleaner, &number.to_be_bytes(), &[number as u8; 400]);
        let hot = format!("hot-{}", number % 500).into_bytes();
        match log.read(TABLE, &hot).unwrap() {
            Some(object) => object.count_use(),
            None => {
                hot_misses += 1;
                put(&mut log, &mut cleaner, &hot, &[7; 400]);
            }
        }
    }
    let usage = log.usage();
    assert!(hot_misses < 550, "{hot_misses} misses");
    assert!(waits < 2000, "{waits} waits");
    assert!(usage.live_bytes * 100 > usage.log_bytes * 85, "{usage:?}");
    let kept = (57_000..60_000u32)
        .filter(|number| log.read(TABLE, &number.to_be_bytes()).unwrap().is_some())
        .count();
    assert_eq!(kept, 3000, "the newest objects are there");
}

#[test]
fn an_object_in_use_stays_also_when_it_is_alone_in_its_segment_and_writers_wait() {
    let mut log = cache_without_copies();
    let mut cleaner = log.cleaner().unwrap();
    put_late(&mut log, &mut cleaner, b"hot", &[7; 10_000]);
    for number in 0..5000u32 {
        put_late(&mut log, &mut cleaner, &number.to_be_bytes(), &[1; 10_000]);
        let hot = log.read(TABLE, b"hot").unwrap();
        hot.unwrap_or_else(|| panic!("evicted after {number} writes")).count_use();
    }
    assert!(log.usage().evicted > 3000, "{:?}", log.usage());
}

#[test]
fn a_cache_without_copies_of_which_every_object_is_used_takes_new_objects() {
    for bytes in [1000, 10_000] {
        let mut log = cache_without_copies_of(2 << 20);
        let mut cleaner = log.cleaner().unwrap();
        let mut waits = 0;
        for number in 0..(20 << 20) / bytes as u32 {
            let key = number.to_be_bytes();
            let value = vec![1; bytes];
            while log.with_attributes(cached(), |log| log.write(TABLE, &key, &value)).is_err() {
                waits += 1;
                assert!(waits < 10_000, "{bytes} {number} {:?}", log.usage());
                for number in number.saturating_sub(3000)..number {
                    let object = log.read(TABLE, &number.to_be_bytes()).unwrap();
                    object.inspect(|object| (0..3).for_each(|_| object.count_use()));
                }
                cleaner.step();
                log.turn();
            }
        }
    }
}

#[test]
fn an_object_that_is_written_again_while_its_segment_is_evicted_stays() {
    let mut log = cache_without_copies();
    let mut cleaner = log.cleaner().unwrap();
    let (mut number, mut passes) = (0u32, 0);
    while passes < 20 {
        number += 1;
        assert!(number < 200_000, "{:?}", log.usage());
        let written =
            log.with_attributes(cached(), |log| log.write(TABLE, &number.to_be_bytes(), &[1; 400]));
        written.ok();
        let evicted = log.usage().evicted;
        if cleaner.step() == Step::Combined && evicted > 0 {
            passes += 1;
            // The pass has found them or not; here they are replaced before the log hears of it.
            let oldest: Vec<u32> = (1..=number)
                .filter(|number| log.read(TABLE, &number.to_be_bytes()).unwrap().is_some())
                .take(100)
                .collect();
            let again: Vec<u32> = oldest
                .into_iter()
                .filter(|number| {
                    let write = |log: &mut Log| log.write(TABLE, &number.to_be_bytes(), &[2; 400]);
                    log.with_attributes(cached(), write).is_ok()
                })
                .collect();
            (0..50).for_each(|_| log.turn());
            for number in again {
                let object = log.read(TABLE, &number.to_be_bytes()).unwrap();
                assert_eq!(object.map(|it| it.value().to_vec()), Some(vec![2; 400]), "{number}");
            }
        }
        log.turn();
    }
}

#[test]
fn values_of_half_a_segment_replace_one_another_and_small_ones() {
    let mut log = cache_without_copies();
    let mut cleaner = log.cleaner().unwrap();
    for number in 0..5000u32 {
        let bytes = if number % 10 == 0 { 64 << 10 } else { 10 };
        put(&mut log, &mut cleaner, &(number % 1500).to_be_bytes(), &vec![3; bytes]);
        let object = log.read(TABLE, &(number % 1500).to_be_bytes()).unwrap();
        assert_eq!(object.unwrap().value().len(), bytes);
    }
    let error = log.with_attributes(cached(), |log| log.write(TABLE, b"k", &[0; (64 << 10) + 1]));
    assert!(matches!(error, Err(Error::ValueTooLong { limit: 65_536, .. })), "{error:?}");
    assert!(log.usage().evicted > 500, "{:?}", log.usage());
}

#[test]
fn values_that_leave_half_of_each_segment_unused_replace_one_another() {
    // Memory, segments and values, as of `thunderhead memcached -m` and `-I`.
    let cases = [(64 << 20, 1 << 20, 512 << 10), (8 << 20, 256 << 10, 130_000)];
    for (memory_bytes, segment_bytes, bytes) in cases {
        let memory = Memory::with_seglets(memory_bytes, segment_bytes / 16).unwrap();
        let options = Options { segment_bytes, value_share: 2, ..Options::default() };
        let replicator = Box::new(NoReplication::default());
        let mut log = Log::new(&memory, LogId(5), options, replicator).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        log.go_without_copies();
        let mut cleaner = log.cleaner().unwrap();
        for number in 0..300u32 {
            put(&mut log, &mut cleaner, &number.to_be_bytes(), &vec![3; bytes]);
        }
        assert!(log.usage().evicted > 100, "{bytes}: {:?}", log.usage());
    }
}

#[test]
fn a_full_cache_without_copies_takes_another_tablet() {
    let mut log = cache_without_copies();
    let mut cleaner = log.cleaner().unwrap();
    for number in 0..30_000u32 {
        put(&mut log, &mut cleaner, &number.to_be_bytes(), &[3; 400]);
    }
    assert!(log.usage().evicted > 1000 && log.room_bytes() > 0, "{:?}", log.usage());
    let other = TabletRange::whole(TableId(TABLE.0 + 1));
    let mut tries = 0;
    while let Err(error) = log.create_tablet(other) {
        assert_eq!(error, Error::CleanerBehind);
        tries += 1;
        assert!(tries < 1000, "{:?}", log.usage());
        cleaner.step();
        log.turn();
    }
}

#[test]
fn victims_in_a_part_that_is_being_cleared_leave_the_index() {
    for waits in 0..8 {
        let mut log = cache_without_copies();
        let mut cleaner = log.cleaner().unwrap();
        let mut number = 0u32;
        while log.usage().evicted < 2000 {
            number += 1;
            put(&mut log, &mut cleaner, &number.to_be_bytes(), &[3; 400]);
        }
        // A pass has victims in both halves now, or soon, when one half goes.
        while cleaner.step() != Step::Combined {
            number += 1;
            let key = number.to_be_bytes();
            let _ = log.with_attributes(cached(), |log| log.write(TABLE, &key, &[3; 400]));
            log.turn();
        }
        (0..waits).for_each(|_| log.turn());
        let half = KeyHash(u64::MAX / 2);
        log.cut_tablet(TabletRange { table: TABLE, first: half, last: KeyHash(u64::MAX) });
        let mut rounds = 0;
        while log.clear_some() {
            rounds += 1;
            for _ in 0..20 {
                number += 1;
                let key = number.to_be_bytes();
                let write = |log: &mut Log| log.write(TABLE, &key, &[4; 400]);
                let _ = log.with_attributes(cached(), write);
                cleaner.step();
                log.turn();
            }
            assert!(rounds < 100_000);
        }
        let of_tablets: u64 = log.statistics().map(|it| it.bytes).sum();
        assert_eq!(log.usage().live_bytes, of_tablets);
        let mut objects = 0;
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            let piece = TabletRange { table: TABLE, first: KeyHash(0), last: KeyHash(half.0 - 1) };
            cursor = log.scan(piece, at, |_| objects += 1).unwrap();
        }
        assert_eq!(objects, log.statistics().map(|it| it.objects).sum::<u64>());
    }
}
