//! Clients for event loops: the native half of `thunderhead.aio`.
//!
//! A [`Queue`] belongs to one loop and one thread. Each operation has a [`Future`], which its task
//! awaits. The operations that begin in one iteration of the loop are submitted together at its
//! end. The loop watches the descriptor of the core's [`CompletionQueue`], so one wake-up delivers
//! all results.
//!
//! No lock is held while code of Python runs, because that code may call the queue again.

use crate::arguments::{
    Bytes, condition, deadline, for_keys, given_time_to_live, number, table_name, time_to_live,
    unsigned, write, write_number, writes,
};
use crate::future::{Future, When};
use crate::guard::guarded;
use crate::names::Target;
use crate::{control, errors, results};
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, DropTable, MigrateTablet, SplitTablet};
use thunderhead_client::{
    Action, Answer, Completion, CompletionQueue, Enumeration, Error, KeyHash, Operation, Outcome,
    Question, Reply, Request, Results, Status, Submission, TableId,
};

/// A client of one event loop.
#[pyclass(frozen, module = "thunderhead._core")]
pub(crate) struct Queue {
    event_loop: Py<PyAny>,
    /// The thread of the loop.
    thread: ThreadId,
    core: Arc<CompletionQueue>,
    /// The default time limit.
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The operations that have not ended, by the addresses of their futures. An entry keeps its
    /// future until the completion arrives, also after a cancellation. So no other future has its
    /// address meanwhile.
    pending: FxHashMap<u64, Pending>,
    /// Work that began in this iteration of the loop.
    batch: Vec<Submission>,
    /// Results that were taken from the core and not delivered yet.
    undelivered: VecDeque<Completion>,
    /// Whether the loop watches the descriptor.
    is_watched: bool,
    closing: Option<Closing>,
}

struct Pending {
    future: Py<Future>,
    kind: Kind,
    /// The core's number of the work; `None` until it is submitted.
    number: Option<u64>,
    /// Its task does not wait any more.
    is_cancelled: bool,
}

/// The kind of work, which decides how its outcome becomes an object of Python.
enum Kind {
    Read,
    /// How long an object still lives.
    Life,
    Change,
    Sum,
    Reads,
    Changes,
    Page(Arc<Mutex<Enumeration>>),
    /// A question without an answer of interest.
    Done,
    /// The table of this name in a map.
    Named(String),
    Table,
    Tables,
}

