//! Buckets for memories of up to 4 GiB: ten slots, tags in the same line, and no words.
//!
//! ```text
//!  bucket, one cache line:  | reference 32 × 10 | tag 15 and a bit of the filter × 10 | link 32 |
//! filter: ten bits: which kinds of entries lie in the overflow buckets behind
//! link:   the distance to the overflow bucket in lines, which may be negative; 0 is none
//! ```
//!
//! About 9.6 bytes an entry: two thirds of the [wide](super::wide) form. In return, a lookup of a
//! key that does not exist reads its bucket. A shard per core rarely has more memory than this.
//!
//! Cleaners look at references and links alone; the tags belong to the reactor. A slot with tag 0
//! is empty.

use super::blocks::{BlockSource, Blocks, Line};
use super::form::{Form, TAG_BITS_FROM, TAG_SHIFT, Words};
use crate::memory::REACH_BYTES;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ops::Range;
use std::ptr::NonNull;

const SLOTS: usize = 10;
/// Tags of a word of 64 bits.
const LANES: usize = 4;
/// Words of tags; the last of them is half a word.
const WORDS: usize = SLOTS.div_ceil(LANES);
/// The lowest bit of each tag of a word.
const LOW: u64 = 0x0001_0001_0001_0001;
/// The highest bit of each tag.
const HIGH: u64 = LOW << 15;

/// One cache line: see the module's documentation.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    references: [AtomicU32; SLOTS],
    tags: [AtomicU64; 2],
    last_tags: AtomicU32,
    link: Link,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: integers, all of them zero in an empty bucket with nothing behind it.
unsafe impl Line for Bucket {
    #[cfg(test)]
    fn empty() -> Bucket {
        Bucket {
            references: std::array::from_fn(|_| AtomicU32::new(0)),
            tags: std::array::from_fn(|_| AtomicU64::new(0)),
            last_tags: AtomicU32::new(0),
            link: Link::none(),
        }
    }
}

/// The bucket behind another one, relative to that one.
#[cfg(not(loom))]
struct Link(AtomicU32);

#[cfg(not(loom))]
impl Link {
    #[cfg(test)]
    fn none() -> Link {
        Link(AtomicU32::new(0))
    }

    #[inline]
    fn load(&self, from: &Bucket) -> Option<*const Bucket> {
        let lines = self.0.load(Ordering::Acquire).cast_signed() as isize;
        let bytes = lines.wrapping_mul(size_of::<Bucket>() as isize);
        let address = std::ptr::from_ref(from).addr().wrapping_add_signed(bytes);
        (lines != 0).then(|| std::ptr::with_exposed_provenance(address))
    }

    fn store(&self, from: &Bucket, to: Option<NonNull<Bucket>>) {
        let bytes = to.map_or(0, |to| {
            let to = to.as_ptr().expose_provenance();
            to.wrapping_sub(std::ptr::from_ref(from).addr()).cast_signed()
        });
        let lines = bytes / size_of::<Bucket>() as isize;
        debug_assert_eq!(lines * size_of::<Bucket>() as isize, bytes);
        let lines = i32::try_from(lines).expect("buckets of a memory of 4 GiB are less apart");
        self.0.store(lines.cast_unsigned(), Ordering::Release);
    }
}

/// The link in models, where buckets are anywhere on the heap.
#[cfg(loom)]
struct Link(AtomicU64);

#[cfg(loom)]
impl Link {
    fn none() -> Link {
        Link(AtomicU64::new(0))
    }

    fn load(&self, _: &Bucket) -> Option<*const Bucket> {
        let address = self.0.load(Ordering::Acquire) as usize;
        (address != 0).then(|| std::ptr::with_exposed_provenance(address))
    }

    fn store(&self, _: &Bucket, to: Option<NonNull<Bucket>>) {
        let address = to.map_or(0, |to| to.as_ptr().expose_provenance());
        self.0.store(address as u64, Ordering::Release);
    }
}

/// See the module's documentation.
pub(crate) struct Narrow;

/// The lanes of a word whose tag is a given one: bit 15 of each.
#[inline(always)]
fn lanes_with(word: u64, tags: u64) -> u64 {
    !(((word & !HIGH) ^ tags) + !HIGH) & HIGH
}

