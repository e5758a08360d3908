//! Kinds of values, by which increments accept or refuse a value.

/// The kind of an object's value: bytes, or a number that increments count with.
///
/// An update writes the kind with the value. The kind does not follow from the value: 8 bytes of
/// text are no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// Bytes without meaning to the store.
    #[default]
    Bytes = 0,
    /// A whole number: an i64, 8 bytes, little-endian.
    Integer = 1,
    /// A floating-point number: an IEEE double, 8 bytes, little-endian.
    Float = 2,
}

impl ValueKind {
    /// The kind with a number.
    #[inline]
    #[must_use]
    pub fn of_code(code: u8) -> Option<ValueKind> {
        Some(match code {
            0 => ValueKind::Bytes,
            1 => ValueKind::Integer,
            2 => ValueKind::Float,
            _ => return None,
        })
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether a value of so many bytes can be of this kind.
    #[inline]
    #[must_use]
    pub fn has_size(self, bytes: usize) -> bool {
        self == ValueKind::Bytes || bytes == 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_never_change_their_meaning() {
        let golden = [(0, ValueKind::Bytes), (1, ValueKind::Integer), (2, ValueKind::Float)];
        for (code, kind) in golden {
            assert_eq!((kind.code(), ValueKind::of_code(code)), (code, Some(kind)));
        }
        assert_eq!(ValueKind::of_code(3), None);
    }
}
