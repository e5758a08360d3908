//! The store on a real machine: a process that is killed at any moment, its successor, other
//! processes that open the same store, and the report of the offline check.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use thunderhead_backup::check::{Content, check};
use thunderhead_backup::layout::FrameNumber;
use thunderhead_backup::{
    Ack, Durability, Event, FILE_NAME, Identity, OpenError, Options, ReplicaId, StartReport, Store,
};
use thunderhead_runtime::files::{Files, Opening};
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::os::{Directory, MemoryDirectory};
use thunderhead_runtime::{World, os};
use thunderhead_wire::{ClusterId, Epoch, MasterId, SegmentId, ServerId};

/// Set in the process that is to be killed: the directory of its store.
const CHILD: &str = "THUNDERHEAD_BACKUP_CHILD";

const SEGMENT_BYTES: u32 = 100_000;

/// A directory that is removed when the test ends.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Scrap {
        let name = format!("thunderhead-backup-{}-{name}", std::process::id());
        Scrap(std::env::temp_dir().join(name))
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(durability: Durability) -> Options {
    let identity = Identity { cluster: ClusterId(1), server: ServerId(2) };
    let segment_bytes = SEGMENT_BYTES;
    Options { segment_bytes, buffers: 4, durability, ..Options::new(identity, 16) }
}

fn start(directory: &Path, options: Options) -> Result<(World, Store, StartReport), OpenError> {
    let mut world = os::world(directory)?;
    let (store, opened) = Store::start(&mut world, options)?;
    Ok((world, store, opened))
}

fn replica(segment: u64) -> ReplicaId {
    ReplicaId { master: MasterId(3), segment: SegmentId(segment) }
}

/// The bytes of a segment: any prefix can be checked.
fn content(segment: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(31) ^ at >> 9 ^ segment) as u8).collect()
}

/// Runs turns until `done` accepts an event.
fn wait(world: &World, store: &mut Store, mut done: impl FnMut(Event) -> bool) {
    let mut ready = false;
    while !ready {
        store.turn(world.clock.now(), &mut |event| ready |= done(event));
        std::thread::yield_now();
    }
}

fn settle(world: &World, store: &mut Store) {
    while !store.is_settled() {
        store.turn(world.clock.now(), &mut |_| {});
        std::thread::yield_now();
    }
}

/// Ends a store like a server that is asked to end.
fn leave(mut world: World, mut store: Store) {
    settle(&world, &mut store);
    assert!(store.leave(world.memories.as_mut()).unwrap());
}

/// Appends until it is killed, and prints the acknowledged lengths.
fn be_killed(directory: &Path, durability: Durability) -> ! {
    let (world, mut store, _) = start(directory, options(durability)).unwrap();
    let mut out = std::io::stdout();
    for segment in 1.. {
        while store.open(replica(segment), Epoch(1), false).is_err() {
            store.turn(world.clock.now(), &mut |_| {});
            if store.frames_free() == 0 {
                store.free(replica(segment - 12));
                writeln!(out, "freed {}", segment - 12).unwrap();
                settle(&world, &mut store);
            }
        }
        let bytes = content(segment, SEGMENT_BYTES as usize);
        let mut at = 0;
        while at < bytes.len() {
            let part = &bytes[at..bytes.len().min(at + 7_001)];
            let ack = store.append(replica(segment), Epoch(1), at as u32, part).unwrap();
            if let Ack::When(ticket) = ack {
                let is_it = |event| matches!(event, Event::Durable(it) if it == ticket);
                wait(&world, &mut store, is_it);
            }
            at += part.len();
            writeln!(out, "{segment} {at}").unwrap();
            store.turn(world.clock.now(), &mut |_| {});
        }
        store.close(replica(segment), Epoch(1), at as u32).unwrap();
    }
    unreachable!("there are segments enough")
}

