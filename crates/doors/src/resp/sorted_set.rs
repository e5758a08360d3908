//! A sorted set: the value of one key. Its members lie in the order of their scores, and those with
//! equal scores in the order of their bytes.
//!
//! The first tree has all members in this order. Its keys are the score, as eight bytes that are in
//! the order of the numbers, and the member. While it fits into the header, it is also searched for
//! members, and the second tree is empty. Otherwise the second tree has the score of each member.

use super::collection::Collection;
use super::score::Cut;
use super::stop::{self, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::{self, Form, Spot};
use std::ops::Range;

/// The number and form of the tree in the order of scores.
const IN_ORDER: usize = 0;
pub(super) const ORDER_FORM: Form = Form::BYTES;

/// The number and form of the tree with the scores of members.
const BY_MEMBER: usize = 1;
const MEMBER_FORM: Form = Form::SCORES;

const FORMS: &[Form] = &[ORDER_FORM, MEMBER_FORM];

/// The encoding of a set with many members, or with a long one: a skiplist.
const SKIPLIST: u8 = 1;

/// The limits of Redis, above which it keeps a sorted set in a skiplist.
const LISTPACK_MEMBERS_MAX: u64 = 128;
const LISTPACK_BYTES_MAX: usize = 64;

const SCORE_BYTES: usize = 8;

/// Returns the key of the first tree. The score -0 is 0.
fn key_of(score: f64, member: &[u8]) -> Vec<u8> {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    [&ordered.to_be_bytes(), member].concat()
}

/// Returns the score and the member of a key of the first tree.
fn parts_of(key: &[u8]) -> Result<(f64, &[u8]), Stop> {
    let (ordered, member) = key.split_first_chunk::<SCORE_BYTES>().ok_or(stop::DAMAGED)?;
    let ordered = u64::from_be_bytes(*ordered);
    let bits = if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered };
    Ok((f64::from_bits(bits), member))
}

/// Checks that members fit into the store. A command does so before it changes anything.
pub(super) fn check<'m>(
    objects: &Transaction<'_>,
    mut members: impl Iterator<Item = &'m [u8]>,
) -> Result<(), Stop> {
    members.try_for_each(|member| {
        ORDER_FORM.check_lengths(objects, SCORE_BYTES + member.len(), 0)?;
        MEMBER_FORM.check_lengths(objects, member.len(), SCORE_BYTES)
    })
}

/// A member that was looked for.
pub(super) struct Sought {
    /// Its score, if it is there.
    pub(super) score: Option<f64>,
    /// Its place in the second tree, if that has the members.
    spot: Option<Spot>,
}

/// A sorted set that is read or changed.
pub(super) struct SortedSet<'k> {
    key: &'k [u8],
    collection: Collection<'k>,
    /// The number of members, if they were counted: see [`SortedSet::to_add`].
    length: u64,
    is_counted: bool,
}

