//! The same coordinator on a machine: sockets, threads and the embedded store in a file.
#![allow(clippy::print_stderr, reason = "a skipped test prints the reason")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thunderhead_coordinator::{Coordinator, Options, Probing};
use thunderhead_metastore::embedded::Embedded;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::{CallError, Caller, Context, Node, Opcode, Request, Service};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{Process, World, os};
use thunderhead_wire::control::{
    ClusterStatus, CreateTable, Empty, Enlist, Enlisted, Followed, Map, MapRequest, Register,
    Registered, ServerList, ServerState, TableInfo, of_body, to_body,
};
use thunderhead_wire::{Format, Generation, Status};

/// A directory that is removed when the test ends.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Scrap {
        let name = format!("thunderhead-coordinator-{}-{name}", std::process::id());
        Scrap(std::env::temp_dir().join(name))
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A shard that obeys every command.
struct Willing;

impl Service for Willing {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        context.reply(request.reply_to, &[&to_body(&Empty {})]);
    }
}

fn node<S: Service>(world: World, service: S) -> (Node<S>, SocketAddr) {
    let transport = OsTransport::new(&world, NetOptions::default()).unwrap();
    let mut node = Node::new(world, Box::new(transport), service);
    let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    (node, address)
}

fn coordinator(directory: &Path) -> (Node<Coordinator>, SocketAddr) {
    let mut world = os::world(directory).unwrap();
    let store = Embedded::open(&directory.join("metastore")).unwrap();
    let client = store.client(&mut *world.workers, world.alarm.clone()).unwrap();
    // The shard here has no turns between requests, so probes would find it silent.
    let options = Options { probing: Probing::OFF, ..Options::default() };
    node(world, Coordinator::new(Box::new(client), options))
}

/// Whether the request should be repeated. Stalls of a busy machine cause these answers.
fn says_to_wait(status: Status) -> bool {
    matches!(
        status,
        Status::NotLeader
            | Status::InProgress
            | Status::LeadershipLost
            | Status::MetastoreUnavailable
            | Status::DeadlineExceeded
    )
}

struct Machine {
    coordinator: Option<(Node<Coordinator>, SocketAddr)>,
    shard: (Node<Willing>, SocketAddr),
    caller: Caller,
}

impl Machine {
    /// Repeats a request while the answer says to wait.
    fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        opcode: Opcode,
        message: &impl serde::Serialize,
    ) -> T {
        loop {
            match self.ask_once(opcode, message) {
                Ok(answer) => return answer,
                Err(status) if says_to_wait(status) => {}
                Err(status) => panic!("{opcode}: {status}"),
            }
        }
    }

    /// Creates a table. A busy machine may make the coordinator lose its leadership after the table
    /// was made and before the answer, so the table may be there already.
    fn create(&mut self, name: &str) -> TableInfo {
        let message = CreateTable::spread(name, 1);
        loop {
            match self.ask_once(Opcode::CreateTable, &message) {
                Ok(table) => return table,
                Err(Status::TableExists) => {
                    let map: Map = self.ask(Opcode::Map, &MapRequest::default());
                    return map.tables.into_iter().find(|it| it.name == name).unwrap();
                }
                Err(status) if says_to_wait(status) => {}
                Err(status) => panic!("create table: {status}"),
            }
        }
    }

    /// Sends a request and returns the answer that comes within a few seconds.
    fn ask_once<T: serde::de::DeserializeOwned>(
        &mut self,
        opcode: Opcode,
        message: &impl serde::Serialize,
    ) -> Result<T, Status> {
        let (coordinator, at) = self.coordinator.as_mut().unwrap();
        let timeout = Some(Duration::from_secs(5));
        self.caller.begin(*at, opcode, &[&to_body(message)], timeout).unwrap();
        let mut answer = None;
        while answer.is_none() {
            coordinator.turn_now();
            self.shard.0.turn_now();
            self.caller.poll(&mut |_, outcome| answer = Some(outcome.map(<[u8]>::to_vec)));
        }
        match answer {
            Some(Ok(body)) => Ok(of_body(&body).unwrap()),
            Some(Err(CallError::Refused { status, .. })) => Err(status),
            // When a coordinator learns its cluster, it closes the connections that began before.
            Some(Err(CallError::Late | CallError::Broken)) => Err(Status::DeadlineExceeded),
            other => panic!("{opcode}: {other:?}"),
        }
    }
}

