//! A descriptor that Node's event loop watches.
//!
//! libuv, the event loop of Node, can watch a descriptor itself. So a result wakes Node's thread
//! directly. The alternative, a thread that waits for the descriptor and rings a thread-safe
//! function, needs one more wake-up of a thread for each batch of results; `clients/node/README.md`
//! has the measurements. It is also unsafe for a thread to ring such a function after its
//! environment has ended, and a thread cannot know that.
//!
//! # Lifetime
//!
//! libuv has a pointer to a [`Watched`] from [`Watch::start`] until its `closed` callback. The
//! pointer owns one count of the `Rc`. Node's cleanup hook has the same pointer, without a count:
//! `closed` removes the hook before it gives the count back. A watch closes when it is dropped, or
//! when the environment ends, whichever comes first.
//!
//! Everything here runs on the thread of one environment.
#![allow(unsafe_code, reason = "the interfaces of Node and libuv are in C")]

use napi::bindgen_prelude::{Function, JsValue};
use napi::{Env, Error, Result, Status, sys};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Arc;

/// `UV_POLL` in `uv_handle_type`, and `UV_READABLE` in `uv_poll_event`.
const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;

/// A `uv_poll_t`, whose size only libuv knows.
type UvPoll = c_void;

// Node exports libuv to native parts, and keeps its interface stable within a major version.
unsafe extern "C" {
    fn uv_handle_size(kind: c_int) -> usize;
    fn uv_handle_set_data(handle: *mut UvPoll, data: *mut c_void);
    fn uv_handle_get_data(handle: *const UvPoll) -> *mut c_void;
    fn uv_poll_init(event_loop: *mut sys::uv_loop_s, handle: *mut UvPoll, fd: c_int) -> c_int;
    fn uv_poll_start(
        handle: *mut UvPoll,
        events: c_int,
        callback: extern "C" fn(*mut UvPoll, c_int, c_int),
    ) -> c_int;
    fn uv_close(handle: *mut UvPoll, callback: extern "C" fn(*mut UvPoll));
    fn uv_ref(handle: *mut UvPoll);
    fn uv_unref(handle: *mut UvPoll);
}

/// A descriptor that the event loop watches. Dropping it ends the watch.
pub(crate) struct Watch(Rc<Watched>);

struct Watched {
    env: sys::napi_env,
    /// The `uv_poll_t`, in memory of its own.
    handle: *mut UvPoll,
    layout: Layout,
    /// The function of JavaScript that is called.
    callback: Cell<sys::napi_ref>,
    hook: Cell<sys::napi_async_cleanup_hook_handle>,
    is_closing: Cell<bool>,
    /// Keeps the descriptor open until libuv has let go of it.
    _owner: Arc<dyn Any>,
}

impl Watch {
    /// Calls a function of JavaScript, without arguments, in each turn of the event loop in which
    /// the descriptor is readable. `owner` keeps the descriptor open. The watch keeps the event
    /// loop alive until [`Watch::set_ref`] says otherwise.
    pub(crate) fn start(
        env: &Env,
        fd: RawFd,
        owner: Arc<dyn Any>,
        callback: &Function<'_, (), ()>,
    ) -> Result<Watch> {
        let event_loop = env.get_uv_event_loop()?;
        // SAFETY: libuv takes any number here.
        let size = unsafe { uv_handle_size(UV_POLL) };
        let layout = Layout::from_size_align(size, align_of::<u128>())
            .map_err(|_| Error::new(Status::GenericFailure, "libuv has no polling handles"))?;
        // SAFETY: the size is not zero, because a handle has fields.
        let handle: *mut UvPoll = unsafe { alloc_zeroed(layout) }.cast();
        if handle.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the loop is that of this thread, and the handle has the size that libuv wants.
        let status = unsafe { uv_poll_init(event_loop, handle, fd) };
        if status != 0 {
            // SAFETY: libuv has not kept the handle, and the memory was allocated above.
            unsafe { dealloc(handle.cast(), layout) };
            return Err(uv_error("uv_poll_init", status));
        }
        let watched = Rc::new(Watched {
            env: env.raw(),
            handle,
            layout,
            callback: Cell::new(null_mut()),
            hook: Cell::new(null_mut()),
            is_closing: Cell::new(false),
            _owner: owner,
        });
        let data = Rc::into_raw(Rc::clone(&watched)).cast_mut().cast::<c_void>();
        // SAFETY: the handle is initialized, and `data` is valid until `closed`.
        unsafe { uv_handle_set_data(handle, data) };
        // From here on, dropping the watch closes the handle in the orderly way.
        let watch = Watch(watched);
        let (mut reference, mut hook) = (null_mut(), null_mut());
        // SAFETY: the environment and the function are those of the present call from JavaScript.
        let status = unsafe {
            sys::napi_create_reference(env.raw(), callback.value().value, 1, &mut reference)
        };
        napi_result(status)?;
        watch.0.callback.set(reference);
        // SAFETY: `data` is valid until `closed`, which removes the hook.
        let status = unsafe {
            sys::napi_add_async_cleanup_hook(env.raw(), Some(environment_ends), data, &mut hook)
        };
        napi_result(status)?;
        watch.0.hook.set(hook);
        // SAFETY: the handle is initialized.
        let status = unsafe { uv_poll_start(handle, UV_READABLE, readable) };
        if status == 0 { Ok(watch) } else { Err(uv_error("uv_poll_start", status)) }
    }