/// The bit of an entry in a filter. In a large index the lower bits of a tag are the same
/// throughout a bucket.
#[inline(always)]
fn kind(tag: u64) -> usize {
    (((tag >> (TAG_SHIFT + 5)) * SLOTS as u64) >> 10) as usize
}

/// Bit 15 of each of four tags as four bits in a row.
#[inline(always)]
fn gathered(lanes: u64) -> u32 {
    const GATHER: u64 = 1 << 48 | 1 << 33 | 1 << 18 | 1 << 3;
    ((lanes >> 15).wrapping_mul(GATHER) >> 48) as u32 & 0xf
}

/// The slots of a bucket that have a tag, one bit each; empty slots have tag 0.
#[inline(always)]
fn same_tags(bucket: &Bucket, tag: u64) -> u32 {
    let tags = tag * LOW;
    let same = |number| gathered(lanes_with(bucket.word(number), tags));
    let (first, second, last) = (same(0), same(1), same(2));
    first | second << LANES | (last & 0b11) << (2 * LANES)
}

impl Bucket {
    /// A word of tags.
    #[inline(always)]
    fn word(&self, number: usize) -> u64 {
        match self.tags.get(number) {
            Some(word) => word.load(Ordering::Relaxed),
            None => self.last_tags.load(Ordering::Relaxed).into(),
        }
    }

