//! Interrupts of Java's threads.

use jni::{JavaVM, jni_sig, jni_str};
use std::time::Duration;

/// How often a thread that waits looks whether it was interrupted. An interrupt must end its call
/// within 100 ms.
pub(crate) const EVERY: Duration = Duration::from_millis(40);

/// Whether this thread was interrupted. The flag stays set.
pub(crate) fn is_wanted() -> bool {
    let Ok(machine) = JavaVM::singleton() else { return false };
    machine
        .attach_current_thread(|env| {
            let class = env.find_class(jni_str!("java/lang/Thread"))?;
            let signature = jni_sig!(() -> java.lang.Thread);
            let thread =
                env.call_static_method(class, jni_str!("currentThread"), signature, &[])?.l()?;
            env.call_method(thread, jni_str!("isInterrupted"), jni_sig!(() -> bool), &[])?.z()
        })
        .unwrap_or(false)
}
