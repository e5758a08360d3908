//! A simulated cluster, and the vocabulary of its tests:
//!
//! ```text
//!  cluster.server(1).kill();  cluster.server(1).restart();  cluster.coordinator(0).pause(a_while);
//!  cluster.cut(1, 2);  cluster.mend(1, 2);  cluster.cut(Place::Coordinator(0), 1);
//!  cluster.drive(at_most, |user| async move { user.read(…).await })
//! ```
//!
//! The cluster does not know the programs of its hosts: a test adds real roles or scripted ones. A
//! number alone is the place of a server.

use crate::{
    BackupState, CoordinatorState, PORT, ScriptedBackup, ScriptedCoordinator, User, serve,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::Node;
use thunderhead_runtime::Process;
use thunderhead_simulator::{Boot, HostId, Options, Simulation};

/// A host of a cluster, by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A coordinator.
    Coordinator(usize),
    /// A server, or a master alone.
    Server(usize),
    /// A backup alone.
    Backup(usize),
    /// A user.
    User(usize),
}

impl From<usize> for Place {
    fn from(server: usize) -> Place {
        Place::Server(server)
    }
}

/// A simulated cluster.
pub struct Cluster {
    /// The simulation of its hosts.
    pub simulation: Simulation,
    /// The state of its scripted coordinators.
    pub coordinators: Rc<RefCell<CoordinatorState>>,
    /// The state of its scripted backups.
    pub backups: Rc<RefCell<BackupState>>,
    /// The shard that users ask: the first server, if the test names no other.
    pub shard: SocketAddr,
    hosts: BTreeMap<Place, HostId>,
}

impl Cluster {
    /// Returns a cluster without hosts.
    #[must_use]
    pub fn new(options: Options) -> Cluster {
        Cluster {
            simulation: Simulation::new(options),
            coordinators: Rc::default(),
            backups: Rc::default(),
            shard: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            hosts: BTreeMap::new(),
        }
    }

    fn add(
        &mut self,
        place: fn(usize) -> Place,
        program: impl Fn(Boot) -> Box<dyn Process> + 'static,
    ) -> usize {
        let number = (0..).find(|it| !self.hosts.contains_key(&place(*it))).unwrap_or_default();
        let name = match place(number) {
            Place::Coordinator(number) => format!("coordinator {number}"),
            Place::Server(number) => format!("server {number}"),
            Place::Backup(number) => format!("backup {number}"),
            Place::User(number) => format!("user {number}"),
        };
        let host = self.simulation.add_host(&name, program);
        self.hosts.insert(place(number), host);
        number
    }

    /// Adds a coordinator, and returns its number.
    pub fn add_coordinator(
        &mut self,
        program: impl Fn(Boot) -> Box<dyn Process> + 'static,
    ) -> usize {
        self.add(Place::Coordinator, program)
    }

    /// Adds a server, and returns its number.
    pub fn add_server(&mut self, program: impl Fn(Boot) -> Box<dyn Process> + 'static) -> usize {
        let number = self.add(Place::Server, program);
        if number == 0 {
            self.shard = self.address(0);
        }
        number
    }

    /// Adds a backup, and returns its number.
    pub fn add_backup(&mut self, program: impl Fn(Boot) -> Box<dyn Process> + 'static) -> usize {
        self.add(Place::Backup, program)
    }

    /// Adds a user, and returns its number.
    pub fn add_user(&mut self, program: impl Fn(Boot) -> Box<dyn Process> + 'static) -> usize {
        self.add(Place::User, program)
    }

    /// Adds a scripted coordinator, whose leases end by the true time.
    pub fn add_scripted_coordinator(&mut self) {
        let (state, truth) = (Rc::clone(&self.coordinators), self.simulation.truth());
        let number = self.count(Place::Coordinator);
        self.add_coordinator(move |boot| {
            let (state, truth) = (Rc::clone(&state), truth.clone());
            let time = Rc::new(move || truth.get());
            serve(boot, ScriptedCoordinator { number, state, time })
        });
    }

    /// Adds a scripted backup, whose answers have so many bytes at most.
    pub fn add_scripted_backup(&mut self, piece_bytes_max: usize) {
        let state = Rc::clone(&self.backups);
        let number = self.count(Place::Backup);
        self.add_backup(move |boot| {
            serve(boot, ScriptedBackup { number, state: Rc::clone(&state), piece_bytes_max })
        });
    }

    /// Returns the number of hosts with a role, for example of `Place::Server`.
    #[must_use]
    pub fn count(&self, place: fn(usize) -> Place) -> usize {
        (0..).take_while(|it| self.hosts.contains_key(&place(*it))).count()
    }

    /// Returns the host at a place.
    #[must_use]
    pub fn host(&self, place: impl Into<Place>) -> HostId {
        let place = place.into();
        *self.hosts.get(&place).unwrap_or_else(|| panic!("the cluster has no {place:?}"))
    }

