//! A connection to a server under comparison.

use super::reply::length;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest wait for an answer. A busy machine may stop a server for some seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most bytes of one reply. Generated commands have far shorter ones.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The answer of a server, raw.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// A whole reply.
    Reply(Vec<u8>),
    /// Bytes that are no reply.
    Malformed(Vec<u8>),
    /// All bytes until the server closed the connection.
    Until(Vec<u8>),
    /// The server closed the connection.
    Closed,
    /// The server did not answer in time.
    Silence,
    /// Fewer answers than the other server gave.
    Nothing,
}

impl Answer {
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Answer::Reply(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the answer for a person.
    pub(super) fn text(&self) -> String {
        self.text_of(600)
    }

    /// Returns the answer with all its bytes.
    pub(super) fn whole_text(&self) -> String {
        self.text_of(usize::MAX)
    }

    fn text_of(&self, most: usize) -> String {
        let shown = |bytes: &[u8]| {
            let text = bytes.escape_ascii().to_string();
            match text.char_indices().nth(most) {
                Some((end, _)) => format!("{}… ({} bytes)", &text[..end], bytes.len()),
                None => text,
            }
        };
        match self {
            Answer::Reply(bytes) => shown(bytes),
            Answer::Malformed(bytes) => format!("{}  (no reply of the protocol)", shown(bytes)),
            Answer::Until(bytes) => format!("{}  (then closed)", shown(bytes)),
            Answer::Closed => "(closed)".to_owned(),
            Answer::Silence => "(no answer)".to_owned(),
            Answer::Nothing => "(no further answer)".to_owned(),
        }
    }
}

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// The bytes of `input` that were taken.
    taken: usize,
}

/// The result of a read.
enum Progress {
    More,
    Closed,
    Silence,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Connection> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, input: Vec::new(), taken: 0 })
    }

    /// Returns the address of this end.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Sends bytes. If the server has closed the connection, the next answer says so.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends the end of all bytes.
    pub(super) fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads the next reply of Redis's protocol.
    pub(super) fn reply(&mut self) -> Answer {
        self.next(|bytes| length(bytes).map_err(|_| ()))
    }

    /// Reads the next answer, whose end the given function finds.
    pub(super) fn next(&mut self, end: impl Fn(&[u8]) -> Result<Option<usize>, ()>) -> Answer {
        loop {
            let rest = &self.input[self.taken..];
            match end(rest) {
                Ok(Some(length)) => {
                    let reply = rest[..length].to_vec();
                    self.taken += length;
                    return Answer::Reply(reply);
                }
                Err(()) => return Answer::Malformed(rest.to_vec()),
                Ok(None) if rest.len() > REPLY_BYTES_MAX => {
                    return Answer::Malformed(rest[..1000].to_vec());
                }
                Ok(None) => {}
            }
            match self.read() {
                Progress::More => {}
                Progress::Closed => return Answer::Closed,
                Progress::Silence => return Answer::Silence,
            }
        }
    }

    /// Reads until the server closes the connection.
    pub(super) fn until_closed(&mut self) -> Answer {
        loop {
            match self.read() {
                Progress::More => {}
                Progress::Closed => return Answer::Until(self.input.split_off(self.taken)),
                Progress::Silence => return Answer::Silence,
            }
        }
    }

    fn read(&mut self) -> Progress {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        }
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Progress::Closed,
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    return Progress::More;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Progress::Silence;
                }
                Err(_) => return Progress::Closed,
            }
        }
    }
}
