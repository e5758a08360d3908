//! Arguments of the calls that change tables.

use crate::arguments::{time_to_live, unsigned};
use crate::errors::invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use thunderhead_client::MasterId;
use thunderhead_client::control::{Policy, TableOptions};

/// Returns the number of shards over which a new table is spread: 1 by default.
pub(crate) fn span(py: Python<'_>, from: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    let Some(from) = from else { return Ok(1) };
    let span = u32::try_from(unsigned("span", from)?).ok().filter(|span| *span > 0);
    span.ok_or_else(|| invalid(py, "span must be at least 1: the number of shards of the table"))
}

/// Returns the options of a new table.
pub(crate) fn table_options(
    py: Python<'_>,
    ttl: Option<&Bound<'_, PyAny>>,
    policy: Option<&Bound<'_, PyAny>>,
    (max_bytes, reserved_bytes): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
) -> PyResult<TableOptions> {
    let name = match policy {
        None => "durable".to_owned(),
        Some(policy) => policy
            .cast::<PyString>()
            .map_err(|_| PyTypeError::new_err("policy must be \"durable\" or \"cache\""))?
            .to_string(),
    };
    let policy = [Policy::Durable, Policy::Cache].into_iter().find(|it| it.name() == name);
    let wrong = || invalid(py, "policy must be \"durable\" or \"cache\"");
    let bytes = |name, from: Option<&Bound<'_, PyAny>>| from.map(|from| unsigned(name, from));
    let max_bytes = bytes("max_bytes", max_bytes).transpose()?;
    if max_bytes == Some(0) {
        return Err(invalid(py, "max_bytes must be at least 1; leave it out for no limit"));
    }
    let options = TableOptions {
        policy: policy.ok_or_else(wrong)?,
        max_bytes: max_bytes.unwrap_or(0),
        reserved_bytes: bytes("reserved_bytes", reserved_bytes).transpose()?.unwrap_or(0),
        ..TableOptions::DEFAULT
    };
    match time_to_live(ttl)? {
        None => Ok(options),
        Some(time) => options.with_time_to_live(time).map_err(|it| invalid(py, it.text())),
    }
}

/// Returns the number of a master.
pub(crate) fn master(from: &Bound<'_, PyAny>) -> PyResult<MasterId> {
    Ok(MasterId(unsigned("to", from)?))
}
