//! Processes that die while they send. A program that relies on all or none of a turn's messages
//! leaving is caught.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::Link;
use thunderhead_net::{ConnectionId, Handler, Transport};
use thunderhead_runtime::{Process, Time};
use thunderhead_simulator::{Boot, HostId, Options, Simulation};

const PORT: u16 = 7;
const EVERY: Duration = Duration::from_millis(1);

/// The events that one end was told.
#[derive(Default)]
struct Heard {
    opened: BTreeSet<ConnectionId>,
    messages: Vec<u32>,
}

impl Handler for Heard {
    fn opened(&mut self, _: &mut dyn Transport, connection: ConnectionId) {
        self.opened.insert(connection);
    }

    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, message: &[u8]) {
        self.messages.push(u32::from_le_bytes(message.try_into().unwrap()));
    }
}

/// An account: records each transfer that it is told.
struct Account {
    transport: Box<dyn Transport>,
    heard: Heard,
    told: Rc<RefCell<Vec<u32>>>,
}

impl Process for Account {
    fn turn(&mut self, now: Time) -> bool {
        let busy = self.transport.poll(now, &mut self.heard);
        self.told.borrow_mut().append(&mut self.heard.messages);
        busy
    }

    fn deadline(&self) -> Option<Time> {
        self.transport.deadline()
    }

    fn sleep(&mut self, _: Option<Duration>) {}
}

/// A bank without a journal. For each transfer it debits one account and credits another, in one
/// turn, and assumes that no crash can come between the two messages.
struct Bank {
    transport: Box<dyn Transport>,
    heard: Heard,
    accounts: [ConnectionId; 2],
    next: Time,
    transfers: u32,
}

/// Transfers in one turn.
const TRANSFERS: u32 = 3;

impl Bank {
    fn new(boot: Boot, accounts: [IpAddr; 2]) -> Bank {
        let mut transport = boot.transport;
        let accounts = accounts.map(|host| transport.connect(SocketAddr::new(host, PORT)));
        let next = boot.world.clock.now();
        Bank { transport, heard: Heard::default(), accounts, next, transfers: 0 }
    }
}

impl Process for Bank {
    fn turn(&mut self, now: Time) -> bool {
        let mut busy = self.transport.poll(now, &mut self.heard);
        if self.heard.opened.len() == 2 && now >= self.next {
            busy = true;
            self.next = now + EVERY;
            for _ in 0..TRANSFERS {
                for account in self.accounts {
                    self.transport.send(account, &[&self.transfers.to_le_bytes()]);
                }
                self.transfers += 1;
            }
        }
        self.transport.flush();
        busy
    }

    fn deadline(&self) -> Option<Time> {
        self.transport.deadline().into_iter().chain([self.next]).min()
    }

    fn sleep(&mut self, _: Option<Duration>) {}
}

struct Ledger {
    simulation: Simulation,
    bank: HostId,
    told: [Rc<RefCell<Vec<u32>>>; 2],
}

fn ledger(seed: u64) -> Ledger {
    // Without jitter the end of a connection arrives after all messages: every message that left
    // a process arrives.
    let link = Link { jitter: Duration::ZERO, ..Link::default() };
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let told: [Rc<RefCell<Vec<u32>>>; 2] = Default::default();
    let accounts = [("from", &told[0]), ("to", &told[1])].map(|(name, told)| {
        let told = Rc::clone(told);
        let host = simulation.add_host(name, move |boot| {
            let Boot { mut transport, address, .. } = boot;
            transport.listen(SocketAddr::new(address, PORT)).unwrap();
            let (heard, told) = (Heard::default(), Rc::clone(&told));
            Box::new(Account { transport, heard, told })
        });
        simulation.address(host)
    });
    let bank = simulation.add_host("bank", move |boot| Box::new(Bank::new(boot, accounts)));
    Ledger { simulation, bank, told }
}

impl Ledger {
    /// Returns the transfers that the accounts were told, including those still in flight.
    fn told(mut self) -> [Vec<u32>; 2] {
        self.simulation.run_for(Duration::from_secs(1));
        assert!(!self.simulation.is_running(self.bank));
        self.told.map(|told| told.take())
    }
}

/// Counts the seeds for which the accounts differ after the bank was ended.
fn torn(ends: u64, end: impl Fn(&mut Simulation, HostId, u64)) -> usize {
    let ends = (0..ends).map(|seed| {
        let mut ledger = ledger(seed);
        ledger.simulation.run_for(Duration::from_micros(5_500));
        end(&mut ledger.simulation, ledger.bank, seed);
        let [from, to] = ledger.told();
        for told in [&from, &to] {
            assert!(told.len() as u32 >= TRANSFERS, "the messages of earlier turns have arrived");
            assert!(told.iter().copied().eq(0..told.len() as u32), "nothing leaves out of turn");
        }
        usize::from(from != to)
    });
    ends.sum()
}

#[test]
fn a_crash_catches_a_program_that_relies_on_whole_turns_leaving() {
    let torn =
        torn(100, |simulation, bank, seed| simulation.stop_at_send(bank, 1 + seed % 20, false));
    assert!((30..95).contains(&torn), "{torn} of 100 ends tore a transfer");
}

#[test]
fn a_power_loss_catches_a_program_that_relies_on_whole_turns_leaving() {
    let torn =
        torn(100, |simulation, bank, seed| simulation.stop_at_send(bank, 1 + seed % 20, true));
    assert!((30..95).contains(&torn), "{torn} of 100 ends tore a transfer");
}

#[test]
fn a_crash_at_any_time_may_fall_into_a_turn() {
    // Few crashes fall into a turn that sends.
    let torn = torn(2000, |simulation, bank, seed| {
        simulation.run_for(Duration::from_nanos(seed * 500));
        simulation.crash(bank);
    });
    assert!((5..200).contains(&torn), "{torn} of 2000 crashes tore a transfer");
}

#[test]
fn a_cancelled_stop_lets_the_process_continue() {
    let Ledger { mut simulation, bank, told } = ledger(1);
    simulation.stop_at_send(bank, 1, false);
    simulation.keep_running(bank);
    simulation.run_for(Duration::from_millis(50));
    assert!(simulation.is_running(bank));
    assert_eq!(told[0].borrow().len(), told[1].borrow().len());
}
