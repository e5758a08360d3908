//! A connection to a cluster, as JavaScript sees it.
//!
//! Two steps wait: connecting, which also resolves names, and closing, which ends the lease. Each
//! has a thread of its own. At its end it sets a flag, whose descriptor the event loop watches.
//! libuv's pool of threads would not do: it has four threads for all files and names of the
//! program, and an environment that ends would wait for them.

use crate::panics::{caught, latest, silence};
use crate::watch::Watch;
use napi::bindgen_prelude::{BufferSlice, Function};
use napi::{Env, Error, Result, Status};
use napi_derive::napi;
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thunderhead_bindings::{ByteQueue, SubmitError};
use thunderhead_client::{ClusterUrl, Options};
use thunderhead_runtime::os::EventFlag;

/// How many completions are encoded at once, which bounds the memory of their copies.
const TAKEN_MAX: usize = 128;

/// A buffer of more bytes is not kept for the next results.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The settings of a connection that the URL need not name.
#[napi(object)]
pub struct Settings {
    /// The deadline of each operation in milliseconds.
    pub deadline: Option<f64>,
    /// The way in which the driver waits for answers: always, adaptive or never.
    pub polling: Option<String>,
    /// The limit of operations in flight.
    pub in_flight: Option<u32>,
}

/// The reason why a connection failed.
#[napi(object)]
pub struct Failure {
    /// The code of the error; 0 if the URL or a setting is wrong.
    pub code: u32,
    /// The reason.
    pub text: String,
}

/// The state that the threads for connecting and closing share with JavaScript.
struct Control {
    /// Set when the state has changed.
    flag: EventFlag,
    state: Mutex<State>,
}

enum State {
    Connecting,
    /// The deadline of operations, in milliseconds, comes from the options.
    Connected(Arc<ByteQueue>, Option<Duration>),
    Failed(u16, String),
    Closed,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.flag.set();
    }
}

/// A connection to a cluster.
#[napi]
pub struct Connection {
    control: Arc<Control>,
    queue: RefCell<Option<Arc<ByteQueue>>>,
    watches: RefCell<Watches>,
    /// Results that JavaScript has not taken yet.
    results: RefCell<Vec<u8>>,
}

#[derive(Default)]
struct Watches {
    control: Option<Watch>,
    results: Option<Watch>,
}

#[napi]
impl Connection {
    /// Begins to connect. Calls `on_change` when that ends, and again when the connection is
    /// closed.
    #[napi(constructor)]
    pub fn new(
        env: Env,
        url: String,
        settings: Settings,
        on_change: Function<'_, (), ()>,
    ) -> Result<Connection> {
        silence();
        caught(|| {
            let flag = EventFlag::new().map_err(|error| failed(&error.to_string()))?;
            let control = Arc::new(Control { flag, state: Mutex::new(State::Connecting) });
            let fd = control.flag.descriptor().as_raw_fd();
            let owner: Arc<dyn std::any::Any> = Arc::<Control>::clone(&control);
            let watch = Watch::start(&env, fd, owner, &on_change)?;
            let shared = Arc::clone(&control);
            in_thread("thunderhead-connect", move || {
                let state = catch_unwind(AssertUnwindSafe(|| connect(&url, &settings)));
                shared.set(state.unwrap_or_else(|_| {
                    State::Failed(3, latest().unwrap_or_else(|| "a panic".to_owned()))
                }));
            })?;
            Ok(Connection {
                control,
                queue: RefCell::default(),
                watches: RefCell::new(Watches { control: Some(watch), results: None }),
                results: RefCell::default(),
            })
        })
    }