    /// Whether the watch alone keeps the event loop alive.
    pub(crate) fn set_ref(&self, is_ref: bool) {
        if self.0.is_closing.get() {
            return;
        }
        // SAFETY: the handle is initialized and not closed.
        unsafe { if is_ref { uv_ref(self.0.handle) } else { uv_unref(self.0.handle) } }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Watched {
    fn close(&self) {
        if !self.is_closing.replace(true) {
            // SAFETY: the handle is initialized, and it is closed only once.
            unsafe { uv_close(self.handle, closed) };
        }
    }

    /// Calls the function of JavaScript.
    fn call(&self) {
        let env = self.env;
        let (mut scope, mut function, mut global) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the environment is alive, because the watch is not closed. This thread is its
        // thread. Each call fails without effect if JavaScript cannot run any more.
        unsafe {
            if sys::napi_open_handle_scope(env, &mut scope) != sys::Status::napi_ok {
                return;
            }
            let mut status = sys::napi_get_reference_value(env, self.callback.get(), &mut function);
            if status == sys::Status::napi_ok {
                status = sys::napi_get_global(env, &mut global);
            }
            if status == sys::Status::napi_ok {
                // Microtasks and ticks run when this call returns.
                status = sys::napi_make_callback(
                    env,
                    null_mut(),
                    global,
                    function,
                    0,
                    null(),
                    null_mut(),
                );
            }
            if status == sys::Status::napi_pending_exception {
                // The function throws only if the client has a bug: report it like every
                // exception that nothing catches.
                let mut exception = null_mut();
                if sys::napi_get_and_clear_last_exception(env, &mut exception)
                    == sys::Status::napi_ok
                {
                    sys::napi_fatal_exception(env, exception);
                }
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: libuv gave the handle back in `closed`, which drops the last count but those of
        // the watch. The memory was allocated with this layout.
        unsafe { dealloc(self.handle.cast(), self.layout) };
    }
}

/// libuv calls it when the descriptor is readable.
extern "C" fn readable(handle: *mut UvPoll, _status: c_int, _events: c_int) {
    // SAFETY: libuv calls it only until the handle is closed. Until then the data is a `Watched`
    // with a count of its own. One more count keeps it valid if the function drops the watch.
    let watched = unsafe {
        let data = uv_handle_get_data(handle).cast::<Watched>().cast_const();
        Rc::increment_strong_count(data);
        Rc::from_raw(data)
    };
    if !watched.is_closing.get() {
        watched.call();
    }
}

/// Node calls it when the environment ends.
extern "C" fn environment_ends(_: sys::napi_async_cleanup_hook_handle, data: *mut c_void) {
    // SAFETY: `closed` removes the hook before it gives the data's count back.
    let watched = unsafe { &*data.cast::<Watched>().cast_const() };
    watched.close();
}

/// libuv calls it when it has let go of the handle.
extern "C" fn closed(handle: *mut UvPoll) {
    // SAFETY: this is the count that `start` gave to libuv, and libuv calls this once.
    let watched =
        unsafe { Rc::from_raw(uv_handle_get_data(handle).cast::<Watched>().cast_const()) };
    // SAFETY: the hook kept the environment alive until here. Both were made once, or are null.
    unsafe {
        if !watched.callback.get().is_null() {
            sys::napi_delete_reference(watched.env, watched.callback.get());
        }
        if !watched.hook.get().is_null() {
            sys::napi_remove_async_cleanup_hook(watched.hook.get());
        }
    }
}

fn napi_result(status: sys::napi_status) -> Result<()> {
    if status == sys::Status::napi_ok { Ok(()) } else { Err(Error::from_status(status.into())) }
}

fn uv_error(function: &str, status: c_int) -> Error {
    Error::new(Status::GenericFailure, format!("{function} failed with {status}"))
}
