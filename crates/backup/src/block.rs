//! Blocks: memory that is aligned for direct I/O, and seals for blocks with metadata.
//!
//! ```text
//! sealed block  ┌──────────────────────┬─────────┐
//! 8 sectors of  │ 496 bytes of payload │ trailer │  trailer: sequence u64 │ magic u32 │ CRC32C u32
//! 512 bytes     └──────────────────────┴─────────┘
//! ```
//!
//! A disk writes a sector whole or not at all. It promises nothing more for a block that was being
//! written when the power failed. Each sector records by itself whether it is intact and to which
//! write of the block it belongs. So a *torn* block (intact sectors of two writes) is told from a
//! *damaged* block (a sector with contents that no write produced). With a torn block nothing is
//! lost: the block's other slot holds the former contents. With one checksum over the whole block,
//! a flipped bit in the newest slot would look like a torn write, and an older, shorter state
//! would be taken for the truth.

use thunderhead_runtime::files::DIRECT_BYTES;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a sector: the least that disks write whole.
pub const SECTOR_BYTES: usize = 512;

const SECTORS: usize = DIRECT_BYTES / SECTOR_BYTES;
const TRAILER_BYTES: usize = size_of::<Trailer>();
const SECTOR_PAYLOAD_BYTES: usize = SECTOR_BYTES - TRAILER_BYTES;

/// Bytes of payload in a sealed block.
pub(crate) const PAYLOAD_BYTES: usize = SECTORS * SECTOR_PAYLOAD_BYTES;

/// `THS1`: a sector of ours.
const MAGIC: u32 = u32::from_le_bytes(*b"THS1");

/// The CRC32C of some bytes.
#[inline]
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A block of aligned memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; DIRECT_BYTES]);

impl Block {
    /// Zeroes.
    pub const ZERO: Block = Block([0; DIRECT_BYTES]);

    /// Memory for so many bytes.
    #[must_use]
    pub fn vec(bytes: usize) -> Vec<Block> {
        vec![Block::ZERO; bytes.div_ceil(DIRECT_BYTES)]
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Trailer {
    sequence: U64,
    magic: U32,
    crc: U32,
}

/// The payload of a sealed block.
pub(crate) type Payload = [u8; PAYLOAD_BYTES];

/// The state of a sealed block, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnsealedBlock {
    /// All of it is of one writing.
    Whole { sequence: u64, payload: Box<Payload> },
    /// Intact sectors of several writings: the power went during the newest of them.
    Torn { newest: u64 },
    /// Some sectors are not as they were written. The newest writing that those beside them
    /// belong to, if any is intact.
    Damaged { newest: Option<u64> },
}

/// Seals a payload. The key names the block's owner: a block that was written or read in the wrong
/// place does not unseal there.
pub(crate) fn seal(payload: &Payload, sequence: u64, key: u64) -> Block {
    let mut block = Block::ZERO;
    let sectors = block.0.chunks_exact_mut(SECTOR_BYTES);
    for (number, (sector, part)) in
        sectors.zip(payload.chunks_exact(SECTOR_PAYLOAD_BYTES)).enumerate()
    {
        let (into, trailer) = sector.split_at_mut(SECTOR_PAYLOAD_BYTES);
        into.copy_from_slice(part);
        let crc = sector_crc(part, sequence, key, number).into();
        let sealed = Trailer { sequence: sequence.into(), magic: MAGIC.into(), crc };
        trailer.copy_from_slice(sealed.as_bytes());
    }
    block
}

/// Unseals a block.
pub(crate) fn unseal(block: &Block, key: u64) -> UnsealedBlock {
    let mut payload = Box::new([0; PAYLOAD_BYTES]);
    let mut newest = None;
    let mut oldest = None;
    let mut damaged = false;
    let parts = payload.chunks_exact_mut(SECTOR_PAYLOAD_BYTES);
    for (number, (sector, into)) in block.0.chunks_exact(SECTOR_BYTES).zip(parts).enumerate() {
        let (part, trailer) = sector.split_at(SECTOR_PAYLOAD_BYTES);
        let trailer = Trailer::read_from_bytes(trailer).ok();
        let intact = trailer.filter(|it| {
            it.magic.get() == MAGIC
                && it.crc.get() == sector_crc(part, it.sequence.get(), key, number)
        });
        let Some(trailer) = intact else {
            damaged = true;
            continue;
        };
        let sequence = trailer.sequence.get();
        newest = newest.max(Some(sequence));
        oldest = Some(oldest.map_or(sequence, |oldest: u64| oldest.min(sequence)));
        into.copy_from_slice(part);
    }
    match (newest, oldest) {
        _ if damaged => UnsealedBlock::Damaged { newest },
        (Some(newest), Some(oldest)) if newest == oldest => {
            UnsealedBlock::Whole { sequence: newest, payload }
        }
        (Some(newest), _) => UnsealedBlock::Torn { newest },
        (None, _) => UnsealedBlock::Damaged { newest: None },
    }
}

fn sector_crc(part: &[u8], sequence: u64, key: u64, number: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&sequence.to_le_bytes());
    digest.update(&key.to_le_bytes());
    digest.update(&[number as u8]);
    digest.update(part);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(byte: u8, sequence: u64) -> Block {
        seal(&[byte; PAYLOAD_BYTES], sequence, 77)
    }

    #[test]
    fn a_block_is_whole_torn_or_damaged() {
        let (old, new) = (sealed(1, 5), sealed(2, 9));
        let payload = Box::new([2; PAYLOAD_BYTES]);
        assert_eq!(unseal(&new, 77), UnsealedBlock::Whole { sequence: 9, payload });
        assert_eq!(unseal(&new, 78), UnsealedBlock::Damaged { newest: None });
        assert_eq!(unseal(&Block::ZERO, 77), UnsealedBlock::Damaged { newest: None });
        let mut torn = old;
        torn.0[512..1024].copy_from_slice(&new.0[512..1024]);
        assert_eq!(unseal(&torn, 77), UnsealedBlock::Torn { newest: 9 });
        let mut moved = new;
        moved.0[..512].copy_from_slice(&new.0[512..1024]);
        assert_eq!(unseal(&moved, 77), UnsealedBlock::Damaged { newest: Some(9) });
    }

    #[test]
    fn no_byte_can_change_unnoticed() {
        let block = sealed(3, 6);
        for at in 0..DIRECT_BYTES {
            for bit in [1, 0x80] {
                let mut damaged = block;
                damaged.0[at] ^= bit;
                assert_eq!(
                    unseal(&damaged, 77),
                    UnsealedBlock::Damaged { newest: Some(6) },
                    "{at}"
                );
            }
        }
    }
}
