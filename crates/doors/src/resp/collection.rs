//! A list, hash or set that a command reads or changes: its header, its pages, its tree.
//!
//! A sorted set has two trees, which share the pages, and a stream has five.
//!
//! # How to use it
//!
//! ```text
//!  let found = Collection::find(&mut context.objects, key, Kind::Set, &[Form::SET])?;
//!  let mut set = found.ok_or(stop::NO_SUCH_KEY)?;
//!  set.tree().set(&mut context.objects, member, &[])?;
//!  set.close(&mut context.objects)?;
//! ```
//!
//! A command checks its items with [`Form::check`] before it changes anything. It closes the
//! collection after the changes: then the header has a new version, or the key is deleted because
//! there are no items left.

use super::header::Header;
use super::pages::Pages;
use super::stop::{self, Stop};
use super::store::{Database, Found, Kind};
use super::transaction::Transaction;
use super::tree::{self, Cursor, Form, Place, Spot, Tree};

/// The encodings: the form in which Redis would keep the collection. `OBJECT ENCODING` shows their
/// names. A collection never gets a more compact one again, so this is its history, too.
pub(super) const LISTPACK: u8 = 0;
/// A hash table, a skip list, or a list of several parts.
pub(super) const LARGE: u8 = 1;
/// A set of integers.
pub(super) const INTSET: u8 = 2;

/// Returns the name of the encoding of an object that is a collection.
pub(super) fn encoding_name(kind: Kind, value: &[u8]) -> &'static str {
    let header = Header::parse(value).ok();
    match (kind, header.map(|header| header.encoding)) {
        (Kind::Set, Some(INTSET)) => "intset",
        (Kind::Hash, Some(LISTPACK)) if header.is_some_and(|it| it.end.is_some()) => "listpackex",
        (_, Some(LISTPACK)) => "listpack",
        (Kind::List, _) => "quicklist",
        (Kind::SortedSet, _) => "skiplist",
        _ => "hashtable",
    }
}

/// Returns the number of items of the first tree of a collection; 0 if there is none.
pub(super) fn length(
    objects: &mut Transaction<'_>,
    key: &[u8],
    kind: Kind,
    form: Form,
) -> Result<u64, Stop> {
    match objects.read_kind(key, kind)? {
        Some(found) => tree::count(form, Header::parse(found.value)?.root(0)?),
        None => Ok(0),
    }
}

/// Gives the value of an item to a function, or that there is none. A small collection is not
/// copied.
pub(super) fn look_up<R>(
    objects: &mut Transaction<'_>,
    key: &[u8],
    (kind, form): (Kind, Form),
    item: &[u8],
    take: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R, Stop> {
    let database = objects.database;
    let (pages, page) = match objects.read_kind(key, kind)? {
        None => return Ok(take(None)),
        Some(found) => {
            let header = Header::parse(found.value)?;
            match tree::find(form, header.root(0)?, item)? {
                Place::Here(value) => return Ok(take(value)),
                Place::Page(page) => (Pages::of(database, key, &header), page),
            }
        }
    };
    Ok(take(tree::find_below(form, &pages, objects, page, item)?.as_deref()))
}

/// The most trees of a collection.
const TREES_MAX: usize = 5;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Collection<'k> {
    key: &'k [u8],
    kind: Kind,
    pub(super) expires: Option<u64>,
    /// A number that the commands of the type choose: the encoding that `OBJECT ENCODING` shows.
    pub(super) encoding: u8,
    /// The time at which the last field of a hash expires, or 0, if fields may expire. All other
    /// collections have their first tree only. Sorted sets have two, and streams five.
    pub(super) end: Option<u64>,
    pages: Pages<'k>,
    trees: Vec<Tree>,
    /// The bytes behind the roots of the trees: see [`Ends`](super::list_ends::Ends).
    appendix: Vec<u8>,
}

/// One tree of a collection, with the pages.
pub(super) struct Items<'c, 'k> {
    pages: &'c mut Pages<'k>,
    tree: &'c mut Tree,
}

