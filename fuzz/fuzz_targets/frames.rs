//! Any bytes, decoded as the descriptions of a backup's storage: must never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| thunderhead_backup::fuzzing::frames(data));
