//! Compiled scripts.
//!
//! `mlua` keeps each value of Lua that Rust refers to on a stack, which has space for 8000 values,
//! and panics if there are more. So the scripts lie in a table of Lua, and Rust knows their
//! numbers.

use mlua::{Function, Lua, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// All compiled scripts of an interpreter.
#[derive(Debug)]
pub(super) struct Compiled {
    functions: Table,
    last: Cell<i64>,
    /// The table may be used as long as its interpreter lives.
    _lua: Lua,
}

impl Compiled {
    pub(super) fn new(lua: &Lua) -> mlua::Result<Compiled> {
        Ok(Compiled { functions: lua.create_table()?, last: Cell::new(0), _lua: lua.clone() })
    }

    /// Keeps a function.
    pub(super) fn keep(self: &Rc<Self>, function: Function) -> mlua::Result<Program> {
        let number = self.last.get() + 1;
        self.functions.raw_set(number, function)?;
        self.last.set(number);
        Ok(Program { compiled: Rc::clone(self), number })
    }
}

/// A compiled script. Its function is forgotten with it.
#[derive(Debug)]
pub(super) struct Program {
    compiled: Rc<Compiled>,
    number: i64,
}

impl Program {
    /// Returns the function.
    pub(super) fn function(&self) -> mlua::Result<Function> {
        self.compiled.functions.raw_get(self.number)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // If memory is too short even for this, the function stays until its interpreter ends.
        let _ = self.compiled.functions.raw_set(self.number, Value::Nil);
    }
}