/// The end of a client that is being closed.
struct Closing {
    future: Py<PyAny>,
    /// Readable once the client is closed.
    over: UnixStream,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(clippy::disallowed_methods, reason = "only asks which thread this is")]
    fn check_thread(&self) -> PyResult<()> {
        if std::thread::current().id() == self.thread {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this client belongs to the event loop of another thread; make one client for each \
             loop, or use asyncio.run_coroutine_threadsafe",
        ))
    }

    /// Begins work at the end of this iteration of the loop, and returns its future.
    fn begin<'py>(
        slf: &Bound<'py, Self>,
        request: Request,
        kind: Kind,
        limit: Duration,
    ) -> PyResult<Bound<'py, Future>> {
        let (py, queue) = (slf.py(), slf.get());
        queue.check_thread()?;
        let future = Bound::new(py, Future::new(queue.event_loop.clone_ref(py)))?;
        let tag = future.as_ptr() as u64;
        let is_first = queue.lock().batch.is_empty();
        if is_first {
            let flush = slf.getattr(intern!(py, "_flush"))?;
            queue.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (flush,))?;
        }
        let pending =
            Pending { future: future.clone().unbind(), kind, number: None, is_cancelled: false };
        let mut state = queue.lock();
        state.pending.insert(tag, pending);
        state.batch.push(Submission { tag, request, deadline: Some(limit) });
        Ok(future)
    }

    fn operation<'py>(
        slf: &Bound<'py, Self>,
        operation: Operation,
        kind: Kind,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        let limit = deadline(limit, slf.get().limit)?;
        Queue::begin(slf, Request::Operations(vec![operation]), kind, limit)
    }

    fn operations<'py>(
        slf: &Bound<'py, Self>,
        operations: Vec<Operation>,
        kind: Kind,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        let limit = deadline(limit, slf.get().limit)?;
        Queue::begin(slf, Request::Operations(operations), kind, limit)
    }

    fn question<'py>(
        slf: &Bound<'py, Self>,
        question: Question,
        kind: Kind,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        let limit = deadline(limit, slf.get().limit)?;
        Queue::begin(slf, Request::Question(question), kind, limit)
    }

    /// Submits the batch.
    fn submit(&self, py: Python<'_>) {
        let (tags, submitted) = {
            let mut state = self.lock();
            let batch = std::mem::take(&mut state.batch);
            if batch.is_empty() {
                return;
            }
            let tags: Vec<u64> = batch.iter().map(|it| it.tag).collect();
            (tags, self.core.submit(batch))
        };
        match submitted {
            Ok(first) => {
                let mut state = self.lock();
                for (tag, number) in tags.iter().zip(first..) {
                    if let Some(pending) = state.pending.get_mut(tag) {
                        pending.number = Some(number);
                    }
                }
            }
            Err(error) => {
                for tag in tags {
                    let pending = self.lock().pending.remove(&tag);
                    if let Some(pending) = pending {
                        // A task may be running. The only possible error is that of a closed loop.
                        let error = Err(errors::raised(py, error));
                        let _ = Future::end(pending.future.bind(py), error, When::Later);
                    }
                }
            }
        }
    }

    /// Delivers all results. Each one resumes its task.
    ///
    /// A task that is resumed may end the loop with `KeyboardInterrupt` or `SystemExit`, or may run
    /// the loop itself, as in notebooks. So the loop has a callback for the other results.
    fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, queue) = (slf.py(), slf.get());
        // In debug mode the loop names the callbacks that take long, so each task needs its own.
        let is_debug =
            queue.event_loop.call_method0(py, intern!(py, "get_debug"))?.is_truthy(py)?;
        let when = if is_debug { When::Later } else { When::Now };
        let taken = queue.core.take(usize::MAX);
        let has_several = {
            let undelivered = &mut queue.lock().undelivered;
            undelivered.extend(taken);
            undelivered.len() > 1
        };
        if has_several {
            let deliver = slf.getattr(intern!(py, "_deliver"))?;
            queue.event_loop.call_method1(py, intern!(py, "call_soon"), (deliver,))?;
        }
        loop {
            let mut state = queue.lock();
            let Some(Completion { tag, outcome }) = state.undelivered.pop_front() else {
                return Ok(());
            };
            let pending = state.pending.remove(&tag);
            drop(state);
            let Some(pending) = pending else { continue };
            if pending.is_cancelled {
                continue;
            }
            let result = pending.kind.result(py, outcome);
            Future::end(pending.future.bind(py), result, when)?;
        }
    }

    /// Makes the loop watch the descriptor no longer. A loop that is closed watches nothing.
    fn unwatch(&self, py: Python<'_>) {
        let was_watched = std::mem::take(&mut self.lock().is_watched);
        if was_watched {
            remove_reader(self.event_loop.bind(py), self.core.descriptor().as_raw_fd());
        }
    }
}

fn remove_reader(event_loop: &Bound<'_, PyAny>, descriptor: i32) {
    // A closed loop has removed it and may refuse.
    let _ = event_loop.call_method1(intern!(event_loop.py(), "remove_reader"), (descriptor,));
}

