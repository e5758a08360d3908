//! Clients for threads that wait for their answers.
//!
//! A client wraps a pool of the core's clients, so any number of threads may share it. The calling
//! thread does the I/O itself. It holds the interpreter's lock only while it reads arguments and
//! makes the result, so other threads of Python run meanwhile.

use crate::arguments::{
    Bytes, condition, deadline, for_keys, given_time_to_live, number, table_name, time_to_live,
    unsigned, write_number, writes,
};
use crate::guard::guarded;
use crate::names::Target;
use crate::{control, errors, interrupt, results};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::Cell;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};
use thunderhead_client::control::{TableInfo, TableOptions};
use thunderhead_client::{
    Action, Client as Core, ClientPool, Condition, Enumeration, Error, KeyHash, Object, Obstacle,
    Operation, Results, TableId, Version,
};

/// The most threads that work at the same time. Each has connections of its own to every server.
/// Further threads wait for their turn.
const CLIENTS_MAX: usize = 64;

thread_local! {
    /// The deadline of this thread's operation. If the pool makes a new client for the operation,
    /// the connection has the same deadline.
    static DEADLINE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The state that a client and its tables share.
struct Shared {
    pool: ClientPool,
    url: String,
    deadline: Duration,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closing waits for a coordinator. Other threads run meanwhile, except at the very end of
        // the process.
        let pool = &self.pool;
        Python::try_attach(|py| py.detach(|| pool.close()));
    }
}

