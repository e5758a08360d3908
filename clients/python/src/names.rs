//! The address of a cluster, and the search for its hosts by name.
//!
//! The system's search for a name cannot be interrupted. So it runs on a thread of its own, and the
//! caller looks for signals meanwhile.

use crate::arguments::{given_deadline, utf8};
use crate::guard::guarded;
use crate::{errors, interrupt};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use thunderhead_client::{ClusterUrl, Options};

/// The deadline of each operation, if neither the URL nor the caller has one. The core has the same
/// default.
const DEADLINE: Duration = Duration::from_secs(10);

/// A cluster to connect to.
#[pyclass(frozen, module = "thunderhead._core")]
pub(crate) struct Target {
    url: ClusterUrl,
    pub(crate) deadline: Duration,
    /// The options with the hosts' addresses, once they are found.
    found: OnceLock<Options>,
}

impl Target {
    /// Reads a URL and the caller's default deadline.
    pub(crate) fn new(url: &Bound<'_, PyAny>, own: Option<&Bound<'_, PyAny>>) -> PyResult<Target> {
        let text = url.cast::<PyString>().map_err(|_| {
            PyTypeError::new_err("the url must be str, such as \"thunderhead://localhost\"")
        })?;
        let parsed: Result<ClusterUrl, _> = utf8("url", text)?.parse();
        let url = parsed.map_err(|error| errors::invalid(url.py(), error.to_string()))?;
        let deadline = match own {
            Some(own) => given_deadline(own)?,
            None => url.deadline.unwrap_or(DEADLINE),
        };
        Ok(Target { url, deadline, found: OnceLock::new() })
    }

    /// Finds the hosts of the URL. Does not need the interpreter's lock.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        if let Some(options) = self.found.get() {
            return Ok(options.clone());
        }
        let url = self.url.clone();
        let resolve = move || url.resolve().map_err(|error| error.to_string());
        let options = if self.is_named() {
            apart(self.deadline, resolve)
        } else {
            resolve().map_err(Failure::NotFound)
        };
        let options = options?.deadline(Some(self.deadline));
        Ok(self.found.get_or_init(|| options).clone())
    }

    fn is_named(&self) -> bool {
        self.url.hosts.iter().any(|(host, _)| host.parse::<IpAddr>().is_err())
    }
}

/// The reason why the hosts were not found.
pub(crate) enum Failure {
    NotFound(String),
    Interrupted,
}

impl Failure {
    pub(crate) fn raised(self, py: Python<'_>) -> PyErr {
        match (self, interrupt::take_raised()) {
            (_, Some(raised)) => raised,
            (Failure::NotFound(why), None) => errors::cannot_connect(py, why),
            (Failure::Interrupted, None) => {
                errors::cannot_connect(py, "the search for the hosts was interrupted; try again")
            }
        }
    }
}

/// Runs `resolve` on another thread and waits for it, at most until the deadline.
fn apart(
    deadline: Duration,
    resolve: impl FnOnce() -> Result<Options, String> + Send + 'static,
) -> Result<Options, Failure> {
    let (sender, receiver) = sync_channel(1);
    let run = move || drop(sender.send(resolve()));
    let thread = std::thread::Builder::new().name("thunderhead-names".to_owned()).spawn(run);
    thread.map_err(|error| Failure::NotFound(format!("no thread can be started: {error}")))?;
    let mut waited = Duration::ZERO;
    loop {
        match receiver.recv_timeout(interrupt::EVERY) {
            Ok(found) => return found.map_err(Failure::NotFound),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::NotFound("the search for the hosts ended early".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        waited += interrupt::EVERY;
        if waited >= deadline {
            let late = "the search for the hosts took too long; check the name service";
            return Err(Failure::NotFound(late.to_owned()));
        }
        if interrupt::is_wanted() {
            return Err(Failure::Interrupted);
        }
    }
}

#[pymethods]
impl Target {
    #[new]
    #[pyo3(signature = (url, deadline=None))]
    fn py_new(url: &Bound<'_, PyAny>, deadline: Option<&Bound<'_, PyAny>>) -> PyResult<Target> {
        guarded(|| Target::new(url, deadline))
    }

    /// Searches for the hosts.
    fn resolve(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            py.detach(|| self.options()).map_err(|failure| failure.raised(py))?;
            Ok(())
        })
    }

    /// Whether a host has a name that must be searched for, which may take seconds.
    #[getter(is_named)]
    fn py_is_named(&self) -> bool {
        self.is_named()
    }

    /// The default deadline in seconds.
    #[getter(deadline)]
    fn py_deadline(&self) -> f64 {
        self.deadline.as_secs_f64()
    }
}
