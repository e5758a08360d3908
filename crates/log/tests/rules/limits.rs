//! Limits of options, sizes and counts: a log or a memory beyond them is refused.

use crate::{log, nothing, options};
use thunderhead_log::{CLEANERS_MAX, CleanerThreads, Log, LogId, Memory, Options};

#[test]
fn unworkable_options_are_refused_with_a_reason() {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    type Change = fn(&mut Options);
    // Each with two parts of the refusal's text: the given value, and the limit.
    let bad: [(Change, [&str; 2]); 15] = [
        (|options| options.segment_bytes = 1500, ["1500", "1024"]),
        (|options| options.segment_bytes = 0, ["is 0", "at least eight"]),
        (|options| options.segment_bytes = 1 << 30, ["1073741824", "at least 4194304"]),
        (|options| options.segment_bytes = 1 << 40, ["1099511627776", "1 GiB"]),
        (|options| options.cleaner.safe_fraction = 1.5, ["1.5", "at most 1"]),
        (|options| options.cleaner.write_fraction = 0.99, ["0.99", "0.98"]),
        (|options| options.cleaner.write_fraction = 1e-9, ["write_fraction (0.0", "at least"]),
        (|options| options.cleaner.segments_per_pass = 1, ["is 1", "at least 2"]),
        (|options| options.cleaner.disk_expansion = 0.5, ["is 0.5", "1 to 100"]),
        (|options| options.cleaner.free_fraction_low = f64::NAN, ["NaN", "over 0"]),
        (|options| options.cleaner.delete_seglets = usize::MAX, ["18446744073709551615", "944"]),
        (|options| options.cleaner.delete_seglets = 945, ["is 945", "at most 944"]),
        (|options| options.cleaner.pool_segments = usize::MAX, ["is 18446744073709551615", "1024"]),
        (|options| options.cleaner.pool_segments = 0, ["is 0", "1 to 1024"]),
        (|options| options.cleaner.pool_segments = 58, ["pool_segments (58)", "at least 4160"]),
    ];
    for (change, parts) in bad {
        let mut options = options();
        change(&mut options);
        let result = Log::new(&memory, LogId(1), options, nothing());
        let text = result.err().unwrap().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    // A refused log leaves the memory free for options that can work.
    let mut most = options();
    most.cleaner.delete_seglets = 900;
    Log::new(&memory, LogId(1), most, nothing()).unwrap();
}

#[test]
fn a_memory_of_an_impossible_size_is_refused_with_the_possible_range() {
    for (bytes, seglet_bytes, part) in [
        (1 << 20, 1 << 17, "1048832 to "),
        (8448 - 1, 1024, "8448 to "),
        (usize::MAX, 1024, " to "),
        (1 << 47, 1 << 16, " to 140737488355327"),
    ] {
        let text = Memory::with_seglets(bytes, seglet_bytes).err().unwrap().to_string();
        assert!(text.contains(part) && text.contains(&bytes.to_string()), "{text}");
    }
    Memory::with_seglets(8448, 1024).unwrap();
}

#[test]
fn a_memory_serves_one_log() {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let log = Log::new(&memory, LogId(1), options(), nothing()).unwrap();
    let second = Log::new(&memory, LogId(2), options(), nothing());
    assert!(second.err().unwrap().to_string().contains("make another"));
    drop(log);
}

#[test]
fn a_log_has_no_more_cleaners_than_the_limit() {
    let log = log();
    let cleaner = log.cleaner().unwrap();
    let threads = CleanerThreads::start(&log, 100, |_| {});
    assert_eq!(threads.count(), CLEANERS_MAX - 1);
    assert!(log.cleaner().is_none());
    drop((threads, cleaner));
    assert_eq!(CleanerThreads::start(&log, 100, |_| {}).count(), CLEANERS_MAX);
}
