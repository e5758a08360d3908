//! The handover of shared memory between two processes: the server's side ([`Door`], [`Knock`]) and
//! the client's ([`Visit`]).
//!
//! The server listens on an abstract Unix socket. It has sent the client the socket's name and a
//! token by other means. Any process of the same network namespace can connect to the socket, so
//! the name is no secret and the token decides.
//!
//! ```text
//!  client                                                 server
//!  Visit::knock ──────────── connect, 16 bytes of token ──────────►  Door::accept → Knock
//!                                                           Knock::token: is it a good one?
//!  Visit::answer ◄── 24 bytes: magic, version, ring bytes ──────────  Knock::admit → Channel
//!   → Channel         with the memory's file descriptor
//!  ◄════════ the socket stays open: wake-ups, and the other's death ════════►
//! ```
//!
//! Nothing here blocks. The caller watches the sockets, and drops the value of a peer that takes
//! too long. Neither side trusts the other. The server reads its 16 bytes and no more, and the
//! kernel closes descriptors that are sent along. The client verifies the version, the size and the
//! seals before it maps anything, and closes every descriptor but one. Each value may be used by
//! one thread at a time.

use super::channel::{Channel, layout_for};
use super::error::HandoverError;
use super::layout::{End, Layout, VERSION};
use super::mapping::SealedMemory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, recvmsg, send, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;

/// Clients that may be connected and not yet accepted.
const BACKLOG: i32 = 128;

/// Descriptors for which a client provides space. It needs one. If the server sends more, the
/// client receives and closes them.
const DESCRIPTORS: usize = 4;

/// The flags of every socket: no call blocks, and no child process inherits it.
const SOCKET: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// For sending: a closed socket is an error, not a signal.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A server's listening socket.
pub struct Door {
    socket: OwnedFd,
}

