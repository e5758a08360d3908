//! The library `bit`: operations on 32 bits.

use super::values::Argument;
use mlua::{Lua, Table, Variadic};

type Arguments = Variadic<Argument>;

/// Returns the library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, operate) in [
        ("band", (|one, other| one & other) as fn(u32, u32) -> u32),
        ("bor", |one, other| one | other),
        ("bxor", |one, other| one ^ other),
    ] {
        let function = lua.create_function(move |lua, arguments: Arguments| {
            let mut all = bits_at(lua, &arguments, 0, name)?;
            for index in 1..arguments.len() {
                all = operate(all, bits_at(lua, &arguments, index, name)?);
            }
            Ok(number_of(all))
        })?;
        table.raw_set(name, function)?;
    }
    for (name, operate) in [
        ("tobit", (|bits| bits) as fn(u32) -> u32),
        ("bnot", |bits| !bits),
        ("bswap", u32::swap_bytes),
    ] {
        let function = lua.create_function(move |lua, arguments: Arguments| {
            Ok(number_of(operate(bits_at(lua, &arguments, 0, name)?)))
        })?;
        table.raw_set(name, function)?;
    }
    for (name, operate) in [
        ("lshift", (|bits, by| bits << by) as fn(u32, u32) -> u32),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ] {
        let function = lua.create_function(move |lua, arguments: Arguments| {
            let bits = bits_at(lua, &arguments, 0, name)?;
            Ok(number_of(operate(bits, bits_at(lua, &arguments, 1, name)? & 31)))
        })?;
        table.raw_set(name, function)?;
    }
    let function = lua.create_function(|lua, arguments: Arguments| {
        let bits = bits_at(lua, &arguments, 0, "tohex")?;
        let digits = match arguments.len() {
            0 | 1 => 8,
            _ => bits_at(lua, &arguments, 1, "tohex")?.cast_signed(),
        };
        Ok(hexadecimal(bits, digits))
    })?;
    table.raw_set("tohex", function)?;
    Ok(table)
}

/// Returns the lowest digits of some bits, so many of them. If the number is negative, they are
/// written with capital letters.
fn hexadecimal(bits: u32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    text[8 - count..].to_owned()
}

fn number_of(bits: u32) -> f64 {
    f64::from(bits.cast_signed())
}

/// Reads an argument's lowest 32 bits.
fn bits_at(lua: &Lua, arguments: &Arguments, index: usize, name: &str) -> mlua::Result<u32> {
    let number = Argument::number(arguments.get(index), lua, index + 1, name)?;
    // The sum's lowest bits are those of the rounded number: 2^52 + 2^51.
    Ok((number + 6_755_399_441_055_744.0).to_bits() as u32)
}

#[cfg(test)]
mod tests {
    use super::hexadecimal;

    #[test]
    fn digits_are_the_lowest() {
        for (bits, digits, text) in [
            (0x00ab_cdef, 8, "00abcdef"),
            (0x00ab_cdef, 4, "cdef"),
            (0x00ab_cdef, -3, "DEF"),
            (1, 0, ""),
            (1, 100, "00000001"),
            (1, i32::MIN, "00000001"),
        ] {
            assert_eq!(hexadecimal(bits, digits), text, "{digits}");
        }
    }
}