impl Kind {
    fn result<'py>(&self, py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| match outcome {
            Outcome::Operations(results) => self.of_operations(py, results),
            Outcome::Question(reply) => {
                let reply = reply.map_err(|error| errors::raised(py, error))?;
                self.of_question(py, reply)
            }
        })
    }

    fn of_operations<'py>(&self, py: Python<'py>, mut all: Results) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Kind::Reads => return results::values(py, all).map(Bound::into_any),
            Kind::Changes => return results::versions(py, all).map(Bound::into_any),
            _ => {}
        }
        let raised = |error| errors::raised(py, error);
        let answer: Answer = all.pop().unwrap_or(Err(Error::Incomprehensible)).map_err(raised)?;
        match self {
            Kind::Read => {
                let found = results::found(answer).map_err(raised)?;
                results::value(py, found.as_ref().map(|(v, bytes)| (*v, bytes.as_slice())))
            }
            Kind::Life => Ok(results::lives(answer).map_err(raised)?.into_pyobject(py)?.into_any()),
            Kind::Change => results::version(py, results::changed(answer).map_err(raised)?),
            Kind::Sum => results::sum(py, results::counted(answer).map_err(raised)?),
            Kind::Page(enumeration) => {
                let mut enumeration = enumeration.lock().unwrap_or_else(PoisonError::into_inner);
                let page = enumeration.answered(answer);
                let page = page.ok_or(Error::Incomprehensible).map_err(raised)?;
                let entries = page.iter().map(|object| results::entry(py, object));
                let entries = entries.collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, entries).map(Bound::into_any)
            }
            _ => Err(raised(Error::Incomprehensible)),
        }
    }

    fn of_question<'py>(&self, py: Python<'py>, reply: Reply) -> PyResult<Bound<'py, PyAny>> {
        match (self, reply) {
            (Kind::Done, _) => Ok(py.None().into_bound(py)),
            (Kind::Table, Reply::Table(table)) => results::table_info(py, &table),
            (Kind::Tables, Reply::Map(map)) => {
                results::table_infos(py, &map.tables).map(Bound::into_any)
            }
            (Kind::Named(name), Reply::Map(map)) => {
                match map.tables.iter().find(|table| table.name == *name) {
                    Some(table) => results::table_info(py, table),
                    None => Err(errors::raised(py, Error::Refused(Status::NoSuchTable))),
                }
            }
            _ => Err(errors::raised(py, Error::Incomprehensible)),
        }
    }
}

#[pymethods]
impl Queue {
    /// Starts a client for a running loop. Does not wait for the cluster.
    #[new]
    #[allow(clippy::disallowed_methods, reason = "only asks which thread this is")]
    fn new(py: Python<'_>, target: &Bound<'_, Target>, event_loop: Py<PyAny>) -> PyResult<Queue> {
        guarded(|| {
            let target = target.get();
            let options = target.options().map_err(|failure| failure.raised(py))?;
            let core = py.detach(|| CompletionQueue::begin(&options));
            let core = Arc::new(core.map_err(|error| errors::raised(py, error))?);
            let (thread, state) = (std::thread::current().id(), Mutex::default());
            Ok(Queue { event_loop, thread, core, limit: target.deadline, state })
        })
    }

    /// Makes the loop watch the descriptor.
    fn _watch(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(|| {
            let (py, queue) = (slf.py(), slf.get());
            let deliver = slf.getattr(intern!(py, "_deliver"))?;
            let descriptor = queue.core.descriptor().as_raw_fd();
            let event_loop = queue.event_loop.bind(py);
            event_loop.call_method1(intern!(py, "add_reader"), (descriptor, deliver))?;
            queue.lock().is_watched = true;
            Ok(())
        })
    }

