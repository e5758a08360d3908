//! Any bytes, as a message from a master to a backup: must never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| thunderhead_backup::fuzzing::replicate(data));
