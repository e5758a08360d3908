//! The tables behind the databases.
//!
//! A database has a table for the objects of its keys, and one for the pages of large collections.
//! It gets a table when it first needs the table. A cleared database gets new tables. A *catalog*
//! object in the log names the tables, and changes together with the objects. So the write that
//! clears a database, or exchanges two, is small, and a part of its transaction. One more table has
//! the libraries of functions, which belong to no database.
//!
//! Tables are made and dropped by a thread with a client. It keeps a few empty ones in stock.
//!
//! In a cluster, each process has such a thread. A shard *takes over* when it finds that it owns
//! the tables. Then only its process makes and drops tables. Before the shard serves, the thread
//! reads the catalog, and notes the tables of the group that the catalog does not name: former
//! owners have left these. The thread drops them, and no shard uses them again. So if a thread of
//! a former owner is late and still drops tables, it drops no table that has objects: an owner
//! adds only tables to the catalog that its own process made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use thunderhead_doors::resp::store::{Change, Database, FUNCTIONS, PAGES};
use thunderhead_wire::{LogPosition, MasterId, TableId};

/// The key of the catalog, in a table of its own.
pub const CATALOG_KEY: &[u8] = b"databases";

/// The number of empty tables in stock.
const STOCK: usize = 4;

/// The stock of empty tables, and the tables that are to be dropped.
#[derive(Debug, Default)]
pub struct Databases {
    /// The table with the catalog; 0 while there is none.
    catalog: AtomicU64,
    stock: Mutex<Stock>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Stock {
    empty: Vec<TableId>,
    /// The empty tables that one list of changes needs, if it needs more than are there.
    wanted: usize,
    useless: Vec<TableId>,
    is_over: bool,
    /// Another process may own the tables: none are made before a shard of this one takes over.
    is_shared: bool,
    /// The table with the catalog may not exist.
    lacks_catalog: bool,
    /// A shard has taken over, and the thread must read the catalog before it serves.
    takes_over: Option<TakeOver>,
    /// The number of the last shard that took over.
    taken_over: u64,
}

/// A shard of this process that owns the tables of the databases from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// The table with the catalog.
    pub catalog: TableId,
    /// The master of the shard.
    pub master: MasterId,
    /// Numbers the shards that took over.
    number: u64,
}

impl Stock {
    /// Returns the next work. `serves` says whether the catalog is known.
    fn work(&mut self, serves: bool) -> Option<TableWork> {
        if std::mem::take(&mut self.lacks_catalog) {
            return Some(TableWork::Ensure);
        }
        if let Some(taken) = self.takes_over.take() {
            return Some(TableWork::TakeOver(taken));
        }
        // In a full server there may be room for a new table only after that.
        if let Some(table) = self.useless.pop() {
            return Some(TableWork::Drop(table));
        }
        let may_make = !self.is_shared || serves;
        (may_make && self.empty.len() < STOCK.max(self.wanted)).then_some(TableWork::Make)
    }
}

/// The work for the thread with a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableWork {
    /// Make an empty table, and give it to [`Databases::add`].
    Make,
    /// Drop a table.
    Drop(TableId),
    /// Make the table with the catalog, unless it exists.
    Ensure,
    /// Read the catalog, and call [`Databases::serve`].
    TakeOver(TakeOver),
}

impl Databases {
    /// The databases of a cluster, whose tables belong to one of many processes.
    #[must_use]
    pub fn shared() -> Databases {
        let stock = Stock { is_shared: true, lacks_catalog: true, ..Stock::default() };
        Databases { stock: Mutex::new(stock), ..Databases::default() }
    }

    /// Notes that there is no table with the catalog.
    pub fn want_catalog(&self) {
        self.stock().lacks_catalog = true;
        self.changed.notify_all();
    }

    /// Notes that a shard owns the tables from now on. Its door does not serve before
    /// [`Databases::serve`] is called.
    pub(crate) fn take_over(&self, catalog: TableId, master: MasterId) {
        let mut stock = self.stock();
        self.catalog.store(0, Ordering::Release);
        stock.empty.clear();
        stock.taken_over += 1;
        stock.takes_over = Some(TakeOver { catalog, master, number: stock.taken_over });
        self.changed.notify_all();
    }

    /// Tries a take-over again, unless another shard has taken over since.
    pub fn take_over_again(&self, again: TakeOver) {
        let mut stock = self.stock();
        if stock.taken_over == again.number {
            stock.takes_over = Some(again);
        }
    }

