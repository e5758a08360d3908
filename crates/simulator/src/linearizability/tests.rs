//! Checks the judge: with histories whose verdict is obvious, by trying every order of short ones,
//! and with long ones of a simulated register, correct and with one answer changed.

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
