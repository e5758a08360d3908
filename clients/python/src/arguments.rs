//! Arguments of Python's calls as values of the core. A wrong type raises `TypeError`, a wrong
//! value raises `thunderhead.InvalidArgument`.

use crate::errors::invalid;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyMemoryView, PyString, PyTuple,
};
use std::time::Duration;
use thunderhead_client::{Action, Condition, Number, Operation, TableId, TimeToLive, Version};

/// The longest deadline: a year, as in URLs. A longer one is more likely a mistake of units.
const DEADLINE_MAX: f64 = 366.0 * 24.0 * 3600.0;

/// The longest key and value that are sent. The servers' limits are lower: they refuse with the
/// right error. Longer ones would cost memory first.
const BYTES_MAX: usize = 8 << 20;

/// The bytes of a key or a value. Those of `bytes` and `str` never change, so they are borrowed.
pub(crate) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Copied(Bound<'a, PyBytes>),
}

impl<'a> Bytes<'a> {
    /// Returns the bytes of an argument with this name.
    #[inline]
    pub(crate) fn of<'py: 'a>(name: &str, from: &'a Bound<'py, PyAny>) -> PyResult<Bytes<'a>> {
        let bytes = if let Ok(bytes) = from.cast::<PyBytes>() {
            Bytes::Borrowed(bytes.as_bytes())
        } else if let Ok(text) = from.cast::<PyString>() {
            Bytes::Borrowed(utf8(name, text)?.as_bytes())
        } else {
            Bytes::Copied(copied(name, from)?)
        };
        if bytes.as_slice().len() > BYTES_MAX {
            return Err(too_long(name, from.py()));
        }
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Copied(bytes) => bytes.as_bytes(),
        }
    }
}

/// Returns the UTF-8 of a string. A lone surrogate has none.
pub(crate) fn utf8<'a>(name: &str, text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|cause| {
        let py = text.py();
        let error = invalid(
            py,
            format!(
                "the {name} is a str that has no UTF-8, because of a lone surrogate; encode it \
                 yourself and pass bytes"
            ),
        );
        error.set_cause(py, Some(cause));
        error
    })
}

#[cold]
fn too_long(name: &str, py: Python<'_>) -> PyErr {
    let limit = if name == "value" { "1 MiB" } else { "64 KiB" };
    invalid(py, format!("the {name} is too long: at most {limit} are allowed; split it"))
}

/// Copies the bytes of a buffer: another thread could change them while they are sent.
fn copied<'py>(name: &str, from: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = from.py();
    if let Ok(bytes) = from.cast::<PyByteArray>() {
        return Ok(PyBytes::new(py, &bytes.to_vec()));
    }
    let view = match from.cast::<PyMemoryView>() {
        Ok(view) => view.clone(),
        Err(_) => PyMemoryView::from(from).map_err(|_| wrong_type(name, from))?,
    };
    let bytes = view.call_method0(intern!(py, "tobytes")).map_err(|cause| {
        let error = invalid(py, format!("the {name} is a memoryview that cannot be read: {cause}"));
        error.set_cause(py, Some(cause));
        error
    })?;
    Ok(bytes.cast_into()?)
}

#[cold]
fn wrong_type(name: &str, from: &Bound<'_, PyAny>) -> PyErr {
    let class = class_of(from);
    let hint = match class.as_str() {
        "int" | "float" if name == "value" => "; use put_number() for numbers",
        "int" | "float" => "; use str(key)",
        "NoneType" => "",
        _ => "; encode it first",
    };
    PyTypeError::new_err(format!(
        "the {name} must be str, bytes, bytearray or memoryview, not {class}{hint}"
    ))
}

fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

/// Returns a table's name.
pub(crate) fn table_name<'a>(from: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let text = from.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!("the table's name must be str, not {}", class_of(from)))
    })?;
    utf8("table's name", text)
}

