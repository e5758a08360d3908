//! The promises of a metastore, tested on each: the embedded file, the simulated store, and real
//! servers of etcd and ZooKeeper that the tests start and stop on loopback.
#![allow(clippy::disallowed_methods, reason = "tests start servers and connect to them")]
#![allow(clippy::print_stderr, reason = "a failed test shows its server's output")]

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
    a_holder_that_acquires_again_keeps_the_lease,
    a_watch_reports_changes,
    two_writers_lose_no_update,
    values_and_tokens_survive_a_restart,
    a_watch_survives_a_restart,
    a_lost_connection_is_reported_and_mended,
    a_stalled_connection_is_reported_and_mended,
    lost_answers_leave_unknown_outcomes,
    a_disconnected_keeper_stops_believing_first,
    a_keeper_that_resigns_is_followed_at_once,
    a_keeper_survives_a_restart_or_reports_the_loss,
];

#[test]
fn clients_skip_servers_that_do_not_run() {
    for kind in [Kind::Etcd, Kind::ZooKeeper] {
        let mut fixture = ServedFixture::with_dead_endpoints(kind);
        suite::a_lease_has_one_holder_and_fences_writes(&mut fixture);
    }
}
