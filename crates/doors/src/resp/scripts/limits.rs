//! The limits of a script that runs: its time, and the reasons for which it is ended.
//!
//! The interpreter calls a hook after some instructions. It looks at the clock. Once a script is
//! ended, the hook is called after each instruction and raises an error each time. So no `pcall`
//! can keep the script alive.

use super::failure::Failure;
use crate::resp::stop::Stop;
use mlua::{HookTriggers, Lua, VmState};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// The instructions between two looks at the clock. One instruction may be slow, such as an
/// insertion at the beginning of a large table.
const INSTRUCTIONS: u32 = 200;

/// The looks at the clock that may come in a millisecond, for a clock that stands still.
const LOOKS: u64 = 10_000;

/// The steps of a search for a pattern between two looks at the clock.
const STEPS: u32 = 5_000;

/// A clock that moves while a script runs. Its times have no fixed beginning.
#[derive(Clone)]
pub struct ScriptClock(Rc<dyn Fn() -> Duration>);

impl ScriptClock {
    /// Returns a clock that a function reads.
    #[must_use]
    pub fn new(read: impl Fn() -> Duration + 'static) -> ScriptClock {
        ScriptClock(Rc::new(read))
    }

    /// Returns a clock for tests: a millisecond passes whenever it is read.
    #[must_use]
    pub fn of_readings() -> ScriptClock {
        let readings = Cell::new(0);
        ScriptClock::new(move || {
            readings.set(readings.get() + 1);
            Duration::from_millis(readings.get())
        })
    }

    pub(in crate::resp) fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for ScriptClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ScriptClock")
    }
}

/// The limits of the script that runs.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) clock: ScriptClock,
    begin: Cell<Duration>,
    time: Cell<Duration>,
    looks: Cell<u64>,
    steps: Cell<u32>,
    /// The reason for which the script was ended.
    end: RefCell<Option<Stop>>,
}

impl Limits {
    pub(super) fn new(clock: ScriptClock) -> Limits {
        Limits {
            clock,
            begin: Cell::default(),
            time: Cell::default(),
            looks: Cell::default(),
            steps: Cell::default(),
            end: RefCell::default(),
        }
    }

    /// Begins a script.
    pub(super) fn begin(self: &Rc<Self>, lua: &Lua, time: Duration) -> mlua::Result<()> {
        self.begin.set(self.clock.now());
        self.time.set(time);
        self.looks.set(0);
        *self.end.borrow_mut() = None;
        self.set_hook(lua, INSTRUCTIONS)
    }

    /// Ends the limits of a script. Returns the reason if the script was ended.
    pub(super) fn finish(&self) -> Option<Stop> {
        self.end.borrow_mut().take()
    }

    /// Whether the script is ended.
    pub(super) fn is_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Returns the time since the beginning of the script.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_sub(self.begin.get())
    }

    fn set_hook(self: &Rc<Self>, lua: &Lua, instructions: u32) -> mlua::Result<()> {
        let limits = Rc::clone(self);
        let triggers = HookTriggers::new().every_nth_instruction(instructions);
        lua.set_global_hook(triggers, move |lua, _| {
            limits.look(lua)?;
            Ok(VmState::Continue)
        })
    }

    /// Ends the script for a reason. Returns the error to raise.
    pub(super) fn end(self: &Rc<Self>, lua: &Lua, reason: Stop) -> mlua::Error {
        self.end.borrow_mut().get_or_insert(reason);
        // From now on each instruction raises the error.
        match self.set_hook(lua, 1) {
            Ok(()) => Failure::Ended.into(),
            Err(error) => error,
        }
    }

    /// Looks at the clock.
    ///
    /// # Errors
    /// If the script is ended.
    pub(super) fn look(self: &Rc<Self>, lua: &Lua) -> mlua::Result<()> {
        if self.is_ended() {
            self.set_hook(lua, 1)?;
            return Err(Failure::Ended.into());
        }
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        let time = self.time.get();
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if self.elapsed() < time && looks < milliseconds.saturating_mul(LOOKS) {
            return Ok(());
        }
        let text = format!(
            "ERR The script was ended after {milliseconds} ms (busy-reply-threshold). None of its \
             writes was done."
        );
        Err(self.end(lua, Stop::Ended(text.into_bytes().into())))
    }

    /// Counts some work outside of the interpreter.
    ///
    /// # Errors
    /// If the script is ended.
    pub(super) fn work(self: &Rc<Self>, lua: &Lua, steps: u32) -> mlua::Result<()> {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(if steps < STEPS { steps } else { 0 });
        if steps < STEPS { Ok(()) } else { self.look(lua) }
    }
}
