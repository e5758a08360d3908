//! A HyperLogLog: a string that estimates how many different elements were added to it.
//!
//! The bytes are those of Redis, so that a sketch can be moved between servers. The estimate is
//! that of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017).
//!
//! ```text
//!  HYLL │ encoding: 1 byte │ 0 0 0 │ cached estimate: 8 bytes, the lowest first │ registers
//! ```
//!
//! The highest bit of the cached estimate tells that the registers have changed since. There are
//! 2¹⁴ registers of 6 bits. The dense encoding has them one behind the other, the lowest bits
//! first. The sparse encoding has runs of equal registers:
//!
//! ```text
//!  00nnnnnn           n + 1 registers are 0
//!  01nnnnnn nnnnnnnn  n + 1 registers are 0
//!  1vvvvvnn           n + 1 registers are v + 1
//! ```

/// The bits of a hash that choose a register, and the number of registers.
const INDEX_BITS: u32 = 14;
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;

/// The bits of a hash that are left for the value of a register.
const VALUE_BITS: usize = 64 - INDEX_BITS as usize;

const REGISTER_BITS: usize = 6;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

const ENCODING_AT: usize = 4;
const CACHE_AT: usize = 8;

/// The limits of the runs of the sparse encoding.
const ZEROS_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const VALUES_MAX: usize = 4;

/// The runs that are looked at to join equal ones.
const JOINED_RUNS: usize = 5;

/// The seed of the hash.
const SEED: u64 = 0xadc8_3b19;

/// The values of all registers, one byte each.
pub(super) type Registers = [u8; REGISTERS];

/// A sketch whose registers are not as the format wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupted;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sketch {
    bytes: Vec<u8>,
}

/// A run of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunOfEqual {
    value: u8,
    count: usize,
    /// The bytes that it takes.
    bytes: usize,
}

/// Returns the run at the begin of some bytes. A missing second byte counts as 0.
fn run_at(bytes: &[u8]) -> Option<RunOfEqual> {
    let (&first, rest) = bytes.split_first()?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => RunOfEqual { value: 0, count: low + 1, bytes: 1 },
        1 => {
            let second = usize::from(rest.first().copied().unwrap_or(0));
            RunOfEqual { value: 0, count: (low << 8 | second) + 1, bytes: 2 }
        }
        _ => {
            let (value, count) = ((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1);
            RunOfEqual { value, count, bytes: 1 }
        }
    })
}

/// Appends a run of registers that are 0.
fn put_zeros(out: &mut Vec<u8>, count: usize) {
    let count_less_one = count - 1;
    if count > ZEROS_MAX {
        out.push(0x40 | (count_less_one >> 8) as u8);
    }
    out.push(count_less_one as u8);
}

/// Returns a run of registers that are not 0.
fn values(value: u8, count: usize) -> u8 {
    0x80 | (value - 1) << 2 | (count - 1) as u8
}

/// Returns a hash (MurmurHash64A).
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut number = word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        number = number.wrapping_mul(FACTOR);
        number ^= number >> SHIFT;
        hash ^= number.wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// Returns the register of an element, and the value that it must have at least.
fn place_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = hash >> INDEX_BITS | 1 << VALUE_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// Returns a register of the dense encoding.
fn dense_register(registers: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let byte = |at: usize| u16::from(registers.get(at).copied().unwrap_or(0));
    ((byte(at) | byte(at + 1) << 8) >> shift) as u8 & 0x3f
}

/// Writes a register of the dense encoding.
fn set_dense_register(registers: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let (mask, value) = (0x3f_u16 << shift, u16::from(value) << shift);
    for (at, mask, value) in [(at, mask, value), (at + 1, mask >> 8, value >> 8)] {
        if let Some(byte) = registers.get_mut(at) {
            *byte = *byte & !(mask as u8) | value as u8;
        }
    }
}

impl Sketch {
    /// Returns a sketch without elements.
    pub(super) fn new() -> Sketch {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        put_zeros(&mut bytes, REGISTERS);
        Sketch { bytes }
    }

