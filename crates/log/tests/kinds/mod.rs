//! Kinds of values that follow from the values, so that a test knows which kind each object must
//! have.

use thunderhead_log::ValueKind;

/// The kind under which a test writes a value: bytes, but for some of those with 8 bytes.
pub(crate) fn kind_of(value: &[u8]) -> ValueKind {
    match value {
        [first, ..] if value.len() == 8 => match first % 3 {
            0 => ValueKind::Bytes,
            1 => ValueKind::Integer,
            _ => ValueKind::Float,
        },
        _ => ValueKind::Bytes,
    }
}