    /// Lets the door of the shard that took over serve, unless another one has taken over since.
    pub fn serve(&self, taken: TakeOver) {
        let mut stock = self.stock();
        if stock.taken_over == taken.number {
            // A table that was being made for the former shard.
            stock.empty.clear();
            self.catalog.store(taken.catalog.0, Ordering::Release);
        }
    }

    /// The table with the catalog, if there is one.
    pub(super) fn catalog(&self) -> Option<TableId> {
        let table = TableId(self.catalog.load(Ordering::Acquire));
        (table.0 != 0).then_some(table)
    }

    /// Sets the table with the catalog: from then on the door serves.
    pub fn set_catalog(&self, table: TableId) {
        self.catalog.store(table.0, Ordering::Release);
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an empty table to the stock.
    pub fn add(&self, table: TableId) {
        self.stock().empty.push(table);
    }

    /// Takes so many empty tables, or none if there are not enough. Then more are made.
    pub(super) fn take(&self, count: usize) -> Option<Vec<TableId>> {
        let mut stock = self.stock();
        let has_enough = stock.empty.len() >= count;
        let kept = stock.empty.len().saturating_sub(count);
        let taken = has_enough.then(|| stock.empty.split_off(kept));
        stock.wanted = if has_enough { 0 } else { count };
        if !has_enough {
            self.changed.notify_all();
        }
        taken
    }

    /// Lets the stock be filled again, after some tables were taken. If tables are to be dropped,
    /// that comes first: without it a full server has no room, and finds that out slowly.
    fn refill(&self) {
        self.changed.notify_all();
    }

    /// Lets a table be dropped.
    pub fn drop_table(&self, table: TableId) {
        self.stock().useless.push(table);
        self.changed.notify_all();
    }

    /// Returns the next work, if there is any now.
    #[must_use]
    pub fn work_now(&self) -> Option<TableWork> {
        self.stock().work(self.catalog().is_some())
    }

    /// Waits for work, and returns it, or `None` at the end.
    pub fn next_work(&self) -> Option<TableWork> {
        let mut stock = self.stock();
        while !stock.is_over {
            if let Some(work) = stock.work(self.catalog().is_some()) {
                return Some(work);
            }
            stock = self.changed.wait(stock).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Ends the wait for work.
    pub fn end(&self) {
        self.stock().is_over = true;
        self.changed.notify_all();
    }

    /// Returns the tables that a catalog names.
    #[must_use]
    pub fn tables_of(catalog: &[u8]) -> Vec<TableId> {
        let Catalog { databases, functions } = Catalog::read(catalog);
        let tables = databases.into_iter().flatten().chain([functions]);
        tables.filter(|table| table.0 != 0).collect()
    }
}

/// The tables of each database: that of its objects, and that of its pages. An id of 0 stands for
/// an empty table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Catalog {
    databases: Vec<[TableId; 2]>,
    /// The table with the libraries of functions.
    functions: TableId,
}

/// The word before the id of the table with the libraries of functions.
const FUNCTIONS_WORD: &str = "functions ";

/// The place of a database in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The objects of a user's database.
    Objects(usize),
    /// The pages of a user's database.
    Pages(usize),
    /// The libraries of functions.
    Functions,
}

impl Catalog {
    /// Reads the catalog: a line for each database, with two numbers, and one for libraries.
    fn read(text: &[u8]) -> Catalog {
        let number = |text: &str| text.parse().map_or(TableId(0), TableId);
        let text = std::str::from_utf8(text).unwrap_or_default();
        let functions = text.lines().find_map(|line| line.strip_prefix(FUNCTIONS_WORD));
        let of_databases = text.lines().filter(|line| !line.starts_with(FUNCTIONS_WORD));
        let databases = of_databases.map(|line| {
            let mut numbers = line.split(' ').map(number);
            let mut next = || numbers.next().unwrap_or(TableId(0));
            [next(), next()]
        });
        let functions = functions.map_or(TableId(0), number);
        Catalog { databases: databases.collect(), functions }
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let line = |[objects, pages]: &[TableId; 2]| format!("{} {}\n", objects.0, pages.0);
        let mut text: String = self.databases.iter().map(line).collect();
        if self.functions.0 != 0 {
            text.push_str(&format!("{FUNCTIONS_WORD}{}\n", self.functions.0));
        }
        text.into_bytes()
    }

    pub(super) fn table(&self, place: Place) -> Option<TableId> {
        let table = match place {
            Place::Objects(database) => self.databases.get(database)?[0],
            Place::Pages(database) => self.databases.get(database)?[1],
            Place::Functions => self.functions,
        };
        (table.0 != 0).then_some(table)
    }

    /// Returns the database whose objects a table has.
    pub(super) fn database_of(&self, table: TableId) -> Option<usize> {
        self.databases.iter().position(|[objects, _]| *objects == table)
    }

