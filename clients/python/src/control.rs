//! Arguments of the calls that change tables.

use crate::arguments::unsigned;
use crate::errors::invalid;
use pyo3::prelude::*;
use thunderhead_client::MasterId;

/// Returns the number of shards over which a new table is spread: 1 by default.
pub(crate) fn span(py: Python<'_>, from: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    let Some(from) = from else { return Ok(1) };
    let span = u32::try_from(unsigned("span", from)?).ok().filter(|span| *span > 0);
    span.ok_or_else(|| invalid(py, "span must be at least 1: the number of shards of the table"))
}

/// Returns the number of a master.
pub(crate) fn master(from: &Bound<'_, PyAny>) -> PyResult<MasterId> {
    Ok(MasterId(unsigned("to", from)?))
}
