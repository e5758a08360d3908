//! Upgrades: programs are replaced one after the other under load, then a new format is switched
//! on.

use crate::detection::{PATIENCE, begun_with, nothing_is_lost};
use crate::scenario::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_wire::Format;
use thunderhead_wire::control::{KnownFormat, Program, SettingsChanged};

/// A crashed coordinator counts as running until its record is this old.
const CRASHED_ARE_GONE: Duration = Duration::from_secs(45);

const OLD: Format = Format::NEWEST;
const NEW: Format = Format(OLD.0 + 1);

/// Returns the cluster's answer to an operator's command to switch a format on.
fn switched(world: &mut World, format: Format) -> SettingsChanged {
    let noted = Rc::new(RefCell::new(None));
    let notes = Rc::clone(&noted);
    world.add_user("operator", move |user| user.switch(format, Rc::clone(&notes)));
    assert!(world.until(PATIENCE, |_| noted.borrow().is_some()), "{}", world.describe());
    let changed = noted.borrow_mut().take();
    changed.expect("it was noted")
}

fn replace_server(world: &mut World, number: usize, newest: Format) {
    world.replace_server(number, newest);
    world.run_for(Duration::from_millis(500));
    assert!(world.until(PATIENCE, World::is_whole), "{}", world.describe());
}

#[test]
fn a_format_is_switched_on_only_when_all_programs_know_it() {
    let mut world = begun_with(50, 4, 1);
    world.add_users();
    let format = |world: &World| world.known().map(|(_, list)| list.format);
    assert_eq!(format(&world), Some(OLD));
    for coordinator in 0..2 {
        world.replace_coordinator(coordinator, NEW, Duration::from_millis(200));
        assert!(world.until(PATIENCE, |world| world.leads().is_some()), "{}", world.describe());
        world.run_for(Duration::from_secs(1));
    }
    for server in 0..3 {
        replace_server(&mut world, server, NEW);
    }
    world.run_for(CRASHED_ARE_GONE);
    assert_eq!(format(&world), Some(OLD), "a start switches nothing on");

    let (last, _) = world.identity(3).expect("it is there");
    let refused = switched(&mut world, NEW);
    let lacking = [KnownFormat { program: Program::Server(last), newest: OLD }];
    assert_eq!((refused.format, &refused.lacking[..]), (OLD, &lacking[..]));
    world.run_for(Duration::from_secs(1));
    assert_eq!(format(&world), Some(OLD));

    replace_server(&mut world, 3, NEW);
    let changed = switched(&mut world, NEW);
    assert_eq!((changed.format, changed.lacking), (NEW, Vec::new()));
    assert_eq!(format(&world), Some(NEW));

    // A coordinator that does not know the format never leads, however long no other one is up.
    let leader = world.leads().expect("one leads");
    let other = 1 - leader;
    world.replace_coordinator(other, OLD, Duration::from_millis(200));
    world.run_for(Duration::from_secs(1));
    world.replace_coordinator(leader, NEW, Duration::from_secs(20));
    for _ in 0..190 {
        world.run_for(Duration::from_millis(100));
        assert_eq!(world.leads(), None, "{}", world.describe());
    }
    assert!(world.until(PATIENCE, |world| world.leads() == Some(leader)), "{}", world.describe());
    assert_eq!(format(&world), Some(NEW));
    assert!(world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0));
    nothing_is_lost(&mut world);
}
