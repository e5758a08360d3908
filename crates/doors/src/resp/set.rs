//! A set, with the encoding that Redis would choose: it decides in which order clients see a small
//! set.
//!
//! Redis keeps a set of integers in their order, and a small set in the order of insertion. So a
//! set of integers that gets another member is sorted first.

use super::collection::{Collection, INTSET, LARGE, LISTPACK};
use super::number::integer_of;
use super::stop::Stop;
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::{self, Form};
use std::rc::Rc;

pub(super) const FORM: Form = Form::SET;

/// The most members of a set of integers, and the most members and the longest one of another set,
/// that Redis does not keep in a hash table.
const INTEGERS_MAX: u64 = 512;
const LISTED_MAX: u64 = 128;
const LISTED_BYTES_MAX: usize = 64;

/// See the module's documentation.
pub(super) struct Set<'k> {
    pub(super) collection: Collection<'k>,
}

impl<'k> Set<'k> {
    /// Returns a set for a command that only reads.
    pub(super) fn to_read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Set<'k>>, Stop> {
        let found = Collection::to_read(objects, key, Kind::Set, &[FORM])?;
        Ok(found.map(|collection| Set { collection }))
    }

    /// Returns a set for a command that writes.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<Set<'k>>, Stop> {
        let found = Collection::find(objects, key, Kind::Set, &[FORM])?;
        Ok(found.map(|collection| Set { collection }))
    }

    /// Returns an empty set that replaces the value of a key, for so many members, of which this is
    /// the first one.
    pub(super) fn new(
        objects: &Transaction<'_>,
        key: &'k [u8],
        first: &[u8],
        members: u64,
    ) -> Set<'k> {
        let mut collection = Collection::new(objects, key, Kind::Set, &[FORM]);
        collection.encoding = match integer_of(first) {
            Some(_) if members <= INTEGERS_MAX => INTSET,
            _ if members <= LISTED_MAX => LISTPACK,
            _ => LARGE,
        };
        Set { collection }
    }

    /// Prepares for so many more members.
    pub(super) fn reserve(&mut self, members: u64) {
        let most = if self.collection.encoding == INTSET { INTEGERS_MAX } else { LISTED_MAX };
        if members > most {
            self.collection.encoding = LARGE;
        }
    }

    /// Fills the set, which is empty, with different members.
    pub(super) fn fill(
        &mut self,
        objects: &mut Transaction<'_>,
        members: &[Rc<[u8]>],
    ) -> Result<(), Stop> {
        if members.len() as u64 <= INTEGERS_MAX {
            for member in members {
                self.add(objects, member)?;
            }
            return Ok(());
        }
        self.collection.encoding = LARGE;
        let mut sorted: Vec<(u64, &[u8])> =
            members.iter().map(|member| (tree::hash(member), &**member)).collect();
        sorted.sort_unstable();
        let items = sorted.iter().map(|(_, member)| (*member, &[][..]));
        self.collection.tree().fill(objects, items)
    }

    pub(super) fn len(&self) -> Result<u64, Stop> {
        self.collection.len()
    }

    pub(super) fn has(
        &mut self,
        objects: &mut Transaction<'_>,
        member: &[u8],
    ) -> Result<bool, Stop> {
        Ok(self.collection.tree().get(objects, member)?.is_some())
    }

    /// Adds a member; returns whether it is new.
    pub(super) fn add(
        &mut self,
        objects: &mut Transaction<'_>,
        member: &[u8],
    ) -> Result<bool, Stop> {
        if self.collection.encoding == INTSET && integer_of(member).is_none() {
            self.sort(objects)?;
            self.collection.encoding = LISTPACK;
        }
        let is_new = self.collection.tree().set(objects, member, &[])?;
        let is_above = |most: u64, length: Result<u64, Stop>| Ok::<_, Stop>(length? > most);
        let becomes_large = is_new
            && match self.collection.encoding {
                LARGE => false,
                INTSET => is_above(INTEGERS_MAX, self.len())?,
                _ => member.len() > LISTED_BYTES_MAX || is_above(LISTED_MAX, self.len())?,
            };
        if becomes_large {
            self.collection.encoding = LARGE;
        }
        Ok(is_new)
    }

    /// Brings the integers of a small set into their order.
    fn sort(&mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        if self.collection.is_small()? {
            let members = self.members(objects)?;
            let length = members.len() as u64;
            self.collection.tree().remove_range(objects, 0, length)?;
            for member in members {
                self.collection.tree().set(objects, &member, &[])?;
            }
        }
        Ok(())
    }

    /// Returns all members in the order in which clients see them.
    pub(super) fn members(&self, objects: &mut Transaction<'_>) -> Result<Vec<Vec<u8>>, Stop> {
        let mut members = Vec::new();
        let mut items = self.collection.cursor(objects, 0)?;
        while let Some((member, _)) = items.next(objects)? {
            members.push(member.to_vec());
        }
        if self.collection.encoding == INTSET {
            members.sort_by_key(|member| integer_of(member));
        }
        Ok(members)
    }
}
