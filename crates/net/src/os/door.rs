//! The server's side of handing over shared memory: pending knocks, and the connections that they
//! belong to.

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

/// The most pending knocks; further clients stay on their sockets.
const KNOCKS_MAX: usize = 256;

/// The door of a transport that listens.
pub(super) struct Doorway {
    name: [u8; 16],
    door: Door,
    knocks: BTreeMap<u32, (Knock, Time)>,
    count: u32,
    tokens: BTreeMap<[u8; 16], ConnectionId>,
}

/// Returns bytes that cannot be guessed.
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

    /// Makes an offer for an accepted connection.
    pub(super) fn offer(&mut self, id: ConnectionId) -> Option<Offer> {
        let token = secret().ok()?;
        self.tokens.insert(token, id);
        Some(Offer { door: self.name, token })
    }

    /// Accepts clients at the door. Returns false if the door had to be taken out of epoll.
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
        // It may still be there.
        let _ = poller.add(self.door.fd(), Token::Door.number(), true, false);
    }

    /// Reads a client's token and returns its connection, if the token is good. Each token is good
    /// once.
    pub(super) fn redeem_token(
        &mut self,
        number: u32,
        poller: &Poller,
    ) -> Option<(ConnectionId, Knock)> {
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

    /// Drops the knocks that have been pending for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        self.knocks.retain(|_, (_, until)| *until > now);
    }

    /// Forgets the token of a closed connection.
    pub(super) fn forget(&mut self, connection: &Connection) {
        if let Some(offer) = &connection.offered {
            self.tokens.remove(&offer.token);
        }
    }
}
