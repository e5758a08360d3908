//! Results of the core as objects of Python. `thunderhead/_values.py` has their classes.

use crate::errors::{Classes, many};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use thunderhead_client::control::TableInfo;
use thunderhead_client::{Answer, Error, Number, Object, Results, TimeToLive, Version};

/// The classes of Python that this module makes objects of.
pub(crate) struct Types {
    pub(crate) classes: Classes,
    /// `tuple.__new__`: makes a named tuple without a call of Python's code.
    tuple_new: Py<PyAny>,
    value: Py<PyAny>,
    entry: Py<PyAny>,
    sum: Py<PyAny>,
    table_info: Py<PyAny>,
    tablet: Py<PyAny>,
}

static TYPES: PyOnceLock<Types> = PyOnceLock::new();

/// Loads the classes. Called once, at the import.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    types(py).map(drop)
}

#[inline]
pub(crate) fn types(py: Python<'_>) -> PyResult<&'static Types> {
    TYPES.get_or_try_init(py, || {
        let module = py.import("thunderhead._values")?;
        Ok(Types {
            classes: Classes::load(py)?,
            tuple_new: py.get_type::<PyTuple>().getattr("__new__")?.unbind(),
            value: module.getattr("Value")?.unbind(),
            entry: module.getattr("Entry")?.unbind(),
            sum: module.getattr("Sum")?.unbind(),
            table_info: module.getattr("TableInfo")?.unbind(),
            tablet: module.getattr("Tablet")?.unbind(),
        })
    })
}

/// Makes a `Value`, or `None` for an object that does not exist.
#[inline]
pub(crate) fn value<'py>(
    py: Python<'py>,
    found: Option<(Version, &[u8])>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some((version, value)) = found else { return Ok(py.None().into_bound(py)) };
    let Types { tuple_new, value: class, .. } = types(py)?;
    tuple_new.bind(py).call1((class.bind(py), (PyBytes::new(py, value), version.0)))
}

/// Makes an `Entry`.
pub(crate) fn entry<'py>(py: Python<'py>, object: &Object) -> PyResult<Bound<'py, PyAny>> {
    let Types { tuple_new, entry: class, .. } = types(py)?;
    let (key, value) = (PyBytes::new(py, &object.key), PyBytes::new(py, &object.value));
    tuple_new.bind(py).call1((class.bind(py), (key, value, object.version.0)))
}

/// Makes a version, or `None` for an object that did not exist.
pub(crate) fn version(py: Python<'_>, version: Option<Version>) -> PyResult<Bound<'_, PyAny>> {
    match version {
        Some(version) => Ok(version.0.into_pyobject(py)?.into_any()),
        None => Ok(py.None().into_bound(py)),
    }
}

/// Makes a `Sum`.
pub(crate) fn sum(
    py: Python<'_>,
    (version, number): (Version, Number),
) -> PyResult<Bound<'_, PyAny>> {
    let Types { tuple_new, sum: class, .. } = types(py)?;
    let number = match number {
        Number::Integer(number) => number.into_pyobject(py)?.into_any(),
        Number::Float(number) => number.into_pyobject(py)?.into_any(),
    };
    tuple_new.bind(py).call1((class.bind(py), (number, version.0)))
}

/// Makes a `TableInfo`.
pub(crate) fn table_info<'py>(py: Python<'py>, table: &TableInfo) -> PyResult<Bound<'py, PyAny>> {
    let Types { table_info, tablet, .. } = types(py)?;
    let tablets = table.tablets.iter().map(|it| {
        let address = it.address.map(|address| address.to_string());
        tablet.bind(py).call1((it.first.0, it.last.0, it.master.0, address))
    });
    let tablets = PyTuple::new(py, tablets.collect::<PyResult<Vec<_>>>()?)?;
    table_info.bind(py).call1((table.id.0, &table.name, tablets))
}

/// Takes the answer to a read.
pub(crate) fn found(answer: Answer) -> Result<Option<(Version, Vec<u8>)>, Error> {
    match answer {
        Answer::Found { version, value } => Ok(Some((version, value))),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

/// Takes the answer to a write or a delete: the version, or `None` for an object that did not
/// exist.
pub(crate) fn changed(answer: Answer) -> Result<Option<Version>, Error> {
    match answer {
        Answer::Written(version) | Answer::Deleted(version) => Ok(Some(version)),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

/// The time to live in seconds: infinity for ever.
pub(crate) fn seconds(time: TimeToLive) -> f64 {
    time.duration().map_or(f64::INFINITY, |time| time.as_secs_f64())
}

/// Takes the answer to a question for the time to live.
pub(crate) fn lives(answer: Answer) -> Result<Option<f64>, Error> {
    match answer {
        Answer::Lives { time_to_live, .. } => Ok(Some(seconds(time_to_live))),
        Answer::Absent => Ok(None),
        _ => Err(Error::Incomprehensible),
    }
}

/// Takes the answer to an increment.
pub(crate) fn counted(answer: Answer) -> Result<(Version, Number), Error> {
    match answer {
        Answer::Sum { version, number } => Ok((version, number)),
        _ => Err(Error::Incomprehensible),
    }
}

/// Makes the list of the results of reads.
pub(crate) fn values(py: Python<'_>, results: Results) -> PyResult<Bound<'_, PyList>> {
    many(py, results.into_iter().map(|result| result.and_then(found)), |found| {
        value(py, found.as_ref().map(|(version, value)| (*version, value.as_slice())))
    })
}

/// Makes the list of the results of writes or deletes.
pub(crate) fn versions(py: Python<'_>, results: Results) -> PyResult<Bound<'_, PyList>> {
    many(py, results.into_iter().map(|result| result.and_then(changed)), |it| version(py, it))
}

/// Makes the list of tables.
pub(crate) fn table_infos<'py>(
    py: Python<'py>,
    tables: &[TableInfo],
) -> PyResult<Bound<'py, PyList>> {
    let tables = tables.iter().map(|table| table_info(py, table));
    PyList::new(py, tables.collect::<PyResult<Vec<_>>>()?)
}
