//! Bytes that grow without moving.

/// The first piece of memory of a part, and the largest.
const FIRST_BYTES: usize = 512;
const PIECE_BYTES: usize = 64 << 10;

/// The entries of one partition in a segment: see the [module](super).
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Pieces and where each begins.
    pieces: Vec<(usize, Vec<u8>)>,
    length: usize,
    memory: usize,
}

impl Part {
    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the part has no bytes, not even a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes of memory that the part takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// The bytes from an offset on, at most `most`, piece by piece.
    pub fn slices(&self, offset: usize, most: usize) -> impl Iterator<Item = &[u8]> {
        let from = self.pieces.partition_point(|(begins, _)| *begins <= offset).saturating_sub(1);
        let end = offset.saturating_add(most);
        let pieces = self.pieces.get(from..).unwrap_or_default().iter();
        pieces.take_while(move |(begins, _)| *begins < end).filter_map(move |(begins, piece)| {
            let end = (end - begins).min(piece.len());
            piece.get(offset.saturating_sub(*begins)..end).filter(|slice| !slice.is_empty())
        })
    }

    /// All bytes in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length);
        self.slices(0, usize::MAX).for_each(|slice| all.extend_from_slice(slice));
        all
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    #[inline]
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = match self.pieces.last_mut() {
                Some((_, piece)) if piece.len() < piece.capacity() => piece,
                last => {
                    let before = last.map_or(0, |(_, piece)| piece.capacity());
                    let bytes = (2 * before).clamp(FIRST_BYTES, PIECE_BYTES);
                    self.memory += bytes;
                    self.pieces.push((self.length, Vec::with_capacity(bytes)));
                    continue;
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(room.capacity() - room.len()));
            room.extend_from_slice(now);
            self.length += now.len();
            bytes = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_gives_back_the_bytes_that_were_pushed(
            pushes in prop::collection::vec(0..9000usize, 0..60),
            offset in 0..300_000usize,
            most in prop_oneof![0..200_000usize, Just(usize::MAX)],
        ) {
            let (mut part, mut all) = (Part::default(), Vec::new());
            for (number, length) in pushes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
                part.push(&bytes);
                all.extend_from_slice(&bytes);
            }
            prop_assert_eq!(&part.to_vec(), &all);
            prop_assert!(part.memory_bytes() <= 2 * all.len() + PIECE_BYTES);
            let slices: Vec<u8> = part.slices(offset, most).flatten().copied().collect();
            let behind = all.get(offset..).unwrap_or_default();
            prop_assert_eq!(&slices[..], &behind[..most.min(behind.len())]);
        }
    }
}
