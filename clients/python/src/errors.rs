//! Errors of the core as exceptions of Python. `thunderhead/_errors.py` has their classes.

use crate::results::types;
use pyo3::exceptions::PyBaseException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use thunderhead_client::{Error, Status, Version};

/// Codes of errors that only this package has. The core's own codes are below 100 and above 1000.
const INVALID_ARGUMENT: u16 = 100;
const INTERNAL: u16 = 101;
const CANNOT_CONNECT: u16 = 102;

/// The classes of exceptions.
pub(crate) struct Classes {
    not_done: Py<PyType>,
    condition_failed: Py<PyType>,
    timed_out: Py<PyType>,
    no_such_table: Py<PyType>,
    table_exists: Py<PyType>,
    closed: Py<PyType>,
    forked: Py<PyType>,
    cancelled: Py<PyType>,
    not_a_number: Py<PyType>,
    number_overflow: Py<PyType>,
    invalid_argument: Py<PyType>,
    cannot_connect: Py<PyType>,
    outcome_unknown: Py<PyType>,
    internal_error: Py<PyType>,
    batch_error: Py<PyType>,
}

impl Classes {
    pub(crate) fn load(py: Python<'_>) -> PyResult<Classes> {
        let module = py.import("thunderhead._errors")?;
        let class = |name: &str| Ok::<_, PyErr>(module.getattr(name)?.cast_into()?.unbind());
        Ok(Classes {
            not_done: class("NotDone")?,
            condition_failed: class("ConditionFailed")?,
            timed_out: class("TimedOut")?,
            no_such_table: class("NoSuchTable")?,
            table_exists: class("TableExists")?,
            closed: class("Closed")?,
            forked: class("Forked")?,
            cancelled: class("Cancelled")?,
            not_a_number: class("NotANumber")?,
            number_overflow: class("NumberOverflow")?,
            invalid_argument: class("InvalidArgument")?,
            cannot_connect: class("CannotConnect")?,
            outcome_unknown: class("OutcomeUnknown")?,
            internal_error: class("InternalError")?,
            batch_error: class("BatchError")?,
        })
    }

    fn of(&self, error: &Error) -> &Py<PyType> {
        use Status::{BadName, BadRange, BadSetting, KeyEmpty, KeyTooLong, NoSuchServer};
        use Status::{NoSuchTable, Overflow, TableExists, ValueTooLong};
        match error {
            error if error.is_unknown() => &self.outcome_unknown,
            Error::ConditionFailed { .. } => &self.condition_failed,
            Error::NotANumber { .. } => &self.not_a_number,
            Error::NoSuchTable(_) | Error::Refused(NoSuchTable) => &self.no_such_table,
            Error::Refused(TableExists) => &self.table_exists,
            Error::Refused(Overflow) => &self.number_overflow,
            Error::Refused(
                BadName | BadRange | BadSetting | KeyEmpty | KeyTooLong | NoSuchServer
                | ValueTooLong,
            ) => &self.invalid_argument,
            Error::TimedOut(_) => &self.timed_out,
            Error::Closed => &self.closed,
            Error::Forked => &self.forked,
            Error::Cancelled => &self.cancelled,
            Error::NoCoordinators | Error::System(_) => &self.cannot_connect,
            _ => &self.not_done,
        }
    }
}

/// Makes the exception for an error of the core.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    let version = match error {
        Error::ConditionFailed { version } | Error::NotANumber { version } => Some(version),
        _ => None,
    };
    build(py, |classes| classes.of(&error), text(error), error.code(), version)
}

/// A sentence for an error: the cause, and the next step.
fn text(error: Error) -> String {
    match error {
        Error::ConditionFailed { version: Version::NONE } => {
            "the condition does not hold: the object does not exist; read it again and decide \
             anew"
                .to_owned()
        }
        Error::ConditionFailed { version } => format!(
            "the condition does not hold: the object's version is {}; read it again and decide \
             anew",
            version.0
        ),
        Error::NoSuchTable(_) => "there is no such table: it was dropped; call table() again for \
                                  a new one of this name"
            .to_owned(),
        Error::Closed => "the client was closed; make a new one with connect()".to_owned(),
        Error::Cancelled => {
            "the operation was cancelled and was not done; repeat it if you want it".to_owned()
        }
        error => error.to_string(),
    }
}

fn build(
    py: Python<'_>,
    class: impl FnOnce(&Classes) -> &Py<PyType>,
    message: String,
    code: u16,
    version: Option<Version>,
) -> PyErr {
    let made = || -> PyResult<Bound<'_, PyAny>> {
        let class = class(&types(py)?.classes).bind(py);
        let exception = match version {
            Some(version) => class.call1((message, code, version.0))?,
            None => class.call1((message, code))?,
        };
        Ok(exception)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The error for an argument with a wrong value.
#[cold]
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    build(py, |classes| &classes.invalid_argument, message.into(), INVALID_ARGUMENT, None)
}

/// The error for a cluster that cannot be found.
#[cold]
pub(crate) fn cannot_connect(py: Python<'_>, message: impl Into<String>) -> PyErr {
    build(py, |classes| &classes.cannot_connect, message.into(), CANNOT_CONNECT, None)
}

/// The error after a panic.
#[cold]
pub(crate) fn internal(panic: Option<String>) -> PyErr {
    let place = panic.unwrap_or_default();
    let message = format!(
        "the client has a bug; an update may have been done or not, check before you repeat it, \
         and report this: {place}"
    );
    Python::attach(|py| build(py, |classes| &classes.internal_error, message, INTERNAL, None))
}

/// The exception that a handler of a signal raised during an operation. If the operation may have
/// been done, the exception says so in its context.
#[cold]
pub(crate) fn interrupted(py: Python<'_>, raised_by: PyErr, ended: Option<Error>) -> PyErr {
    if let Some(error) = ended.filter(Error::is_unknown) {
        let context = raised(py, error).into_value(py);
        // An exception that takes no context is raised as it is.
        let _ = raised_by.value(py).setattr(intern!(py, "__context__"), context);
    }
    raised_by
}

/// Makes the list of results of many operations. If all failed for the same reason, raises that
/// error; if some failed, raises a `BatchError` with all results.
pub(crate) fn many<'py, T>(
    py: Python<'py>,
    results: impl ExactSizeIterator<Item = Result<T, Error>>,
    mut convert: impl FnMut(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let count = results.len();
    let mut failures: Vec<Error> = Vec::new();
    let mut exceptions: Vec<Bound<'py, PyBaseException>> = Vec::new();
    let mut list = Vec::with_capacity(count);
    for result in results {
        list.push(match result {
            Ok(value) => convert(value)?,
            Err(error) => {
                let exception = raised(py, error).into_value(py).into_bound(py);
                failures.push(error);
                exceptions.push(exception.clone());
                exception.into_any()
            }
        });
    }
    let Some(first) = failures.first() else { return PyList::new(py, list) };
    if failures.len() == count && failures.iter().all(|error| error.code() == first.code()) {
        return Err(PyErr::from_value(exceptions.swap_remove(0).into_any()));
    }
    let message = format!(
        "{} of {count} operations failed; the attribute results has the outcome of each",
        failures.len()
    );
    let class = types(py)?.classes.batch_error.bind(py);
    Err(PyErr::from_value(class.call1((message, exceptions, list))?))
}
