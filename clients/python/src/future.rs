//! The object that a task awaits: it stands for the end of an operation.
//!
//! A future of asyncio resumes its task in the next iteration of the loop, which needs one more
//! object and one more call of Python for each operation. This future resumes the task at once. It
//! has the methods that a task of asyncio calls on the object it awaits, so it works with every
//! event loop. It says that its class is that of asyncio, because other libraries look at the class
//! of the object that a task awaits: anyio asks such an object whether it has ended.

use crate::guard::guarded;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use pyo3::{IntoPyObjectExt, intern};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The end of an operation. One task awaits it.
#[pyclass(frozen, module = "thunderhead._core")]
pub(crate) struct Future {
    event_loop: Py<PyAny>,
    /// Whether its task has just begun to await it. The task expects this attribute.
    is_awaited: AtomicBool,
    /// No code of Python runs while this is locked, because that code may call the future again.
    state: Mutex<State>,
}

enum State {
    /// The operation has not ended. The task may wait already.
    Open(Option<Waiter>),
    Ended(PyResult<Py<PyAny>>),
    /// The message is that of the call which cancelled.
    Cancelled(Option<Py<PyAny>>),
    /// The task has been told.
    Told,
}

/// A task that waits.
struct Waiter {
    /// Resumes the task. Its argument is the future.
    callback: Py<PyAny>,
    /// The context in which the task runs.
    context: Py<PyAny>,
}

/// The class of asyncio's futures.
static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// When a task is resumed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the call returns. No other task may be running.
    Now,
    /// In the next iteration of the loop.
    Later,
}

impl Future {
    pub(crate) fn new(event_loop: Py<PyAny>) -> Future {
        let state = Mutex::new(State::Open(None));
        Future { event_loop, is_awaited: AtomicBool::new(false), state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the result of the operation and resumes the task. A cancelled future stays cancelled.
    /// Fails if the task raises `SystemExit` or `KeyboardInterrupt`, or if the loop is closed.
    pub(crate) fn end(
        slf: &Bound<'_, Self>,
        result: PyResult<Bound<'_, PyAny>>,
        when: When,
    ) -> PyResult<()> {
        let result = result.map(Bound::unbind);
        let waiter = {
            let mut state = slf.get().lock();
            let State::Open(waiter) = &mut *state else { return Ok(()) };
            let waiter = waiter.take();
            *state = State::Ended(result);
            waiter
        };
        waiter.map_or(Ok(()), |waiter| waiter.resume(slf, when))
    }

    /// Returns the result, or raises the error, once. The task keeps it then.
    fn outcome(&self) -> PyResult<Py<PyAny>> {
        let state = {
            let mut state = self.lock();
            if let State::Open(_) = &*state {
                drop(state);
                return Err(InvalidStateError::new_err("the operation has not ended"));
            }
            std::mem::replace(&mut *state, State::Told)
        };
        match state {
            State::Ended(result) => result,
            State::Cancelled(Some(message)) => Err(CancelledError::new_err((message,))),
            State::Cancelled(None) => Err(CancelledError::new_err(())),
            State::Open(_) | State::Told => {
                Err(InvalidStateError::new_err("the result was returned already"))
            }
        }
    }
}

impl Waiter {
    /// Resumes the task. Fails as `Future::end` does.
    fn resume(self, future: &Bound<'_, Future>, when: When) -> PyResult<()> {
        let py = future.py();
        let (callback, context) = (self.callback.bind(py), self.context.bind(py));
        if when == When::Now {
            context.call_method1(intern!(py, "run"), (callback, future))?;
            return Ok(());
        }
        let event_loop = future.get().event_loop.bind(py);
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "context"), context)?;
        event_loop.call_method(intern!(py, "call_soon"), (callback, future), Some(&keywords))?;
        Ok(())
    }
}

#[pymethods]
impl Future {
    #[getter(__class__)]
    fn class<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        CLASS.import(py, "asyncio", "Future")
    }

    fn __repr__(&self) -> &'static str {
        match &*self.lock() {
            State::Open(_) => "<thunderhead future pending>",
            State::Cancelled(_) => "<thunderhead future cancelled>",
            State::Ended(_) | State::Told => "<thunderhead future finished>",
        }
    }

    #[getter(_asyncio_future_blocking)]
    fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    /// Calls `callback` with the future when the operation ends.
    #[pyo3(signature = (callback, *, context=None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        guarded(|| {
            let context = match context {
                Some(context) => context,
                None => {
                    let contexts = slf.py().import(intern!(slf.py(), "contextvars"))?;
                    contexts.call_method0(intern!(slf.py(), "copy_context"))?.unbind()
                }
            };
            let waiter = Waiter { callback, context };
            {
                let mut state = slf.get().lock();
                if let State::Open(place @ None) = &mut *state {
                    *place = Some(waiter);
                    return Ok(());
                }
                if let State::Open(Some(_)) = &*state {
                    drop(state);
                    return Err(PyRuntimeError::new_err("another task awaits this operation"));
                }
            }
            waiter.resume(slf, When::Later)
        })
    }

    fn done(&self) -> bool {
        !matches!(&*self.lock(), State::Open(_))
    }

    fn cancelled(&self) -> bool {
        matches!(&*self.lock(), State::Cancelled(_))
    }

    /// Resumes the task with a `CancelledError`. Returns whether the operation was open.
    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        guarded(|| {
            let waiter = {
                let mut state = slf.get().lock();
                let State::Open(waiter) = &mut *state else { return Ok(false) };
                let waiter = waiter.take();
                *state = State::Cancelled(msg);
                waiter
            };
            waiter.map_or(Ok(()), |waiter| waiter.resume(slf, When::Later))?;
            Ok(true)
        })
    }

    /// Raises the error with which the operation ended. The result itself is returned by `await`.
    fn result(&self) -> PyResult<()> {
        guarded(|| {
            if matches!(&*self.lock(), State::Ended(Ok(_))) {
                return Ok(());
            }
            self.outcome().map(drop)
        })
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        guarded(|| {
            let (py, future) = (slf.py(), slf.get());
            if future.done() {
                return Err(PyStopIteration::new_err((future.outcome()?,)));
            }
            if matches!(&*future.lock(), State::Open(Some(_))) {
                return Err(PyRuntimeError::new_err("another task awaits this operation"));
            }
            future.is_awaited.store(true, Ordering::Relaxed);
            slf.into_py_any(py)
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        // If the state is locked, its thread uses the future, so the future is no garbage.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        match &*state {
            State::Open(Some(waiter)) => {
                visit.call(&waiter.callback)?;
                visit.call(&waiter.context)
            }
            State::Ended(Ok(value)) => visit.call(value),
            State::Cancelled(Some(message)) => visit.call(message),
            // An error keeps no task: it gets its traceback when it is raised.
            State::Ended(Err(_)) | State::Open(None) | State::Cancelled(None) | State::Told => {
                Ok(())
            }
        }
    }

    fn __clear__(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Told);
        drop(state);
    }
}