    /// Returns a sketch with the bytes of a string; `None` if these are not a sketch.
    pub(super) fn of(bytes: &[u8]) -> Option<Sketch> {
        let is_sketch = bytes.len() >= HEADER_BYTES
            && bytes.starts_with(MAGIC)
            && match bytes[ENCODING_AT] {
                DENSE => bytes.len() == DENSE_BYTES,
                encoding => encoding == SPARSE,
            };
        is_sketch.then(|| Sketch { bytes: bytes.to_vec() })
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn is_dense(&self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    /// Returns the estimate, if it was kept and no register has changed since.
    pub(super) fn cached(&self) -> Option<u64> {
        let bytes = self.bytes[CACHE_AT..HEADER_BYTES].try_into().ok()?;
        let cached = u64::from_le_bytes(bytes);
        (cached >> 63 == 0).then_some(cached)
    }

    /// Keeps the estimate.
    pub(super) fn cache(&mut self, estimate: u64) {
        self.bytes[CACHE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
    }

    /// Notes that registers have changed.
    pub(super) fn forget_cached(&mut self) {
        self.bytes[HEADER_BYTES - 1] |= 0x80;
    }

    fn registers(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Raises registers to those of this sketch.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupted> {
        if self.is_dense() {
            for (index, register) in registers.iter_mut().enumerate() {
                *register = (*register).max(dense_register(self.registers(), index));
            }
            return Ok(());
        }
        let (mut rest, mut index) = (self.registers(), 0);
        while let Some(run) = run_at(rest) {
            let of_run = registers.get_mut(index..index + run.count).ok_or(Corrupted)?;
            of_run.iter_mut().for_each(|register| *register = (*register).max(run.value));
            index += run.count;
            rest = rest.get(run.bytes..).unwrap_or(&[]);
        }
        if index == REGISTERS { Ok(()) } else { Err(Corrupted) }
    }

    /// Adds an element; returns whether a register has changed. `sparse_bytes_max` is the longest
    /// string of the sparse encoding.
    pub(super) fn add(
        &mut self,
        element: &[u8],
        sparse_bytes_max: usize,
    ) -> Result<bool, Corrupted> {
        let (index, value) = place_of(element);
        self.raise(index, value, sparse_bytes_max)
    }

    /// Raises a register to a value; returns whether it has changed.
    pub(super) fn raise(
        &mut self,
        index: usize,
        value: u8,
        sparse_bytes_max: usize,
    ) -> Result<bool, Corrupted> {
        if !self.is_dense() {
            match self.raise_sparse(index, value, sparse_bytes_max)? {
                Raised::Not => return Ok(false),
                Raised::Done => return Ok(true),
                Raised::NotSparse => self.make_dense()?,
            }
        }
        let registers = &mut self.bytes[HEADER_BYTES..];
        let is_raised = dense_register(registers, index) < value;
        if is_raised {
            set_dense_register(registers, index, value);
        }
        Ok(is_raised)
    }

    /// Sets all registers of a dense sketch.
    pub(super) fn set_dense(&mut self, registers: &Registers) {
        for (index, value) in registers.iter().enumerate() {
            set_dense_register(&mut self.bytes[HEADER_BYTES..], index, *value);
        }
    }

    /// Changes to the dense encoding.
    pub(super) fn make_dense(&mut self) -> Result<(), Corrupted> {
        if self.is_dense() {
            return Ok(());
        }
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.resize(DENSE_BYTES, 0);
        self.bytes[ENCODING_AT] = DENSE;
        self.set_dense(&registers);
        Ok(())
    }

    /// Raises a register of the sparse encoding. The last run of a damaged sketch may lack its
    /// second byte. As in Redis, the byte counts as 0, and the changed sketch lacks its last byte.
    fn raise_sparse(
        &mut self,
        index: usize,
        value: u8,
        sparse_bytes_max: usize,
    ) -> Result<Raised, Corrupted> {
        if value > VALUE_MAX {
            return Ok(Raised::NotSparse);
        }
        // Find the run of the register, and the place of the run before it.
        let (mut at, mut before, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
        let run = loop {
            let rest = self.bytes.get(at..).unwrap_or(&[]);
            let run = run_at(rest).ok_or(Corrupted)?;
            if index < first + run.count {
                break run;
            }
            before = at;
            at += run.bytes;
            first += run.count;
        };
        if run.value >= value {
            return Ok(Raised::Not);
        }
        // The run becomes up to three: before the register, the register, behind it.
        let mut runs = Vec::with_capacity(5);
        let parts =
            [(run.value, index - first), (value, 1), (run.value, first + run.count - 1 - index)];
        for (value, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
            match value {
                0 => put_zeros(&mut runs, count),
                value => runs.push(values(value, count)),
            }
        }
        let length = self.bytes.len() - run.bytes + runs.len();
        if runs.len() > run.bytes && length > sparse_bytes_max {
            return Ok(Raised::NotSparse);
        }
        let lacks_byte = at + run.bytes > self.bytes.len();
        if lacks_byte {
            self.bytes.push(0);
        }
        self.bytes.splice(at..at + run.bytes, runs);
        if lacks_byte {
            self.bytes.pop();
        }
        self.join(before);
        self.forget_cached();
        Ok(Raised::Done)
    }

    /// Joins equal runs from one on.
    fn join(&mut self, mut at: usize) {
        for _ in 0..JOINED_RUNS {
            let Some(run) = self.bytes.get(at..).and_then(run_at) else { return };
            let next = self.bytes.get(at + run.bytes..).and_then(run_at);
            if let Some(next) = next
                && run.value > 0
                && run.value == next.value
                && run.count + next.count <= VALUES_MAX
            {
                self.bytes[at + 1] = values(run.value, run.count + next.count);
                self.bytes.remove(at);
                continue;
            }
            at += run.bytes;
        }
    }

    /// Returns the estimate of the number of elements.
    pub(super) fn estimate(&self) -> Result<u64, Corrupted> {
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        Ok(estimate(&registers))
    }
}

/// The outcome of a change of a sparse sketch.
enum Raised {
    Not,
    Done,
    /// The register, or the whole sketch, must have the dense encoding.
    NotSparse,
}

/// Returns the estimate of the number of elements.
pub(super) fn estimate(registers: &Registers) -> u64 {
    // The limit of Ertl's constant for many registers: 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let mut counts = [0_u32; 64];
    for register in registers {
        counts[usize::from(*register & 0x3f)] += 1;
    }
    let all = REGISTERS as f64;
    let mut sum = all * tau((all - f64::from(counts[VALUE_BITS + 1])) / all);
    for count in counts[1..=VALUE_BITS].iter().rev() {
        sum += f64::from(*count);
        sum *= 0.5;
    }
    sum += all * sigma(f64::from(counts[0]) / all);
    (ALPHA * all * all / sum).round() as u64
}

/// The part of registers that are 0 (σ in the article).
fn sigma(mut part: f64) -> f64 {
    if part == 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, part);
    loop {
        part *= part;
        let before = sum;
        sum += part * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// The part of registers that are not full (τ in the article).
fn tau(mut part: f64) -> f64 {
    if part == 0.0 || part == 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - part);
    loop {
        part = part.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - part) * (1.0 - part) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}