/// Returns a deadline: a number of seconds, or a `timedelta`. `None` stands for the default.
#[inline]
pub(crate) fn deadline(from: Option<&Bound<'_, PyAny>>, default: Duration) -> PyResult<Duration> {
    match from {
        None => Ok(default),
        Some(from) => given_deadline(from),
    }
}

/// Returns the seconds of a number or of a `timedelta`. Errors show the `name` of the argument.
#[inline]
fn seconds(from: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    if from.is_instance_of::<PyFloat>() || is_integer(from) {
        return Ok(from.extract().unwrap_or(f64::INFINITY));
    }
    match from.call_method0(intern!(from.py(), "total_seconds")) {
        Ok(seconds) => seconds.extract(),
        Err(_) => Err(PyTypeError::new_err(format!(
            "the {name} must be a number of seconds or a timedelta, not {}",
            class_of(from)
        ))),
    }
}

pub(crate) fn given_deadline(from: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = from.py();
    let seconds = seconds(from, "deadline")?;
    // No number passes that is not one.
    if seconds > 0.0 && seconds <= DEADLINE_MAX {
        return Ok(Duration::from_secs_f64(seconds).max(Duration::from_nanos(1)));
    }
    Err(invalid(
        py,
        format!("the deadline of {seconds} seconds is wrong: it must be above 0, at most a year"),
    ))
}

/// Returns how long an object lives: a number of seconds, a `timedelta`, or `math.inf` for ever.
/// `None` stands for the table's default.
pub(crate) fn time_to_live(from: Option<&Bound<'_, PyAny>>) -> PyResult<Option<TimeToLive>> {
    from.map(given_time_to_live).transpose()
}

pub(crate) fn given_time_to_live(from: &Bound<'_, PyAny>) -> PyResult<TimeToLive> {
    let py = from.py();
    let seconds = seconds(from, "time to live")?;
    if seconds == f64::INFINITY {
        return Ok(TimeToLive::Never);
    }
    // No number passes that is not one.
    let duration = if seconds > 0.0 { Duration::try_from_secs_f64(seconds).ok() } else { None };
    let wrong = || {
        invalid(py, format!("the time to live of {seconds} seconds is wrong: it must be above 0"))
    };
    let duration = duration.ok_or_else(wrong)?.max(Duration::from_nanos(1));
    TimeToLive::after(duration).map_err(|_| wrong())
}

/// The action that writes bytes.
pub(crate) fn write(value: Vec<u8>, time: Option<TimeToLive>) -> Action {
    match time {
        None => Action::Write(value),
        Some(time) => Action::WriteExpiring(value, time),
    }
}

/// The action that writes a number.
pub(crate) fn write_number(number: Number, time: Option<TimeToLive>) -> Action {
    match time {
        None => Action::WriteNumber(number),
        Some(time) => Action::WriteNumberExpiring(number, time),
    }
}

/// Whether it is an `int`, and not a truth value.
fn is_integer(from: &Bound<'_, PyAny>) -> bool {
    from.is_instance_of::<PyInt>() && !from.is_instance_of::<PyBool>()
}

/// Returns the condition that keyword arguments name.
#[inline]
pub(crate) fn condition(
    py: Python<'_>,
    if_version: Option<&Bound<'_, PyAny>>,
    if_absent: bool,
    if_present: bool,
) -> PyResult<Condition> {
    match (if_version, if_absent, if_present) {
        (None, false, false) => Ok(Condition::Always),
        (Some(version), false, false) => {
            Ok(Condition::VersionIs(Version(unsigned("if_version", version)?)))
        }
        (None, true, false) => Ok(Condition::Absent),
        (None, false, true) => Ok(Condition::Present),
        _ => Err(invalid(py, "give only one of if_version, if_absent and if_present")),
    }
}