#[test]
fn acknowledged_replicas_of_a_killed_process_are_there() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let durability = match std::env::args().any(|it| it == "synced") {
            true => Durability::Synced,
            false => Durability::Replicated,
        };
        be_killed(Path::new(&directory), durability);
    }
    for (level, round) in [("replicated", 0), ("replicated", 1), ("synced", 0), ("replicated", 2)] {
        let scrap = Scrap::new(&format!("kill-{level}-{round}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "acknowledged_replicas_of_a_killed_process_are_there", "--nocapture"])
            .args(["--skip", level])
            .env(CHILD, &scrap.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut acknowledged = std::collections::BTreeMap::new();
        let mut take = |line: &str| {
            if let Some(freed) = line.strip_prefix("freed ") {
                acknowledged.remove(&freed.parse::<u64>().unwrap());
            } else if let Some((segment, length)) = line.split_once(' ')
                && let (Ok(segment), Ok(length)) = (segment.parse(), length.parse::<usize>())
            {
                acknowledged.insert(segment, length);
            }
        };
        let mut line = String::new();
        for _ in 0..[60, 400, 100][round] {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the child died by itself");
            take(line.trim());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        // The last line may be cut off.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().for_each(&mut take);

        let (world, mut store, opened) = start(&scrap.0, options(Durability::Replicated)).unwrap();
        assert_eq!((opened.damaged, opened.pool_damaged, opened.bad), (0, 0, 0));
        assert!(opened.read_bytes_per_second.is_some());
        assert!(!acknowledged.is_empty());
        for (segment, length) in acknowledged {
            let read = store.read(replica(segment)).unwrap();
            let mut found = Vec::new();
            wait(&world, &mut store, |event| match event {
                Event::Read(id, outcome) if id == read => {
                    found = outcome.unwrap().bytes().to_vec();
                    true
                }
                _ => false,
            });
            assert!(found.len() >= length, "{segment}: {} of {length}", found.len());
            assert_eq!(found, content(segment, found.len()), "{segment}");
        }
        leave(world, store);
    }
}

/// A server that ends waits for its disk for a limited time. The host may then remove its shared
/// memory.
#[test]
fn a_store_that_is_left_is_flushed_before_its_interval_is_over() {
    let scrap = Scrap::new("left");
    let slow = options(Durability::Interval(Duration::from_secs(3600)));
    let (mut world, mut store, _) = start(&scrap.0, slow.clone()).unwrap();
    let bytes = content(1, 5_000);
    store.open(replica(1), Epoch(1), false).unwrap();
    store.append(replica(1), Epoch(1), 0, &bytes).unwrap();
    store.turn(world.clock.now(), &mut |_| {});
    assert_eq!(store.unwritten(), 1);
    let limit = world.clock.now() + Duration::from_secs(20);
    while !store.leave(world.memories.as_mut()).unwrap() {
        assert!(world.clock.now() < limit, "the disk has it long before the interval is over");
        store.turn(world.clock.now(), &mut |_| {});
        std::thread::yield_now();
    }
    drop((world, store));
    // Only the disk has it now.
    let (world, mut store, _) = start(&scrap.0, slow).unwrap();
    let read = store.read(replica(1)).unwrap();
    wait(&world, &mut store, |event| match event {
        Event::Read(id, outcome) => {
            assert_eq!((id, outcome.unwrap().bytes()), (read, &bytes[..]));
            true
        }
        _ => false,
    });
    leave(world, store);
}

#[test]
fn a_store_that_is_in_use_or_somebody_elses_is_refused() {
    let scrap = Scrap::new("refused");
    let made = options(Durability::Replicated);
    let (world, store, opened) = start(&scrap.0, made.clone()).unwrap();
    assert!(opened.is_new);
    let refused = |options: Options| start(&scrap.0, options).err().map(|error| error.code());
    assert_eq!(refused(made.clone()), Some(2), "in use");
    leave(world, store);
    let mut other = made.clone();
    other.identity.server = ServerId(9);
    assert_eq!(refused(other), Some(7));
    assert_eq!(refused(Options { frames: 99, ..made.clone() }), Some(8));
    assert_eq!(refused(Options { frames: 0, ..made.clone() }), Some(1));
    let path = scrap.0.join(FILE_NAME);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(refused(made.clone()), Some(6), "cut short");
    let mut damaged = bytes.clone();
    (damaged[100], damaged[5000]) = (1, 1);
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(refused(made.clone()), Some(5), "both superblocks damaged");
    damaged[5000] = bytes[5000];
    std::fs::write(&path, &damaged).unwrap();
    let (world, store, _) = start(&scrap.0, made.clone()).unwrap();
    leave(world, store);
    std::fs::write(&path, b"a diary").unwrap();
    assert_eq!(refused(made), Some(3), "not a store");
    assert_eq!(std::fs::read(&path).unwrap(), b"a diary", "it is left as it was");
}

/// A copy of a data directory has the same id, and so the same name for its buffers.
#[test]
fn a_copy_of_a_store_that_is_in_use_is_refused_until_that_ends() {
    let (scrap, copy) = (Scrap::new("original"), Scrap::new("copy"));
    let options = options(Durability::Synced);
    let (world, mut store, _) = start(&scrap.0, options.clone()).unwrap();
    std::fs::create_dir(&copy.0).unwrap();
    std::fs::copy(scrap.0.join(FILE_NAME), copy.0.join(FILE_NAME)).unwrap();
    let refused = start(&copy.0, options.clone()).err().map(|error| error.code());
    assert_eq!(refused, Some(12));
    // The original has its buffers, and its acknowledgements are true.
    let bytes = content(1, 50_000);
    store.open(replica(1), Epoch(1), false).unwrap();
    let Ack::When(ticket) = store.append(replica(1), Epoch(1), 0, &bytes).unwrap() else {
        panic!("it is to be synced")
    };
    wait(&world, &mut store, |event| matches!(event, Event::Durable(it) if it == ticket));
    leave(world, store);
    let (world, store, opened) = start(&copy.0, options).unwrap();
    assert_eq!((opened.replicas, opened.recovered), (0, 0));
    leave(world, store);
}

#[test]
fn a_storage_behind_a_link_is_used_and_one_that_is_not_there_is_not_made_anew() {
    let (scrap, disk) = (Scrap::new("linking"), Scrap::new("linked"));
    let options = options(Durability::Replicated);
    let (world, store, _) = start(&scrap.0, options.clone()).unwrap();
    let id = store.superblock().store;
    leave(world, store);
    std::fs::create_dir(&disk.0).unwrap();
    let (link, target) = (scrap.0.join(FILE_NAME), disk.0.join("frames"));
    std::fs::rename(&link, &target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let (world, store, opened) = start(&scrap.0, options.clone()).unwrap();
    assert!(!opened.is_new && store.superblock().store == id);
    // Another directory with a link to the same storage.
    let other = Scrap::new("linking-too");
    std::fs::create_dir(&other.0).unwrap();
    std::os::unix::fs::symlink(&target, other.0.join(FILE_NAME)).unwrap();
    let refused = start(&other.0, options.clone()).err().map(|error| error.code());
    assert_eq!(refused, Some(2));
    leave(world, store);
    std::fs::rename(&target, disk.0.join("away")).unwrap();
    let error = start(&scrap.0, options.clone()).err().expect("its disk is not mounted");
    assert!(error.to_string().contains("is its disk mounted?"), "{error}");
    assert!(link.is_symlink(), "it is left as it was");
    std::fs::rename(disk.0.join("away"), &target).unwrap();
    let (world, store, _) = start(&scrap.0, options).unwrap();
    assert_eq!(store.superblock().store, id);
    leave(world, store);
}

/// Reports a skipped test, even if the output of passing tests is not shown.
fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let mut out = std::io::stderr();
    writeln!(out, "{name} is skipped: {why}").unwrap();
}

/// Runs a command as a user with no rights; `None` where only root could.
fn as_another_user(script: &str) -> Option<bool> {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        skipped("only root runs commands as another user");
    }
    is_root.then(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    })
}

#[test]
fn another_user_can_neither_read_nor_change_nor_forge_a_store() {
    let scrap = Scrap::new("rights");
    let options = options(Durability::Replicated);
    let (world, mut store, _) = start(&scrap.0, options.clone()).unwrap();
    store.open(replica(1), Epoch(1), false).unwrap();
    store.append(replica(1), Epoch(1), 0, b"private bytes").unwrap();
    let pool = format!("/dev/shm/thunderhead-backup-{:016x}", store.superblock().store);
    let others = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o077;
    assert_eq!((others(&scrap.0), others(Path::new(&pool))), (0, 0));
    // The directory may have been created with rights for others.
    std::fs::set_permissions(&scrap.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    for file in std::fs::read_dir(&scrap.0).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(others(&path), 0, "{}", path.display());
        for script in [format!("cat {}", path.display()), format!(": > {}", path.display())] {
            assert_ne!(as_another_user(&script), Some(true), "{script}");
        }
    }
    for script in [format!("cat {pool}"), format!(": > {pool}"), format!("rm -f {pool}")] {
        assert_ne!(as_another_user(&script), Some(true), "{script}");
    }
    leave(world, store);

    // The name is free now, and any user may take it.
    let refused = |made: Option<bool>| {
        if made.is_some() {
            assert_eq!(made, Some(true));
            let error = start(&scrap.0, options.clone()).err().expect("it is not to be trusted");
            assert_eq!(error.code(), 13, "{error}");
            assert!(error.to_string().contains(&pool), "{error}");
            std::fs::remove_file(&pool).unwrap();
        }
    };
    let frames = scrap.0.join(FILE_NAME);
    refused(as_another_user(&format!("head -c 1000000 /dev/zero > {pool}; chmod 600 {pool}")));
    refused(as_another_user(&format!("ln -s {} {pool}", frames.display())));
    refused(as_another_user(&format!("mkfifo {pool}")));
    let (world, store, opened) = start(&scrap.0, options.clone()).unwrap();
    assert_eq!((opened.replicas, opened.recovered, opened.pool_damaged), (1, 0, 0));
    leave(world, store);

    // Another user has put a storage into a directory that any user may write.
    std::fs::remove_file(&frames).unwrap();
    std::fs::set_permissions(&scrap.0, std::fs::Permissions::from_mode(0o1777)).unwrap();
    if as_another_user(&format!("head -c 1000000 /dev/zero > {}", frames.display())).is_some() {
        let error = start(&scrap.0, options).err().expect("it belongs to another user");
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
    }
}

/// A server of another user was killed, and an operator checks its storage as root.
#[test]
fn buffers_of_the_user_of_the_storage_are_read_by_a_check_and_never_called_forged() {
    let scrap = Scrap::new("users");
    let options = options(Durability::Replicated);
    let (_, mut store, _) = start(&scrap.0, options.clone()).unwrap();
    store.open(replica(1), Epoch(1), false).unwrap();
    store.append(replica(1), Epoch(1), 0, b"the only copy").unwrap();
    let pool = format!("/dev/shm/thunderhead-backup-{:016x}", store.superblock().store);
    drop(store);
    let files = std::fs::read_dir(&scrap.0).unwrap().map(|file| file.unwrap().path());
    let all: Vec<PathBuf> = files.chain([scrap.0.clone(), PathBuf::from(&pool)]).collect();
    let belong_to = |user| all.iter().all(|it| chown(it, Some(user), Some(user)).is_ok());
    if !belong_to(65534) {
        return skipped("only root gives files to another user");
    }
    let error = start(&scrap.0, options.clone()).err().expect("it is another user's");
    let text = error.to_string();
    assert_eq!(error.code(), 14, "{text}");
    assert!(text.contains("run this as that user") && text.contains("65534"), "{text}");
    assert!(text.contains(&format!("Do not remove {pool}")), "{text}");
    let mut world = os::world(&scrap.0).unwrap();
    let owner = world.files.owner(FILE_NAME).unwrap();
    let mut memories = MemoryDirectory::default().read_only(owner);
    let before = std::fs::read(&pool).unwrap();
    let report = check(world.files.as_mut(), &mut memories, FILE_NAME, &mut |_, _| {}).unwrap();
    assert_eq!((&report.in_memory, report.damaged()), (&Ok(1), 0));
    assert_eq!(std::fs::read(&pool).unwrap(), before);
    assert!(memories.remove("any").is_err() && memories.make("any", 1).is_err());
    assert!(belong_to(0));
    let (world, store, opened) = start(&scrap.0, options).unwrap();
    assert_eq!((opened.replicas, opened.recovered), (1, 1));
    leave(world, store);
}

/// A file system in memory of so many kilobytes; `None` where only root could make one.
struct Mounted(PathBuf);

impl Mounted {
    fn new(name: &str, kilobytes: u32) -> Option<Mounted> {
        let path = Scrap::new(name).0.clone();
        std::fs::create_dir_all(&path).unwrap();
        let how = format!("size={kilobytes}k,mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &how, "tmpfs"]).arg(&path).stderr(Stdio::null());
        let is_mounted = mount.status().unwrap().success();
        if !is_mounted {
            skipped("only root mounts file systems");
            let _ = std::fs::remove_dir(&path);
        }
        is_mounted.then_some(Mounted(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn buffers_are_where_they_are_wanted_and_a_directory_without_room_is_named() {
    let scrap = Scrap::new("elsewhere");
    let options = options(Durability::Replicated);
    let start_with = |memory: &Path| {
        let mut world = os::world(&scrap.0)?;
        world.memories = Box::new(MemoryDirectory::at(memory));
        let (store, _) = Store::start(&mut world, options.clone())?;
        Ok::<_, OpenError>((world, store))
    };
    let elsewhere = Scrap::new("buffers");
    std::fs::create_dir(&elsewhere.0).unwrap();
    let (world, store) = start_with(&elsewhere.0).unwrap();
    let name = format!("thunderhead-backup-{:016x}", store.superblock().store);
    assert!(elsewhere.0.join(&name).exists() && !Path::new("/dev/shm").join(&name).exists());
    leave(world, store);
    assert!(!elsewhere.0.join(&name).exists());
    std::fs::remove_file(scrap.0.join(FILE_NAME)).unwrap();
    let refused = |memory: &Path| {
        let error = start_with(memory).err().expect("there can be no buffers");
        let text = error.to_string();
        assert!(error.code() == 10 && text.contains(memory.to_str().unwrap()), "{text}");
        assert!(!scrap.0.join(FILE_NAME).exists(), "the storage is not made before");
    };
    refused(&elsewhere.0.join("missing"));
    std::fs::write(elsewhere.0.join("file"), b"").unwrap();
    refused(&elsewhere.0.join("file"));
    let Some(small) = Mounted::new("small", 256) else { return };
    refused(&small.0);
    let error = start_with(&small.0).err().expect("four buffers take more");
    assert_eq!(error.code(), 10);
    let words = error.to_string();
    let small = small.0.to_str().unwrap();
    assert!(words.contains(small) && words.contains("buffer_directory"), "{words}");
}

/// Set in a process of another user: the directory with its storage and its buffers.
const TENANT: &str = "THUNDERHEAD_BACKUP_TENANT";

/// Volumes of Kubernetes belong to root, and any user may change them. No process in a container
/// may change that.
#[test]
fn a_directory_that_any_user_may_change_has_a_private_one_in_it_which_is_found_again() {
    let memories = |above: &Path| MemoryDirectory::at(&above.join("buffers"));
    let options = options(Durability::Replicated);
    if let Some(above) = std::env::var_os(TENANT) {
        let above = Path::new(&above);
        let mut world = os::world(&above.join("data")).unwrap();
        world.memories = Box::new(memories(above));
        let (mut store, opened) =
            Store::start(&mut world, options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(opened.is_new, opened.recovered == 0, "{opened:?}");
        if opened.is_new {
            store.open(replica(1), Epoch(1), false).unwrap();
            store.append(replica(1), Epoch(1), 0, b"the only copy").unwrap();
            // The process ends as if it were killed.
            std::process::exit(0);
        }
        assert_eq!((opened.replicas, opened.recovered), (1, 1));
        return leave(world, store);
    }
    let scrap = Scrap::new("volumes");
    std::fs::create_dir(&scrap.0).unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&scrap.0, 0o755);
    let volumes = ["data", "buffers"].map(|name| scrap.0.join(name));
    for volume in &volumes {
        std::fs::create_dir(volume).unwrap();
        set(volume, 0o777);
    }
    let program = scrap.0.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set(&program, 0o755);
    let test = "a_directory_that_any_user_may_change_has_a_private_one_in_it_which_is_found_again";
    let run = || {
        let (program, above) = (program.display(), scrap.0.display());
        as_another_user(&format!("{TENANT}={above} {program} --exact {test}"))
    };
    let Some(is_begun) = run() else { return };
    assert!(is_begun);
    for volume in &volumes {
        let private = volume.join("thunderhead-private");
        let found = std::fs::metadata(&private).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (65534, 0o700));
        assert_eq!(std::fs::read_dir(volume).unwrap().count(), 1);
        // Some systems give a volume to a group when they mount it again.
        set(&private, 0o770);
    }
    // An operator checks it as root.
    let mut files = Directory::existing(&volumes[0]).unwrap();
    let mut left = memories(&scrap.0).read_only(files.owner(FILE_NAME).unwrap());
    let report = check(&mut files, &mut left, FILE_NAME, &mut |_, _| {}).unwrap();
    assert_eq!(report.in_memory, Ok(1));
    drop((files, left));
    // A storage beside it may belong to any user.
    let beside = volumes[0].join(FILE_NAME);
    std::fs::write(&beside, b"forged").unwrap();
    assert_eq!(run(), Some(false));
    std::fs::remove_file(beside).unwrap();
    assert_eq!(run(), Some(true), "it is found again");
}

/// The replicas that a killed process left are only in the former directory.
#[test]
fn other_buffers_are_refused_until_those_that_a_killed_process_left_are_on_the_disk() {
    let (scrap, former, wanted) = (Scrap::new("moved"), Scrap::new("former"), Scrap::new("wanted"));
    let options = options(Durability::Replicated);
    let start_with = |memory: &Path| {
        let mut world = os::world(&scrap.0)?;
        world.memories = Box::new(MemoryDirectory::at(memory));
        let (store, opened) = Store::start(&mut world, options.clone())?;
        Ok::<_, OpenError>((world, store, opened))
    };
    [&former, &wanted].into_iter().for_each(|it| std::fs::create_dir(&it.0).unwrap());
    let (world, mut store, _) = start_with(&former.0).unwrap();
    store.open(replica(1), Epoch(1), false).unwrap();
    store.append(replica(1), Epoch(1), 0, b"the only copy").unwrap();
    drop((world, store));
    let names = |error: &OpenError| {
        let text = error.to_string();
        [&former, &wanted].iter().all(|it| text.contains(it.0.to_str().unwrap()))
    };
    let error = start_with(&wanted.0).err().expect("it would begin without the only copy");
    assert!(error.code() == 15 && names(&error), "{error}");
    let away = Scrap::new("away");
    std::fs::rename(&former.0, &away.0).unwrap();
    let error = start_with(&wanted.0).err().expect("the former buffers are unknown");
    assert!(error.code() == 16 && names(&error), "{error}");
    std::fs::rename(&away.0, &former.0).unwrap();
    let mut files = os::world(&scrap.0).unwrap().files;
    let written = thunderhead_backup::buffer_directory(files.as_mut()).unwrap();
    assert_eq!(written.as_deref(), former.0.to_str(), "where a check looks");

    let (world, store, opened) = start_with(&former.0).unwrap();
    assert_eq!((opened.replicas, opened.recovered), (1, 1));
    leave(world, store);
    let (world, store, opened) = start_with(&wanted.0).unwrap();
    assert_eq!((opened.replicas, opened.recovered), (1, 0));
    drop((world, store));
    // The start removed the empty buffers of the other directory.
    let (world, store, opened) = start_with(&former.0).unwrap();
    assert_eq!(opened.replicas, 1);
    assert_eq!(std::fs::read_dir(&wanted.0).unwrap().count(), 0);
    leave(world, store);
}

/// Buffers of another number, and of a machine that lost its power, are made anew.
#[test]
fn buffers_are_made_anew_where_there_is_room_for_one_set_of_them() {
    let scrap = Scrap::new("anew");
    // Four buffers take a little more than 400 KiB.
    let Some(small) = Mounted::new("one-set", 600) else { return };
    let start_with = |buffers: u32| {
        let mut world = os::world(&scrap.0)?;
        world.memories = Box::new(MemoryDirectory::at(&small.0));
        let options = Options { buffers, ..options(Durability::Replicated) };
        let (store, _) = Store::start(&mut world, options)?;
        Ok::<_, OpenError>((world, store))
    };
    for buffers in [4, 3, 4] {
        // The buffers remain as after a kill.
        drop(start_with(buffers).unwrap_or_else(|error| panic!("{buffers} buffers: {error}")));
    }
    let name = std::fs::read_dir(&small.0).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&name, vec![0; 400_000]).unwrap();
    let (world, store) = start_with(4).expect("buffers of another boot are of no use");
    leave(world, store);
}

#[test]
fn a_store_without_room_is_not_made() {
    let scrap = Scrap::new("room");
    // This is a petabyte. A file system with so much space is not a real one.
    let vast = Options { segment_bytes: 1 << 30, frames: 1 << 20, ..options(Durability::Synced) };
    let mut world = os::world(&scrap.0).unwrap();
    let error = Store::start(&mut world, vast).err().expect("no disk has room for this");
    assert!([9, 11].contains(&error.code()), "{error}");
    assert!(!scrap.0.join(FILE_NAME).exists() && !scrap.0.join("backup-frames.new").exists());
}

#[test]
fn a_check_reports_every_frame_and_changes_nothing() {
    let scrap = Scrap::new("check");
    let (world, mut store, _) = start(&scrap.0, options(Durability::Replicated)).unwrap();
    for segment in 1..=2 {
        let bytes = content(segment, 50_000);
        store.open(replica(segment), Epoch(4), false).unwrap();
        store.append(replica(segment), Epoch(4), 0, &bytes).unwrap();
    }
    store.close(replica(1), Epoch(4), 50_000).unwrap();
    settle(&world, &mut store);
    let mut other = os::world(&scrap.0).unwrap();
    let World { files, memories, .. } = &mut other;
    let in_use = check(files.as_mut(), memories.as_mut(), FILE_NAME, &mut |_, _| {});
    assert_eq!(in_use.unwrap_err().code(), 2);
    let data_at = store.superblock().geometry.data_at(FrameNumber(0));
    leave(world, store);
    let before = std::fs::read(scrap.0.join(FILE_NAME)).unwrap();
    let report = check(files.as_mut(), memories.as_mut(), FILE_NAME, &mut |_, _| {}).unwrap();
    assert_eq!((report.frames.len(), report.damaged()), (16, 0));
    assert_eq!(report.in_memory, Ok(0));
    let free = report.frames.iter().filter(|it| it.content == Content::Free).count();
    assert_eq!(free, 14);
    assert_eq!(std::fs::read(scrap.0.join(FILE_NAME)).unwrap(), before);
    let file = files.open_with(FILE_NAME, Opening::default()).unwrap();
    files.write_at(file, data_at + 40_000, b"rot").unwrap();
    let mut done = 0;
    let report = check(files.as_mut(), memories.as_mut(), FILE_NAME, &mut |_, _| done += 1);
    let report = report.unwrap();
    assert_eq!((report.damaged(), done), (1, 16));
    let Content::Replica { id, damage: Some(_), .. } = &report.frames[0].content else {
        panic!("{:?}", report.frames[0])
    };
    assert_eq!(*id, replica(1));
}

#[test]
fn storage_that_is_written_through_is_so_to_its_end() {
    let last_byte = |populate: bool, name: &str| {
        let scrap = Scrap::new(name);
        let options = Options { populate, ..options(Durability::Replicated) };
        let (world, store, opened) = start(&scrap.0, options).unwrap();
        assert!(opened.is_new);
        leave(world, store);
        std::fs::read(scrap.0.join(FILE_NAME)).unwrap().last().copied()
    };
    assert_ne!(last_byte(true, "through"), Some(0));
    assert_eq!(last_byte(false, "not-through"), Some(0));
}
