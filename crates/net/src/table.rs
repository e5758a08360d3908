//! A table of connections by id, and the meaning of epoll's tokens.

use crate::peer::ConnectionId;

/// Values by ids that are never reused.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    count: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Option<Box<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, content: T) -> ConnectionId {
        self.count += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, content: None });
            self.slots.len() as u32 - 1
        });
        let Slot { generation, content: place } = &mut self.slots[slot as usize];
        *place = Some(Box::new(content));
        ConnectionId { slot, generation: *generation }
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&T> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.content.as_deref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.content.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let content = slot.content.take()?;
        self.count -= 1;
        // A slot whose generations are used up is abandoned.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id.slot);
        }
        Some(*content)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, it)| {
            let id = ConnectionId { slot: slot as u32, generation: it.generation };
            Some((id, it.content.as_deref()?))
        })
    }
}

/// The meaning of a descriptor that epoll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A connection's socket, or the socket beside its rings.
    Connection(ConnectionId),
    /// A listening socket.
    Listener(u32),
    /// The door of shared memory.
    Door,
    /// A client that knocked at our door.
    Knock(u32),
    /// Our own knock at a server's door.
    Visit(ConnectionId),
    /// A byte stream's socket.
    Stream(ConnectionId),
}

/// The bits of a generation that fit into a token. An event of an older generation with the same
/// bits makes the reactor look at a connection without news, which does no harm.
const GENERATION: u32 = (1 << 28) - 1;

impl Token {
    pub(crate) fn number(self) -> u64 {
        let (kind, slot, generation) = match self {
            Token::Connection(id) => (0, id.slot, id.generation),
            Token::Listener(number) => (1, number, 0),
            Token::Door => (2, 0, 0),
            Token::Knock(number) => (3, number, 0),
            Token::Visit(id) => (4, id.slot, id.generation),
            Token::Stream(id) => (5, id.slot, id.generation),
        };
        kind << 60 | u64::from(generation & GENERATION) << 32 | u64::from(slot)
    }

    pub(crate) fn of<T>(number: u64, table: &Table<T>) -> Option<Token> {
        let slot = number as u32;
        let generation = (number >> 32) as u32 & GENERATION;
        let id = || {
            let current = table.slots.get(slot as usize)?.generation;
            (current & GENERATION == generation)
                .then_some(ConnectionId { slot, generation: current })
        };
        match number >> 60 {
            0 => id().map(Token::Connection),
            1 => Some(Token::Listener(slot)),
            2 => Some(Token::Door),
            3 => Some(Token::Knock(slot)),
            4 => id().map(Token::Visit),
            5 => id().map(Token::Stream),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_used_again() {
        let mut table = Table::default();
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(first.slot, second.slot);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
        let token = Token::Connection(first).number();
        assert_eq!(Token::of(token, &table), None, "an event of the removed connection names none");
        let of_second = [Token::Connection(second), Token::Visit(second), Token::Stream(second)];
        for token in of_second.into_iter().chain([Token::Door, Token::Knock(7)]) {
            assert_eq!(Token::of(token.number(), &table), Some(token));
        }
    }
}
