//! The reason why a call fails, on its way to the caller.

use crate::abi::{TH_ERROR_TEXT_BYTES, th_error};
use crate::sized::{self, Output};
use crate::status::{
    TH_CLOSED, TH_DONE, TH_FORKED, TH_INTERNAL, TH_NOT_DONE, TH_OK, TH_UNKNOWN, th_status,
};
use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::{offset_of, size_of};
use thunderhead_client::Error;

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: th_status,
    pub(crate) outcome: i32,
    pub(crate) version: u64,
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    /// The failure of a call that was refused before anything was done.
    #[cold]
    pub(crate) fn refusal(status: th_status, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, outcome: TH_NOT_DONE, version: 0, text: text.into() }
    }

    /// The failure of a call on a closed handle.
    pub(crate) fn closed() -> Failure {
        Error::Closed.into()
    }

    /// The failure of a call in which the library panicked.
    #[cold]
    pub(crate) fn internal() -> Failure {
        let text = "the client library has a bug; the operation may have been done or not".into();
        Failure { status: TH_INTERNAL, outcome: TH_UNKNOWN, version: 0, text }
    }

    /// The failure of a call on a handle in which an earlier call panicked.
    #[cold]
    pub(crate) fn broken() -> Failure {
        Failure::refusal(
            TH_INTERNAL,
            "the client library failed in an earlier call; open a new one",
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let version = match error {
            Error::ConditionFailed { version } | Error::NotANumber { version } => version.0,
            _ => 0,
        };
        let outcome = if error.is_unknown() { TH_UNKNOWN } else { TH_NOT_DONE };
        let text = match error {
            Error::Closed => "the handle is closed; nothing was done".into(),
            error => Cow::Owned(error.to_string()),
        };
        debug_assert!(error != Error::Closed || error.code() == TH_CLOSED as u16);
        debug_assert!(error != Error::Forked || error.code() == TH_FORKED as u16);
        Failure { status: error.code().into(), outcome, version, text }
    }
}

/// The caller's error, if there is one.
pub(crate) struct Report<'a>(Option<Output<'a, th_error>>);

impl Report<'_> {
    /// Checks the caller's error.
    ///
    /// # Safety
    /// As for [`sized::output`].
    #[inline]
    pub(crate) unsafe fn to<'a>(error: *mut th_error) -> Result<Report<'a>, Failure> {
        if error.is_null() {
            return Ok(Report(None));
        }
        // SAFETY: as the caller vouches.
        unsafe { sized::output(error) }.map(|error| Report(Some(error)))
    }

    /// Says that the call succeeded.
    #[inline]
    pub(crate) fn done(self) {
        // The text is not cleared as a whole: that would cost more than the rest of a call.
        if let Some(mut error) = self.0 {
            error.clear(size_of::<usize>(), offset_of!(th_error, text) + 1);
            const { assert!(TH_OK == 0 && TH_DONE == 0, "zeros say that it is done") };
        }
    }

    /// Says why the call failed.
    #[cold]
    pub(crate) fn failed(self, failure: &Failure) {
        let Some(mut error) = self.0 else { return };
        let text = bounded(&failure.text);
        let Failure { status: code, outcome, version, .. } = *failure;
        error.fill(&th_error { size: 0, code, outcome, version, text });
        // The text of a shorter struct ends with a zero too.
        if error.known() < size_of::<th_error>() {
            error.clear(error.known() - 1, error.known());
        }
    }
}

/// Returns a text with its terminating zero. A long one is cut between two characters.
fn bounded(text: &str) -> [c_char; TH_ERROR_TEXT_BYTES] {
    let mut bounded = [0; TH_ERROR_TEXT_BYTES];
    let end = text.floor_char_boundary(TH_ERROR_TEXT_BYTES - 1);
    for (to, from) in bounded.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = c_char::from_ne_bytes([*from]);
    }
    bounded
}
