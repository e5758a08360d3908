//! A cluster in one process on this machine: it serves, ends in order, and has everything again.

use std::time::Duration;
use thunderhead_client::{Client, Condition, Options, TableId};
use thunderhead_server::{BackupOptions, Ended, Local, LocalOptions};

fn options(directory: &std::path::Path) -> LocalOptions {
    let backup = BackupOptions { disk_bytes: Some(64 << 20), ..BackupOptions::default() };
    LocalOptions { shards: 2, backup: Some(backup), ..LocalOptions::small(directory.to_owned()) }
}

fn client(local: &Local) -> Client {
    let options = Options::new([local.coordinator()]).deadline(Some(Duration::from_secs(30)));
    Client::connect(&options).unwrap()
}

#[test]
fn a_server_of_two_shards_ends_in_order_and_has_everything_again() {
    let name = format!("thunderhead-server-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let mut tables: Vec<TableId> = Vec::new();
    for life in 0..3u64 {
        let local = Local::start(&options(&directory)).unwrap();
        let mut client = client(&local);
        if life == 0 {
            tables.extend(["a", "b"].map(|name| client.create_table(name, 2).unwrap()));
        }
        for table in &tables {
            for key in 0..100 * life {
                let (_, value) = client.read(*table, &key.to_be_bytes()).unwrap().unwrap();
                assert_eq!(value, (key * 7).to_be_bytes(), "life {life}");
            }
            for key in 100 * life..100 * (life + 1) {
                let (key, value) = (key.to_be_bytes(), (key * 7).to_be_bytes());
                client.write(*table, &key, &value, Condition::Absent).unwrap();
            }
        }
        drop(client);
        local.leave();
        assert_eq!(local.join(), Ended::Asked);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