impl Door {
    /// Listens under an abstract name: 1 to 107 bytes, of any values.
    ///
    /// # Errors
    /// If the name has another length or is taken, or the system refuses a socket.
    pub fn listen(name: &[u8]) -> io::Result<Door> {
        let address = address(name)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET, None)?;
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(Door { socket })
    }

    /// Returns the next connected client, if there is one.
    ///
    /// # Errors
    /// If the system refuses, for example because file descriptors ran out; the client then stays
    /// in the queue.
    pub fn accept(&self) -> io::Result<Option<Knock>> {
        match retry_on_intr(|| accept_with(&self.socket, SOCKET)) {
            Ok(socket) => Ok(Some(Knock { socket, token: [0; TOKEN_BYTES], filled: 0 })),
            Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the socket, to be watched for readability.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A client that has connected and not been admitted. Dropping it refuses the client.
pub struct Knock {
    socket: OwnedFd,
    token: [u8; TOKEN_BYTES],
    filled: usize,
}

impl Knock {
    /// Returns the client's token, once it is complete. The caller must compare it in a time that
    /// does not depend on the number of correct bytes.
    ///
    /// # Errors
    /// If the client disconnected before, or the socket broke.
    pub fn token(&mut self) -> Result<Option<[u8; TOKEN_BYTES]>, HandoverError> {
        while self.filled < TOKEN_BYTES {
            let rest = &mut self.token[self.filled..];
            match retry_on_intr(|| recv(&self.socket, &mut *rest, RecvFlags::DONTWAIT)) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(HandoverError::Closed),
                Ok((bytes, _)) => self.filled += bytes,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(self.token))
    }

    /// Admits the client: makes the memory, with rings of this size, and sends it over.
    ///
    /// # Errors
    /// If no ring can have this size, the client is gone, or the system refuses.
    pub fn admit(self, ring_bytes: usize) -> io::Result<Channel> {
        self.admit_with_version(ring_bytes, VERSION)
    }

    /// Admits the client and announces this version of the layout, which tests set to another than
    /// ours.
    pub(crate) fn admit_with_version(self, ring_bytes: usize, version: u32) -> io::Result<Channel> {
        let memory = SealedMemory::create(layout_for(ring_bytes)?)?;
        let mapping = memory.map()?;
        let files = [memory.file()];
        let admission = Admission { version, ..Admission::of(ring_bytes) };
        send_admission(&self.socket, &admission.encode(), &files)?;
        Ok(Channel::new(mapping, self.socket, End::Server))
    }

    /// Returns the socket, to be watched for readability. It becomes the channel's socket.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A client's side of a handover in progress.
pub struct Visit {
    socket: OwnedFd,
    message: [u8; Admission::BYTES],
    filled: usize,
    file: Option<OwnedFd>,
}

/// A server's answer to a client.
pub enum Answer {
    /// The answer is incomplete: ask again when the socket is readable.
    Pending(Visit),
    /// The client is admitted.
    Admitted(Channel),
}

impl Visit {
    /// Connects to a server's door and sends the token.
    ///
    /// # Errors
    /// If no server listens there, too many clients are queued there already
    /// ([`WouldBlock`](io::ErrorKind::WouldBlock)), or the system refuses.
    pub fn knock(name: &[u8], token: [u8; TOKEN_BYTES]) -> io::Result<Visit> {
        let address = address(name)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET, None)?;
        retry_on_intr(|| connect(&socket, &address))?;
        match retry_on_intr(|| send(&socket, &token, SEND))? {
            TOKEN_BYTES => {}
            _ => return Err(io::Error::other("a new socket did not take a token whole")),
        }
        Ok(Visit { socket, message: [0; Admission::BYTES], filled: 0, file: None })
    }

    /// Returns the server's answer as far as it has arrived. A refusal is
    /// [`HandoverError::Closed`].
    ///
    /// # Errors
    /// If the server refuses, or its offer is not acceptable.
    pub fn answer(mut self) -> Result<Answer, HandoverError> {
        while self.filled < Admission::BYTES {
            match self.read() {
                Ok(0) | Err(Errno::CONNRESET) => return Err(HandoverError::Closed),
                Ok(bytes) => self.filled += bytes,
                Err(Errno::AGAIN) => return Ok(Answer::Pending(self)),
                Err(error) => return Err(error.into()),
            }
        }
        let layout = Admission::decode(&self.message)?.layout()?;
        let file = self.file.ok_or(HandoverError::NoDescriptor)?;
        let mapping = SealedMemory::verify(file, layout)?.map()?;
        Ok(Answer::Admitted(Channel::new(mapping, self.socket, End::Client)))
    }

    /// Reads more of the message, and no byte beyond it. Keeps the first descriptor.
    fn read(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.message[self.filled..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| recvmsg(&self.socket, &mut parts, &mut control, flags))?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                for file in files {
                    // This closes every further descriptor.
                    self.file.get_or_insert(file);
                }
            }
        }
        Ok(received.bytes)
    }

    /// Returns the socket, to be watched for readability. It becomes the channel's socket.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The server's message to a client that it admits.
struct Admission {
    version: u32,
    ring_bytes: u64,
}

impl Admission {
    /// Magic, version, four bytes of zero, ring bytes.
    const BYTES: usize = 24;
    const MAGIC: [u8; 8] = *b"thndrshm";

    fn of(ring_bytes: usize) -> Admission {
        Admission { version: VERSION, ring_bytes: ring_bytes as u64 }
    }

    fn encode(&self) -> [u8; Admission::BYTES] {
        let mut message = [0; Admission::BYTES];
        message[..8].copy_from_slice(&Admission::MAGIC);
        message[8..12].copy_from_slice(&self.version.to_le_bytes());
        message[16..].copy_from_slice(&self.ring_bytes.to_le_bytes());
        message
    }

    fn decode(message: &[u8; Admission::BYTES]) -> Result<Admission, HandoverError> {
        let word = |at: usize| {
            let bytes = message[at..].first_chunk().expect("the message has three words");
            u64::from_le_bytes(*bytes)
        };
        if message[..8] != Admission::MAGIC {
            return Err(HandoverError::Foreign);
        }
        Ok(Admission { version: word(8) as u32, ring_bytes: word(16) })
    }

    /// Returns the layout that the server offers, if this end accepts it.
    fn layout(&self) -> Result<Layout, HandoverError> {
        if self.version != VERSION {
            return Err(HandoverError::Version { theirs: self.version, ours: VERSION });
        }
        let ring_bytes = usize::try_from(self.ring_bytes).ok();
        ring_bytes.and_then(Layout::new).ok_or(HandoverError::RingBytes(self.ring_bytes))
    }
}

/// Sends a message with descriptors, whole or not at all.
fn send_admission(socket: &OwnedFd, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("there is no room for the descriptors"));
    }
    let parts = [IoSlice::new(message)];
    let sent = retry_on_intr(|| sendmsg(socket, &parts, &mut control, SEND))?;
    if sent != message.len() {
        return Err(io::Error::other("a new socket did not take the admission whole"));
    }
    Ok(())
}

fn address(name: &[u8]) -> io::Result<SocketAddrUnix> {
    if name.is_empty() {
        let message = "the name of an abstract socket needs at least one byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(SocketAddrUnix::new_abstract_name(name)?)
}

#[cfg(test)]
mod tests;
