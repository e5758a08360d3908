//! Processes that measurements start: nothing of them outlives this one.
//!
//! Who owns some ends them when it is dropped, which happens on errors too. A signal that asks this
//! process to end passes by all owners: so what is to be ended is also known here, and ended then.
//! Where this process is killed itself, it is up to the children: ours end when their input closes
//! (`--while-input`), and others are started through `setpriv --pdeathsig`, where there is that.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use thunderhead_runtime::os::on_end_asked;

/// Processes that can be ended, with what belongs to them.
pub(crate) trait Children: Send {
    /// Ends them and takes away what is left of them. May be called twice.
    fn end(&mut self);
}

static ALL: Mutex<Vec<Arc<Mutex<dyn Children>>>> = Mutex::new(Vec::new());

/// What shells say of a process that Ctrl-C ended.
const ENDED: i32 = 130;

pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on these end when this process is asked to end.
///
/// # Errors
/// When signals cannot be listened for.
pub(crate) fn watch(children: Arc<Mutex<dyn Children>>) -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = on_end_asked(|| {
            // Nobody starts anything any more: the locks are kept.
            let all = locked(&ALL);
            for children in all.iter() {
                std::mem::forget({
                    let mut children = locked(children);
                    children.end();
                    children
                });
            }
            std::process::exit(ENDED);
        });
    });
    outcome.context("listen for signals")?;
    locked(&ALL).push(children);
    Ok(())
}

/// They have been ended by who owns them.
pub(crate) fn forget<T: Children>(children: &Arc<Mutex<T>>) {
    let own = Arc::as_ptr(children).cast::<()>();
    locked(&ALL).retain(|it| !std::ptr::eq(Arc::as_ptr(it).cast::<()>(), own));
}

/// A port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}
