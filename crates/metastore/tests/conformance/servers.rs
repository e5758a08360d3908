//! Real servers. They run on free ports of loopback, with their data in a directory that is removed
//! with them. The kernel kills them when the test's process ends, however it ends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    ZooKeeper,
}

/// A directory that is removed when it is dropped.
pub(crate) struct Scrap(pub(crate) PathBuf);

impl Scrap {
    pub(crate) fn new() -> Scrap {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-metastore-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Scrap(path)
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that runs, or will run again.
pub(crate) struct Server {
    kind: Kind,
    running: Option<Child>,
    pub(crate) address: SocketAddr,
    peers: SocketAddr,
    // The last field: the server has ended when its data is removed.
    scrap: Scrap,
}

/// Returns an address on which no process listens.
pub(crate) fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Server {
        let (address, peers) = (free_port(), free_port());
        let mut server = Server { kind, running: None, address, peers, scrap: Scrap::new() };
        server.run();
        server
    }

    /// Starts it on its data.
    pub(crate) fn run(&mut self) {
        if self.running.is_some() {
            return;
        }
        // The kernel ends it if this process is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        match self.kind {
            Kind::Etcd => self.etcd(&mut command),
            Kind::ZooKeeper => self.zookeeper(&mut command),
        }
        let mut log = std::fs::OpenOptions::new();
        log.create(true).append(true);
        let log = log.open(self.scrap.0.join("log")).expect("a file for its log");
        let errors = log.try_clone().expect("the same file again");
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.running = Some(command.spawn().expect("setpriv starts"));
    }

    fn etcd(&self, command: &mut Command) {
        install_or_fail(Path::new("/usr/bin/etcd"), "etcd-server");
        let (clients, peers) =
            (format!("http://{}", self.address), format!("http://{}", self.peers));
        command.arg("etcd").arg("--data-dir").arg(self.scrap.0.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--initial-cluster").arg(format!("default={peers}"));
    }

    fn zookeeper(&self, command: &mut Command) {
        let jar = "/usr/share/java/zookeeper.jar";
        install_or_fail(Path::new(jar), "zookeeper");
        let configuration = self.scrap.0.join("zoo.cfg");
        let text = format!(
            "tickTime=500\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            self.scrap.0.join("data").display(),
            self.address.port(),
        );
        std::fs::write(&configuration, text).expect("its configuration");
        command.args([
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            jar,
        ]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(configuration);
    }

    /// Kills it. It keeps the data that it synced.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.scrap.0.join("log")).unwrap_or_default();
            let from = log.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
            eprintln!("the end of the server's log:\n{}", &log[from..]);
        }
    }
}

fn install_or_fail(file: &Path, package: &str) {
    assert!(
        file.exists(),
        "this test needs Debian's package {package}: run `cargo xtask test --only unit`, \
         or as root `apt-get install --no-install-recommends {package}`"
    );
}
