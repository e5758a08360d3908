//! A cluster in one process on this machine: it serves, ends in order, and has all data after a
//! restart.

use std::time::Duration;
use thunderhead_client::{Client, Condition, Options, TableId};
use thunderhead_coordinator::Options as CoordinatorOptions;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_net::{Cause, OwnCluster};
use thunderhead_rpc::{CallError, Caller, Component, Opcode};
use thunderhead_runtime::os;
use thunderhead_runtime::polling::Polling;
use thunderhead_server::{
    BackupOptions, Ended, GenerationState, LocalCluster, LocalOptions, Machine, MetastoreLocation,
    Options as ServerOptions, RunningCoordinator, RunningServer,
};
use thunderhead_wire::command::CommandHeader;
use thunderhead_wire::control::{Tablets, to_body};
use thunderhead_wire::{ClusterId, Format, Generation, Status, TabletRange};

fn options(directory: &std::path::Path) -> LocalOptions {
    let backup = BackupOptions { disk_bytes: Some(64 << 20), ..BackupOptions::default() };
    LocalOptions {
        shards: 2,
        populate: true,
        backup: Some(backup),
        ..LocalOptions::small(directory.to_owned())
    }
}

fn client(local: &LocalCluster) -> Client {
    let options = Options::new([local.coordinator()]).deadline(Some(Duration::from_secs(30)));
    Client::connect(&options).unwrap()
}