impl<'k> Collection<'k> {
    fn read(
        database: Database,
        key: &'k [u8],
        found: &Found<'_>,
        forms: &[Form],
    ) -> Result<Collection<'k>, Stop> {
        let header = Header::parse(found.value)?;
        let mut trees = Vec::with_capacity(TREES_MAX);
        for (number, form) in forms.iter().enumerate() {
            // Only hashes whose fields may expire have all trees.
            let is_absent = number > 0 && found.kind == Kind::Hash && header.end.is_none();
            trees.push(match is_absent {
                true => Tree::new(*form),
                false => Tree::of(*form, header.root(number)?),
            });
        }
        Ok(Collection {
            key,
            kind: found.kind,
            expires: found.expires,
            encoding: header.encoding,
            end: header.end,
            pages: Pages::of(database, key, &header),
            trees,
            appendix: header.roots().nth(forms.len()).unwrap_or_default().to_vec(),
        })
    }

    /// Returns a collection for a command that only reads; `None` if there is none.
    pub(super) fn to_read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
        kind: Kind,
        forms: &[Form],
    ) -> Result<Option<Collection<'k>>, Stop> {
        let database = objects.database;
        let found = objects.read_kind(key, kind)?;
        found.map(|found| Collection::read(database, key, &found, forms)).transpose()
    }

    /// Returns a collection for a command that writes; `None` if there is none.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
        kind: Kind,
        forms: &[Form],
    ) -> Result<Option<Collection<'k>>, Stop> {
        let database = objects.database;
        let found = objects.find_kind(key, kind)?;
        found.map(|found| Collection::read(database, key, &found, forms)).transpose()
    }

    /// Returns an empty collection that replaces the value of a key when it is closed.
    pub(super) fn new(
        objects: &Transaction<'_>,
        key: &'k [u8],
        kind: Kind,
        forms: &[Form],
    ) -> Collection<'k> {
        let trees = forms.iter().map(|form| Tree::new(*form)).collect();
        let pages = Pages::new(objects.database, key);
        let appendix = Vec::new();
        Collection { key, kind, expires: None, encoding: 0, end: None, pages, trees, appendix }
    }

    /// Returns the first tree.
    pub(super) fn tree(&mut self) -> Items<'_, 'k> {
        self.nth(0)
    }

    /// Returns a tree. The first one has the number 0.
    pub(super) fn nth(&mut self, number: usize) -> Items<'_, 'k> {
        Items { pages: &mut self.pages, tree: &mut self.trees[number] }
    }

    /// Returns the number of items of the first tree.
    pub(super) fn len(&self) -> Result<u64, Stop> {
        self.trees[0].len()
    }

    /// Whether all items of the first tree are in the header.
    pub(super) fn is_small(&self) -> Result<bool, Stop> {
        self.trees[0].is_small()
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &'k [u8] {
        self.key
    }

    /// Returns the number of pages.
    pub(super) fn pages(&self) -> u64 {
        self.pages.live()
    }

    /// Returns a cursor before an item of the first tree.
    pub(super) fn cursor(
        &self,
        objects: &mut Transaction<'_>,
        position: u64,
    ) -> Result<Cursor<'k>, Stop> {
        self.trees[0].cursor(&self.pages, objects, position)
    }

    /// Writes the header. If the first tree is empty, deletes the key; then returns true.
    pub(super) fn close(&mut self, objects: &mut Transaction<'_>) -> Result<bool, Stop> {
        if self.trees[0].is_empty() {
            objects.delete(self.key)?;
            return Ok(true);
        }
        self.write(objects, &[])?;
        Ok(false)
    }

    /// Writes the header, with an appendix, which may have several parts, if that is not empty.
    pub(super) fn write(
        &mut self,
        objects: &mut Transaction<'_>,
        appendix: &[&[u8]],
    ) -> Result<(), Stop> {
        if self.end.is_some() {
            self.pages.keep_owner(objects)?;
        }
        let header = self.pages.header(self.encoding).ending(self.end);
        let is_plain_hash = self.kind == Kind::Hash && self.end.is_none();
        let trees = if is_plain_hash { &self.trees[..1] } else { &self.trees };
        let value = header.encode_with(trees.iter().map(Tree::root), appendix);
        objects.put(self.key, value, self.kind, self.expires)
    }

    /// Takes the appendix of the header; it is empty if there is none.
    pub(super) fn take_appendix(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.appendix)
    }

    /// Returns the bytes of the first tree's root.
    pub(super) fn root_bytes(&self) -> usize {
        self.trees[0].root().len()
    }
}

