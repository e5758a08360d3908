//! Any bytes, read as the head of a frame, as a greeting and as a message: must never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunderhead_wire::frame::{Head, Preface};
use thunderhead_wire::message::MessageHead;

fuzz_target!(|data: &[u8]| {
    let _ = Head::read(data);
    if let Ok(agreement) = Preface::agree(data, u64::MAX) {
        assert!(agreement.version > 0);
    }
    if let Some((head, body)) = MessageHead::split(data) {
        let _ = (head.id(), head.code(), head.number(), head.is_reply());
        assert!(body.len() < data.len());
    }
});
