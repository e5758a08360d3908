//! Bytes that grow without moving.

/// The first piece of memory of a part, and the largest.
const FIRST_BYTES: usize = 512;
const PIECE_BYTES: usize = 64 << 10;

/// Pieces of memory that no part uses any more. New parts take them before new memory. The kernel
/// needs some 40 us to supply a new piece, and up to 290 us to take several freed pieces back.
#[derive(Debug, Default)]
pub struct SparePieces(Vec<Vec<u8>>);

impl SparePieces {
    /// Keeps a piece if it is one of the largest; frees it otherwise.
    fn keep(&mut self, mut piece: Vec<u8>) {
        if piece.capacity() == PIECE_BYTES {
            piece.clear();
            self.0.push(piece);
        }
    }

    /// Frees one piece, and returns its length.
    pub fn free_one(&mut self) -> Option<usize> {
        self.0.pop().map(|piece| piece.capacity())
    }

    /// The bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.0.len() * PIECE_BYTES) as u64
    }
}

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

    /// Drops the bytes in the last piece of memory. The piece becomes a spare one; without `spares`
    /// it is freed. Returns its length, or `None` if no piece is left.
    pub fn drop_piece(&mut self, spares: Option<&mut SparePieces>) -> Option<usize> {
        let (begins, piece) = self.pieces.pop()?;
        let bytes = piece.capacity();
        (self.length, self.memory) = (begins, self.memory - bytes);
        if let Some(spares) = spares {
            spares.keep(piece);
        }
        Some(bytes)
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, bytes: &[u8]) {
        self.push(bytes, &mut SparePieces::default());
    }

    #[inline]
    pub(super) fn push(&mut self, mut bytes: &[u8], spares: &mut SparePieces) {
        while !bytes.is_empty() {
            let room = match self.pieces.last_mut() {
                Some((_, piece)) if piece.len() < piece.capacity() => piece,
                last => {
                    let before = last.map_or(0, |(_, piece)| piece.capacity());
                    let bytes = (2 * before).clamp(FIRST_BYTES, PIECE_BYTES);
                    let spare = if bytes == PIECE_BYTES { spares.0.pop() } else { None };
                    let piece = spare.unwrap_or_else(|| Vec::with_capacity(bytes));
                    self.memory += piece.capacity();
                    self.pieces.push((self.length, piece));
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
            let mut spares = SparePieces::default();
            let (mut part, mut all) = (Part::default(), Vec::new());
            for (number, length) in pushes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
                part.push(&bytes, &mut spares);
                all.extend_from_slice(&bytes);
            }
            prop_assert_eq!(&part.to_vec(), &all);
            prop_assert!(part.memory_bytes() <= 2 * all.len() + PIECE_BYTES);
            let slices: Vec<u8> = part.slices(offset, most).flatten().copied().collect();
            let behind = all.get(offset..).unwrap_or_default();
            prop_assert_eq!(&slices[..], &behind[..most.min(behind.len())]);
            let mut kept = 0;
            while let Some(bytes) = part.drop_piece(Some(&mut spares)) {
                prop_assert!((FIRST_BYTES..=PIECE_BYTES).contains(&bytes));
                prop_assert_eq!(&part.to_vec(), &all[..part.len()]);
                kept += usize::from(bytes == PIECE_BYTES);
            }
            prop_assert_eq!((part.len(), part.memory_bytes()), (0, 0));
            prop_assert_eq!(spares.bytes(), (kept * PIECE_BYTES) as u64);
            // Another part takes the spare pieces, and shows nothing of their former contents.
            part.push(&all, &mut spares);
            prop_assert_eq!(&part.to_vec(), &all);
            prop_assert_eq!(spares.bytes(), 0);
        }
    }
}
