//! An in-process store on log-structured memory: a session cache that fits a fixed memory, keeps
//! itself clean beside the program, and is rebuilt from a recording of its log.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use thunderhead_log::{
    CleanerThreads, Condition, Cursor, Error, Log, LogId, Memory, Options, Recorder, Replay,
    ReplayError, SegmentId, TableId, TabletRange,
};

const SESSIONS: TableId = TableId(1);
const MEMORY_BYTES: usize = 16 << 20;

fn options() -> Options {
    Options { segment_bytes: 1 << 20, ..Options::default() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let everything = TabletRange::whole(SESSIONS);
    let recorder = Recorder::new();
    let memory = Memory::new(MEMORY_BYTES)?;
    let mut log = Log::new(&memory, LogId(1), options(), Box::new(recorder.clone()))?;
    log.create_tablet(everything)?;
    let cleaners = CleanerThreads::start(&log, 1, |_| {});

    // Writes four times as much as fits: overwritten objects make room for new ones.
    for number in 0..1_000_000u32 {
        let key = format!("session-{}", number % 50_000);
        let value = format!("{{\"clicks\": {number}, \"page\": \"/article/{}\"}}", number % 97);
        loop {
            match log.write(SESSIONS, key.as_bytes(), value.as_bytes()) {
                Ok(_) => break,
                Err(Error::CleanerBehind) => log.turn(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let object = log.read(SESSIONS, b"session-7")?.ok_or("the session is there")?;
    let version = object.version();
    println!("session-7 is at {version}: {}", String::from_utf8_lossy(&object.value().to_vec()));

    // Another writer may have been faster: this write goes ahead only on the version just read.
    log.write_if(SESSIONS, b"session-7", b"{}", Condition::VersionIs(version))?;
    let again = log.write_if(SESSIONS, b"session-7", b"{}", Condition::VersionIs(version));
    println!("the same again: {}", again.err().ok_or("the version has moved on")?);
    log.delete(SESSIONS, b"session-8", Condition::Always)?;
    // Writes go to the replicator at the end of a turn, and are safe once it says so. A server
    // takes a turn after each round of requests.
    log.turn();
    assert_eq!(log.durable(), log.appended());

    let usage = log.usage();
    println!(
        "{} MB written into {} MB, {} MB of it live; cleaners moved {} entries",
        recorder.events_bytes() >> 20,
        MEMORY_BYTES >> 20,
        usage.live_bytes >> 20,
        usage.entries_moved
    );
    assert!(
        recorder.events_bytes() > 3 * MEMORY_BYTES as u64 && usage.compactions + usage.passes > 0
    );

    // A crash: only the recorded bytes remain.
    drop(cleaners);
    let before = count(&log, everything)?;
    let replicas = recorder.replicas(recorder.events());
    drop(log);
    let memory = Memory::new(MEMORY_BYTES)?;
    let replicator = Box::new(Recorder::new());
    let mut rebuilt = Log::new(&memory, LogId(2), options(), replicator)?;
    // The recording may be larger than the memory: the cleaners keep up with the replay, too.
    let _cleaners = CleanerThreads::start(&rebuilt, 1, |_| {});
    let mut replay = Replay::new(&mut rebuilt, [(everything, SegmentId::NONE)])?;
    for replica in replicas.values() {
        while let Err(error) = replay.segment(&replica.bytes) {
            // Everything else is final: `MemoryFull` if the memory is too small.
            if error != ReplayError::Log(Error::CleanerBehind) {
                return Err(error.into());
            }
            std::thread::yield_now();
        }
    }
    let report = replay.finish()?;
    println!("replayed {} segments: {} objects", report.segments, count(&rebuilt, everything)?);
    assert_eq!(before, count(&rebuilt, everything)?);
    Ok(())
}

fn count(log: &Log, range: TabletRange) -> Result<usize, Error> {
    let (mut objects, mut cursor) = (0, Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan(range, at, |_| objects += 1)?;
    }
    Ok(objects)
}
