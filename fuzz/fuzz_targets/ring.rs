//! A peer that writes anything anywhere into the shared memory, between the steps of an honest
//! end: must never panic, nor touch memory that is not its own.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| thunderhead_net::shm::fuzzing::fuzz_hostile(data));
