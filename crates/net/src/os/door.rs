//! The server's side of handing over shared memory: who knocked, and whose connection it is.

use super::accept::{ACCEPTS, room_for};
use super::connection::Connection;
use crate::peer::ConnectionId;
use crate::room::Room;
use crate::shm::{Door, Knock};
use crate::table::Token;
use std::collections::BTreeMap;
use std::io;
use thunderhead_runtime::Time;
use thunderhead_runtime::os::{Poller, descriptor_limit};
use thunderhead_wire::frame::Offer;

/// Those at the door at once; more have to stay on their sockets.
const KNOCKS_MAX: usize = 256;

/// The door of a transport that listens.
pub(super) struct Doorway {
    name: [u8; 16],
    door: Door,
    knocks: BTreeMap<u32, (Knock, Time)>,
    count: u32,
    tokens: BTreeMap<[u8; 16], ConnectionId>,
}

/// Bytes that nobody can guess.
fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

impl Doorway {
    pub(super) fn open(poller: &Poller) -> io::Result<Doorway> {
        let name = secret()?;
        let door = Door::listen(&name)?;
        poller.add(door.fd(), Token::Door.number(), true, false)?;
        let (knocks, tokens) = (BTreeMap::new(), BTreeMap::new());
        Ok(Doorway { name, door, knocks, count: 0, tokens })
    }

    /// An offer for a connection that was accepted.
    pub(super) fn offer(&mut self, id: ConnectionId) -> Option<Offer> {
        let token = secret().ok()?;
        self.tokens.insert(token, id);
        Some(Offer { door: self.name, token })
    }

    /// Lets in who stands at the door; false when the door had to be taken out of epoll.
    pub(super) fn accept(&mut self, poller: &Poller, until: Time) -> bool {
        let limit = descriptor_limit();
        for _ in 0..ACCEPTS {
            match self.door.accept() {
                Ok(Some(knock)) => {
                    self.count = self.count.wrapping_add(1);
                    let token = Token::Knock(self.count).number();
                    // Without room the client stays on its socket.
                    let room = self.knocks.len() < KNOCKS_MAX
                        && room_for(knock.fd(), limit) == Room::Everyone;
                    if room && poller.add(knock.fd(), token, true, false).is_ok() {
                        self.knocks.insert(self.count, (knock, until));
                    }
                }
                Ok(None) => return true,
                Err(_) => {
                    poller.remove(self.door.fd());
                    return false;
                }
            }
        }
        true
    }

    /// Puts the door back into epoll.
    pub(super) fn listen_again(&self, poller: &Poller) {
        // It may be in it still.
        let _ = poller.add(self.door.fd(), Token::Door.number(), true, false);
    }

    /// Someone at the door has said something: whose connection is it? Each token is good once.
    pub(super) fn heard(&mut self, number: u32, poller: &Poller) -> Option<(ConnectionId, Knock)> {
        let (knock, _) = self.knocks.get_mut(&number)?;
        let known = match knock.token() {
            Ok(None) => return None,
            Ok(Some(token)) => self.tokens.remove(&token),
            Err(_) => None,
        };
        let (knock, _) = self.knocks.remove(&number)?;
        poller.remove(knock.fd());
        Some((known?, knock))
    }

    /// Sends those away who have stood at the door for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        self.knocks.retain(|_, (_, until)| *until > now);
    }

    /// A connection is no more.
    pub(super) fn forget(&mut self, connection: &Connection) {
        if let Some(offer) = &connection.offered {
            self.tokens.remove(&offer.token);
        }
    }
}