/// Returns a whole number from 0 to 2**64 - 1.
pub(crate) fn unsigned(name: &str, from: &Bound<'_, PyAny>) -> PyResult<u64> {
    if from.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{name} must be int, not bool")));
    }
    from.extract().map_err(|cause: PyErr| {
        let py = from.py();
        if cause.is_instance_of::<PyOverflowError>(py) {
            invalid(py, format!("{name} must be from 0 to 2**64 - 1"))
        } else {
            PyTypeError::new_err(format!("{name} must be int, not {}", class_of(from)))
        }
    })
}

/// Returns a number that servers can count with.
pub(crate) fn number(name: &str, from: &Bound<'_, PyAny>) -> PyResult<Number> {
    if let Ok(number) = from.cast::<PyFloat>() {
        return Ok(Number::Float(number.value()));
    }
    from.extract().map(Number::Integer).map_err(|cause: PyErr| {
        let py = from.py();
        if cause.is_instance_of::<PyOverflowError>(py) {
            invalid(py, format!("{name} must be from -2**63 to 2**63 - 1, or a float"))
        } else {
            PyTypeError::new_err(format!("{name} must be int or float, not {}", class_of(from)))
        }
    })
}

/// Refuses a single key where many are expected: a `str` would be taken for its letters.
fn refuse_single(name: &str, from: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_single = from.is_instance_of::<PyString>()
        || from.is_instance_of::<PyBytes>()
        || from.is_instance_of::<PyByteArray>()
        || from.is_instance_of::<PyMemoryView>();
    if is_single {
        let class = class_of(from);
        let text = format!("{name} must be an iterable, such as a list, not a single {class}");
        return Err(PyTypeError::new_err(text));
    }
    Ok(())
}

fn items<'py>(name: &str, from: &Bound<'py, PyAny>) -> PyResult<pyo3::Bound<'py, PyAny>> {
    refuse_single(name, from)?;
    // An iterator of its own, so that an error of the user's iterator is raised as it is.
    from.try_iter().map(Bound::into_any).map_err(|error| {
        if error.is_instance_of::<PyTypeError>(from.py()) && !has_iterator(from) {
            PyTypeError::new_err(format!("{name} must be an iterable, not {}", class_of(from)))
        } else {
            error
        }
    })
}

fn has_iterator(from: &Bound<'_, PyAny>) -> bool {
    from.hasattr(intern!(from.py(), "__iter__")).unwrap_or(false)
}

/// Returns an operation for each key.
pub(crate) fn for_keys(
    table: TableId,
    keys: &Bound<'_, PyAny>,
    action: &Action,
) -> PyResult<Vec<Operation>> {
    let mut operations = Vec::with_capacity(keys.len().unwrap_or(0));
    for key in items("keys", keys)?.try_iter()? {
        let key = key?;
        let key = Bytes::of("key", &key)?.as_slice().to_vec();
        let (condition, action) = (Condition::Always, action.clone());
        operations.push(Operation { table, key, condition, action });
    }
    Ok(operations)
}

/// Returns a write for each pair of a key and a value, or for each item of a mapping.
pub(crate) fn writes(
    table: TableId,
    from: &Bound<'_, PyAny>,
    time: Option<TimeToLive>,
) -> PyResult<Vec<Operation>> {
    let py = from.py();
    let pairs = if from.is_instance_of::<PyDict>() || from.hasattr(intern!(py, "items"))? {
        from.call_method0(intern!(py, "items"))?
    } else {
        from.clone()
    };
    let mut operations = Vec::with_capacity(from.len().unwrap_or(0));
    for pair in items("items", &pairs)?.try_iter()? {
        let pair = pair?;
        let (key, value) = match pair.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
            _ => {
                refuse_single("each item", &pair)?;
                pair.extract().map_err(|_| {
                    PyTypeError::new_err(format!(
                        "each item must be a pair of a key and a value, not {}",
                        class_of(&pair)
                    ))
                })?
            }
        };
        let key = Bytes::of("key", &key)?.as_slice().to_vec();
        let action = write(Bytes::of("value", &value)?.as_slice().to_vec(), time);
        operations.push(Operation { table, key, condition: Condition::Always, action });
    }
    Ok(operations)
}
