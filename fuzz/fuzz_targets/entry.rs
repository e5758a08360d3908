//! Any bytes, decoded as an entry and as the bodies of entries: must never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| thunderhead_log::fuzzing::entry(data));
