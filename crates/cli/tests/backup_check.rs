//! `thunderhead backup check` as an operator runs it: its output and its status.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Output};
use thunderhead_backup::layout::FrameNumber;
use thunderhead_backup::{Durability, FILE_NAME, Identity, Options, ReplicaId, Store};
use thunderhead_runtime::os::world;
use thunderhead_wire::{ClusterId, Epoch, MasterId, SegmentId, ServerId};

/// Clusters have ids of 64 random bits.
const CLUSTER: ClusterId = ClusterId(u64::MAX - 1);

/// Makes a store with one closed replica. Returns the offset of its data.
fn make_store(directory: &Path) -> u64 {
    let mut world = world(directory).unwrap();
    let identity = Identity { cluster: CLUSTER, server: ServerId(2) };
    let options = Options {
        segment_bytes: 1 << 16,
        buffers: 1,
        durability: Durability::Synced,
        ..Options::new(identity, 4)
    };
    let (mut store, _) = Store::start(&mut world, options).unwrap();
    let id = ReplicaId { master: MasterId(3), segment: SegmentId(4) };
    store.open(id, Epoch(5), false).unwrap();
    store.append(id, Epoch(5), 0, &[7; 10_000]).unwrap();
    store.close(id, Epoch(5), 10_000).unwrap();
    while !store.is_settled() {
        store.turn(world.clock.now(), &mut |_| {});
        std::thread::yield_now();
    }
    store.leave(world.memories.as_mut()).unwrap();
    store.superblock().geometry.data_at(FrameNumber(0))
}

fn check(directory: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead"));
    command.args(["backup", "check"]).arg(directory).args(more);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_check_reports_damage_and_ends_with_status_1() {
    let name = format!("thunderhead-check-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let (status, text) = check(&directory, &[]);
    assert_eq!(status, Some(2), "{text}");
    assert!(!directory.exists(), "a check makes no files");
    let data_at = make_store(&directory);
    let (status, text) = check(&directory, &[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("closed") && text.contains("3 free, 1 used, 0 damaged"), "{text}");

    let mut options = std::fs::OpenOptions::new();
    let mut file = options.read(true).write(true).open(directory.join(FILE_NAME)).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(data_at + 5000)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(data_at + 5000)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
    let (status, text) = check(&directory, &["--json"]);
    assert_eq!(status, Some(1), "{text}");
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    // As in `status`: many programs would round the number.
    assert_eq!(facts["cluster"], CLUSTER.0.to_string());
    assert_eq!((&facts["server"], &facts["frames_damaged"]), (&2.into(), &1.into()));
    assert_eq!(facts["frames"].as_array().unwrap().len(), 4);
    assert_eq!(facts["frames"][0]["replica"]["segment"], 4);
    assert_eq!(facts["frames"][0]["damage"], "chunk 1 is damaged");
    std::fs::remove_dir_all(directory).unwrap();
}