impl Shared {
    /// Lends a client to `work`, without the interpreter's lock, and raises the error.
    #[inline]
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        deadline: Duration,
        work: impl FnOnce(&mut Core) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let outcome = py.detach(|| self.lend(deadline, work).and_then(|result| result));
        if let Some(raised) = interrupt::take_raised() {
            return Err(errors::interrupted(py, raised, outcome.err()));
        }
        outcome.map_err(|error| errors::raised(py, error))
    }

    /// Does many operations, without the interpreter's lock.
    fn all(&self, py: Python<'_>, deadline: Duration, work: Vec<Operation>) -> PyResult<Results> {
        let outcome = py.detach(|| self.lend(deadline, |core| core.all(work)));
        if let Some(raised) = interrupt::take_raised() {
            let mut failed = outcome.iter().flatten().filter_map(|it| it.as_ref().err().copied());
            return Err(errors::interrupted(py, raised, failed.find(Error::is_unknown)));
        }
        outcome.map_err(|error| errors::raised(py, error))
    }

    /// Lends a client to `work`. If all clients are in use, waits for one, and looks for signals
    /// meanwhile.
    #[allow(clippy::disallowed_methods, reason = "the simulator does not run this")]
    fn lend<T>(&self, deadline: Duration, work: impl FnOnce(&mut Core) -> T) -> Result<T, Error> {
        DEADLINE.set(Some(deadline));
        let mut work = Some(work);
        let mut began: Option<Instant> = None;
        let mut left = deadline;
        loop {
            let lent = self.pool.with(|core| {
                core.set_deadline(Some(left));
                work.take().map(|work| work(core))
            });
            match lent {
                Ok(result) => return result.ok_or(Error::Closed),
                Err(Error::TimedOut(Obstacle::Busy)) => {
                    let began = *began.get_or_insert_with(|| Instant::now() - interrupt::EVERY);
                    left = deadline.saturating_sub(began.elapsed());
                    if left == Duration::ZERO {
                        return Err(Error::TimedOut(Obstacle::Busy));
                    }
                    if interrupt::is_wanted() {
                        return Err(Error::Cancelled);
                    }
                    DEADLINE.set(Some(left));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects to the cluster that a URL names.
#[pyfunction]
#[pyo3(signature = (url, *, deadline=None))]
pub(crate) fn connect(
    py: Python<'_>,
    url: &Bound<'_, PyAny>,
    deadline: Option<&Bound<'_, PyAny>>,
) -> PyResult<Client> {
    guarded(|| {
        let target = Target::new(url, deadline)?;
        let options = py.detach(|| target.options()).map_err(|failure| failure.raised(py))?;
        let deadline = target.deadline;
        DEADLINE.set(None);
        let make = move || {
            let deadline = DEADLINE.get().unwrap_or(deadline);
            let options = options.clone().deadline(Some(deadline));
            Core::connect_interruptibly(&options, interrupt::EVERY, interrupt::is_wanted)
        };
        let pool = py.detach(|| ClientPool::of(CLIENTS_MAX, Some(interrupt::EVERY), make));
        if let Some(raised) = interrupt::take_raised() {
            return Err(raised);
        }
        let pool = pool.map_err(|error| errors::raised(py, error))?;
        Ok(Client { shared: Arc::new(Shared { pool, url: url.to_string(), deadline }) })
    })
}

/// A client of a cluster. Threads may share it.
#[pyclass(frozen, module = "thunderhead")]
pub(crate) struct Client {
    shared: Arc<Shared>,
}

impl Client {
    fn make_table(
        &self,
        py: Python<'_>,
        (name, span): (&str, u32),
        options: TableOptions,
        limit: Duration,
    ) -> PyResult<u64> {
        let work = |core: &mut Core| core.create_table_with(name, span, options);
        self.shared.call(py, limit, work).map(|table| table.0)
    }
}

#[pymethods]
impl Client {
    /// Returns a table by its name.
    #[pyo3(signature = (name, create=false, span=None, *, deadline=None))]
    fn table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        create: bool,
        span: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Table> {
        guarded(|| {
            let name = table_name(name)?;
            let span = control::span(py, span)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let id = self.shared.call(py, limit, |core| {
                if create { core.ensure_table(name, span) } else { core.table(name) }
            })?;
            Ok(Table { shared: Arc::clone(&self.shared), id, name: name.to_owned() })
        })
    }

    /// Creates a table and returns it.
    #[pyo3(signature = (name, span=None, *, ttl=None, policy=None, max_bytes=None,
        reserved_bytes=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        span: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        policy: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        reserved_bytes: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Table> {
        guarded(|| {
            let (name, span) = (table_name(name)?, control::span(py, span)?);
            let options = control::table_options(py, ttl, policy, (max_bytes, reserved_bytes))?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let id = TableId(self.make_table(py, (name, span), options, limit)?);
            Ok(Table { shared: Arc::clone(&self.shared), id, name: name.to_owned() })
        })
    }

    /// Deletes a table with all its objects.
    #[pyo3(signature = (name, *, deadline=None))]
    fn drop_table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        guarded(|| {
            let name = table_name(name)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            self.shared.call(py, limit, |core| core.drop_table(name))
        })
    }

    /// Returns all tables.
    #[pyo3(signature = (*, deadline=None))]
    fn tables<'py>(
        &self,
        py: Python<'py>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let tables = self.shared.call(py, limit, Core::tables)?;
            results::table_infos(py, &tables)
        })
    }

    /// Splits the tablet that holds the hash `at`.
    #[pyo3(signature = (name, at, *, deadline=None))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        at: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (name, at) = (table_name(name)?, KeyHash(unsigned("at", at)?));
            self.change(py, deadline, |core| core.split(name, at))
        })
    }

    /// Moves the tablet that begins with the hash `first` to another master.
    #[pyo3(signature = (name, first, to, *, deadline=None))]
    fn migrate<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        first: &Bound<'py, PyAny>,
        to: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (name, first) = (table_name(name)?, KeyHash(unsigned("first", first)?));
            let to = control::master(to)?;
            self.change(py, deadline, |core| core.migrate(name, first, to))
        })
    }

    /// Closes the client and ends its leases. It may be called several times.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            py.detach(|| self.shared.pool.close());
            interrupt::take_raised().map_or(Ok(()), Err)
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<thunderhead.Client {}>", self.shared.url)
    }
}

impl Client {
    fn change<'py>(
        &self,
        py: Python<'py>,
        deadline: Option<&Bound<'py, PyAny>>,
        work: impl FnOnce(&mut Core) -> Result<TableInfo, Error> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = self::deadline(deadline, self.shared.deadline)?;
        results::table_info(py, &self.shared.call(py, limit, work)?)
    }
}