impl<'k> SortedSet<'k> {
    /// Returns a sorted set for a command that only reads.
    pub(super) fn read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<SortedSet<'k>>, Stop> {
        SortedSet::of(key, Collection::to_read(objects, key, Kind::SortedSet, FORMS)?)
    }

    /// Returns a sorted set for a command that also writes.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<SortedSet<'k>>, Stop> {
        SortedSet::of(key, Collection::find(objects, key, Kind::SortedSet, FORMS)?)
    }

    fn of(key: &'k [u8], found: Option<Collection<'k>>) -> Result<Option<SortedSet<'k>>, Stop> {
        let Some(collection) = found else { return Ok(None) };
        let length = collection.len()?;
        Ok(Some(SortedSet { key, collection, length, is_counted: true }))
    }

    /// Returns a sorted set for a command that only adds members or changes their scores. The
    /// members of a large one are not counted, as nothing depends on their number.
    pub(super) fn to_add(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<SortedSet<'k>>, Stop> {
        let found = Collection::find(objects, key, Kind::SortedSet, FORMS)?;
        match found {
            Some(collection) if collection.encoding == SKIPLIST && !collection.is_small()? => {
                Ok(Some(SortedSet { key, collection, length: 1, is_counted: false }))
            }
            found => SortedSet::of(key, found),
        }
    }

    /// Returns an empty sorted set for a key that does not exist.
    pub(super) fn new(objects: &Transaction<'_>, key: &'k [u8]) -> SortedSet<'k> {
        let collection = Collection::new(objects, key, Kind::SortedSet, FORMS);
        SortedSet { key, collection, length: 0, is_counted: true }
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &'k [u8] {
        self.key
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> u64 {
        debug_assert!(self.is_counted, "only commands that add members do not count");
        self.length
    }

    /// Whether Redis would keep it in a skiplist.
    pub(super) fn is_skiplist(&self) -> bool {
        self.collection.encoding == SKIPLIST
    }

    /// Prepares for so many members in one command.
    pub(super) fn reserve(&mut self, members: usize) {
        if members as u64 > LISTPACK_MEMBERS_MAX {
            self.collection.encoding = SKIPLIST;
        }
    }

    /// Whether the second tree has the members.
    pub(super) fn is_indexed(&self) -> Result<bool, Stop> {
        Ok(!self.collection.is_small()?)
    }

    /// Returns the score of a member.
    pub(super) fn score(
        &mut self,
        objects: &mut Transaction<'_>,
        member: &[u8],
    ) -> Result<Option<f64>, Stop> {
        if self.is_indexed()? {
            let score = self.collection.nth(BY_MEMBER).get(objects, member)?;
            return score.map(|bytes| score_of(&bytes)).transpose();
        }
        let mut found = None;
        self.visit(objects, 0..self.length, false, |score, its_member| {
            found = (its_member == member).then_some(score);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Counts the members, if that was not done.
    fn count(&mut self) -> Result<(), Stop> {
        if !self.is_counted {
            (self.length, self.is_counted) = (self.collection.len()?, true);
        }
        Ok(())
    }

    /// Looks for a member that may get another score next.
    pub(super) fn seek(
        &mut self,
        objects: &mut Transaction<'_>,
        member: &[u8],
    ) -> Result<Sought, Stop> {
        if !self.is_indexed()? {
            self.count()?;
            return Ok(Sought { score: self.score(objects, member)?, spot: None });
        }
        let spot = self.collection.nth(BY_MEMBER).seek(objects, member, SCORE_BYTES)?;
        Ok(Sought { score: spot.value().map(score_of).transpose()?, spot: Some(spot) })
    }

    /// Returns the number of members that lie before a score and a string.
    pub(super) fn rank(
        &mut self,
        objects: &mut Transaction<'_>,
        score: f64,
        member: &[u8],
    ) -> Result<u64, Stop> {
        let key = key_of(score, member);
        Ok(self.collection.nth(IN_ORDER).rank(objects, &key)?.0)
    }

    /// Returns the number of members before a cut.
    pub(super) fn before(&mut self, objects: &mut Transaction<'_>, cut: &Cut) -> Result<u64, Stop> {
        match cut {
            Cut::Begin => Ok(0),
            Cut::End => Ok(self.length),
            Cut::Score(score) => self.rank(objects, *score, b""),
            Cut::Member(member) => {
                let (first, last) = (self.at(objects, 0)?, self.at(objects, self.length)?);
                match (first, last) {
                    (Some((first, _)), Some((last, _))) if first == last => {
                        self.rank(objects, first, member)
                    }
                    _ => self.before_member(objects, member),
                }
            }
        }
    }

    /// Returns the number of members before a member. The members may have several scores: then the
    /// result means something only if the order of the scores is that of the members, as in Redis.
    fn before_member(&self, objects: &mut Transaction<'_>, member: &[u8]) -> Result<u64, Stop> {
        let (mut least, mut most) = (0, self.length);
        while least < most {
            let middle = least + (most - least) / 2;
            match self.at(objects, middle)? {
                Some((_, own)) if own.as_slice() < member => least = middle + 1,
                _ => most = middle,
            }
        }
        Ok(least)
    }

    /// Returns the score and the member at a rank. Behind the last one, returns the last one.
    fn at(&self, objects: &mut Transaction<'_>, rank: u64) -> Result<Option<(f64, Vec<u8>)>, Stop> {
        let mut found = None;
        let rank = rank.min(self.length.saturating_sub(1));
        self.visit(objects, rank..(rank + 1).min(self.length), false, |score, member| {
            found = Some((score, member.to_vec()));
            false
        })?;
        Ok(found)
    }

    /// Visits members in their order or backwards, until `visit` returns `false`.
    pub(super) fn visit(
        &self,
        objects: &mut Transaction<'_>,
        ranks: Range<u64>,
        is_reverse: bool,
        mut visit: impl FnMut(f64, &[u8]) -> bool,
    ) -> Result<(), Stop> {
        let begin = if is_reverse { ranks.end } else { ranks.start };
        let mut cursor = self.collection.cursor(objects, begin)?;
        for _ in ranks {
            let entry =
                if is_reverse { cursor.previous(objects)? } else { cursor.next(objects)? };
            let Some((key, _)) = entry else { break };
            let (score, member) = parts_of(key)?;
            if !visit(score, member) {
                break;
            }
        }
        Ok(())
    }

    /// Visits members from a hash on, in the order of hashes, until `visit` returns `false`. The
    /// members must be in the second tree.
    pub(super) fn visit_hashes(
        &mut self,
        objects: &mut Transaction<'_>,
        hash: u64,
        mut visit: impl FnMut(f64, &[u8]) -> bool,
    ) -> Result<(), Stop> {
        let mut cursor = self.collection.nth(BY_MEMBER).cursor_at_hash(objects, hash)?;
        while let Some((member, score)) = cursor.next(objects)? {
            if !visit(score_of(score)?, member) {
                break;
            }
        }
        Ok(())
    }

    /// Writes a member, which was looked for, with its score. The score -0 becomes 0.
    pub(super) fn insert(
        &mut self,
        objects: &mut Transaction<'_>,
        score: f64,
        member: &[u8],
        Sought { score: before, spot }: Sought,
    ) -> Result<(), Stop> {
        let was_indexed = self.is_indexed()?;
        let mut tree = self.collection.nth(IN_ORDER);
        if let Some(before) = before {
            tree.remove(objects, &key_of(before, member))?;
        }
        tree.set(objects, &key_of(score, member), &[])?;
        self.length += u64::from(before.is_none());
        let is_long = member.len() > LISTPACK_BYTES_MAX;
        if is_long || self.length > LISTPACK_MEMBERS_MAX {
            self.collection.encoding = SKIPLIST;
        }
        if let Some(spot) = spot
            && self.is_indexed()?
        {
            let bytes = (score + 0.0).to_be_bytes();
            self.collection.nth(BY_MEMBER).set_at(objects, spot, (member, &bytes))?;
            return Ok(());
        }
        self.index(objects, was_indexed)
    }

    /// Fills the second tree if it is needed now, or empties it if it is not.
    fn index(&mut self, objects: &mut Transaction<'_>, was_indexed: bool) -> Result<(), Stop> {
        let is_indexed = self.is_indexed()?;
        if was_indexed != is_indexed {
            self.count()?;
        }
        if was_indexed && !is_indexed {
            self.collection.nth(BY_MEMBER).remove_range(objects, 0, u64::MAX)?;
        } else if is_indexed && !was_indexed {
            let mut members = Vec::new();
            self.visit(objects, 0..self.length, false, |score, member| {
                members.push((tree::hash(member), member.to_vec(), score.to_be_bytes()));
                true
            })?;
            members.sort_unstable();
            let items = members.iter().map(|(_, member, score)| (&**member, &score[..]));
            self.collection.nth(BY_MEMBER).fill(objects, items)?;
        }
        Ok(())
    }

    /// Writes members, in their order, into the set, which is empty.
    pub(super) fn fill(
        &mut self,
        objects: &mut Transaction<'_>,
        members: &[(f64, Vec<u8>)],
    ) -> Result<(), Stop> {
        let keys: Vec<_> = members.iter().map(|(score, member)| key_of(*score, member)).collect();
        let items = keys.iter().map(|key| (&**key, &[][..]));
        self.collection.nth(IN_ORDER).fill(objects, items)?;
        self.length = members.len() as u64;
        let is_long = members.iter().any(|(_, member)| member.len() > LISTPACK_BYTES_MAX);
        if is_long || self.length > LISTPACK_MEMBERS_MAX {
            self.collection.encoding = SKIPLIST;
        }
        self.index(objects, false)
    }

    /// Removes a member that has this score. A set that loses its last one must be saved next.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        score: f64,
        member: &[u8],
    ) -> Result<(), Stop> {
        let was_indexed = self.is_indexed()?;
        self.collection.nth(IN_ORDER).remove(objects, &key_of(score, member))?;
        self.length -= 1;
        if was_indexed {
            self.collection.nth(BY_MEMBER).remove(objects, member)?;
        }
        self.index(objects, was_indexed)
    }

    /// Removes members. A set that loses all of them must be saved next.
    pub(super) fn remove_ranks(
        &mut self,
        objects: &mut Transaction<'_>,
        ranks: Range<u64>,
    ) -> Result<(), Stop> {
        let count = ranks.end - ranks.start;
        if count == self.length {
            self.length = 0;
            return Ok(());
        }
        let was_indexed = self.is_indexed()?;
        if was_indexed {
            let mut members = Vec::new();
            self.visit(objects, ranks.clone(), false, |_, member| {
                members.push(member.to_vec());
                true
            })?;
            let mut tree = self.collection.nth(BY_MEMBER);
            for member in members {
                tree.remove(objects, &member)?;
            }
        }
        self.collection.nth(IN_ORDER).remove_range(objects, ranks.start, count)?;
        self.length -= count;
        self.index(objects, was_indexed)
    }

    /// Writes the sorted set, which has members, with a time of expiry.
    pub(super) fn save_until(
        mut self,
        objects: &mut Transaction<'_>,
        expires: Option<u64>,
    ) -> Result<(), Stop> {
        self.collection.expires = expires;
        self.save(objects)
    }

    /// Writes the sorted set, or deletes the key if the sorted set is empty.
    pub(super) fn save(mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        if self.length == 0 {
            objects.delete(self.key)?;
        } else {
            self.collection.close(objects)?;
        }
        Ok(())
    }
}

/// Reads a score of the second tree.
fn score_of(bytes: &[u8]) -> Result<f64, Stop> {
    let bytes = bytes.try_into().map_err(|_| stop::DAMAGED)?;
    Ok(f64::from_be_bytes(bytes))
}
