//! A map from clients to their state, which is fast for the client that was looked up last.

use super::server::ClientId;
use std::cell::Cell;
use std::collections::BTreeMap;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: BTreeMap<ClientId, usize>,
    slots: Vec<Option<T>>,
    free: Vec<usize>,
    /// The client that was looked up last, and its place.
    last: Cell<Option<(ClientId, usize)>>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        let (places, last) = (BTreeMap::new(), Cell::new(None));
        Slots { places, slots: Vec::new(), free: Vec::new(), last }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn place(&self, id: ClientId) -> Option<usize> {
        match self.last.get() {
            Some((last, place)) if last == id => Some(place),
            _ => {
                let place = self.places.get(&id).copied()?;
                self.last.set(Some((id, place)));
                Some(place)
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: &ClientId) -> Option<&T> {
        self.slots.get(self.place(*id)?)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: &ClientId) -> Option<&mut T> {
        let place = self.place(*id)?;
        self.slots.get_mut(place)?.as_mut()
    }

    pub(super) fn insert(&mut self, id: ClientId, value: T) {
        self.remove(&id);
        let place = self.free.pop().unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[place] = Some(value);
        self.places.insert(id, place);
    }

    pub(super) fn remove(&mut self, id: &ClientId) -> Option<T> {
        let place = self.places.remove(id)?;
        self.last.set(None);
        self.free.push(place);
        self.slots[place].take()
    }

    /// Returns all values in the order of their clients' names.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.values().filter_map(|place| self.slots[*place].as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_removed_client_is_not_found_again() {
        let mut slots = Slots::new();
        slots.insert(7, 'a');
        slots.insert(3, 'b');
        assert_eq!(slots.get(&7), Some(&'a'));
        assert_eq!(slots.remove(&7), Some('a'));
        assert_eq!((slots.get(&7), slots.get(&3)), (None, Some(&'b')));
        slots.insert(9, 'c');
        assert_eq!(slots.get(&7), None);
        assert_eq!(slots.get_mut(&9), Some(&mut 'c'));
        slots.insert(3, 'd');
        assert_eq!(slots.values().collect::<String>(), "dc");
        assert_eq!(slots.len(), 2);
    }
}
