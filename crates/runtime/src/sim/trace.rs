//! The events of a simulation, as text for people and as one number for comparing two runs.

use super::clock::TrueTime;
use crate::time::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The trace of a simulation. Clones are handles to the same trace.
#[derive(Clone)]
pub struct Trace(Rc<State>);

struct State {
    truth: TrueTime,
    digest: Cell<u64>,
    events: Cell<u64>,
    lines: RefCell<Option<Vec<String>>>,
}

impl Trace {
    /// Returns a trace that keeps events as text only if `keeps_text`.
    #[must_use]
    pub fn new(truth: TrueTime, keeps_text: bool) -> Trace {
        Trace(Rc::new(State {
            truth,
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            lines: RefCell::new(keeps_text.then(Vec::new)),
        }))
    }

    /// Records an event: numbers that distinguish it from all others, and its text.
    pub fn record(&self, numbers: &[u64], text: impl FnOnce() -> String) {
        self.mark(numbers);
        if let Some(lines) = &mut *self.0.lines.borrow_mut() {
            lines.push(format!("{} {}", Time(self.0.truth.get()), text()));
        }
    }

    /// Records an event that people need not read.
    pub fn mark(&self, numbers: &[u64]) {
        let mut digest = self.0.digest.get();
        for number in [self.0.truth.get()].iter().chain(numbers) {
            digest = fold(digest, *number);
        }
        self.0.digest.set(digest);
        self.0.events.set(self.0.events.get() + 1);
    }

    /// Returns a number that two runs share only if they had the same events.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest.get()
    }

    /// Returns the number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// Returns the text of the events since the last call, if text is kept.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        self.0.lines.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// Adds a number to a digest.
#[must_use]
pub fn fold(digest: u64, number: u64) -> u64 {
    (digest ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

/// Returns one number for some bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    // Four lanes, which do not depend on one another.
    let (fours, rest) = bytes.as_chunks::<32>();
    let mut lanes = [bytes.len() as u64, 1, 2, 3];
    for four in fours {
        for (lane, word) in lanes.iter_mut().zip(four.as_chunks::<8>().0) {
            *lane = fold(*lane, u64::from_le_bytes(*word));
        }
    }
    let digest = lanes.into_iter().fold(0, fold);
    rest.iter().fold(digest, |digest, byte| fold(digest, u64::from(*byte)))
}
