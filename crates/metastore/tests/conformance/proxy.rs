//! A wire between a client and its server that a test can cut and stall.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The state of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Carries bytes.
    Open,
    /// Carries nothing, and keeps its connections open.
    Stalled,
    /// Carries the client's bytes, but nothing back.
    Deaf,
    /// Ends every connection.
    Cut,
    /// The test has ended.
    Gone,
}

/// A proxy in front of one server.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    server: SocketAddr,
}

struct State {
    mode: Mode,
    streams: Vec<TcpStream>,
}

fn lock(mutex: &Mutex<State>) -> MutexGuard<'_, State> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    pub(crate) fn new(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for the proxy");
        let address = listener.local_addr().expect("its address");
        let state = Mutex::new(State { mode: Mode::Open, streams: Vec::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), server });
        let accepts = Arc::clone(&shared);
        std::thread::spawn(move || accepts.accept(&listener));
        Proxy { shared, address }
    }

    fn set(&self, mode: Mode) {
        let mut state = lock(&self.shared.state);
        state.mode = mode;
        if matches!(mode, Mode::Cut | Mode::Gone) {
            for stream in state.streams.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
    }

    pub(crate) fn cut(&self) {
        self.set(Mode::Cut);
    }

    pub(crate) fn stall(&self) {
        self.set(Mode::Stalled);
    }

    pub(crate) fn deafen(&self) {
        self.set(Mode::Deaf);
    }

    pub(crate) fn mend(&self) {
        // Bytes in a stalled wire are lost with its connection, as when a path fails.
        self.set(Mode::Cut);
        self.set(Mode::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Gone);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for client in listener.incoming() {
            let mut state = lock(&self.state);
            if state.mode == Mode::Gone {
                return;
            }
            let Ok(client) = client else { continue };
            if state.mode == Mode::Cut {
                continue;
            }
            let Ok(server) = TcpStream::connect(self.server) else { continue };
            let ways = [(&client, &server, Mode::Stalled), (&server, &client, Mode::Deaf)];
            for (from, to, stops_at) in ways {
                if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                    let _ = from.set_nodelay(true);
                    state.streams.extend(from.try_clone());
                    let shared = Arc::clone(self);
                    std::thread::spawn(move || shared.carry(from, to, stops_at));
                }
            }
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream, stops_at: Mode) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            let mut state = lock(&self.state);
            while state.mode == Mode::Stalled || state.mode == stops_at {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let goes_on = matches!(state.mode, Mode::Open | Mode::Deaf);
            drop(state);
            if count == 0 || !goes_on || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