#[test]
fn a_server_of_two_shards_ends_in_order_and_has_all_data_after_a_restart() {
    let name = format!("thunderhead-server-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let mut tables: Vec<TableId> = Vec::new();
    for generation in 0..3u64 {
        let local = LocalCluster::start(&options(&directory)).unwrap();
        let mut client = client(&local);
        if generation == 0 {
            tables.extend(["a", "b"].map(|name| client.create_table(name, 2).unwrap()));
        }
        for table in &tables {
            for key in 0..100 * generation {
                let (_, value) = client.get(*table, &key.to_be_bytes()).unwrap().unwrap();
                assert_eq!(value, (key * 7).to_be_bytes(), "generation {generation}");
            }
            for key in 100 * generation..100 * (generation + 1) {
                let (key, value) = (key.to_be_bytes(), (key * 7).to_be_bytes());
                client.put(*table, &key, &value, Condition::Absent).unwrap();
            }
        }
        drop(client);
        local.leave();
        assert_eq!(local.join(), Ended::Asked);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_server_that_cannot_make_its_buffers_fails_before_the_cluster_knows_it() {
    let directory = directory("no-buffers");
    let missing = directory.join("missing");
    let backup = BackupOptions {
        disk_bytes: Some(64 << 20),
        buffer_directory: Some(missing.clone()),
        ..BackupOptions::default()
    };
    let unfit = LocalOptions { backup: Some(backup), ..options(&directory) };
    let error = LocalCluster::start(&unfit)
        .expect_err("the directory of the buffers is missing")
        .to_string();
    assert!(error.contains("buffer_directory"), "{error}");
    assert!(error.contains(missing.to_str().unwrap()), "{error}");
    assert!(!directory.join("server-1/backup-frames").exists());
    let local = LocalCluster::start(&options(&directory)).unwrap();
    let mut client = client(&local);
    // A table is created only after a server has registered.
    client.create_table("t", 1).unwrap();
    let servers = client.status().unwrap().servers.servers;
    drop(client);
    assert_eq!(servers.iter().map(|it| it.server.0).collect::<Vec<_>>(), [1]);
    local.leave();
    assert_eq!(local.join(), Ended::Asked);
    std::fs::remove_dir_all(&directory).unwrap();
}

fn directory(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("thunderhead-{name}-{}", std::process::id()))
}

#[test]
fn a_server_declared_crashed_begins_a_new_generation_that_ends_in_order() {
    let directory = directory("deposed");
    let local = LocalCluster::start(&options(&directory)).unwrap();
    let mut client = client(&local);
    let table = client.create_table("t", 2).unwrap();
    client.put(table, b"before", b"1", Condition::Absent).unwrap();
    let first = local.servers()[0].generation().clone();
    first.end(Ended::Deposed);
    assert_eq!(client.get(table, b"before").unwrap().unwrap().1, b"1");
    client.put(table, b"after", b"2", Condition::Absent).unwrap();
    let number = |generation: &GenerationState| generation.identity().unwrap().generation;
    assert_eq!((number(&first), number(&first.latest())), (Generation(1), Generation(2)));
    assert_eq!(local.ended(), None);
    drop(client);
    local.leave();
    assert_eq!(local.join(), Ended::Asked);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Returns a caller that sends any bytes to servers, and names this cluster in its greeting.
fn caller(cluster: OwnCluster) -> Caller {
    let world = os::world_without_files().unwrap();
    let options = NetOptions { cluster, ..NetOptions::default() };
    let transport = Box::new(OsTransport::new(&world, options).unwrap());
    Caller::new(&world, transport, Polling::Never)
}

#[test]
fn commands_of_an_older_leadership_and_of_another_cluster_are_refused() {
    let directory = directory("commands");
    let local = LocalCluster::start(&options(&directory)).unwrap();
    let mut client = client(&local);
    let table = client.create_table("t", 1).unwrap();
    client.put(table, b"key", b"1", Condition::Absent).unwrap();
    let status = client.status().unwrap();
    let tablet = status.map.tables[0].tablets[0];
    let (own, to) = (status.cluster, tablet.address.unwrap());
    let range = TabletRange::whole(table);
    let message = to_body(&Tablets {
        master: tablet.master,
        tablets: vec![range],
        map_version: 0,
        options: Vec::new(),
    });
    let other = ClusterId(own.0 ^ 1);
    let cases = [
        (b"{}".to_vec(), Status::Malformed),
        (CommandHeader::new(own, 0).command(&message), Status::OldLeader),
        (CommandHeader::new(other, u64::MAX).command(&message), Status::WrongCluster),
    ];
    let timeout = Some(Duration::from_secs(10));
    let mut of_none = caller(OwnCluster::Unknown);
    for opcode in Opcode::ALL.iter().filter(|it| it.is_command()) {
        for (body, expected) in &cases {
            let refused = of_none.call(to, *opcode, &[body], timeout, |_| ()).err();
            let is_expected =
                matches!(refused, Some(CallError::Refused { status, .. }) if status == *expected);
            assert!(is_expected, "{opcode}: {refused:?}, not {expected:?}");
            // The refusal of an old leader has the token of the newest leadership.
            let number = refused.map_or(0, |refused| match refused {
                CallError::Refused { detail, .. } => detail,
                _ => 0,
            });
            assert_eq!(number > 0, *expected == Status::OldLeader, "{opcode}: {number}");
        }
    }
    // A connection from another cluster is closed at the greeting.
    let refused = caller(OwnCluster::Known(other)).call(to, Opcode::Ping, &[], timeout, |_| ());
    assert_eq!(refused, Err(CallError::Unreachable(Cause::WrongCluster)));
    assert_eq!(client.get(table, b"key").unwrap().unwrap().1, b"1");
    drop(client);
    local.leave();
    assert_eq!(local.join(), Ended::Asked);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_program_answers_the_operations_of_its_components_and_no_others() {
    let directory = directory("components");
    let local = LocalCluster::start(&options(&directory)).unwrap();
    let mut client = client(&local);
    // Now a tablet is served.
    client.create_table("t", 1).unwrap();
    let status = client.status().unwrap();
    let server = status.servers.servers[0].shards[0].address;
    let mut caller = caller(OwnCluster::Unknown);
    let mut refusal = |to, opcode, body: &[u8]| match caller.call(
        to,
        opcode,
        &[body],
        Some(Duration::from_secs(10)),
        |_| (),
    ) {
        Ok(()) => None,
        Err(CallError::Refused { status, detail, .. }) => Some((status, detail)),
        Err(error) => panic!("{opcode}: {error}"),
    };
    // A command must come from the present leadership. The refusal of an older one has its token.
    let old = CommandHeader::new(status.cluster, 0).command(b"");
    let token = refusal(server, Opcode::TakeTablets, &old).unwrap().1;
    let components = [Component::Shard, Component::ShardControl, Component::Membership];
    let of_server = [&components[..], &[Component::Backup, Component::Node]].concat();
    let of_coordinator = vec![Component::Coordinator, Component::Node];
    for (to, components) in [(server, of_server), (local.coordinator(), of_coordinator)] {
        for opcode in Opcode::ALL {
            let body = match opcode.is_command() {
                true => CommandHeader::new(status.cluster, token).command(b"malformed"),
                false => b"malformed".to_vec(),
            };
            let refused = refusal(to, *opcode, &body).map(|(status, _)| status);
            let is_known = refused != Some(Status::UnknownOpcode);
            assert_eq!(is_known, components.contains(&opcode.component()), "{opcode}: {refused:?}");
        }
    }
    drop(client);
    local.leave();
    assert_eq!(local.join(), Ended::Asked);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_server_whose_storage_is_of_another_cluster_says_so_and_ends() {
    let directories = ["one-cluster", "other-cluster"].map(directory);
    let first = LocalCluster::start(&options(&directories[0])).unwrap();
    // Before it serves, the server may have no storage yet, and could begin anew in the other
    // cluster.
    first.servers()[0].generation().wait_until_serving();
    first.leave();
    assert_eq!(first.join(), Ended::Asked);
    let other = LocalCluster::start(&options(&directories[1])).unwrap();
    let of_machine = options(&directories[0]);
    let machine = Machine {
        directory: directories[0].join("server-1"),
        polling: of_machine.polling,
        net: of_machine.net,
    };
    let of_server = ServerOptions {
        door: None,
        coordinators: [other.coordinator()].into(),
        message_bytes: None,
        records_per_client_max: None,
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        memory_bytes: of_machine.memory_bytes,
        seglet_bytes: None,
        newest_format: Format::NEWEST,
        populate: false,
        cleaners: 1,
        backup: of_machine.backup.clone(),
        probing: of_machine.probing,
        host: "localhost".to_owned(),
        rack: String::new(),
    };
    let ended = RunningServer::start(of_server, &machine).unwrap().join();
    let words = ended.to_string();
    assert!(words.contains("another cluster than the server's"), "{words}");
    other.servers()[0].generation().wait_until_serving();
    assert_eq!(client(&other).status().unwrap().servers.servers.len(), 1, "it is not registered");
    other.leave();
    assert_eq!(other.join(), Ended::Asked);
    directories.iter().for_each(|it| std::fs::remove_dir_all(it).unwrap());
}

#[test]
fn a_server_whose_storage_is_not_where_it_was_does_not_begin_as_a_new_one_unasked() {
    let directory = directory("vanished");
    let begin = || {
        let local = LocalCluster::start(&options(&directory)).unwrap();
        local.servers()[0].generation().wait_until_serving();
        local
    };
    let end = |local: LocalCluster| {
        local.leave();
        assert_eq!(local.join(), Ended::Asked);
    };
    let local = begin();
    let mut first = client(&local);
    let table = first.create_table("t", 2).unwrap();
    first.put(table, b"key", b"kept", Condition::Absent).unwrap();
    drop(first);
    end(local);
    // The directory is missing, as if its disk were not mounted.
    let (data, disk) = (directory.join("server-1"), directory.join("disk"));
    std::fs::rename(&data, &disk).unwrap();
    let local = begin();
    let why = local.ended().expect("the server has ended").to_string();
    assert!(why.contains("--new-storage") && why.contains("mount"), "{why}");
    local.leave();
    let _ = local.join();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&disk, &data).unwrap();
    let local = begin();
    assert_eq!(client(&local).get(table, b"key").unwrap().unwrap().1, b"kept");
    end(local);
    // The storage is lost for good.
    std::fs::remove_dir_all(&data).unwrap();
    let mut anew = options(&directory);
    anew.backup.as_mut().unwrap().begins_anew = true;
    let local = LocalCluster::start(&anew).unwrap();
    local.servers()[0].generation().wait_until_serving();
    assert_eq!(local.ended(), None);
    end(local);
    end(begin());
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_restored_metastore_is_noticed_though_all_servers_have_restarted() {
    let directory = directory("restored");
    let metastore = directory.join("coordinator/metastore");
    let copy = directory.join("copy");
    let end = |local: LocalCluster| {
        local.leave();
        assert_eq!(local.join(), Ended::Asked);
    };
    let begin = |servers| {
        let local = LocalCluster::start(&LocalOptions { servers, ..options(&directory) }).unwrap();
        local.servers()[0].generation().wait_until_serving();
        local
    };
    end(begin(1));
    std::fs::copy(&metastore, &copy).unwrap();
    // After the copy there are new masters and a new server.
    let local = begin(2);
    local.servers()[1].generation().wait_until_serving();
    let masters = local.servers()[0].generation().identity().unwrap().masters.clone();
    let record = directory.join("server-1/backup-frames.followed");
    let highest = || {
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        text.lines().find_map(|it| it.strip_prefix("master ")?.parse::<u64>().ok())
    };
    // The record is written beside the reactor.
    let is_written = || highest().is_some_and(|it| masters.iter().all(|master| it >= master.0));
    let mut client = client(&local);
    for _ in 0..100_000 {
        if is_written() {
            break;
        }
        client.status().unwrap();
    }
    assert!(is_written(), "the record is not written");
    drop(client);
    end(local);
    std::fs::copy(&copy, &metastore).unwrap();
    let local = begin(2);
    local.servers()[1].generation().wait_until_serving();
    let anew = local.servers()[0].generation().latest().identity().unwrap().masters.clone();
    assert!(anew.iter().all(|it| it.0 > 1 << 32), "{anew:?}");
    // The second server registered after the copy. Its storage may be needed.
    let why = local.servers()[1].generation().ended().expect("it has ended").to_string();
    assert!(why.contains("older copy") && why.contains("keep this storage"), "{why}");
    local.leave();
    let _ = local.join();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_coordinator_that_ends_gives_its_leadership_back() {
    let directory = directory("resigned");
    let of_machine = LocalOptions::small(directory.clone());
    let machine =
        Machine { directory: directory.clone(), polling: of_machine.polling, net: of_machine.net };
    // This is much longer than a client waits here.
    let leadership_ttl = Duration::from_secs(20);
    for _ in 0..2 {
        let settings = of_machine.settings.clone();
        let options =
            CoordinatorOptions { settings, leadership_ttl, ..CoordinatorOptions::default() };
        let metastore = MetastoreLocation::File(directory.join("metastore"));
        let running =
            RunningCoordinator::start(options, of_machine.listen, metastore, &machine).unwrap();
        let deadline = Some(Duration::from_secs(12));
        let options = Options::new([running.address().unwrap()]).deadline(deadline);
        let mut client = Client::connect(&options).unwrap();
        client.status().unwrap();
        drop(client);
        running.generation().leave();
        assert_eq!(running.join(), Ended::Asked);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