#[test]
fn tables_outlast_a_kill_and_restart_of_the_coordinator() {
    let (files, other, third) = (Scrap::new("files"), Scrap::new("shard"), Scrap::new("caller"));
    let shard = node(os::world(&other.0).unwrap(), Willing);
    let world = os::world(&third.0).unwrap();
    let transport = OsTransport::new(&world, NetOptions::default()).unwrap();
    let caller = Caller::new(&world, Box::new(transport), Polling::Always);
    let mut machine = Machine { coordinator: Some(coordinator(&files.0)), shard, caller };
    let register = Register {
        known: None,
        nonce: 11,
        place: 0,
        address: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let registered: Registered = machine.ask(Opcode::Register, &register);
    let enlist = Enlist {
        cluster: registered.cluster,
        server: registered.server,
        nonce: 12,
        host: "here".into(),
        rack: String::new(),
        shards: vec![machine.shard.1],
        backup: None,
        newest_format: Format::NEWEST,
        followed: Followed::default(),
    };
    let enlisted: Enlisted = machine.ask(Opcode::Enlist, &enlist);
    assert_eq!((enlisted.generation, enlisted.masters.len()), (Generation(1), 1));
    let table = machine.create("t");
    assert_eq!(table.tablets[0].address, Some(machine.shard.1));
    let before: Map = machine.ask(Opcode::Map, &MapRequest::default());
    // Killed without a clean end.
    machine.coordinator = None;
    machine.coordinator = Some(coordinator(&files.0));
    let after: Map = machine.ask(Opcode::Map, &MapRequest::default());
    assert_eq!(after.tables, std::slice::from_ref(&table));
    assert!(after.version > before.version);
    let servers: ServerList = machine.ask(Opcode::ServerList, &Empty {});
    assert_eq!(servers.servers[0].state, ServerState::Up);
    let second = machine.create("u");
    assert!(second.id > table.id);
    // Once all servers know everything, it needs only few turns.
    let (coordinator, _) = machine.coordinator.as_mut().unwrap();
    let clock = thunderhead_runtime::clock::Clock::os();
    let (mut turns, end) = (0, clock.now() + Duration::from_millis(1500));
    os::run(coordinator, &clock, Polling::Never, || {
        turns += 1;
        clock.now() >= end
    });
    assert!(turns < 100, "{turns} turns");
    assert!(coordinator.deadline().is_some());
}

/// The file system of a child process that has one of its own.
const SMALL_DISK: &str = "THUNDERHEAD_COORDINATOR_TEST_DISK";

/// A disk that was full for a while causes no other harm. The test needs a small file system, which
/// it mounts in a name space of its own; only root may do that.
#[test]
fn a_coordinator_uses_its_disk_again_after_it_was_full() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return fills_its_disk(Path::new(&disk));
    }
    let disk = Scrap::new("disk");
    std::fs::create_dir_all(&disk.0).unwrap();
    let name = "a_coordinator_uses_its_disk_again_after_it_was_full";
    let mount =
        "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 77; exec \"$0\" --exact \"$2\" --nocapture";
    let child = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", mount])
        .arg(std::env::current_exe().unwrap())
        .arg(&disk.0)
        .arg(name)
        .env(SMALL_DISK, &disk.0)
        .output();
    match child {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            let may_not = output.status.code() == Some(77) || text.contains("unshare failed");
            assert!(may_not, "{text}");
            eprintln!("skipped: a file system of its own cannot be mounted here: {text}");
        }
        Err(error) => eprintln!("skipped: there is no `unshare`: {error}"),
    }
}

fn fills_its_disk(disk: &Path) {
    let (other, third) = (Scrap::new("shard-of-full"), Scrap::new("caller-of-full"));
    let shard = node(os::world(&other.0).unwrap(), Willing);
    let world = os::world(&third.0).unwrap();
    let transport = OsTransport::new(&world, NetOptions::default()).unwrap();
    let caller = Caller::new(&world, Box::new(transport), Polling::Always);
    let mut machine = Machine { coordinator: Some(coordinator(disk)), shard, caller };
    let mut nonce = 100;
    let mut register = |machine: &mut Machine| {
        nonce += 1;
        let register = Register {
            known: None,
            nonce,
            place: 0,
            address: None,
            newest_format: Format::NEWEST,
            followed: Followed::default(),
        };
        machine.ask_once::<Registered>(Opcode::Register, &register)
    };
    let remarks = |machine: &mut Machine| {
        machine.ask::<ClusterStatus>(Opcode::ClusterStatus, &Empty {}).remarks
    };
    let until = |goal: &str, machine: &mut Machine, holds: &mut dyn FnMut(&mut Machine) -> bool| {
        let clock = thunderhead_runtime::clock::Clock::os();
        let end = clock.now() + Duration::from_secs(60);
        while !holds(machine) {
            assert!(clock.now() < end, "did not happen: {goal}; {:?}", remarks(machine));
        }
    };
    until("it leads", &mut machine, &mut |it| register(it).is_ok());
    for _ in 0..2 {
        // Other data fills the disk, to the last byte.
        let filler = disk.join("filler");
        let mut file = std::fs::File::options().create(true).append(true).open(&filler).unwrap();
        while std::io::Write::write(&mut file, &[1; 4096]).is_ok() {}
        while std::io::Write::write(&mut file, &[1]).is_ok() {}
        until("a write is refused", &mut machine, &mut |it| register(it).is_err());
        let said = remarks(&mut machine);
        assert!(said.iter().any(|it| it.contains("No space left")), "{said:?}");
        // It keeps the leadership, and answers requests for the map.
        machine.ask::<Map>(Opcode::Map, &MapRequest::default());
        drop(file);
        std::fs::remove_file(&filler).unwrap();
        until("the remark is gone", &mut machine, &mut |it| remarks(it).is_empty());
        until("a write is done", &mut machine, &mut |it| register(it).is_ok());
    }
    // The file has all of it.
    let list: ClusterStatus = machine.ask(Opcode::ClusterStatus, &Empty {});
    machine.coordinator = None;
    machine.coordinator = Some(coordinator(disk));
    let again: ClusterStatus = machine.ask(Opcode::ClusterStatus, &Empty {});
    assert_eq!(again.cluster, list.cluster);
}
