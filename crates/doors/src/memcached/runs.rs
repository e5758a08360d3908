//! Runs: requests `mg` of one connection that follow one another and have the same flags.
//!
//! A client that wants many objects sends many of them at a time. The store reads the objects of a
//! run together, so its cache misses overlap, and the flags are understood once. The answers are
//! those of the same requests one by one. A test compares both.

use super::reply::{self, Marks};
use super::store::{Objects, described};
use super::{KEY_BYTES_MAX, Meta};
use std::borrow::Cow;

/// The most requests of a run. Other clients wait meanwhile.
const REQUESTS_MAX: usize = 64;

/// Fewer requests are executed one by one.
const REQUESTS_MIN: usize = 4;

/// Bytes of answers after which a run ends.
const ANSWER_BYTES: usize = 256 << 10;

/// The flags with which a request only reads an object and describes it.
const READING: &[u8] = b"vqkfstclhO";

const BEGIN: &[u8] = b"mg ";

/// A run.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    meta: Meta<'a>,
    keys: [&'a [u8]; REQUESTS_MAX],
    /// The places behind the requests.
    ends: [usize; REQUESTS_MAX],
    count: usize,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunDone {
    /// Bytes of the requests that were done.
    pub bytes: usize,
    /// Requests that found an object.
    pub found: u64,
    /// Requests that found none.
    pub missed: u64,
}

impl<'a> Run<'a> {
    /// Returns the run at the beginning of some bytes, which begin with the request `meta`.
    #[must_use]
    pub fn of(meta: &Meta<'a>, bytes: &'a [u8]) -> Option<Run<'a>> {
        if !meta.words.into_iter().all(|word| READING.contains(&word[0])) {
            return None;
        }
        let (keys, ends) = ([&[][..]; REQUESTS_MAX], [0; REQUESTS_MAX]);
        let mut run = Run { meta: meta.clone(), keys, ends, count: 0 };
        let (mut at, mut first_flags) = (0, None);
        while run.count < REQUESTS_MAX
            && let Some((key, flags, end)) = bytes.get(at..).and_then(request)
            && *first_flags.get_or_insert(flags) == flags
        {
            at += end;
            run.keys[run.count] = key;
            run.ends[run.count] = at;
            run.count += 1;
        }
        (run.count >= REQUESTS_MIN).then_some(run)
    }

    /// Executes the requests, up to the first request that changes its object. If the store could
    /// not read an object, it keeps the reason, and the answers must not be sent.
    pub fn execute(self, store: &mut impl Objects, out: &mut Vec<u8>) -> RunDone {
        let now = store.now();
        let before = out.len();
        let mut done = RunDone::default();
        let mut count = 0;
        let Run { mut meta, keys, ends, count: length } = self;
        store.find_each(&keys[..length], true, &mut |object| {
            if out.len() - before > ANSWER_BYTES {
                return false;
            }
            match object {
                // Such an object is changed by the access.
                Some(object) if object.attributes.is_stale || object.attributes.is_awaited => {
                    return false;
                }
                Some(object) => {
                    meta.key = Cow::Borrowed(keys[count]);
                    let shown = Some((described(&object, now), reply::OF_GET));
                    let value = meta.wants_value.then_some(object.value);
                    reply::meta(out, *b"HD", &meta, shown, Marks::default(), value);
                    done.found += 1;
                }
                None if meta.is_quiet => done.missed += 1,
                None => {
                    meta.key = Cow::Borrowed(keys[count]);
                    reply::meta(out, *b"EN", &meta, None, Marks::default(), None);
                    done.missed += 1;
                }
            }
            done.bytes = ends[count];
            count += 1;
            true
        });
        done
    }
}

/// Returns the key, the flags and the number of bytes of the first request, if it is an `mg`
/// without anything unusual.
#[inline]
fn request(bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let rest = bytes.strip_prefix(BEGIN)?;
    let end = memchr::memchr(b'\n', rest)?;
    let line = &rest[..end];
    let key_end = memchr::memchr(b' ', line)?;
    let (key, flags) = line.split_at(key_end);
    let is_usual = !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains(&0);
    is_usual.then_some((key, flags, BEGIN.len() + end + 1))
}
