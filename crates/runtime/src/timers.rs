//! Timers: values that are due at a certain time.

use crate::time::Time;
use std::collections::BTreeMap;

/// The id of a timer, for cancelling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(Time, u64);

/// A set of timers. Timers of the same time go off in the order in which they were set.
#[derive(Debug)]
pub struct Timers<T> {
    set: BTreeMap<TimerId, T>,
    count: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { set: BTreeMap::new(), count: 0 }
    }
}

impl<T> Timers<T> {
    /// Sets a timer.
    pub fn set(&mut self, at: Time, what: T) -> TimerId {
        self.count += 1;
        let id = TimerId(at, self.count);
        self.set.insert(id, what);
        id
    }

    /// Cancels a timer that has not gone off yet.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        self.set.remove(&id)
    }

    /// Returns the time at which the next timer goes off.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.set.first_key_value().map(|(id, _)| id.0)
    }

    /// Removes and returns one timer that is due.
    #[inline]
    pub fn due(&mut self, now: Time) -> Option<T> {
        let first = self.set.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_in_order_and_only_when_due() {
        let mut timers = Timers::default();
        timers.set(Time(20), 'c');
        timers.set(Time(10), 'a');
        timers.set(Time(10), 'b');
        let never = timers.set(Time(15), 'x');
        assert_eq!(timers.cancel(never), Some('x'));
        assert_eq!(timers.cancel(never), None);
        assert_eq!(timers.next(), Some(Time(10)));
        assert_eq!(timers.due(Time(9)), None);
        let due: Vec<char> = std::iter::from_fn(|| timers.due(Time(20))).collect();
        assert_eq!(due, ['a', 'b', 'c']);
        assert_eq!(timers.next(), None);
    }
}
