//! The header of a collection: the value of the object under the user's key.
//!
//! ```text
//!  encoding: 1 byte │ end: 8 bytes, only in some │ id: varint
//!  next, live: varints, only if the id is not 0 │ roots
//!  root: its length as a varint │ a node
//! ```
//!
//! The encoding is a number below 128 that the commands of the type choose. The highest bit of its
//! byte tells that fields of a hash expire, or have expired. Then the *end* follows, the first byte
//! the highest: the time, in milliseconds since 1970, at which the last field expires, or 0 if a
//! field stays.
//!
//! A collection whose items are all in the header has the id 0, unless its fields expire. The
//! others have pages: `next` is the number of the next page that is made, and `live` the number of
//! pages that exist.

use super::stop::{self, Stop};
use super::store::{Database, Kind};
use super::varint;

/// The bit of the encoding's byte.
const EXPIRING: u8 = 0x80;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) encoding: u8,
    /// The end, if fields may expire.
    pub(super) end: Option<u64>,
    pub(super) id: u64,
    pub(super) next: u64,
    pub(super) live: u64,
    roots: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads a header.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Header<'a>, Stop> {
        Header::read(bytes).ok_or(stop::DAMAGED)
    }

    fn read(bytes: &'a [u8]) -> Option<Header<'a>> {
        let (encoding, mut rest) = bytes.split_first()?;
        let end = match encoding & EXPIRING {
            0 => None,
            _ => {
                let (end, behind) = rest.split_first_chunk()?;
                rest = behind;
                Some(u64::from_be_bytes(*end))
            }
        };
        let id = varint::take(&mut rest)?;
        let (next, live) = match id {
            0 => (0, 0),
            _ => (varint::take(&mut rest)?, varint::take(&mut rest)?),
        };
        Some(Header { encoding: encoding & !EXPIRING, end, id, next, live, roots: rest })
    }

    /// Returns the header of an object that has pages.
    pub(super) fn with_pages(kind: Kind, value: &'a [u8]) -> Option<Header<'a>> {
        match kind {
            Kind::Hash
            | Kind::Set
            | Kind::List
            | Kind::SortedSet
            | Kind::Stream
            | Kind::LongString => Header::read(value).filter(|header| header.id != 0),
            Kind::String => None,
        }
    }

    /// Whether the encoding is not the most compact one.
    pub(super) fn is_large(&self) -> bool {
        self.encoding != 0
    }

    /// Returns a root node: the first one has the number 0.
    pub(super) fn root(&self, number: usize) -> Result<&'a [u8], Stop> {
        self.roots().nth(number).ok_or(stop::DAMAGED)
    }

    /// Returns the root nodes.
    pub(super) fn roots(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.roots;
        std::iter::from_fn(move || {
            let length = usize::try_from(varint::take(&mut rest)?).ok()?;
            let (root, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(root)
        })
    }

    /// Returns the bytes of this header with other roots.
    pub(super) fn encode<'r>(&self, roots: impl Iterator<Item = &'r [u8]> + Clone) -> Vec<u8> {
        self.encode_with(roots, &[])
    }

    /// Returns the bytes of this header with other roots, and with one more in several parts; with
    /// none more if that is empty.
    pub(super) fn encode_with<'r>(
        &self,
        roots: impl Iterator<Item = &'r [u8]> + Clone,
        last: &[&[u8]],
    ) -> Vec<u8> {
        let last_bytes: usize = last.iter().map(|part| part.len()).sum();
        let bytes: usize = roots.clone().map(<[u8]>::len).sum();
        let mut out = Vec::with_capacity(bytes + last_bytes + 32);
        match self.end {
            None => out.push(self.encoding),
            Some(end) => {
                out.push(self.encoding | EXPIRING);
                out.extend_from_slice(&end.to_be_bytes());
            }
        }
        varint::put(&mut out, self.id);
        if self.id != 0 {
            varint::put(&mut out, self.next);
            varint::put(&mut out, self.live);
        }
        for root in roots {
            varint::put(&mut out, root.len() as u64);
            out.extend_from_slice(root);
        }
        if last_bytes > 0 {
            varint::put(&mut out, last_bytes as u64);
            last.iter().for_each(|part| out.extend_from_slice(part));
        }
        out
    }

    /// Returns a header without roots.
    pub(super) fn new(encoding: u8, id: u64, next: u64, live: u64) -> Header<'a> {
        Header { encoding, end: None, id, next, live, roots: &[] }
    }

    /// Returns this header with an end.
    pub(super) fn ending(self, end: Option<u64>) -> Header<'a> {
        Header { end, ..self }
    }

    /// Returns the header of a hash whose fields may expire.
    pub(super) fn expiring(kind: Kind, value: &'a [u8]) -> Option<Header<'a>> {
        let is_expiring = kind == Kind::Hash && value.first().is_some_and(|it| it & EXPIRING != 0);
        if is_expiring { Header::read(value) } else { None }
    }

    /// Returns the time since which all fields of a hash have expired. Then its key does not exist.
    #[inline]
    pub(super) fn over_since(kind: Kind, value: &[u8], now: u64) -> Option<u64> {
        let end = Header::expiring(kind, value).and_then(|header| header.end);
        end.filter(|end| *end != 0 && *end <= now)
    }
}

/// The most page numbers without a page, for each page, of a collection that is noted. An old queue
/// has had many pages.
const HOLES_MAX: u64 = 4;

/// A collection whose header was deleted, or written under another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) database: Database,
    pub(super) id: u64,
    /// The pages with lower numbers may exist.
    pub(super) next: u64,
}

impl Dropped {
    /// Returns a note of a collection with pages; `None` if it has had too many that are gone.
    pub(super) fn of(database: Database, header: &Header<'_>) -> Option<Dropped> {
        let Header { id, next, live, .. } = *header;
        let is_dense = next <= live.saturating_add(1).saturating_mul(1 + HOLES_MAX);
        is_dense.then_some(Dropped { database, id, next })
    }
}
