//! The end of a native function: a value, or an exception of Java.

use crate::memory::Region;
use crate::panics;
use jni::objects::JByteArray;
use jni::strings::JNIString;
use jni::sys::{jbyteArray, jint};
use jni::{Env, EnvUnowned, Outcome, jni_str};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thunderhead_bindings::Malformed;

/// The reason why a native function has no value.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An exception of Java is pending.
    Thrown,
    /// The virtual machine has no memory for the result, or it does not fit into an array.
    NoMemory,
    /// The buffer is shorter than its request.
    TooShort,
    /// The request is malformed.
    Malformed(Malformed),
    /// Waiting for a descriptor failed.
    System(std::io::Error),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Failure {
        Failure::Malformed(malformed)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Failure {
        match error {
            jni::errors::Error::JavaException => Failure::Thrown,
            _ => Failure::NoMemory,
        }
    }
}

/// The thread of Java that called.
pub(crate) struct Thread<'a, 'l>(&'a mut EnvUnowned<'l>);

impl<'l> Thread<'_, 'l> {
    /// Does work with the virtual machine.
    pub(crate) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Env<'l>) -> jni::errors::Result<T>,
    ) -> Result<T, Failure> {
        let outcome = self.0.with_env(|env| -> Result<T, Failure> {
            work(env).map_err(|error| {
                // Some functions report a pending exception as another error.
                if env.exception_check() { Failure::Thrown } else { error.into() }
            })
        });
        match outcome.into_outcome() {
            Outcome::Ok(value) => Ok(value),
            Outcome::Err(failure) => Err(failure),
            Outcome::Panic(payload) => std::panic::resume_unwind(payload),
        }
    }
}

/// Returns the value of `work`. If there is none or it panics, an exception is pending in Java, and
/// the returned value means nothing.
#[inline]
pub(crate) fn or_throw<'l, T: Nothing>(
    env: &mut EnvUnowned<'l>,
    work: impl FnOnce(&mut Thread<'_, 'l>) -> Result<T, Failure>,
) -> T {
    match catch_unwind(AssertUnwindSafe(|| work(&mut Thread(env)))) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            throw(env, &failure);
            T::NOTHING
        }
        Err(_) => {
            throw_internal(env, &format!("the client has a bug: {}", panics::last()));
            T::NOTHING
        }
    }
}

/// A value for a function that ends with an exception.
pub(crate) trait Nothing {
    const NOTHING: Self;
}

impl Nothing for () {
    const NOTHING: () = ();
}

impl Nothing for i64 {
    const NOTHING: i64 = 0;
}

impl Nothing for jbyteArray {
    const NOTHING: jbyteArray = std::ptr::null_mut();
}

#[cold]
fn throw(env: &mut EnvUnowned<'_>, failure: &Failure) {
    match failure {
        Failure::Thrown => {}
        Failure::NoMemory => {
            let text = "the result does not fit into the heap, or has more than 2 GiB";
            let _ = env
                .with_env(|env| -> jni::errors::Result<()> {
                    env.throw_new(jni_str!("java/lang/OutOfMemoryError"), JNIString::from(text))
                })
                .into_outcome();
        }
        Failure::TooShort => throw_internal(env, "the client has a bug: a buffer is too short"),
        Failure::Malformed(malformed) => throw_internal(env, &malformed.to_string()),
        Failure::System(error) => throw_internal(env, &format!("the client cannot wait: {error}")),
    }
}

#[cold]
fn throw_internal(env: &mut EnvUnowned<'_>, text: &str) {
    let _ = env
        .with_env(|env| -> jni::errors::Result<()> {
            env.throw_new(jni_str!("dev/thunderhead/InternalException"), JNIString::from(text))
        })
        .into_outcome();
}

/// Copies a result into the caller's buffer and returns null. A result that does not fit there is
/// returned as an array.
pub(crate) fn deliver(
    thread: &mut Thread<'_, '_>,
    bytes: &[u8],
    region: &mut Region<'_>,
) -> Result<jbyteArray, Failure> {
    match region.get_mut(..bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            Ok(std::ptr::null_mut())
        }
        None => deliver_array(thread, bytes),
    }
}

/// Returns a result as an array.
pub(crate) fn deliver_array(
    thread: &mut Thread<'_, '_>,
    bytes: &[u8],
) -> Result<jbyteArray, Failure> {
    if jint::try_from(bytes.len()).is_err() {
        return Err(Failure::NoMemory);
    }
    let array = thread.with(|env| env.byte_array_from_slice(bytes))?;
    Ok(array.into_raw().cast())
}

/// Copies the first bytes of an array.
pub(crate) fn copy(
    thread: &mut Thread<'_, '_>,
    array: &JByteArray<'_>,
    length: jint,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = thread.with(|env| env.convert_byte_array(array))?;
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    Ok(bytes)
}