    pub(super) fn set(&mut self, place: Place, table: TableId) {
        let (database, number) = match place {
            Place::Objects(database) => (database, 0),
            Place::Pages(database) => (database, 1),
            Place::Functions => {
                self.functions = table;
                return;
            }
        };
        self.grow(database);
        if let Some(tables) = self.databases.get_mut(database) {
            tables[number] = table;
        }
    }

    /// The number of tables that changes need, and the catalog does not have. Databases that are
    /// empty keep their tables when they are cleared.
    pub(super) fn missing(&self, changes: &[Change<'_>], empty: &[Database]) -> usize {
        let mut after = self.clone();
        let mut missing = 0;
        for change in changes {
            match *change {
                Change::Clear(database) if empty.contains(&database) => {}
                Change::Clear(database) => drop(after.clear(number(database))),
                Change::Swap(one, other) => after.swap(number(one), number(other)),
                Change::Put { database, .. } if after.table(place(database)).is_none() => {
                    missing += 1;
                    after.set(place(database), TableId(u64::MAX));
                }
                Change::Put { .. } | Change::Remove { .. } => {}
            }
        }
        missing
    }

    /// Makes a database empty; returns the tables that it had.
    pub(super) fn clear(&mut self, database: usize) -> Vec<TableId> {
        let Some(tables) = self.databases.get_mut(database) else { return Vec::new() };
        let had = std::mem::replace(tables, [TableId(0); 2]);
        had.into_iter().filter(|table| table.0 != 0).collect()
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.grow(one.max(other));
        self.databases.swap(one, other);
    }

    fn grow(&mut self, database: usize) {
        if self.databases.len() <= database {
            self.databases.resize(database + 1, [TableId(0); 2]);
        }
    }
}

/// Returns the place of a database in the catalog.
pub(super) fn place(database: Database) -> Place {
    match database {
        FUNCTIONS => Place::Functions,
        database if database & PAGES != 0 => Place::Pages(number(database)),
        database => Place::Objects(number(database)),
    }
}

/// Returns the number of the user's database.
pub(super) fn number(database: Database) -> usize {
    (database & !PAGES) as usize
}

/// The door's own view of the tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// `None` until it was read from the log.
    catalog: Option<Catalog>,
    /// The position in the log behind which the catalog is.
    until: LogPosition,
    /// Tables that no database has any more, once the log is durable up to a position.
    leaving: Vec<(LogPosition, TableId)>,
    /// Tables that are being dropped, and may still have memory.
    dropping: Vec<TableId>,
}

impl Tables {
    /// The catalog, once it was read.
    pub(super) fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref()
    }

    /// Whether any database may have pages.
    pub(super) fn have_pages(&self) -> bool {
        self.catalog.as_ref().is_some_and(|it| it.databases.iter().any(|[_, pages]| pages.0 != 0))
    }

    /// Takes the catalog that the log has.
    pub(super) fn learn(&mut self, text: Option<&[u8]>) {
        self.catalog = Some(text.map(Catalog::read).unwrap_or_default());
    }

    /// Takes a new catalog, which is in the log up to a position, without some tables.
    pub(super) fn change(
        &mut self,
        (catalog, until): (Catalog, LogPosition),
        without: Vec<TableId>,
        databases: &Databases,
    ) {
        if without.is_empty() {
            databases.refill();
        }
        self.catalog = Some(catalog);
        self.until = until;
        self.leaving.extend(without.into_iter().map(|table| (until, table)));
    }

    /// The position up to which the log must be durable before anything is told: the catalog tells
    /// which objects there are.
    pub(super) fn until(&self) -> LogPosition {
        self.until
    }

    /// Forgets dropped tables whose memory is free. `has_objects` tells whether the shard still has
    /// objects of a table. Returns whether more memory is about to become free.
    pub(super) fn forget_dropped(&mut self, has_objects: impl Fn(TableId) -> bool) -> bool {
        self.dropping.retain(|table| has_objects(*table));
        !self.leaving.is_empty() || !self.dropping.is_empty()
    }

