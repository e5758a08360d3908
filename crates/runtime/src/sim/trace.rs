//! What happened in a simulation, for people to read, and as one number to compare two runs by.

use super::clock::TrueTime;
use crate::time::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The trace of a simulation. Clones are handles to the same.
#[derive(Clone)]
pub struct Trace(Rc<State>);

struct State {
    truth: TrueTime,
    digest: Cell<u64>,
    events: Cell<u64>,
    lines: RefCell<Option<Vec<String>>>,
}

impl Trace {
    /// A trace that keeps what it is told as text only if `keeps_text`.
    #[must_use]
    pub fn new(truth: TrueTime, keeps_text: bool) -> Trace {
        Trace(Rc::new(State {
            truth,
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            lines: RefCell::new(keeps_text.then(Vec::new)),
        }))
    }

    /// Something happened: numbers that tell it from everything else, and words.
    pub fn record(&self, numbers: &[u64], text: impl FnOnce() -> String) {
        self.mark(numbers);
        if let Some(lines) = &mut *self.0.lines.borrow_mut() {
            lines.push(format!("{} {}", Time(self.0.truth.get()), text()));
        }
    }

    /// Something happened that people need not read of.
    pub fn mark(&self, numbers: &[u64]) {
        let mut digest = self.0.digest.get();
        for number in [self.0.truth.get()].iter().chain(numbers) {
            digest = fold(digest, *number);
        }
        self.0.digest.set(digest);
        self.0.events.set(self.0.events.get() + 1);
    }

    /// A number that two runs share if just the same happened in them.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest.get()
    }

    /// How much has happened.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// What has happened since the last call, in words, if they are kept.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        self.0.lines.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// Takes a number into a digest.
#[must_use]
pub fn fold(digest: u64, number: u64) -> u64 {
    (digest ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

/// One number for some bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    // Four at once, which do not wait for one another.
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
