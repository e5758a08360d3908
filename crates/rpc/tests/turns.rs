//! A turn ends after messages that cost much, and its slice for long work is shorter.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::{Caller, Context, Node, Opcode, Request, Service};
use thunderhead_runtime::os;
use thunderhead_runtime::polling::Polling;

/// The turns: for each the number of messages, and of the steps of long work behind them.
type Turns = Rc<RefCell<Vec<(u32, u32)>>>;

/// Charges each request with a cost, and does long work at the end of each turn.
struct Costly {
    cost: Duration,
    /// Long work that another part of the service has done in the turn.
    worked: Duration,
    turns: Turns,
}

impl Service for Costly {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        context.charge(self.cost);
        context.reply(request.reply_to, &[]);
        self.turns.borrow_mut().last_mut().unwrap().0 += 1;
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        context.count_work(self.worked);
        let (mut slice, mut steps) = (context.slice(), 1);
        while slice.spend(Duration::from_micros(1)) {
            steps += 1;
        }
        assert_eq!(slice.spent(), Duration::from_micros(steps.into()));
        let mut whole = context.whole_slice();
        assert!(whole.spend(Duration::from_micros(39)) && !whole.spend(Duration::from_micros(1)));
        let mut turns = self.turns.borrow_mut();
        turns.last_mut().unwrap().1 = steps;
        turns.push((0, 0));
    }
}

/// Calls a service twelve times at once, and returns the turns that received calls.
fn turns_of(cost_us: u64, worked_us: u64) -> Vec<(u32, u32)> {
    let turns = Turns::new(RefCell::new(vec![(0, 0)]));
    let options = || Options { shared_memory: false, ..Options::default() };
    let world = os::world_without_files().unwrap();
    let transport = OsTransport::new(&world, options()).unwrap();
    let (cost, worked) = (Duration::from_micros(cost_us), Duration::from_micros(worked_us));
    let service = Costly { cost, worked, turns: Rc::clone(&turns) };
    let mut node = Node::new(world, Box::new(transport), service);
    let to = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let world = os::world_without_files().unwrap();
    let transport = OsTransport::new(&world, options()).unwrap();
    let mut caller = Caller::new(&world, Box::new(transport), Polling::Always);
    for _ in 0..12 {
        caller.begin(to, Opcode::Echo, &[&0u32.to_le_bytes()], None).unwrap();
    }
    let mut answered = 0;
    while answered < 12 {
        node.turn_now();
        caller.poll(&mut |_, outcome| {
            assert!(outcome.is_ok());
            answered += 1;
        });
    }
    turns.borrow().iter().copied().filter(|(messages, _)| *messages > 0).collect()
}

#[test]
fn costly_messages_of_one_read_are_spread_over_turns() {
    assert_eq!(turns_of(15, 0), [(3, 4); 4], "the third brings the turn to its limit");
    assert_eq!(turns_of(60, 0), [(1, 4); 12]);
}

#[test]
fn messages_that_cost_little_share_a_turn_and_shorten_its_slice() {
    let turns = turns_of(2, 0);
    assert!(turns.iter().all(|(messages, steps)| *steps == 40 - 2 * messages), "{turns:?}");
    assert_eq!(turns_of(0, 0).iter().map(|(messages, _)| messages).sum::<u32>(), 12);
}

#[test]
fn the_work_of_one_part_shortens_the_slices_of_the_others_in_the_same_turn_only() {
    assert_eq!(turns_of(60, 30), [(1, 4); 12]);
    let turns = turns_of(2, 30);
    assert!(
        turns.iter().all(|(messages, steps)| *steps == 10u32.saturating_sub(2 * messages).max(4)),
        "{turns:?}"
    );
}
