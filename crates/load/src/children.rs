//! Processes that measurements start. They all end with this process.
//!
//! The owner of child processes ends them when it is dropped, also on errors. A signal that asks
//! this process to end bypasses all owners, so the children are also registered here, and ended on
//! such a signal. If this process is killed with SIGKILL, the children must notice: our binaries
//! end when their input closes (`--while-input`), and other programs are started through `setpriv
//! --pdeathsig`, if it is installed.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use thunderhead_runtime::os::on_end_asked;

/// Processes that can be ended, with their files.
pub trait Children: Send {
    /// Ends them and removes their files. May be called twice.
    fn end(&mut self);
}

static ALL: Mutex<Vec<Arc<Mutex<dyn Children>>>> = Mutex::new(Vec::new());

/// The exit code that shells report for a process ended by Ctrl-C.
const ENDED: i32 = 130;

/// Locks a mutex, also if a thread panicked while it held the lock.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers children that end when this process is asked to end.
///
/// # Errors
/// When the signals cannot be caught.
pub fn watch(children: Arc<Mutex<dyn Children>>) -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = on_end_asked(|| {
            // The locks are kept, so that no thread can start another process.
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

/// Removes children that their owner has ended.
pub fn forget<T: Children>(children: &Arc<Mutex<T>>) {
    let own = Arc::as_ptr(children).cast::<()>();
    locked(&ALL).retain(|it| !std::ptr::eq(Arc::as_ptr(it).cast::<()>(), own));
}

/// Returns an address that is free now and that stays so while its owner restarts: its host is this
/// process's own, and no connection of another process begins there.
pub fn own_address() -> Result<SocketAddr> {
    let id = std::process::id();
    let [_, high, middle, low] = id.to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let listener = TcpListener::bind((host, 0)).context("find a free address")?;
    Ok(listener.local_addr()?)
}

/// Returns a port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}
