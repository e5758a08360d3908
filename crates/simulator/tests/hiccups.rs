//! Delayed threads: timers fire late, and messages leave long after the clock was read.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::{ConnectionId, Handler, Transport};
use thunderhead_runtime::{Process, Time};
use thunderhead_simulator::{Options, Scheduling, Simulation};

const EVERY: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Heard {
    opened: Option<ConnectionId>,
    /// When each message arrived and when it was sent, by the true time.
    said: Vec<u64>,
}

impl Handler for Heard {
    fn opened(&mut self, _: &mut dyn Transport, connection: ConnectionId) {
        self.opened = Some(connection);
    }

    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, message: &[u8]) {
        self.said.push(u64::from_le_bytes(message.try_into().unwrap()));
    }
}

/// Delays of timers and messages, in nanoseconds.
#[derive(Default)]
struct Late {
    timers: RefCell<Vec<u64>>,
    messages: RefCell<Vec<u64>>,
}

/// Sends the time every millisecond, or receives it.
struct Clockwork {
    transport: Box<dyn Transport>,
    heard: Heard,
    /// When to send next; never, for the receiver.
    next: Time,
    truth: Rc<dyn Fn() -> u64>,
    late: Rc<Late>,
}

impl Process for Clockwork {
    fn turn(&mut self, now: Time) -> bool {
        let busy = self.transport.poll(now, &mut self.heard);
        let truth = (self.truth)();
        let said = std::mem::take(&mut self.heard.said);
        self.late.messages.borrow_mut().extend(said.iter().map(|said| truth - said));
        if now >= self.next {
            self.late.timers.borrow_mut().push(now.since(self.next).as_nanos() as u64);
            self.next = now + EVERY;
            if let Some(connection) = self.heard.opened {
                self.transport.send(connection, &[&truth.to_le_bytes()]);
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

/// Returns the delays within a minute.
fn late(hiccups: f64) -> Rc<Late> {
    let scheduling = Scheduling { hiccups };
    let mut simulation = Simulation::new(Options { scheduling, ..Options::calm(1) });
    let late = Rc::new(Late::default());
    let truth = simulation.truth();
    let truth: Rc<dyn Fn() -> u64> = Rc::new(move || truth.get());
    let mut listener: Option<IpAddr> = None;
    for name in ["listens", "speaks"] {
        let (late, truth, to) = (Rc::clone(&late), Rc::clone(&truth), listener);
        let host = simulation.add_host(name, move |boot| {
            let mut transport = boot.transport;
            let next = match to {
                Some(to) => {
                    transport.connect(SocketAddr::new(to, 7));
                    boot.world.clock.now()
                }
                None => {
                    transport.listen(SocketAddr::new(boot.address, 7)).unwrap();
                    Time::NEVER
                }
            };
            let (heard, late, truth) = (Heard::default(), Rc::clone(&late), Rc::clone(&truth));
            Box::new(Clockwork { transport, heard, next, truth, late })
        });
        listener = Some(simulation.address(host));
    }
    simulation.run_for(Duration::from_secs(60));
    late
}

/// Counts the delays of at least this duration.
fn from(late: &RefCell<Vec<u64>>, duration: Duration) -> usize {
    late.borrow().iter().filter(|late| u128::from(**late) >= duration.as_nanos()).count()
}

#[test]
fn on_a_punctual_machine_nothing_is_late() {
    let late = late(0.0);
    assert!(late.timers.borrow().len() > 50_000 && late.messages.borrow().len() > 50_000);
    assert_eq!(from(&late.timers, Duration::from_micros(50)), 0);
    assert_eq!(from(&late.messages, Duration::from_micros(100)), 0);
}

#[test]
fn on_a_busy_machine_timers_and_messages_are_late_by_every_magnitude() {
    let late = late(0.01);
    for what in [&late.timers, &late.messages] {
        let counts = [50, 1_000, 10_000, 100_000].map(|us| from(what, Duration::from_micros(us)));
        assert!(counts[0] < what.borrow().len() / 4, "most are not late: {counts:?}");
        assert!(counts.is_sorted_by(|a, b| a > b) && counts[3] > 0, "{counts:?}");
    }
}
