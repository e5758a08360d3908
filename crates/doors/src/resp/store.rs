//! The databases behind the door, as the commands see them.
//!
//! A command reads objects with [`Store::find`] and [`Store::walk`], and collects its changes in a
//! list. At its end, [`Store::apply`] does all of them or none. So a command that cannot be done
//! now leaves nothing behind, and can be executed again.

use std::ops::Range;

/// A database: `SELECT` chooses it.
pub type Database = u32;

/// The bit of a hidden database that has the pages of a user's database: the parts of its large
/// collections. It belongs to the user's database: [`Change::Clear`] and [`Change::Swap`], which
/// name only users' databases, also clear and swap the hidden ones. Pages are never evicted.
pub const PAGES: Database = 1 << 31;

/// The hidden database that has the libraries of functions. It belongs to no user's database.
pub const FUNCTIONS: Database = Database::MAX;

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    #[default]
    String = 0,
    /// Strings in an order.
    List = 1,
    /// Different strings.
    Set = 2,
    /// Different strings, each with a score, which gives their order.
    SortedSet = 3,
    /// Fields with values.
    Hash = 4,
    /// Entries with ids that rise.
    Stream = 5,
    /// Bytes that are too long for one object. The value is a header, and clients see a string.
    LongString = 6,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::String,
        Kind::List,
        Kind::Set,
        Kind::SortedSet,
        Kind::Hash,
        Kind::Stream,
        Kind::LongString,
    ];

    /// Returns the kind with a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name that `TYPE` shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::String | Kind::LongString => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        }
    }
}

/// An object of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// The type of its value.
    pub kind: Kind,
    /// The time at which it expires, in milliseconds since 1970; `None` if it does not.
    pub expires: Option<u64>,
    /// Its version. Each write of a key gives it a higher one, also after a delete.
    pub version: u64,
}

/// A change of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes an object, whether the key exists or not.
    Put {
        /// Its database.
        database: Database,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// The type of its value.
        kind: Kind,
        /// The time at which it expires, in milliseconds since 1970. It lies in the future.
        expires: Option<u64>,
    },
    /// Deletes an object that exists.
    Remove {
        /// Its database.
        database: Database,
        /// Its key.
        key: &'a [u8],
    },
    /// Deletes all objects of a database.
    Clear(Database),
    /// Exchanges all objects of two databases.
    Swap(Database, Database),
}

/// Strings that lie in some bytes: keys, or keys and values in turn.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    source: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Strings<'a> {
    /// Returns the strings at some places.
    #[must_use]
    pub fn new(source: &'a [u8], places: &'a [Range<usize>]) -> Strings<'a> {
        Strings { source, places }
    }

    /// Returns all but the first ones.
    #[must_use]
    pub fn from(&self, first: usize) -> Strings<'a> {
        Strings { source: self.source, places: self.places.get(first..).unwrap_or_default() }
    }

    /// Returns their number.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns them in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let source = self.source;
        self.places.iter().map(move |place| source.get(place.clone()).unwrap_or_default())
    }

    /// Returns each key with its value.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let source = self.source;
        let at = move |place: &Range<usize>| source.get(place.clone()).unwrap_or_default();
        self.places.chunks_exact(2).map(move |pair| (at(&pair[0]), at(&pair[1])))
    }
}

/// The reason why a store cannot do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be done now, but soon: execute the command again.
    NotNow,
    /// There is no memory for the objects, and nothing to evict.
    Full,
    /// A key or a value is too long for the store.
    TooLong,
    /// The changes are too much for the store to do them together: only [`Store::apply`] says so.
    TooMuch,
}

/// The databases. An object that has expired is not there.
pub trait Store {
    /// Returns an object. If the access counts, it is a use of the object, which is then evicted
    /// later.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`].
    fn find(
        &mut self,
        database: Database,
        key: &[u8],
        counts: bool,
    ) -> Result<Option<Found<'_>>, Refusal>;

    /// Shows each of some objects, in the order of their keys, until `show` returns `false`. It has
    /// the effects of as many calls of [`Store::find`], but a store can do it faster.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`]. Then forget the objects that were shown.
    fn find_each(
        &mut self,
        database: Database,
        keys: Strings<'_>,
        counts: bool,
        show: &mut dyn FnMut(Option<&Found<'_>>) -> bool,
    ) -> Result<(), Refusal> {
        for key in keys.iter() {
            if !show(self.find(database, key, counts)?.as_ref()) {
                break;
            }
        }
        Ok(())
    }

    /// Writes strings that do not expire, one after the other: keys and values in turn. Stops
    /// before a string that is refused, or that cannot be written in this way. Returns the number
    /// of written strings. It has the effects of as many calls of [`Store::apply`], but a store
    /// can do it faster.
    fn put_each(&mut self, database: Database, pairs: Strings<'_>) -> usize {
        let put = |(key, value)| {
            let put = Change::Put { database, key, value, kind: Kind::String, expires: None };
            self.apply(&[put]).is_ok()
        };
        pairs.pairs().map(put).take_while(|is_done| *is_done).count()
    }

    /// Does all changes, in their order, or none.
    ///
    /// # Errors
    /// If it does none.
    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Refusal>;

    /// Returns the number of objects of a database. It may count objects that have just expired.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`].
    fn objects(&mut self, database: Database) -> Result<u64, Refusal>;

    /// Visits some objects of a database, in no order. Returns the next cursor, or 0 at the end.
    /// Begin with 0. Any number below 2⁶³ is a cursor: one by chance leads to objects by chance.
    /// An object that exists from the first call to the last is visited at least once.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`].
    fn walk(
        &mut self,
        database: Database,
        cursor: u64,
        visit: &mut dyn FnMut(&[u8], &Found<'_>),
    ) -> Result<u64, Refusal>;

    /// Notes that a command found a part of an object gone, which expired at a time before now. The
    /// store sees to it that its time is never before that one, not even after a restart.
    ///
    /// # Errors
    /// Only [`Refusal::NotNow`]. Then tell no client that the part is gone.
    fn note_gone(&mut self, expired: u64) -> Result<(), Refusal>;

    /// Returns the function from a key to its place in a walk. An object is visited by the call
    /// whose cursor is not behind its place, and whose next cursor is.
    fn places(&self) -> fn(&[u8]) -> u64;

    /// Returns the time, in milliseconds since 1970. It stands still while a command is executed.
    fn now(&self) -> u64;
}
