//! The judge is judged: by histories whose verdict is plain, by trying every order of short ones,
//! and by long ones of a simulated register, right and with one answer changed.

use super::*;

mod large;
mod orders;
mod simulated;
mod verdicts;

const V: fn(u64) -> Version = Version;

fn write(value: u64) -> Action {
    write_if(Condition::Always, value)
}

fn write_if(condition: Condition, value: u64) -> Action {
    Action::Write { value, condition }
}

fn at(called: u64, answered: u64, action: Action, outcome: Outcome) -> Operation<u8> {
    Operation { key: 0, called, answered, action, outcome }
}
