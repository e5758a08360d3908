//! Verdicts: the coordinator declares one generation of a server crashed.

use crate::cluster::ended;
use crate::leadership::{Leadership, Task};
use crate::refusal::Refusal;
use std::rc::Rc;
use thunderhead_wire::control::ServerState;
use thunderhead_wire::{Generation, ServerId};

/// Declares one generation of a server crashed. It may be over already.
pub(crate) async fn failed(
    leadership: &Rc<Leadership>,
    server: ServerId,
    generation: Generation,
) -> Result<(), Refusal> {
    let _lock = leadership.lock_updates().await;
    end_generation(leadership, server, generation).await
}

/// As [`failed`], for a caller that holds the update lock.
pub(crate) async fn end_generation(
    leadership: &Rc<Leadership>,
    server: ServerId,
    generation: Generation,
) -> Result<(), Refusal> {
    let Some(old) = leadership.cluster().server(server).cloned() else { return Ok(()) };
    if old.generation != generation || old.state != ServerState::Up {
        return Ok(());
    }
    let record = ended(&old);
    leadership.put_server(record.clone()).await?;
    for former in &record.former {
        leadership.ensure_running(Task::Recover(former.master));
    }
    Ok(())
}
