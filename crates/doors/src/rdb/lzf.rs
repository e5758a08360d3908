//! Unpacks strings that are compressed with LZF: runs of bytes, and copies of earlier bytes.

/// Unpacks bytes to exactly this length; `None` if they are damaged.
pub(super) fn unpack(mut packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    while let Some((&control, rest)) = packed.split_first() {
        packed = rest;
        if control < 32 {
            let (run, rest) = packed.split_at_checked(usize::from(control) + 1)?;
            packed = rest;
            out.extend_from_slice(run);
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                let (&more, rest) = packed.split_first()?;
                packed = rest;
                count += usize::from(more);
            }
            let (&low, rest) = packed.split_first()?;
            packed = rest;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let from = out.len().checked_sub(back)?;
            // The copy may overlap its source: then bytes repeat.
            for at in from..from + count + 2 {
                let byte = *out.get(at)?;
                out.push(byte);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}