/// A table of objects.
#[pyclass(frozen, module = "thunderhead")]
pub(crate) struct Table {
    shared: Arc<Shared>,
    id: TableId,
    name: String,
}

#[pymethods]
impl Table {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Its id. A new table of the same name has another id.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// Reads an object.
    #[pyo3(signature = (key, *, deadline=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let key = Bytes::of("key", key)?;
            let (table, key) = (self.id, key.as_slice());
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let copy =
                |found: Option<(Version, &[u8])>| found.map(|(v, bytes)| (v, bytes.to_vec()));
            let found = self.shared.call(py, limit, |core| core.get_with(table, key, copy))?;
            results::value(py, found.as_ref().map(|(version, value)| (*version, value.as_slice())))
        })
    }

    /// Writes an object and returns its new version.
    #[pyo3(signature = (
        key, value, *, if_version=None, if_absent=false, if_present=false, ttl=None,
        deadline=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "in Python they are keyword arguments")]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        if_version: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
        ttl: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        guarded(|| {
            let (key, value) = (Bytes::of("key", key)?, Bytes::of("value", value)?);
            let (table, key, value) = (self.id, key.as_slice(), value.as_slice());
            let condition = condition(py, if_version, if_absent, if_present)?;
            let time = time_to_live(ttl)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let work = |core: &mut Core| match time {
                None => core.put(table, key, value, condition),
                Some(time) => core.put_expiring(table, key, value, time, condition),
            };
            self.shared.call(py, limit, work).map(|version| version.0)
        })
    }

    /// Writes a number and returns its new version.
    #[pyo3(signature = (
        key, number, *, if_version=None, if_absent=false, if_present=false, ttl=None,
        deadline=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "in Python they are keyword arguments")]
    fn put_number(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        number: &Bound<'_, PyAny>,
        if_version: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
        ttl: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let number = self::number("number", number)?;
            let condition = condition(py, if_version, if_absent, if_present)?;
            let action = write_number(number, time_to_live(ttl)?);
            let version = self.operate(py, (key, condition, action), deadline)?;
            version.map_or_else(|| Err(errors::raised(py, Error::Incomprehensible)), |it| Ok(it.0))
        })
    }

    /// Deletes an object and returns the version that it had.
    #[pyo3(signature = (key, *, if_version=None, if_present=false, deadline=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        if_version: Option<&Bound<'_, PyAny>>,
        if_present: bool,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        guarded(|| {
            let key = Bytes::of("key", key)?;
            let (table, key) = (self.id, key.as_slice());
            let condition = condition(py, if_version, false, if_present)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let work = |core: &mut Core| core.delete(table, key, condition);
            Ok(self.shared.call(py, limit, work)?.map(|version| version.0))
        })
    }

    /// Changes when an object expires, and returns its new version.
    #[pyo3(signature = (key, ttl, *, if_version=None, if_present=false, deadline=None))]
    fn expire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
        if_version: Option<&Bound<'_, PyAny>>,
        if_present: bool,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(py, if_version, false, if_present)?;
            let action = Action::SetExpiry(given_time_to_live(ttl)?);
            let version = self.operate(py, (key, condition, action), deadline)?;
            Ok(version.map(|version| version.0))
        })
    }

    /// Returns how long an object still lives, in seconds.
    #[pyo3(signature = (key, *, deadline=None))]
    fn ttl(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<f64>> {
        guarded(|| {
            let key = Bytes::of("key", key)?;
            let (table, key) = (self.id, key.as_slice());
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let found = self.shared.call(py, limit, |core| core.time_to_live(table, key))?;
            Ok(found.map(|(_, time)| results::seconds(time)))
        })
    }

    /// Adds to a number and returns the sum, with the object's new version.
    #[pyo3(signature = (key, by, *, deadline=None))]
    fn increment<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        by: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let key = Bytes::of("key", key)?;
            let (table, key) = (self.id, key.as_slice());
            let by = self::number("by", by)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let sum = self.shared.call(py, limit, |core| core.increment(table, key, by))?;
            results::sum(py, sum)
        })
    }

    /// Reads many objects at once.
    #[pyo3(signature = (keys, *, deadline=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let operations = for_keys(self.id, keys, &Action::Read)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            results::values(py, self.shared.all(py, limit, operations)?)
        })
    }

    /// Writes many objects at once, each by itself.
    #[pyo3(signature = (items, *, ttl=None, deadline=None))]
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let operations = writes(self.id, items, time_to_live(ttl)?)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            results::versions(py, self.shared.all(py, limit, operations)?)
        })
    }

    /// Deletes many objects at once, each by itself.
    #[pyo3(signature = (keys, *, deadline=None))]
    fn delete_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        guarded(|| {
            let operations = for_keys(self.id, keys, &Action::Delete)?;
            let limit = self::deadline(deadline, self.shared.deadline)?;
            results::versions(py, self.shared.all(py, limit, operations)?)
        })
    }

    /// Returns an iterator over all objects.
    #[pyo3(signature = (*, deadline=None))]
    fn scan(&self, deadline: Option<&Bound<'_, PyAny>>) -> PyResult<Scan> {
        guarded(|| {
            let limit = self::deadline(deadline, self.shared.deadline)?;
            let (enumeration, page) = (Enumeration::new(self.id), Vec::new().into_iter());
            let state = Mutex::new(ScanState { enumeration, page, is_over: false });
            Ok(Scan { shared: Arc::clone(&self.shared), limit, state })
        })
    }

    fn __repr__(&self) -> String {
        format!("<thunderhead.Table {:?}>", self.name)
    }
}