    /// Returns the hosts with a role, for example of `Place::Server`.
    #[must_use]
    pub fn hosts(&self, place: fn(usize) -> Place) -> Vec<HostId> {
        (0..self.count(place)).map(|it| self.host(place(it))).collect()
    }

    /// Returns the address at which a place serves.
    #[must_use]
    pub fn address(&self, place: impl Into<Place>) -> SocketAddr {
        address(self.simulation.address(self.host(place)), PORT)
    }

    /// Returns the addresses of all hosts with a role, for example of `Place::Coordinator`.
    #[must_use]
    pub fn addresses(&self, place: fn(usize) -> Place) -> Vec<SocketAddr> {
        (0..self.count(place)).map(|it| self.address(place(it))).collect()
    }

    /// Returns a coordinator, to do something to it.
    pub fn coordinator(&mut self, number: usize) -> Machine<'_> {
        self.at(Place::Coordinator(number))
    }

    /// Returns a server, to do something to it.
    pub fn server(&mut self, number: usize) -> Machine<'_> {
        self.at(Place::Server(number))
    }

    /// Returns a backup, to do something to it.
    pub fn backup(&mut self, number: usize) -> Machine<'_> {
        self.at(Place::Backup(number))
    }

    fn at(&mut self, place: Place) -> Machine<'_> {
        let host = self.host(place);
        Machine { simulation: &mut self.simulation, host }
    }

    /// Returns the links between two places, in both directions.
    #[must_use]
    pub fn links(&self, one: impl Into<Place>, other: impl Into<Place>) -> Links {
        let [one, other] = [self.host(one), self.host(other)].map(|it| self.simulation.address(it));
        Links(vec![(one, other), (other, one)])
    }

    /// Blocks both directions between two places.
    pub fn cut(&mut self, one: impl Into<Place>, other: impl Into<Place>) {
        self.links(one, other).cut(&self.simulation);
    }

    /// Opens both directions between two places again.
    pub fn mend(&mut self, one: impl Into<Place>, other: impl Into<Place>) {
        self.links(one, other).mend(&self.simulation);
    }

    /// Starts a user's task on a host of its own. The result is there when the task has ended.
    pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        task: impl Fn(User) -> F + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let result = Rc::new(RefCell::new(None));
        let (own, shard) = (Rc::clone(&result), self.shard);
        let coordinators: Rc<[SocketAddr]> = self.addresses(Place::Coordinator).into();
        self.add_user(move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let task = task(User::new(&node, shard, &coordinators));
            let own = Rc::clone(&own);
            node.tasks().spawn(async move {
                let done = task.await;
                *own.borrow_mut() = Some(done);
            });
            Box::new(node)
        });
        result
    }

    /// Runs a user's task to its end.
    ///
    /// # Panics
    ///
    /// Panics if the task takes longer than `at_most`.
    pub fn drive<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        at_most: Duration,
        task: impl Fn(User) -> F + 'static,
    ) -> T {
        let result = self.begin(task);
        let until = self.simulation.now() + at_most;
        while result.borrow().is_none() && self.simulation.now() < until {
            self.simulation.run_for(Duration::from_millis(20));
        }
        result.take().expect("the user's task never came to its end")
    }
}

/// Links between hosts. A clone of them can be part of a planned action.
#[derive(Clone)]
pub struct Links(Vec<(IpAddr, IpAddr)>);

impl Links {
    /// Blocks them.
    pub fn cut(&self, simulation: &Simulation) {
        self.set(simulation, |link| Link { blocked: true, ..link });
    }

    /// Opens them again.
    pub fn mend(&self, simulation: &Simulation) {
        self.set(simulation, |link| Link { blocked: false, ..link });
    }

    fn set(&self, simulation: &Simulation, change: impl Fn(Link) -> Link) {
        let network = simulation.network();
        for (from, to) in &self.0 {
            network.set_link(*from, *to, change(network.link(*from, *to)));
        }
    }
}

/// A host of a cluster, to which a test does something.
pub struct Machine<'a> {
    simulation: &'a mut Simulation,
    host: HostId,
}

impl Machine<'_> {
    /// Kills its process, perhaps during a turn.
    pub fn kill(&mut self) {
        self.simulation.crash(self.host);
    }

    /// Kills its process, which restarts after a while.
    pub fn kill_for(&mut self, a_while: Duration) {
        self.simulation.restart_after(self.host, a_while);
        self.simulation.crash(self.host);
    }

    /// Starts its program again, unless it runs.
    pub fn restart(&mut self) {
        self.simulation.start(self.host);
    }

    /// Gives it no turns for a while.
    pub fn pause(&mut self, a_while: Duration) {
        self.simulation.pause(self.host, a_while);
    }
}
