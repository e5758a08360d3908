//! What every metastore promises, tried on each: the embedded file, the simulated store, and real
//! servers of etcd and ZooKeeper that the tests start on loopback and end again.
#![allow(clippy::disallowed_methods, reason = "tests start servers and connect to them")]
#![allow(clippy::print_stderr, reason = "a test that failed shows what its server said")]

mod client;
mod fixtures;
mod proxy;
mod servers;
mod suite;

use fixtures::{EmbeddedFixture, Fixture, ServedFixture, SimFixture};
use servers::Kind;

/// One test for each promise and store.
macro_rules! promises {
    ($($promise:ident),* $(,)?) => {
        mod embedded {
            $(#[test] fn $promise() { super::suite::$promise(&mut super::EmbeddedFixture::new()); })*
        }
        mod sim {
            $(#[test] fn $promise() { super::suite::$promise(&mut super::SimFixture::new()); })*
        }
        mod etcd {
            $(#[test] fn $promise() { super::served(super::Kind::Etcd, super::suite::$promise); })*
        }
        mod zookeeper {
            $(#[test] fn $promise() {
                super::served(super::Kind::ZooKeeper, super::suite::$promise);
            })*
        }
    };
}

fn served(kind: Kind, promise: fn(&mut dyn Fixture)) {
    promise(&mut ServedFixture::new(kind));
}

promises![
    values_change_only_as_expected,
    versions_grow_over_deletion,
    values_have_their_limits,
    lists_are_whole_ordered_and_paged,
    large_values_are_paged_too,
    a_lease_has_one_holder_and_fences_writes,
    a_lease_that_is_not_renewed_goes_to_another,
    who_acquires_again_still_has_it,
    a_watch_tells_of_changes,
    two_writers_lose_no_update,
    what_was_written_survives_a_restart,
    a_watch_survives_a_restart,
    a_lost_connection_is_said_and_mended,
    a_stalled_connection_is_said_and_mended,
    answers_that_are_lost_leave_unknown_outcomes,
    a_keeper_without_connection_stops_believing_first,
    a_keeper_that_resigns_is_followed_at_once,
    a_keeper_outlives_a_restart_or_says_that_it_lost,
];

#[test]
fn servers_that_are_not_there_are_passed_over() {
    for kind in [Kind::Etcd, Kind::ZooKeeper] {
        let mut fixture = ServedFixture::with_dead_endpoints(kind);
        suite::a_lease_has_one_holder_and_fences_writes(&mut fixture);
    }
}