    pub(super) fn waits_for_log(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Lets tables be dropped that a recovery does not need any more.
    pub(super) fn on_durable(&mut self, durable: LogPosition, databases: &Databases) {
        let dropping = &mut self.dropping;
        self.leaving.retain(|(until, table)| {
            let is_needed = *until > durable;
            if !is_needed {
                databases.drop_table(*table);
                dropping.push(*table);
            }
            is_needed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_is_read_as_it_was_written() {
        let mut catalog = Catalog::default();
        catalog.set(Place::Objects(0), TableId(7));
        catalog.set(Place::Pages(3), TableId(9));
        catalog.swap(0, 5);
        assert_eq!(catalog.text(), b"0 0\n0 0\n0 0\n0 9\n0 0\n7 0\n");
        let with_functions = Catalog { functions: TableId(4), ..catalog.clone() };
        assert_eq!(Catalog::read(&with_functions.text()), with_functions);
        let tables = Databases::tables_of(&with_functions.text());
        assert_eq!(tables, [TableId(9), TableId(7), TableId(4)]);
        assert_eq!(with_functions.table(place(FUNCTIONS)), Some(TableId(4)));
        assert_eq!(Catalog::read(&catalog.text()), catalog);
        assert_eq!(Databases::tables_of(&catalog.text()), [TableId(9), TableId(7)]);
        assert_eq!(catalog.clear(5), [TableId(7)]);
        assert_eq!((catalog.clear(5), catalog.clear(50)), (vec![], vec![]));
        assert_eq!(catalog.table(place(PAGES | 3)), Some(TableId(9)));
        assert_eq!(catalog.table(place(3)), None);
    }

    #[test]
    fn no_tables_are_made_before_a_shard_of_this_process_has_taken_over() {
        let databases = Databases::shared();
        assert_eq!(databases.next_work(), Some(TableWork::Ensure));
        databases.drop_table(TableId(9));
        assert_eq!(databases.next_work(), Some(TableWork::Drop(TableId(9))));
        databases.take_over(TableId(1), MasterId(5));
        let Some(TableWork::TakeOver(first)) = databases.next_work() else {
            panic!("no take-over")
        };
        assert_eq!((first.catalog, first.master), (TableId(1), MasterId(5)));
        assert_eq!(databases.catalog(), None, "the catalog was not read");
        databases.take_over_again(first);
        assert_eq!(databases.next_work(), Some(TableWork::TakeOver(first)));
        databases.serve(first);
        assert_eq!(databases.catalog(), Some(TableId(1)));
        assert_eq!(databases.next_work(), Some(TableWork::Make));
        databases.add(TableId(2));
        // The next generation of the server takes over. It uses no table of the former one.
        databases.take_over(TableId(1), MasterId(6));
        databases.add(TableId(3));
        databases.serve(first);
        databases.take_over_again(first);
        assert_eq!(databases.catalog(), None, "the former generation serves no more");
        let Some(TableWork::TakeOver(second)) = databases.next_work() else {
            panic!("no take-over")
        };
        assert_eq!(second.master, MasterId(6));
        databases.serve(second);
        assert_eq!((databases.catalog(), databases.take(1)), (Some(TableId(1)), None));
    }

    #[test]
    fn any_bytes_are_some_catalog() {
        for text in [&b""[..], b"\xff", b"x y z\n\n5", b"99999999999999999999999 1"] {
            let catalog = Catalog::read(text);
            assert_eq!(Catalog::read(&catalog.text()), catalog);
        }
    }

    #[test]
    fn a_cleared_table_is_dropped_when_that_is_durable_and_empty_tables_are_kept_in_stock() {
        let at = |offset| LogPosition { offset, ..LogPosition::default() };
        let databases = Databases::default();
        let mut tables = Tables::default();
        tables.change((Catalog::default(), at(100)), vec![TableId(4)], &databases);
        tables.on_durable(at(99), &databases);
        assert!(tables.waits_for_log());
        assert_eq!(databases.next_work(), Some(TableWork::Make));
        tables.on_durable(at(100), &databases);
        assert!(!tables.waits_for_log());
        assert!(tables.forget_dropped(|table| table == TableId(4)));
        assert!(!tables.forget_dropped(|_| false));
        // That comes first: a full server has no room for a new table before.
        assert_eq!(databases.next_work(), Some(TableWork::Drop(TableId(4))));
        assert_eq!(databases.next_work(), Some(TableWork::Make));
        (1..=STOCK as u64).for_each(|table| databases.add(TableId(table)));
        assert_eq!(databases.take(1), Some(vec![TableId(STOCK as u64)]));
        assert_eq!(databases.next_work(), Some(TableWork::Make));
        // A list that needs more than the stock gets all of them at once.
        assert_eq!(databases.take(STOCK + 3), None);
        for table in 10..14 {
            assert_eq!(databases.next_work(), Some(TableWork::Make));
            databases.add(TableId(table));
        }
        assert_eq!(databases.take(STOCK + 3).map(|taken| taken.len()), Some(STOCK + 3));
        assert_eq!(databases.next_work(), Some(TableWork::Make));
        databases.end();
        assert_eq!(databases.next_work(), None);
    }
}
