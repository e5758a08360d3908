//! The random numbers of scripts, which are those of `lrand48` of C. After `math.randomseed` they
//! are the same as in Redis.

use super::failure::bad_argument;
use super::text::number_at;
use super::values::{Argument, truncated};
use mlua::{Lua, Table, Value, Variadic};
use std::cell::Cell;
use std::rc::Rc;

/// The state: 48 bits.
#[derive(Debug, Default)]
pub(super) struct State(Cell<u64>);

impl State {
    pub(super) fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed.cast_unsigned()) << 16 | 0x330e);
    }

    /// Returns a number from 0 up to, but without, 1.
    fn next(&self) -> f64 {
        let next = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        self.0.set(next);
        let number = (next >> 17) % 0x7fff_ffff;
        number as f64 / f64::from(0x7fff_ffff)
    }
}

/// Returns the functions of the library `math` that are not Lua's own.
pub(super) fn functions(lua: &Lua, state: &Rc<State>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(state);
    let random = lua.create_function(move |lua, arguments: Variadic<Argument>| {
        let number = own.next();
        let at = |index: usize| {
            Argument::number(arguments.get(index), lua, index + 1, "random").map(f64::trunc)
        };
        let is_empty = "interval is empty";
        match arguments.len() {
            0 => Ok(number),
            1 => {
                let most = at(0)?;
                match most >= 1.0 {
                    true => Ok((number * most).floor() + 1.0),
                    false => Err(bad_argument(lua, 1, "random", is_empty)),
                }
            }
            2 => {
                let (least, most) = (at(0)?, at(1)?);
                match least <= most {
                    true => Ok((number * (most - least + 1.0)).floor() + least),
                    false => Err(bad_argument(lua, 2, "random", is_empty)),
                }
            }
            _ => Err(super::failure::refused(lua, "wrong number of arguments")),
        }
    })?;
    table.raw_set("random", random)?;
    let own = Rc::clone(state);
    let seed = lua.create_function(move |lua, seed: Value| {
        own.seed(truncated(number_at(lua, &seed, 1, "randomseed")?) as i32);
        Ok(())
    })?;
    table.raw_set("randomseed", seed)?;
    Ok(table)
}
