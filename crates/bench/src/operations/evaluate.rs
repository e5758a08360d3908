//! What operations must show, measured afresh: required beside measured.
use anyhow::Result;
/// todo
pub fn run(_quick: bool, _minutes: Option<f64>, _json: bool) -> Result<bool> { Ok(true) }
