//! The same operations in Rust, for `bench.py`: the cost of a call is the difference.

use rustix::event::{PollFd, PollFlags, poll};
use std::time::Instant;
use thunderhead_client::{
    Action, Client, CompletionQueue, Condition, Error, Operation, Request, Submission, TableId,
};

/// Does operations on a client, and returns the seconds that one took.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn operations(
    core: &mut Client,
    kind: &str,
    table: TableId,
    key: &[u8],
    keys: &[String],
    value: &[u8],
    count: u32,
) -> Result<f64, Error> {
    let began = Instant::now();
    match kind {
        "get" => {
            for _ in 0..count {
                core.read_with(table, key, |found| found.map(|(version, it)| (version, it.len())))?;
            }
        }
        "put" => {
            for _ in 0..count {
                core.write(table, key, value, Condition::Always)?;
            }
        }
        _ => {
            for _ in 0..count as usize / keys.len().max(1) {
                for result in core.read_many(table, keys) {
                    result?;
                }
            }
        }
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(count))
}

/// Reads through a queue, and returns the seconds that one read took.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn reads(
    core: &CompletionQueue,
    table: TableId,
    key: &str,
    width: usize,
    count: u32,
) -> Result<f64, Error> {
    let began = Instant::now();
    let submission = || {
        let key = key.as_bytes().to_vec();
        let operation =
            Operation { table, key, condition: Condition::Always, action: Action::Read };
        Submission { tag: 0, request: Request::Operations(vec![operation]), deadline: None }
    };
    for _ in 0..count as usize / width.max(1) {
        core.submit((0..width).map(|_| submission()).collect())?;
        let mut ended = 0;
        while ended < width {
            let descriptor = core.descriptor();
            // An interrupted wait is repeated.
            let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
            ended += core.take(usize::MAX).len();
        }
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(count))
}
