//! Entry points for the fuzz targets. They take any bytes and must never panic.

use crate::block::{Block, PAYLOAD_BYTES, seal};
use crate::layout::{
    CountedRounds, FrameNumber, Geometry, Header, Identity, SlotState, Superblock, judge,
};
use crate::limits::BLOCK_BYTES;
use crate::service::{Local, Service};
use crate::store::{Options, Store};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time, World};
use thunderhead_wire::replication::PartAnswer;
use thunderhead_wire::{ClusterId, ServerId};

/// Decodes bytes as superblocks and headers: as they are, and sealed, so that the fuzzer need not
/// find checksums before it gets anywhere.
pub fn frames(data: &[u8]) {
    let superblock = Superblock {
        store: 1,
        identity: Identity { cluster: ClusterId(1), server: ServerId(1) },
        geometry: Geometry { segment_bytes: 1 << 16, frames: 4 },
        one_sync: true,
    };
    let mut found: Vec<SlotState> = Vec::new();
    for (number, part) in data.chunks(BLOCK_BYTES).enumerate() {
        let mut block = Block::ZERO;
        block.0[..part.len()].copy_from_slice(part);
        let mut payload = [0; PAYLOAD_BYTES];
        let length = part.len().min(PAYLOAD_BYTES);
        payload[..length].copy_from_slice(&part[..length]);
        let sequence = u64::from(part.first().copied().unwrap_or(0));
        for block in [block, seal(&payload, sequence, 1), seal(&payload, sequence, SUPER)] {
            if let Ok((_, it)) = Superblock::decode(&block) {
                assert!(it.geometry.is_possible(), "sizes are checked");
            }
            let header = Header::decode(&block, &superblock, FrameNumber(number as u32 % 2));
            if let SlotState::Whole { header: Header::Used(used), .. } = &header {
                assert!(used.length <= superblock.geometry.segment_bytes, "lengths are checked");
                let _ = used.first_damaged_chunk(part, superblock.geometry.chunk_bytes());
            }
            found.push(header);
        }
    }
    let mut counting = CountedRounds::of(found.iter());
    while counting.in_doubt().is_some() {
        let earlier = counting.refuted(found.iter());
        assert!(earlier.complete < counting.complete, "a refuted round does not count again");
        for counting in [counting.proven(), earlier] {
            for pair in found.as_chunks::<2>().0 {
                let _ = judge(pair.clone(), &counting);
            }
        }
        counting = earlier;
    }
    for pair in found.as_chunks::<2>().0 {
        let _ = judge(pair.clone(), &counting);
    }
}

/// Hands bytes to a service as messages of masters, one for each stretch that begins with its
/// length. Checks that the service is still in order.
pub fn replicate(data: &[u8]) {
    let disk = SimDisk::new(DiskModel::default(), Random::from_seed(1));
    let workers = SimWorkers::default();
    let on_disk = disk.clone();
    let mut world = World {
        clock: Clock::Sim(SimClock::new(TrueTime::default(), Time(0), 0).into()),
        random: Random::from_seed(2),
        files: Box::new(disk.files()),
        memories: Box::new(SimMemories::default()),
        workers: Box::new(workers.starter(move || Box::new(on_disk.files()))),
        alarm: Alarm::sim(),
    };
    let identity = Identity { cluster: ClusterId(1), server: ServerId(1) };
    let options = Options { segment_bytes: 4096, buffers: 3, ..Options::new(identity, 4) };
    let Ok((store, _)) = Store::start(&mut world, options) else { return };
    let mut service = Service::new(store, 0);
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first() {
        let (body, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        let (front, back) = body.split_at(body.len() * usize::from(length % 3) / 2);
        match service.local(&[front, back]) {
            Local::Now(Ok(answers)) => assert!(PartAnswer::all_of(&answers).is_some()),
            Local::Now(Err(_)) => {}
            Local::Later(_) => unreachable!("it is acknowledged at once"),
        }
        assert!(service.store().replicas().count() <= 4, "one frame each");
        service.store().check_consistent();
        rest = behind;
    }
}

const SUPER: u64 = u64::from_le_bytes(*b"THBKSUPR");

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_do_not_panic_on_simple_bytes() {
        for data in [vec![], vec![0; 5000], vec![2; 9000], b"THBK\x01\0\0\0".repeat(600)] {
            super::frames(&data);
            super::replicate(&data);
        }
    }
}
