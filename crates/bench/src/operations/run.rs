//! Runs [`Generator`]s against a shard in this process.

use super::generator::{Generator, To};
use crate::rpc::floors::{CLIENT_CORE, SERVER_CORE};
use anyhow::Result;
use std::time::Instant;
use thunderhead_load::channel::Channel;
use thunderhead_load::machine;
use thunderhead_load::plan::Plan;
use thunderhead_load::run::{Record, Second, Tally, Times, Work, crews};

impl Work for Generator {
    #[inline]
    fn turn(&mut self, record: &mut Record<'_>) -> Result<bool> {
        Generator::turn(self, record)
    }

    fn finish(&mut self) -> Result<()> {
        Generator::finish(self)
    }

    #[inline]
    fn now(&self) -> Instant {
        self.now
    }

    fn busy(&self) -> u64 {
        self.busy
    }
}

/// Returns the core of a client thread: all cores but the server's, in turn.
fn core_of(thread: usize) -> Option<usize> {
    Some(if thread == 0 { CLIENT_CORE } else { SERVER_CORE + thread })
}

/// Runs the clients of a plan for a time, against a shard in this process. `progress` receives
/// every second.
///
/// # Errors
/// When a client fails.
pub fn run(
    plan: &Plan,
    channel: Channel,
    to: impl Into<To>,
    times: Times,
    progress: &mut dyn FnMut(&Second),
) -> Result<Tally> {
    let to = to.into();
    let threads = plan.clients.min(machine::cores().saturating_sub(1)).max(1);
    let make = |client| Generator::new(plan, channel, to, client);
    crews(plan.clients, threads, &core_of, &make, times, progress)
}

/// Writes the objects of a plan.
///
/// # Errors
/// When a write is refused permanently.
pub fn load(plan: &Plan, channel: Channel, to: impl Into<To>) -> Result<()> {
    let plan = Plan { exactly_once: false, ..plan.clone() };
    Generator::new(&plan, channel, to, 0)?.load(&mut |_| {})
}
