//! The free room of masters, so that tablets go to masters that can take them.
//!
//! Masters report it on request, just before a placement; it is not stored. A master that does not
//! answer soon may have room. If it then refuses tablets, they are placed again (`tables.rs`), or
//! rebuilt elsewhere (`recoveries/begin.rs`).

use crate::leadership::Leadership;
use crate::waiting::{all, within};
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::MasterId;
use thunderhead_wire::control::{ShardStatus, of_body};

/// How long masters may take to report their room.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pause before a master that is just starting is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// The free room of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Room for live entries, in bytes. A master without room refuses tablets.
    pub(crate) bytes: u64,
    /// Memory without live entries, in bytes.
    pub(crate) memory_bytes: u64,
    /// All memory, in bytes.
    pub(crate) whole_bytes: u64,
}

/// Returns about the bytes of memory that a shard needs for so many live bytes, if its memory has
/// the same share of room as that of the shard with the most room.
pub(crate) fn memory_for(live_bytes: u64, rooms: impl Iterator<Item = Room>) -> u64 {
    let most = rooms.max_by_key(|room| room.bytes).filter(|room| room.bytes > 0);
    let Some(Room { bytes, memory_bytes, .. }) = most else { return live_bytes };
    let needed = u128::from(live_bytes) * u128::from(memory_bytes.max(bytes)) / u128::from(bytes);
    u64::try_from(needed).unwrap_or(u64::MAX)
}

/// The body of `shard status` for a brief answer, as
/// [`ShardStatusOf`](thunderhead_wire::control::ShardStatusOf), with the master that is meant.
/// Shards ignore the master, and name their own in the answer.
#[derive(Serialize)]
struct RoomOf {
    master: MasterId,
    is_brief: bool,
}

/// Returns the room of each master that answers soon. Masters in `insists` are asked again until
/// they answer, as long as there is time.
pub(crate) async fn ask(
    leadership: &Rc<Leadership>,
    masters: &[MasterId],
    insists: &[MasterId],
) -> BTreeMap<MasterId, Room> {
    let shards: Vec<_> = {
        let cluster = leadership.cluster();
        let masters = masters.iter();
        masters.filter_map(|master| Some((*master, cluster.place(*master)?.address))).collect()
    };
    let calls = shards.into_iter().map(|(master, address)| {
        let insists = insists.contains(&master);
        let brief = RoomOf { master, is_brief: true };
        let asked = async move {
            loop {
                match leadership.call(address, Opcode::ShardStatus, &brief).await {
                    Ok(answer) => return Some(answer),
                    Err(_) if insists => leadership.sleep(PAUSE).await,
                    Err(_) => return None,
                }
            }
        };
        async move {
            let answer = within(leadership.sleep(PATIENCE), asked).await??;
            // Another generation of the server may answer at this address.
            let status = of_body::<ShardStatus>(&answer).filter(|it| it.master == master)?;
            let memory_bytes = status.memory_bytes.saturating_sub(status.live_bytes);
            let whole_bytes = status.memory_bytes;
            Some((master, Room { bytes: status.room_bytes?, memory_bytes, whole_bytes }))
        }
    });
    all(calls.collect()).await.into_iter().flatten().collect()
}

/// Asks as many masters as the placement of some tablets needs: the best ones, and all if that is
/// not enough.
pub(crate) async fn for_tablets(
    leadership: &Rc<Leadership>,
    count: usize,
) -> BTreeMap<MasterId, Room> {
    /// Some of the best may be full.
    const SPARE: usize = 4;
    let masters = leadership.cluster().by_load();
    let best = masters.get(..count.saturating_add(SPARE)).unwrap_or(&masters);
    let rooms = ask(leadership, best, &[]).await;
    let full = rooms.values().filter(|room| room.bytes == 0).count();
    if best.len() == masters.len() || best.len().saturating_sub(full) >= count {
        return rooms;
    }
    ask(leadership, &masters, &[]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_memory_has_the_same_share_of_room() {
        let room = |bytes, memory_bytes| Room { bytes, memory_bytes, whole_bytes: memory_bytes };
        assert_eq!(memory_for(90, [room(10, 20), room(30, 40)].into_iter()), 120);
        assert_eq!(memory_for(90, [room(0, 40)].into_iter()), 90);
        assert_eq!(memory_for(90, [].into_iter()), 90);
        assert_eq!(memory_for(u64::MAX, [room(1, 2)].into_iter()), u64::MAX);
    }
}