    /// Submits all work that began in this iteration of the loop.
    fn _flush(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.submit(py);
            Ok(())
        })
    }

    /// Delivers all results: the descriptor is readable.
    fn _deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(|| Queue::deliver(slf))
    }

    /// Ends the work of a future for which no task waits any more.
    fn cancel(&self, future: &Bound<'_, Future>) -> PyResult<()> {
        guarded(|| {
            let tag = future.as_ptr() as u64;
            let mut state = self.lock();
            let State { pending, batch, .. } = &mut *state;
            let Some(found) = pending.get_mut(&tag) else { return Ok(()) };
            found.is_cancelled = true;
            let dropped = match found.number {
                Some(number) => {
                    self.core.cancel(number);
                    None
                }
                // It was not submitted, so it has no completion.
                None => {
                    batch.retain(|submission| submission.tag != tag);
                    pending.remove(&tag)
                }
            };
            drop(state);
            drop(dropped);
            Ok(())
        })
    }

    /// Asks for news of the cluster: ends when a coordinator has answered.
    fn connected<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Future>> {
        guarded(|| Queue::question(slf, Question::News, Kind::Done, None))
    }

    /// Closes the client. Returns a future that ends when the work in progress has ended and the
    /// lease has ended.
    fn close<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            let (py, queue) = (slf.py(), slf.get());
            queue.check_thread()?;
            queue.submit(py);
            let future = queue.event_loop.call_method0(py, intern!(py, "create_future"))?;
            let (over, end) = UnixStream::pair()?;
            let core = Arc::clone(&queue.core);
            // The other end of the pair is closed when the thread ends, also by a panic.
            let close = move || {
                let _end = end;
                core.close();
            };
            std::thread::Builder::new().name("thunderhead-close".to_owned()).spawn(close)?;
            let on_closed = slf.getattr(intern!(py, "_on_closed"))?;
            let event_loop = queue.event_loop.bind(py);
            event_loop.call_method1(intern!(py, "add_reader"), (over.as_raw_fd(), on_closed))?;
            queue.lock().closing = Some(Closing { future: future.clone_ref(py), over });
            Ok(future.into_bound(py))
        })
    }

    fn _on_closed(slf: &Bound<'_, Self>) -> PyResult<()> {
        guarded(|| {
            let (py, queue) = (slf.py(), slf.get());
            let closing = queue.lock().closing.take();
            let Some(Closing { future, over }) = closing else { return Ok(()) };
            remove_reader(queue.event_loop.bind(py), over.as_raw_fd());
            queue.unwatch(py);
            // It refuses if it was cancelled or its loop is closed: no task waits for it.
            let _ = future.call_method1(py, intern!(py, "set_result"), (py.None(),));
            Queue::deliver(slf)
        })
    }

    /// Leaves the loop without closing the client.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.unwatch(py);
            Ok(())
        })
    }

    /// The number of operations that have not ended.
    #[getter]
    fn pending(&self) -> usize {
        self.lock().pending.len()
    }

    #[pyo3(signature = (table, key, deadline))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(slf.py(), None, false, false)?;
            let operation =
                Operation { table: TableId(table), key, condition, action: Action::Read };
            Queue::operation(slf, operation, Kind::Read, deadline)
        })
    }

    #[pyo3(signature = (table, key, value, if_version, if_absent, if_present, ttl, deadline))]
    #[allow(clippy::too_many_arguments, reason = "they come from Python's keyword arguments")]
    fn put<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
        if_absent: bool,
        if_present: bool,
        ttl: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let value = Bytes::of("value", value)?.as_slice().to_vec();
            let action = write(value, time_to_live(ttl)?);
            let condition = condition(slf.py(), if_version, if_absent, if_present)?;
            let operation = Operation { table: TableId(table), key, condition, action };
            Queue::operation(slf, operation, Kind::Change, deadline)
        })
    }

    #[pyo3(signature = (table, key, number, if_version, if_absent, if_present, ttl, deadline))]
    #[allow(clippy::too_many_arguments, reason = "they come from Python's keyword arguments")]
    fn put_number<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        number: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
        if_absent: bool,
        if_present: bool,
        ttl: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let action = write_number(self::number("number", number)?, time_to_live(ttl)?);
            let condition = condition(slf.py(), if_version, if_absent, if_present)?;
            let operation = Operation { table: TableId(table), key, condition, action };
            Queue::operation(slf, operation, Kind::Change, deadline)
        })
    }

    #[pyo3(signature = (table, key, if_version, if_present, deadline))]
    fn delete<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
        if_present: bool,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(slf.py(), if_version, false, if_present)?;
            let operation =
                Operation { table: TableId(table), key, condition, action: Action::Delete };
            Queue::operation(slf, operation, Kind::Change, deadline)
        })
    }

    #[pyo3(signature = (table, key, ttl, if_version, if_present, deadline))]
    fn expire<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        ttl: &Bound<'py, PyAny>,
        if_version: Option<&Bound<'py, PyAny>>,
        if_present: bool,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(slf.py(), if_version, false, if_present)?;
            let action = Action::SetExpiry(given_time_to_live(ttl)?);
            let operation = Operation { table: TableId(table), key, condition, action };
            Queue::operation(slf, operation, Kind::Change, deadline)
        })
    }

    #[pyo3(signature = (table, key, deadline))]
    fn ttl<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(slf.py(), None, false, false)?;
            let action = Action::ReadExpiry;
            let operation = Operation { table: TableId(table), key, condition, action };
            Queue::operation(slf, operation, Kind::Life, deadline)
        })
    }

    #[pyo3(signature = (table, key, by, deadline))]
    fn increment<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        key: &Bound<'py, PyAny>,
        by: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let key = Bytes::of("key", key)?.as_slice().to_vec();
            let condition = condition(slf.py(), None, false, false)?;
            let action = Action::Increment(number("by", by)?);
            let operation = Operation { table: TableId(table), key, condition, action };
            Queue::operation(slf, operation, Kind::Sum, deadline)
        })
    }

    #[pyo3(signature = (table, keys, deadline))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        keys: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let operations = for_keys(TableId(table), keys, &Action::Read)?;
            Queue::operations(slf, operations, Kind::Reads, deadline)
        })
    }

    #[pyo3(signature = (table, items, ttl, deadline))]
    fn put_many<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        items: &Bound<'py, PyAny>,
        ttl: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let operations = writes(TableId(table), items, time_to_live(ttl)?)?;
            Queue::operations(slf, operations, Kind::Changes, deadline)
        })
    }

    #[pyo3(signature = (table, keys, deadline))]
    fn delete_many<'py>(
        slf: &Bound<'py, Self>,
        table: u64,
        keys: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let operations = for_keys(TableId(table), keys, &Action::Delete)?;
            Queue::operations(slf, operations, Kind::Changes, deadline)
        })
    }

    /// Begins the next page of an enumeration; `None` at the end.
    #[pyo3(signature = (pages, deadline))]
    fn page<'py>(
        slf: &Bound<'py, Self>,
        pages: &Bound<'py, Pages>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, Future>>> {
        guarded(|| {
            let enumeration = Arc::clone(&pages.get().0);
            let next = enumeration.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(operation) = next else { return Ok(None) };
            Queue::operation(slf, operation, Kind::Page(enumeration), deadline).map(Some)
        })
    }

    #[pyo3(signature = (name, deadline))]
    fn table<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let name = table_name(name)?.to_owned();
            Queue::question(slf, Question::Map(Some(name.clone())), Kind::Named(name), deadline)
        })
    }

    #[pyo3(signature = (name, span, ttl, policy, max_bytes, reserved_bytes, deadline))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn create_table<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        span: Option<&Bound<'py, PyAny>>,
        ttl: Option<&Bound<'py, PyAny>>,
        policy: Option<&Bound<'py, PyAny>>,
        max_bytes: Option<&Bound<'py, PyAny>>,
        reserved_bytes: Option<&Bound<'py, PyAny>>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let server_span = control::span(slf.py(), span)?;
            let bytes = (max_bytes, reserved_bytes);
            let options = control::table_options(slf.py(), ttl, policy, bytes)?;
            let question =
                CreateTable { options, ..CreateTable::spread(table_name(name)?, server_span) };
            Queue::question(slf, Question::CreateTable(question), Kind::Table, deadline)
        })
    }

    #[pyo3(signature = (name, deadline))]
    fn drop_table<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let question = DropTable::named(table_name(name)?);
            Queue::question(slf, Question::DropTable(question), Kind::Done, deadline)
        })
    }

    #[pyo3(signature = (deadline))]
    fn tables<'py>(
        slf: &Bound<'py, Self>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| Queue::question(slf, Question::Map(None), Kind::Tables, deadline))
    }

    #[pyo3(signature = (name, at, deadline))]
    fn split<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        at: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let (table, at) = (table_name(name)?.to_owned(), KeyHash(unsigned("at", at)?));
            let question = Question::SplitTablet(SplitTablet { table, at });
            Queue::question(slf, question, Kind::Table, deadline)
        })
    }

    #[pyo3(signature = (name, first, to, deadline))]
    fn migrate<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        first: &Bound<'py, PyAny>,
        to: &Bound<'py, PyAny>,
        deadline: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Future>> {
        guarded(|| {
            let (table, first) = (table_name(name)?.to_owned(), KeyHash(unsigned("first", first)?));
            let question = MigrateTablet { table, first, to: control::master(to)? };
            Queue::question(slf, Question::MigrateTablet(question), Kind::Table, deadline)
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        // If the state is locked, its thread uses the queue, so the queue is no garbage.
        if let Ok(state) = self.state.try_lock() {
            for pending in state.pending.values() {
                visit.call(&pending.future)?;
            }
            if let Some(closing) = &state.closing {
                visit.call(&closing.future)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let state = std::mem::take(&mut *self.lock());
        drop(state);
    }
}

/// The state of an enumeration of a table.
#[pyclass(frozen, module = "thunderhead._core")]
pub(crate) struct Pages(Arc<Mutex<Enumeration>>);

#[pymethods]
impl Pages {
    #[new]
    fn new(table: u64) -> Pages {
        Pages(Arc::new(Mutex::new(Enumeration::new(TableId(table)))))
    }
}
