//! Results that belong to the caller until they are freed.
//!
//! The caller sees an array of pointers to results, and not an array of results: so a result can
//! grow in a later release although the program steps through the array.

use crate::abi::{th_batch, th_result};
use crate::client::slice;
use crate::entry::entry;
use crate::failure::Failure;
use crate::status::{TH_DONE, TH_NO_SUCH_TABLE, TH_NOT_DONE, TH_OK, th_status};
use std::ffi::CString;
use std::mem::size_of;
use thunderhead_client::{Answer, Error, Number, Reply, Status};

/// The result of one operation.
pub(crate) type Outcome = Result<Effect, Failure>;

/// The effect of one operation.
pub(crate) enum Effect {
    /// An answer to an operation on an object.
    Answer(Answer),
    /// The id of a table that was created or found.
    Table(u64),
    /// There is nothing more to say.
    Done,
}

impl From<Answer> for Effect {
    fn from(answer: Answer) -> Effect {
        Effect::Answer(answer)
    }
}

/// Turns the result of an operation on an object into an outcome.
pub(crate) fn outcome(result: Result<Answer, Error>) -> Outcome {
    match result {
        Ok(Answer::Page { .. }) => Err(Error::Incomprehensible.into()),
        Ok(answer) => Ok(answer.into()),
        Err(error) => Err(error.into()),
    }
}

/// Turns the reply to an operation on a table into an outcome.
pub(crate) fn reply_outcome(reply: Result<Reply, Error>) -> Outcome {
    match reply? {
        Reply::Done => Ok(Effect::Done),
        Reply::Table(table) => Ok(Effect::Table(table.id.0)),
        // The request named one table.
        Reply::Map(map) => match map.tables.as_slice() {
            [] => Err(Failure::refusal(TH_NO_SUCH_TABLE, Status::NoSuchTable.text())),
            [table] => Ok(Effect::Table(table.id.0)),
            _ => Err(Error::Incomprehensible.into()),
        },
        _ => Err(Error::Incomprehensible.into()),
    }
}

/// A batch with everything that its results point to.
#[repr(C)]
pub(crate) struct OwnedBatch {
    /// The part that the caller sees. It comes first, so a pointer to it is one to the whole.
    public: th_batch,
    pointers: Vec<*const th_result>,
    results: Vec<th_result>,
    values: Vec<Vec<u8>>,
    texts: Vec<CString>,
}

impl OwnedBatch {
    /// Makes a batch of results with their tags.
    pub(crate) fn of(outcomes: Vec<(u64, Outcome)>) -> Box<OwnedBatch> {
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        let mut failed = 0;
        let results: Vec<th_result> = outcomes
            .into_iter()
            .map(|(tag, outcome)| match outcome {
                Ok(effect) => done(tag, effect, &mut values),
                Err(failure) => {
                    failed += 1;
                    refused(tag, failure, &mut texts)
                }
            })
            .collect();
        let pointers: Vec<_> = results.iter().map(std::ptr::from_ref).collect();
        let (size, count) = (size_of::<th_batch>(), results.len());
        let public = th_batch { size, count, failed, results: pointers.as_ptr() };
        Box::new(OwnedBatch { public, pointers, results, values, texts })
    }

    /// Hands it over to the caller.
    pub(crate) fn into_raw(self: Box<OwnedBatch>) -> *mut th_batch {
        debug_assert_eq!(self.pointers.len(), self.results.len());
        debug_assert!(self.values.len() + self.texts.len() <= self.results.len());
        Box::into_raw(self).cast()
    }
}

fn blank(tag: u64) -> th_result {
    th_result {
        size: size_of::<th_result>(),
        tag,
        status: TH_OK,
        outcome: TH_DONE,
        version: 0,
        value: slice(&[]),
        integer: 0,
        real: 0.0,
        table: 0,
        text: c"".as_ptr(),
        exists: false,
        reserved: [0; 7],
        ttl_ms: 0,
    }
}

fn done(tag: u64, effect: Effect, values: &mut Vec<Vec<u8>>) -> th_result {
    let blank = blank(tag);
    match effect {
        Effect::Done | Effect::Answer(Answer::Absent | Answer::Page { .. }) => blank,
        Effect::Table(table) => th_result { table, ..blank },
        Effect::Answer(Answer::Written(version)) => th_result { version: version.0, ..blank },
        Effect::Answer(Answer::Deleted(version)) => {
            th_result { version: version.0, exists: true, ..blank }
        }
        Effect::Answer(Answer::Found { version, value }) => {
            // The bytes stay where they are when the vector moves.
            let bytes = slice(&value);
            values.push(value);
            th_result { version: version.0, exists: true, value: bytes, ..blank }
        }
        Effect::Answer(Answer::Lives { version, time_to_live }) => {
            let ttl_ms = time_to_live.code();
            th_result { version: version.0, exists: true, ttl_ms, ..blank }
        }
        Effect::Answer(Answer::Sum { version, number }) => {
            let version = version.0;
            match number {
                Number::Integer(integer) => th_result { version, integer, ..blank },
                Number::Float(real) => th_result { version, real, ..blank },
            }
        }
    }
}

fn refused(tag: u64, failure: Failure, texts: &mut Vec<CString>) -> th_result {
    let Failure { status, outcome, version, text } = failure;
    debug_assert!(outcome >= TH_NOT_DONE, "it failed");
    let text = CString::new(text.into_owned()).unwrap_or_default();
    let at = text.as_ptr();
    texts.push(text);
    th_result { status, outcome, version, text: at, ..blank(tag) }
}

/// Releases a batch with everything in it. `NULL` is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_batch_free(batch: *mut th_batch) -> th_status {
    let work = || {
        if !batch.is_null() {
            // SAFETY: the library made it with `OwnedBatch::into_raw`, and it has not been freed
            // before: that is a rule of the header.
            drop(unsafe { Box::from_raw(batch.cast::<OwnedBatch>()) });
        }
        Ok(TH_OK)
    };
    // SAFETY: there is no error to fill.
    unsafe { entry(std::ptr::null_mut(), work) }
}