impl Table {
    /// Does an update. Returns the version of the object; `None` if there is none.
    fn operate(
        &self,
        py: Python<'_>,
        (key, condition, action): (Vec<u8>, Condition, Action),
        deadline: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Version>> {
        let operation = Operation { table: self.id, key, condition, action };
        let limit = self::deadline(deadline, self.shared.deadline)?;
        self.shared.call(py, limit, |core| {
            let answer = core.all(vec![operation]).pop().unwrap_or(Err(Error::Incomprehensible))?;
            results::changed(answer)
        })
    }
}

/// An iterator over the objects of a table. It fetches a page of them at a time.
#[pyclass(frozen, module = "thunderhead")]
pub(crate) struct Scan {
    shared: Arc<Shared>,
    /// The time limit of each page.
    limit: Duration,
    state: Mutex<ScanState>,
}

struct ScanState {
    enumeration: Enumeration,
    page: std::vec::IntoIter<Object>,
    /// It ends after an error.
    is_over: bool,
}

impl Scan {
    /// Fetches the next page. `None` at the end.
    fn fetch(
        &self,
        py: Python<'_>,
        enumeration: &mut Enumeration,
    ) -> PyResult<Option<Vec<Object>>> {
        let Some(operation) = enumeration.next() else { return Ok(None) };
        let page = self.shared.call(py, self.limit, |core| {
            let answer = core.all(vec![operation]).pop().unwrap_or(Err(Error::Incomprehensible))?;
            enumeration.answered(answer).ok_or(Error::Incomprehensible)
        });
        page.map(Some)
    }
}

#[pymethods]
impl Scan {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        guarded(|| {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Its thread waits for the interpreter's lock, so this thread must not wait.
                Err(TryLockError::WouldBlock) => {
                    let text = "another thread uses this scan; give each thread one";
                    return Err(PyValueError::new_err(text));
                }
            };
            let ScanState { enumeration, page, is_over } = &mut *state;
            while !*is_over {
                if let Some(object) = page.next() {
                    return results::entry(py, &object).map(Some);
                }
                match self.fetch(py, enumeration) {
                    Ok(Some(objects)) => *page = objects.into_iter(),
                    Ok(None) => *is_over = true,
                    Err(error) => {
                        *is_over = true;
                        return Err(error);
                    }
                }
            }
            Ok(None)
        })
    }
}