    /// Returns the state: connecting, connected, failed or closed. `on_change` calls it.
    #[napi]
    pub fn state(&self) -> &'static str {
        self.control.flag.clear();
        match &*self.control.lock() {
            State::Connecting => "connecting",
            State::Connected(..) => "connected",
            State::Failed(..) => "failed",
            State::Closed => "closed",
        }
    }

    /// Returns the reason if the connection failed.
    #[napi]
    pub fn failure(&self) -> Option<Failure> {
        match &*self.control.lock() {
            State::Failed(code, text) => {
                Some(Failure { code: u32::from(*code), text: text.clone() })
            }
            _ => None,
        }
    }

    /// Begins to call `on_results` while there are results to take. Returns the deadline of
    /// operations in milliseconds.
    #[napi]
    pub fn start(&self, env: Env, on_results: Function<'_, (), ()>) -> Result<f64> {
        caught(|| {
            let (queue, deadline) = match &*self.control.lock() {
                State::Connected(queue, deadline) => (Arc::clone(queue), *deadline),
                _ => return Err(failed("the connection is not there")),
            };
            let fd = queue.descriptor().as_raw_fd();
            let owner: Arc<dyn std::any::Any> = Arc::<ByteQueue>::clone(&queue);
            let mut watches = self.watches.borrow_mut();
            watches.results = Some(Watch::start(&env, fd, owner, &on_results)?);
            // From now on, only the watch for results keeps the event loop alive.
            if let Some(control) = &watches.control {
                control.set_ref(false);
            }
            *self.queue.borrow_mut() = Some(queue);
            Ok(deadline.map_or(0.0, |deadline| deadline.as_secs_f64() * 1e3))
        })
    }

    /// Begins the submissions in the first `length` bytes of a buffer. Returns the number of the
    /// first one, or -1 if the client is closed.
    #[napi]
    pub fn submit(&self, buffer: &[u8], length: u32) -> Result<f64> {
        caught(|| {
            let queue = self.queue.borrow();
            let Some(queue) = &*queue else { return Ok(-1.0) };
            let bytes = buffer.get(..length as usize).ok_or_else(|| failed("a short buffer"))?;
            match queue.submit(bytes) {
                // A client does not begin 2^53 submissions.
                Ok(first) => Ok(first as f64),
                Err(SubmitError::Client(_)) => Ok(-1.0),
                Err(SubmitError::Malformed(error)) => Err(failed(&error.to_string())),
            }
        })
    }

    /// Copies results that are ready into a buffer and returns how many bytes they are; 0: there
    /// are none. If the buffer is too small, returns the number of bytes that it needs, negative.
    #[napi]
    pub fn take(&self, mut into: BufferSlice<'_>) -> Result<f64> {
        caught(|| {
            let mut results = self.results.borrow_mut();
            if results.is_empty()
                && let Some(queue) = &*self.queue.borrow()
            {
                queue.take(TAKEN_MAX, &mut results);
            }
            let bytes = results.len();
            let Some(place) = into.get_mut(..bytes) else { return Ok(-(bytes as f64)) };
            place.copy_from_slice(&results);
            if results.capacity() > KEPT_BYTES_MAX {
                *results = Vec::new();
            } else {
                results.clear();
            }
            Ok(bytes as f64)
        })
    }

    /// Ends a submission before its deadline. Its result comes as usual.
    #[napi]
    pub fn cancel(&self, number: f64) -> Result<()> {
        self.with(|queue| queue.cancel(number as u64)).map(drop)
    }

    /// Begins a scan and returns its number.
    #[napi]
    pub fn open_scan(&self, table_low: u32, table_high: u32) -> Result<f64> {
        let table = u64::from(table_high) << 32 | u64::from(table_low);
        Ok(self.with(|queue| queue.open_scan(table) as f64)?.unwrap_or(0.0))
    }

    /// Ends a scan.
    #[napi]
    pub fn close_scan(&self, scan: f64) -> Result<()> {
        self.with(|queue| queue.close_scan(scan as u64)).map(drop)
    }

    /// Whether the connection alone keeps the event loop alive.
    #[napi]
    pub fn set_ref(&self, is_ref: bool) {
        if let Some(watch) = &self.watches.borrow().results {
            watch.set_ref(is_ref);
        }
    }

    /// Begins to close the connection: work in progress ends, and so does the lease. Calls
    /// `on_change` at the end. The results of the work can be taken until [`Connection::end`].
    #[napi]
    pub fn close(&self) -> Result<()> {
        caught(|| {
            if let Some(control) = &self.watches.borrow().control {
                control.set_ref(true);
            }
            let (queue, control) = (self.queue.borrow().clone(), Arc::clone(&self.control));
            in_thread("thunderhead-close", move || {
                if let Some(queue) = queue {
                    let _ = catch_unwind(AssertUnwindSafe(|| queue.close()));
                }
                control.set(State::Closed);
            })
        })
    }

    /// Lets go of everything. Work in progress has no results any more.
    #[napi]
    pub fn end(&self) {
        *self.watches.borrow_mut() = Watches::default();
        *self.queue.borrow_mut() = None;
        *self.results.borrow_mut() = Vec::new();
    }

    fn with<T>(&self, run: impl FnOnce(&ByteQueue) -> T) -> Result<Option<T>> {
        caught(|| Ok(self.queue.borrow().as_deref().map(run)))
    }
}

/// Returns the message of the latest panic, also of a driver thread.
#[napi]
pub fn latest_panic() -> Option<String> {
    latest()
}

/// Panics, for the test of panics.
#[napi]
pub fn provoke_panic() -> Result<()> {
    silence();
    caught(|| panic!("provoked by a test"))
}

fn failed(text: &str) -> Error {
    Error::new(Status::GenericFailure, text)
}

fn in_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| failed(&format!("the system has no thread left: {error}")))
}

fn connect(url: &str, settings: &Settings) -> State {
    let options = match options(url, settings) {
        Ok(options) => options,
        Err(text) => return State::Failed(0, text),
    };
    match ByteQueue::connect(&options) {
        Ok(queue) => State::Connected(Arc::new(queue), options.deadline),
        Err(error) => State::Failed(error.code(), error.to_string()),
    }
}

fn options(url: &str, settings: &Settings) -> std::result::Result<Options, String> {
    let mut url: ClusterUrl = url.parse().map_err(|error| format!("{error}"))?;
    if let Some(deadline) = settings.deadline {
        let deadline = Duration::try_from_secs_f64(deadline / 1e3);
        url.deadline = Some(deadline.map_err(|error| format!("the deadline is wrong: {error}"))?);
    }
    if let Some(polling) = &settings.polling {
        url.polling = Some(polling.parse().map_err(|_| "polling is always, adaptive or never")?);
    }
    if let Some(most) = settings.in_flight {
        url.in_flight_max = Some(most as usize);
    }
    url.resolve().map_err(|error| error.to_string())
}