    #[inline(always)]
    fn set_word(&self, number: usize, word: u64) {
        match self.tags.get(number) {
            Some(tags) => tags.store(word, Ordering::Relaxed),
            None => self.last_tags.store(word as u32, Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn tag(&self, at: usize) -> u64 {
        self.word(at / LANES) >> (at % LANES * 16) & 0x7fff
    }

    #[inline(always)]
    fn set_tag(&self, at: usize, tag: u64) {
        let shift = at % LANES * 16;
        let others = self.word(at / LANES) & !(0x7fff << shift);
        self.set_word(at / LANES, others | tag << shift);
    }

    /// Whether an entry of a kind may be behind this bucket.
    #[inline(always)]
    fn has_behind(&self, kind: usize) -> bool {
        self.word(kind / LANES) >> (kind % LANES * 16 + 15) & 1 != 0
    }

    /// Notes that an entry of a kind is behind this bucket.
    fn set_behind(&self, kind: usize) {
        let bit = 1 << (kind % LANES * 16 + 15);
        self.set_word(kind / LANES, self.word(kind / LANES) | bit);
    }

    fn clear_behind(&self) {
        (0..WORDS).for_each(|number| self.set_word(number, self.word(number) & !HIGH));
    }
}

/// The reference in a value for a slot.
#[inline(always)]
fn short(held: u64) -> u32 {
    debug_assert!(super::form::reference_in(held) < REACH_BYTES);
    held as u32
}

impl Form for Narrow {
    type Bucket = Bucket;
    type Word<'index> = &'index Bucket;

    const SLOTS: usize = SLOTS;
    const LINK_IS_A_SLOT: bool = false;
    const HAS_WORDS: bool = false;
    /// With this load a tenth of the found entries are in an overflow bucket.
    const LOAD_HIGH: usize = 85;
    const LOAD_LOW: usize = 70;

    const TAG_TELLS: Range<u32> = TAG_BITS_FROM + 1..TAG_BITS_FROM + 15;

    #[inline(always)]
    fn tag_of(hash: u64) -> u64 {
        let tag = (hash >> TAG_BITS_FROM) & 0x7fff;
        // 0 would look like an empty slot.
        (tag + u64::from(tag == 0)) << TAG_SHIFT
    }

    #[inline(always)]
    fn held(bucket: &Bucket, at: usize) -> u64 {
        match bucket.tag(at) {
            0 => 0,
            tag => tag << TAG_SHIFT | u64::from(bucket.references[at].load(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn reference(bucket: &Bucket, at: usize) -> u64 {
        bucket.references[at].load(Ordering::Acquire).into()
    }

    #[inline(always)]
    fn empty_slot(bucket: &Bucket) -> Option<usize> {
        let empty = same_tags(bucket, 0);
        (empty != 0).then(|| empty.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn fill(bucket: &Bucket, at: usize, held: u64) {
        bucket.set_tag(at, held >> TAG_SHIFT);
        bucket.references[at].store(short(held), Ordering::Release);
    }

    #[inline(always)]
    fn empty(bucket: &Bucket, at: usize) -> u64 {
        bucket.set_tag(at, 0);
        bucket.references[at].swap(0, Ordering::AcqRel).into()
    }

    #[inline(always)]
    fn swap(bucket: &Bucket, at: usize, held: u64) -> u64 {
        bucket.references[at].swap(short(held), Ordering::AcqRel).into()
    }

    #[inline(always)]
    fn exchange(bucket: &Bucket, at: usize, expected: u64, new: u64) -> Result<(), u64> {
        let (expected, new) = (short(expected), short(new));
        bucket.references[at]
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(u64::from)
    }

    #[inline]
    fn relocate(bucket: &Bucket, old: u64, new: u64) -> Option<bool> {
        let (old, new) = (short(old), short(new));
        let slot = bucket.references.iter().find(|slot| slot.load(Ordering::Acquire) == old)?;
        // Acquire on failure too, as in the wide form.
        Some(slot.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }

    fn move_slot(from: (&Bucket, usize), to: (&Bucket, usize)) {
        let ((from, from_at), (to, to_at)) = (from, to);
        to.set_tag(to_at, from.tag(from_at));
        let (source, target) = (&from.references[from_at], &to.references[to_at]);
        let mut reference = source.load(Ordering::Acquire);
        loop {
            target.store(reference, Ordering::Release);
            match source.compare_exchange(reference, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(newer) => reference = newer,
            }
        }
        from.set_tag(from_at, 0);
    }

    #[inline]
    fn linked(bucket: &Bucket) -> Option<&Bucket> {
        let address = bucket.link.load(bucket)?;
        // SAFETY: links are only made to overflow buckets of this index, whose memory is neither
        // given back nor reused otherwise while a reader may be inside (`Overflow`).
        Some(unsafe { &*address })
    }

    fn append(full: NonNull<Bucket>, new: NonNull<Bucket>) -> usize {
        // SAFETY: bucket memory of an index lives as long as the index, and all its fields are
        // atomics.
        let full = unsafe { full.as_ref() };
        full.link.store(full, Some(new));
        0
    }

    fn unlink(bucket: &Bucket) {
        bucket.link.store(bucket, None);
    }

    #[inline(always)]
    fn with_tag(bucket: &Bucket, tag: u64) -> u32 {
        same_tags(bucket, tag >> TAG_SHIFT)
    }

    #[inline(always)]
    fn find_by_word(
        bucket: &Bucket,
        _: &Bucket,
        tag: u64,
        matches: impl FnMut(u64) -> bool,
    ) -> Option<usize> {
        Narrow::find(bucket, tag, matches)
    }

    #[inline(always)]
    fn word<'index, S: BlockSource>(
        bucket: &'index Bucket,
        _: &'index Blocks<S, Words>,
        _: usize,
    ) -> &'index Bucket {
        bucket
    }

    #[inline(always)]
    fn first_look(bucket: &Bucket, _: &Bucket) -> *const u8 {
        std::ptr::from_ref(bucket).cast()
    }

    /// Always true: only the bucket itself could tell.
    #[inline(always)]
    fn may_have(_: &Bucket, _: u64) -> bool {
        true
    }

    #[inline(always)]
    fn may_lead_to(word: &Bucket, tag: u64) -> bool {
        word.has_behind(kind(tag))
    }

    #[inline(always)]
    fn note_filled(_: &Bucket, _: usize, _: u64) {}

    #[inline(always)]
    fn note_behind(word: &Bucket, tag: u64) {
        word.set_behind(kind(tag));
    }

    #[inline(always)]
    fn note_emptied(_: &Bucket, _: usize) {}

    fn refresh(word: &Bucket, bucket: &Bucket) {
        word.clear_behind();
        let mut behind = Narrow::linked(bucket);
        while let Some(next) = behind {
            for held in (0..SLOTS).map(|at| Narrow::held(next, at)).filter(|held| *held != 0) {
                word.set_behind(kind(held));
            }
            behind = Narrow::linked(next);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_finds_just_the_slots_that_have_a_tag() {
        let (bucket, mut random) = (Bucket::empty(), 1u64);
        let mut model = [0u64; SLOTS];
        for round in 0..200_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let at = (random >> 40) as usize % SLOTS;
            // Few tags, some of them next to each other and at the ends.
            let tag = [1, 2, 0x3fff, 0x4000, 0x7ffe, 0x7fff][(random >> 50) as usize % 6];
            if model[at] == 0 {
                model[at] = tag << TAG_SHIFT | (random & 0xffff_ffff).max(1);
                Narrow::fill(&bucket, at, model[at]);
            } else {
                assert_eq!(Narrow::empty(&bucket, at), model[at] & 0xffff_ffff);
                model[at] = 0;
            }
            // The filter must not disturb the tags.
            match random >> 60 {
                0 => bucket.clear_behind(),
                1..5 => bucket.set_behind((random >> 56) as usize % SLOTS),
                _ => {}
            }
            for (at, held) in model.iter().enumerate() {
                assert_eq!(Narrow::held(&bucket, at), *held);
            }
            assert_eq!(Narrow::empty_slot(&bucket), model.iter().position(|held| *held == 0));
            let mut seen = Vec::new();
            let none = Narrow::find(&bucket, tag << TAG_SHIFT, |reference| {
                seen.push(reference);
                false
            });
            let same = model.iter().filter(|held| **held >> TAG_SHIFT == tag);
            assert_eq!(seen, same.map(|held| held & 0xffff_ffff).collect::<Vec<_>>());
            assert_eq!(none, None);
        }
    }

    #[test]
    fn a_filter_never_denies_an_entry_behind_its_bucket() {
        let (first, behind) = (Bucket::empty(), Bucket::empty());
        Narrow::append(NonNull::from(&first), NonNull::from(&behind));
        let mut kinds = [0; SLOTS];
        for tag in 1..=0x7fffu64 {
            let tag = tag << TAG_SHIFT;
            kinds[kind(tag)] += 1;
            let at = (tag >> (TAG_SHIFT + 3)) as usize % SLOTS;
            Narrow::fill(&behind, at, tag | 5);
            if at == 0 {
                Narrow::note_behind(&first, tag);
            } else {
                Narrow::refresh(&first, &first);
            }
            assert!(Narrow::may_lead_to(&first, tag));
            Narrow::empty(&behind, at);
            Narrow::refresh(&first, &first);
            assert!(!Narrow::may_lead_to(&first, tag));
        }
        assert!(kinds.iter().all(|count| (3200..3400).contains(count)), "{kinds:?}");
    }

    #[test]
    fn a_moved_slot_keeps_its_tag_and_carries_over_its_newest_reference() {
        let (from, to) = (Bucket::empty(), Bucket::empty());
        let tag = Narrow::tag_of(0x1234_5678_9abc);
        Narrow::fill(&from, 9, tag | 77);
        assert_eq!(Narrow::relocate(&from, 77, REACH_BYTES - 1), Some(true));
        assert_eq!(Narrow::relocate(&from, 77, 78), None);
        Narrow::move_slot((&from, 9), (&to, 3));
        assert_eq!((Narrow::held(&from, 9), Narrow::held(&to, 3)), (0, tag | (REACH_BYTES - 1)));
        assert_eq!(Narrow::find(&to, tag, |_| true), Some(3));
        assert_eq!(Narrow::exchange(&to, 3, tag | 5, tag | 6), Err(REACH_BYTES - 1));
        assert_eq!(Narrow::exchange(&to, 3, tag | (REACH_BYTES - 1), tag | 6), Ok(()));
        assert_eq!((Narrow::swap(&to, 3, tag | 7), Narrow::reference(&to, 3)), (6, 7));
    }

    #[test]
    fn a_link_leads_forwards_and_backwards_as_far_as_a_memory_reaches() {
        let buckets = [const { None::<Bucket> }; 3].map(|_| Bucket::empty());
        for (from, to) in [(0, 2), (2, 0), (1, 2)] {
            let (from, to) = (&buckets[from], &buckets[to]);
            assert_eq!(Narrow::append(NonNull::from(from), NonNull::from(to)), 0);
            assert!(std::ptr::eq(Narrow::linked(from).unwrap(), to));
            Narrow::unlink(from);
            assert!(Narrow::linked(from).is_none());
        }
        // The most lines between two buckets, in either direction.
        let most = (REACH_BYTES / size_of::<Bucket>() as u64) as i64;
        assert!(i32::try_from(most).is_ok() && i32::try_from(-most).is_ok());
    }
}
