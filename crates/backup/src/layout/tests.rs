//! Tests of the layout.

use super::*;

fn superblock() -> Superblock {
    Superblock {
        store: 0x0123_4567_89ab_cdef,
        identity: Identity { cluster: ClusterId(7), server: ServerId(3) },
        geometry: Geometry { segment_bytes: 20_000, frames: 4 },
        one_sync: true,
    }
}

fn used(length: u32) -> ReplicaHeader {
    ReplicaHeader {
        id: ReplicaId { master: MasterId(2), segment: SegmentId(9) },
        epoch: Epoch(1),
        closed: false,
        committed: true,
        length,
        chunks: (0..length.div_ceil(4096)).map(|at| at + 100).collect(),
    }
}

fn writing(sequence: u64, members: u32) -> HeaderWrite {
    HeaderWrite { sequence, members, proven: 0, doubt: None }
}

fn whole(sequence: u64, members: u32) -> SlotState {
    SlotState::Whole { writing: writing(sequence, members), header: Header::Free }
}

/// Returns a header of a round of one sync.
fn doubtful(sequence: u64, members: u32, proven: u64) -> SlotState {
    let doubt = Some(DoubtfulData { from: 0 });
    let writing = HeaderWrite { sequence, members, proven, doubt };
    SlotState::Whole { writing, header: Header::Free }
}

#[test]
fn sizes_follow_from_the_segments() {
    let geometry = Geometry { segment_bytes: 8 << 20, frames: 1000 };
    assert_eq!(geometry.chunk_bytes(), 64 << 10);
    assert_eq!(geometry.header_at(FrameNumber(0), Slot::B), 3 * 4096);
    assert_eq!(geometry.data_at(FrameNumber(0)), 8 << 20);
    assert_eq!(geometry.file_bytes(), 1001 * (8 << 20));
    let odd = Geometry { segment_bytes: 20_000, frames: 1 };
    assert_eq!((odd.frame_bytes(), odd.chunk_bytes()), (20_480, 4096));
    for segment_bytes in [1, 4096, 520_000, 1 << 23, SEGMENT_BYTES_MAX] {
        let geometry = Geometry { segment_bytes, frames: 1 };
        assert!(geometry.frame_bytes().div_ceil(geometry.chunk_bytes()) <= CHUNKS_MAX);
    }
}

#[test]
fn headers_and_superblocks_come_back() {
    let superblock = superblock();
    assert_eq!(Superblock::decode(&superblock.encode(5)), Ok((5, superblock)));
    for header in [Header::Free, Header::Used(used(0)), Header::Used(used(20_000))] {
        for doubt in [None, Some(DoubtfulData { from: 7 })] {
            let writing = HeaderWrite { proven: 6, doubt, ..writing(8, 5) };
            let block = header.encode(superblock.store, FrameNumber(2), writing);
            let found = Header::decode(&block, &superblock, FrameNumber(2));
            assert_eq!(found, SlotState::Whole { writing, header: header.clone() });
            let elsewhere = Header::decode(&block, &superblock, FrameNumber(3));
            assert_eq!(elsewhere, SlotState::Damaged { newest: None }, "it belongs to frame 2");
        }
    }
    let earlier = Superblock { one_sync: false, ..superblock };
    assert_eq!(Superblock::decode(&earlier.encode(5)), Ok((5, earlier)));
}

#[test]
fn the_bytes_of_format_version_1_do_not_change() {
    // A change of these bytes needs a new FORMAT_VERSION, in docs/format.md too.
    let superblock = superblock();
    let earlier = Superblock { one_sync: false, ..superblock };
    let in_doubt =
        HeaderWrite { proven: 4, doubt: Some(DoubtfulData { from: 8000 }), ..writing(5, 3) };
    let blocks = [
        superblock.encode(1),
        earlier.encode(1),
        Header::Used(used(9000)).encode(superblock.store, FrameNumber(1), in_doubt),
        Header::Free.encode(superblock.store, FrameNumber(0), writing(1, 0)),
        Header::Used(used(9000)).encode(superblock.store, FrameNumber(1), writing(2, 3)),
    ];
    let sums = blocks.map(|block| crc(&block.0));
    assert_eq!(sums, [2987110744, 1220915357, 3094995194, 3251700461, 3482193073]);
}

