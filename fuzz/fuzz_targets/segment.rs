//! Any bytes, decoded as a segment: must never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| thunderhead_log::fuzzing::segment(data));
