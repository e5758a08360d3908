//! The parts of a message with many operations.

use thunderhead_log::BATCH;

/// The maximum operations in one message: this many take about as long as a slice.
const PARTS_MAX: usize = 128;

/// Returns the number of parts; `None` if they are malformed or too many.
#[inline]
pub(super) fn count<'a, T>(
    mut bytes: &'a [u8],
    take: impl Fn(&'a [u8]) -> Option<(T, &'a [u8])>,
) -> Option<usize> {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = take(bytes)?.1;
        count += 1;
        if count > PARTS_MAX {
            return None;
        }
    }
    Some(count)
}

/// The parts of a message, in their order.
#[derive(Clone)]
pub(super) struct Parts<'a, F> {
    pub(super) bytes: &'a [u8],
    pub(super) take: F,
}

impl<'a, T, F: Fn(&'a [u8]) -> Option<(T, &'a [u8])>> Iterator for Parts<'a, F> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let (part, rest) = (self.take)(self.bytes)?;
        self.bytes = rest;
        Some(part)
    }
}

/// The size of a batch at which no batch of a message is much smaller than the others: the cache
/// misses of a small batch have no others to overlap with.
pub(super) fn even_batches(count: usize) -> usize {
    count.div_ceil(count.div_ceil(BATCH).max(1)).max(1)
}
