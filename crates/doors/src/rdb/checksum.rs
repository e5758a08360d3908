//! The checksum of Redis: a CRC of 64 bits with the polynomial of Jones, the lowest bit first.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// The checksums of eight bytes at once: those of one byte with so many zeros behind it.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The checksum of bytes that come in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds a piece.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut sum = self.0;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let mixed = (sum ^ u64::from_le_bytes(*word)).to_le_bytes();
            sum = 0;
            for (place, byte) in mixed.iter().enumerate() {
                sum ^= TABLES[7 - place][usize::from(*byte)];
            }
        }
        for byte in rest {
            sum = TABLES[0][usize::from(sum as u8 ^ byte)] ^ sum >> 8;
        }
        self.0 = sum;
    }

    /// Returns the sum.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Returns the checksum of some bytes.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.value()
}