#[test]
fn foreign_files_are_told_from_damaged_ones() {
    let block = superblock().encode(1);
    let decode = |block: &Block| Superblock::decode(block).map(|(sequence, _)| sequence);
    assert_eq!(decode(&Block::ZERO), Err(NotSuperblock::Foreign));
    assert_eq!(decode(&Block([b'x'; BLOCK_BYTES])), Err(NotSuperblock::Foreign));
    for at in 0..BLOCK_BYTES {
        let mut damaged = block;
        damaged.0[at] ^= 0x10;
        assert_eq!(decode(&damaged), Err(NotSuperblock::Damaged), "byte {at}");
    }
    let mut newer = [0; PAYLOAD_BYTES];
    newer[..6].copy_from_slice(b"THBK\x02\x00");
    let newer = seal(&newer, 1, SUPERBLOCK_KEY);
    let refused = Err(NotSuperblock::Version { version: 2, features: 0 });
    assert_eq!(decode(&newer), refused);
}

#[test]
fn a_damaged_slot_does_not_bring_back_the_former_header() {
    let whole = |sequence| whole(sequence, 1);
    let counting = CountedRounds { complete: 9, ..CountedRounds::ALL };
    let damaged = |newest| SlotState::Damaged { newest };
    let torn = |newest| SlotState::Torn { newest };
    let table = [
        ([whole(4), whole(5)], Some((Slot::B, 5))),
        ([whole(6), whole(5)], Some((Slot::A, 6))),
        ([torn(7), whole(6)], Some((Slot::B, 6))),
        ([damaged(Some(4)), whole(6)], Some((Slot::B, 6))),
        ([damaged(Some(8)), whole(6)], None),
        ([whole(10), whole(6)], Some((Slot::B, 6))),
        ([damaged(Some(10)), whole(6)], Some((Slot::B, 6))),
        ([damaged(None), whole(6)], None),
        ([damaged(None), damaged(None)], None),
        ([torn(3), damaged(Some(2))], None),
    ];
    for (slots, expected) in table {
        let judged = judge(slots.clone(), &counting);
        let newest = judged.newest.map(|it| (it.slot, it.sequence));
        assert_eq!(newest, expected, "{slots:?}");
    }
}

#[test]
fn an_unfinished_round_does_not_count() {
    let rounds = |slots: &[SlotState]| CountedRounds::of(slots.iter()).complete;
    assert_eq!(rounds(&[]), 0);
    assert_eq!(rounds(&[whole(1, 0), whole(2, 2), whole(2, 2)]), 2);
    assert_eq!(rounds(&[whole(1, 0), whole(2, 2), SlotState::Torn { newest: 2 }]), 1);
    assert_eq!(rounds(&[whole(1, 1), whole(3, 2), whole(2, 3)]), 1);
    for newest in [Some(2), None] {
        let slots = [whole(1, 0), whole(2, 2), SlotState::Damaged { newest }];
        assert_eq!(rounds(&slots), 2, "damage does not undo a round");
    }
}

#[test]
fn only_the_last_round_of_one_sync_is_in_doubt_and_failed_ones_do_not_count() {
    let of = |slots: &[SlotState]| CountedRounds::of(slots.iter());
    let in_doubt = |slots: &[SlotState]| of(slots).in_doubt();
    assert_eq!(in_doubt(&[whole(1, 0), doubtful(2, 1, 0)]), Some(2));
    assert_eq!(in_doubt(&[doubtful(2, 1, 0), doubtful(3, 1, 2)]), Some(3));
    assert_eq!(in_doubt(&[doubtful(2, 1, 0), SlotState::Torn { newest: 3 }]), Some(2));
    // Part of the third is there, and no round begins before the second is durable.
    assert_eq!(in_doubt(&[doubtful(2, 1, 0), doubtful(3, 2, 2)]), None);
    assert_eq!(in_doubt(&[doubtful(2, 1, 0), whole(3, 1)]), None);

    let slots = [doubtful(2, 1, 0), doubtful(3, 1, 2)];
    let (proven, refuted) = (of(&slots).proven(), of(&slots).refuted(slots.iter()));
    let counts = |counting: &CountedRounds, found: &SlotState| match found {
        SlotState::Whole { writing, .. } => counting.counts(writing),
        _ => false,
    };
    assert!(counts(&proven, &slots[0]) && counts(&proven, &slots[1]));
    assert!(counts(&refuted, &slots[0]) && !counts(&refuted, &slots[1]));
    assert_eq!((refuted.complete, refuted.in_doubt()), (2, None));

    // The second failed, so the third does not record it as durable.
    let slots = [doubtful(2, 1, 0), whole(3, 1)];
    assert!(!counts(&of(&slots), &slots[0]) && counts(&of(&slots), &slots[1]));
}