impl<'k> Items<'_, 'k> {
    /// Returns the number of items.
    pub(super) fn len(&self) -> Result<u64, Stop> {
        self.tree.len()
    }

    /// Returns the value of a key, which is empty if items have no values.
    pub(super) fn get(
        &self,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Stop> {
        self.tree.get(self.pages, objects, key)
    }

    /// Returns the number of items before a key, and whether the key is there.
    pub(super) fn rank(
        &self,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<(u64, bool), Stop> {
        self.tree.rank(self.pages, objects, key)
    }

    /// Returns a cursor before the first item whose hash is not lower than one.
    pub(super) fn cursor_at_hash(
        &self,
        objects: &mut Transaction<'_>,
        hash: u64,
    ) -> Result<Cursor<'k>, Stop> {
        self.tree.cursor_at_hash(self.pages, objects, hash)
    }

    /// Returns the number of items whose hashes are lower. The items must be in pages.
    pub(super) fn rank_of_hash(
        &self,
        objects: &mut Transaction<'_>,
        hash: u64,
    ) -> Result<u64, Stop> {
        self.tree.rank_of_hash(self.pages, objects, hash)
    }

    /// Returns a cursor before an item.
    pub(super) fn cursor(
        &self,
        objects: &mut Transaction<'_>,
        position: u64,
    ) -> Result<Cursor<'k>, Stop> {
        self.tree.cursor(self.pages, objects, position)
    }

    /// Inserts a key with a value, or replaces its value; returns whether the key is new.
    pub(super) fn set(
        &mut self,
        objects: &mut Transaction<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Stop> {
        self.tree.set(self.pages, objects, key, value)
    }

    /// Looks for a key that will get a value of about this length. The next change of the tree must
    /// be [`Items::set_at`].
    pub(super) fn seek(
        &self,
        objects: &mut Transaction<'_>,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<Spot, Stop> {
        self.tree.seek(self.pages, objects, key, value_bytes)
    }

    /// Replaces the value of a key that was looked for, or inserts it.
    pub(super) fn set_at(
        &mut self,
        objects: &mut Transaction<'_>,
        spot: Spot,
        item: (&[u8], &[u8]),
    ) -> Result<bool, Stop> {
        self.tree.set_at(self.pages, objects, spot, item)
    }

    /// Removes a key; returns whether it was there.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<bool, Stop> {
        self.tree.remove(self.pages, objects, key)
    }

    /// Inserts an item at a position. In a tree whose items have keys, only a small tree of
    /// [`Order::Hashed`](tree::Order::Hashed) may get an item where the caller wants it.
    pub(super) fn insert_at(
        &mut self,
        objects: &mut Transaction<'_>,
        position: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Stop> {
        self.tree.insert_at(self.pages, objects, position, key, value)
    }

    /// Adds the elements of a list at one of its ends. They lie in some bytes as in a leaf.
    pub(super) fn add_run(
        &mut self,
        objects: &mut Transaction<'_>,
        is_first: bool,
        run: (u64, &[u8]),
    ) -> Result<(), Stop> {
        self.tree.add_run(self.pages, objects, is_first, run)
    }

    /// Inserts the elements of a list at a position.
    pub(super) fn insert_run(
        &mut self,
        objects: &mut Transaction<'_>,
        position: u64,
        elements: &[&[u8]],
    ) -> Result<(), Stop> {
        self.tree.insert_run(self.pages, objects, position, elements)
    }

    /// Takes the first or the last leaf out of the tree, if it is a page and not too long. Returns
    /// the number of its items, and their bytes.
    pub(super) fn take_leaf(
        &mut self,
        objects: &mut Transaction<'_>,
        is_first: bool,
        bytes_max: usize,
    ) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        self.tree.take_leaf(self.pages, objects, is_first, bytes_max)
    }

    /// Replaces the value at a position. There must be one.
    pub(super) fn replace_at(
        &mut self,
        objects: &mut Transaction<'_>,
        position: u64,
        value: &[u8],
    ) -> Result<(), Stop> {
        self.tree.replace_at(self.pages, objects, position, value)
    }

    /// Removes so many items from a position on, or all that there are.
    pub(super) fn remove_range(
        &mut self,
        objects: &mut Transaction<'_>,
        position: u64,
        count: u64,
    ) -> Result<(), Stop> {
        self.tree.remove_range(self.pages, objects, position, count)
    }

    /// Removes the items at some positions, which rise.
    pub(super) fn remove_each(
        &mut self,
        objects: &mut Transaction<'_>,
        positions: &[u64],
        bytes_max: usize,
    ) -> Result<usize, Stop> {
        self.tree.remove_each(self.pages, objects, positions, bytes_max)
    }

    /// Fills the tree, which is empty, with items that are in its order and have different keys.
    pub(super) fn fill<'i>(
        &mut self,
        objects: &mut Transaction<'_>,
        items: impl Iterator<Item = (&'i [u8], &'i [u8])>,
    ) -> Result<(), Stop> {
        self.tree.fill(self.pages, objects, items)
    }
}

/// Tells the pages of a collection its new key in the same database. The caller writes the same
/// value under the new key, and deletes the old one.
pub(super) fn rename(
    objects: &mut Transaction<'_>,
    kind: Kind,
    value: &[u8],
    new_key: &[u8],
) -> Result<(), Stop> {
    match Header::with_pages(kind, value) {
        Some(header) => Pages::of(objects.database, new_key, &header).write_owner(objects),
        None => Ok(()),
    }
}

/// The most pages of a collection that is copied: the copy is one change of the store.
pub(super) const COPIED_PAGES_MAX: u64 = 1 << 18;

/// Copies the pages of a collection to another key, perhaps of another database. Returns the value
/// of the new key.
///
/// # Errors
/// If the collection has more than [`COPIED_PAGES_MAX`] pages.
pub(super) fn copy(
    objects: &mut Transaction<'_>,
    kind: Kind,
    value: &[u8],
    database: Database,
    new_key: &[u8],
) -> Result<Vec<u8>, Stop> {
    let Some(header) = Header::with_pages(kind, value) else { return Ok(value.to_vec()) };
    if header.live > COPIED_PAGES_MAX {
        return Err(stop::TOO_LARGE_TO_COPY);
    }
    let from = Pages::of(objects.database, &[], &header);
    let mut to = Pages::new(database, new_key);
    if header.end.is_some() {
        to.keep_owner(objects)?;
    }
    let mut roots = Vec::with_capacity(TREES_MAX);
    for root in header.roots() {
        roots.push(tree::copy(root, &from, &mut to, objects)?);
    }
    let header = to.header(header.encoding).ending(header.end);
    Ok(header.encode(roots.iter().map(|root| &**root)))
}
