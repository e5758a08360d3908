//! The data that a simulated disk keeps, loses and refuses.

use super::*;
use crate::files::Content as Of;
use std::collections::BTreeSet;

fn disk(seed: u64) -> SimDisk {
    SimDisk::new(DiskModel::default(), Random::from_seed(seed))
}

fn content(disk: &SimDisk, name: &str) -> Vec<u8> {
    let mut files = disk.files();
    let Ok(file) = files.open(name, false) else { return Vec::new() };
    let mut bytes = vec![0; 1 << 16];
    let count = files.read_at(file, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn synced_writes_survive_a_power_loss_and_unsynced_ones_may_be_torn() {
    let mut torn = 0;
    for seed in 0..100 {
        let disk = disk(seed);
        let mut files = disk.files();
        let file = files.open("journal", true).unwrap();
        files.write_at(file, 0, &[1; 2000]).unwrap();
        files.sync(file).unwrap();
        files.write_at(file, 1000, &[2; 2000]).unwrap();
        disk.lose_power();
        let found = content(&disk, "journal");
        assert_eq!(found[..1000], [1; 1000]);
        let mut new = vec![1; 1000];
        new.extend([2; 2000]);
        let mut old = vec![1; 2000];
        old.resize(found.len(), 0);
        torn += usize::from(found != new && found != old);
        for (at, byte) in found.iter().enumerate().skip(1000) {
            assert!([old[at], new[at]].contains(byte), "byte {at} is {byte}");
        }
    }
    assert!((10..90).contains(&torn), "{torn} of 100 were torn");
}

#[test]
fn a_crash_of_the_process_loses_nothing() {
    let disk = disk(1);
    let mut files = disk.files();
    let file = files.open("journal", true).unwrap();
    files.write_at(file, 0, b"kept").unwrap();
    disk.restart();
    assert_eq!(content(&disk, "journal"), b"kept");
}

#[test]
fn a_machine_that_stops_in_an_operation_does_nothing_more() {
    let disk = disk(3);
    let mut files = disk.files();
    let file = files.open("journal", true).unwrap();
    disk.stop_after(2);
    files.write_at(file, 0, b"one").unwrap();
    assert!(!disk.has_stopped());
    assert!(files.sync(file).is_err());
    assert!(disk.has_stopped());
    assert!(files.write_at(file, 3, b"two").is_err());
}

#[test]
fn faults_are_as_the_model_says() {
    let disk = disk(2);
    let mut files = disk.files();
    let file = files.open("data", true).unwrap();
    disk.set_model(DiskModel { capacity: 10, ..disk.model() });
    let full = files.write_at(file, 0, &[0; 11]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    files.write_at(file, 0, &[0; 10]).unwrap();
    files.write_at(file, 0, &[1; 10]).unwrap();
    disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
    assert!(files.sync(file).is_err());
    disk.set_model(DiskModel::default());
    let _ = disk.take_spent();
    files.write_at(file, 0, &[2; 10]).unwrap();
    files.sync(file).unwrap();
    assert!(disk.take_spent() >= DiskModel::default().sync);
    let before = content(&disk, "data");
    assert!(disk.rot());
    let flipped: u32 =
        before.iter().zip(content(&disk, "data")).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(flipped, 1);
}

/// Returns which of so many sectors hold this byte.
fn sectors_of(found: &[u8], byte: u8, count: usize) -> Vec<bool> {
    let is_it = |at: usize| found.get(at * SECTOR).is_some_and(|it| *it == byte);
    (0..count).map(is_it).collect()
}

#[test]
fn a_failed_sync_keeps_any_part_and_no_later_sync_covers_the_rest() {
    let (mut partly, mut shown, mut forgotten) = (0, 0, 0);
    for seed in 0..100 {
        let disk = disk(seed);
        let mut files = disk.files();
        let file = files.open("journal", true).unwrap();
        files.write_at(file, 0, &[1; 8 * SECTOR]).unwrap();
        files.sync(file).unwrap();
        files.write_at(file, 0, &[2; 8 * SECTOR]).unwrap();
        disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
        assert!(files.sync(file).is_err());
        disk.set_model(DiskModel::default());
        let read_back = sectors_of(&content(&disk, "journal"), 2, 8);
        files.write_at(file, 8 * SECTOR as u64, &[3; SECTOR]).unwrap();
        files.sync(file).unwrap();
        disk.restart();
        let after_restart = sectors_of(&content(&disk, "journal"), 2, 8);
        disk.lose_power();
        let found = content(&disk, "journal");
        assert_eq!(sectors_of(&found, 3, 9)[8..], [true], "a later write is durable");
        let kept = sectors_of(&found, 2, 8);
        partly += usize::from(kept.contains(&true) && kept.contains(&false));
        shown += usize::from(read_back != kept);
        forgotten += usize::from(read_back != after_restart);
        assert!(
            read_back == kept || !read_back.contains(&false),
            "reads show all writes or the stored ones"
        );
        assert!(after_restart == kept || after_restart == read_back);
    }
    assert!((10..90).contains(&partly), "{partly} of 100 were kept in part");
    assert!((10..90).contains(&shown), "{shown} of 100 could be read and were not there");
    assert!((5..50).contains(&forgotten), "{forgotten} of 100 were gone after a restart");
}

#[test]
fn a_failed_write_leaves_any_part_and_on_a_full_disk_its_beginning() {
    let mut in_the_middle = 0;
    for seed in 0..100 {
        let disk = disk(seed);
        let mut files = disk.files();
        let file = files.open("data", true).unwrap();
        disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
        assert!(files.write_at(file, 0, &[1; 8 * SECTOR]).is_err());
        disk.set_model(DiskModel::default());
        let written = sectors_of(&content(&disk, "data"), 1, 8);
        in_the_middle += usize::from(written.windows(2).any(|pair| pair == [false, true]));
    }
    assert!((10..90).contains(&in_the_middle), "{in_the_middle} of 100 have holes");
    let disk = disk(0);
    let mut files = disk.files();
    let file = files.open("data", true).unwrap();
    disk.set_model(DiskModel { capacity: 10, ..disk.model() });
    assert!(files.write_at(file, 4, &[1; 11]).is_err());
    assert_eq!(content(&disk, "data"), [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    assert!(files.write_at(file, 20, &[1; 11]).is_err());
    assert!(files.set_length(file, 11).is_err());
    assert_eq!(content(&disk, "data").len(), 10);
}

/// A machine that stops during the writes has done any part of them, and so has a failed write.
#[test]
fn pieces_are_written_in_any_order_each_with_its_own_faults() {
    let (mut stopped, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..200 {
        let together = |fails: f64, stop: u64| {
            let disk = disk(seed);
            let mut files = disk.files();
            let file = files.open("data", true).unwrap();
            disk.set_model(DiskModel { failure: fails, ..disk.model() });
            disk.stop_after(stop);
            let piece = |at| Piece { offset: at, content: Of::Bytes(b"x") };
            let results = files.write_together(file, &[0, 1, 2].map(piece));
            let results: Vec<bool> = results.iter().map(Result::is_ok).collect();
            disk.set_model(DiskModel::default());
            disk.restart();
            let mut found = content(&disk, "data");
            found.resize(3, 0);
            let told = results.iter().zip(&found).all(|(is_ok, it)| !is_ok || *it == b'x');
            assert!(told, "{results:?} {found:?}");
            results
        };
        stopped.insert(together(0.0, 2));
        failed.insert(together(0.5, 9));
        assert_eq!(together(0.0, 9), [true; 3]);
    }
    assert_eq!((stopped.len(), failed.len()), (3, 8));
}

/// Fails a change of names on many disks. Returns the names before and after a power loss.
fn after_failed(change: impl Fn(&mut SimFiles) -> io::Result<()>) -> Vec<(String, String)> {
    let mut seen: Vec<(String, String)> = (0..100)
        .map(|seed| {
            let disk = disk(seed);
            let mut files = disk.files();
            files.open("old", true).unwrap();
            disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
            assert!(change(&mut files).is_err());
            disk.set_model(DiskModel::default());
            let before = files.list().unwrap().join(" ");
            disk.lose_power();
            (before, files.list().unwrap().join(" "))
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn a_failed_change_of_names_may_be_done_for_good_or_until_a_power_loss() {
    let pairs = |all: [(&str, &str); 3]| all.map(|(a, b)| (a.to_owned(), b.to_owned()));
    let renamed = after_failed(|files| files.rename("old", "new"));
    assert_eq!(renamed, pairs([("new", "new"), ("new", "old"), ("old", "old")]));
    let removed = after_failed(|files| files.remove("old"));
    assert_eq!(removed, pairs([("", ""), ("", "old"), ("old", "old")]));
    let made = after_failed(|files| files.open("also", true).map(drop));
    assert_eq!(made, pairs([("also old", "also old"), ("also old", "old"), ("old", "old")]));
}

#[test]
fn a_successful_change_of_names_is_durable_and_repairs_a_failed_one() {
    for seed in 0..100 {
        let disk = disk(seed);
        let mut files = disk.files();
        let file = files.open("new", true).unwrap();
        files.write_at(file, 0, b"content").unwrap();
        files.sync(file).unwrap();
        disk.set_model(DiskModel { failure: 1.0, ..disk.model() });
        assert!(files.rename("new", "old").is_err());
        assert!(files.open("also", true).is_err());
        disk.set_model(DiskModel::default());
        let _ = files.rename("new", "old");
        files.open("also", true).unwrap();
        files.rename("old", "final").unwrap();
        disk.lose_power();
        assert_eq!(files.list().unwrap(), ["also", "final"]);
        assert_eq!(content(&disk, "final"), b"content");
    }
}

#[test]
fn the_digest_sees_every_byte_that_was_ever_written() {
    let digests = |byte: u8, at: u64| {
        let disk = disk(1);
        let mut files = disk.files();
        let file = files.open("data", true).unwrap();
        files.write_at(file, at, &[byte; 9]).unwrap();
        files.write_at(file, 0, &[7; 30]).unwrap();
        (disk.written(), disk.digest())
    };
    let (written, all) = digests(1, 0);
    assert_eq!(digests(1, 0), (written, all));
    for (byte, at) in [(2, 0), (1, 1)] {
        assert_ne!(digests(byte, at).0, written);
        assert_ne!(digests(byte, at).1, all);
    }
    let disk = disk(1);
    disk.files().open("data", true).unwrap();
    let before = disk.digest();
    let mut files = disk.files();
    let file = files.open("data", false).unwrap();
    files.write_at(file, 0, &[0]).unwrap();
    let after = disk.digest();
    assert_ne!(before, after);
    files.sync(file).unwrap();
    assert!(disk.rot());
    assert_ne!(disk.digest(), after);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let mut files = disk(0).files();
    for name in ["", "..", ".", "a/b", "/etc/passwd", "a\0b"] {
        assert_eq!(files.open(name, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(files.open("none", false).unwrap_err().kind(), io::ErrorKind::NotFound);
    files.open("old", true).unwrap();
    files.rename("old", "new").unwrap();
    assert_eq!(files.list().unwrap(), ["new"]);
    files.remove("new").unwrap();
    assert_eq!(files.remove("new").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_sector_stays_unreadable_until_it_is_written_or_for_good() {
    for (how, heals) in [(Unreadable::UntilWritten, true), (Unreadable::ForGood, false)] {
        let disk = disk(1);
        let mut files = disk.files();
        let file = files.open("data", true).unwrap();
        files.write_at(file, 0, &[1; 4 * SECTOR]).unwrap();
        files.sync(file).unwrap();
        assert!(disk.spoil("data", SECTOR as u64 + 7, how));
        assert!(!disk.spoil("data", 4 * SECTOR as u64, how) && !disk.spoil("none", 0, how));
        let mut into = [0; SECTOR];
        for _ in 0..3 {
            let mut reads = |offset: usize| files.read_at(file, offset as u64, &mut into).is_ok();
            let which = [0, 1, SECTOR, 2 * SECTOR - 1, 2 * SECTOR].map(&mut reads);
            assert_eq!(which, [true, false, false, false, true]);
            disk.restart();
            disk.lose_power();
            files = disk.files();
            assert_eq!(files.open("data", false).unwrap(), file);
        }
        assert!(files.write_at(file, SECTOR as u64, b"a part").is_err());
        assert_eq!(files.write_at(file, 512, &[2; 2 * SECTOR]).is_ok(), heals);
        assert_eq!(files.read_at(file, SECTOR as u64, &mut into).is_ok(), heals);
        assert_eq!(into[0], if heals { 2 } else { 1 });
    }
}
