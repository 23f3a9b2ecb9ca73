//! The 32-bit words of prepared weights: how kernels decode them, and so how they are encoded.

use super::super::Format;

/// One table for each byte of eight codes.
type Tables = [[u32; 256]; 4];

/// How words of 16-bit values are coded: by the 16-bit format that they are decoded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Words {
    F16,
    Bf16,
}

impl Words {
    pub(crate) fn compute(self) -> Format {
        match self {
            Words::F16 => Format::F16,
            Words::Bf16 => Format::Bf16,
        }
    }

    /// The pairs p0 to p3 of 16-bit floats of a code word: what a kernel computes.
    pub(super) const fn pairs(self, q: u32) -> [u32; 4] {
        match self {
            Words::F16 => {
                const M: u32 = 0x8E00_8E00;
                [(q << 9) & M, (q ^ (q >> 3)) & M, (q ^ (q << 4)) & M, (q ^ (q << 7)) & M]
            }
            Words::Bf16 => {
                const M: u32 = 0x81C0_81C0;
                [q & M, (q << 6) & M, q.rotate_left(12) & M, ((q << 2) ^ (q >> 6)) & M]
            }
        }
    }

    /// The eight codes of a code word: pair p in byte p, the lower k in the lower nibble.
    pub(super) const fn decode(self, q: u32) -> u32 {
        let low_bit = match self {
            Words::F16 => 9,
            Words::Bf16 => 6,
        };
        let pairs = self.pairs(q);
        let (mut codes, mut pair) = (0, 0);
        while pair < 4 {
            let magnitudes = pairs[pair] >> low_bit & 0x0007_0007;
            let nibbles = magnitudes | pairs[pair] >> 12 & 0x0008_0008;
            codes |= (nibbles & 0xF | nibbles >> 12 & 0xF0) << (8 * pair);
            pair += 1;
        }
        codes
    }

    /// The code word of eight codes.
    pub(super) fn encode(self, codes: u32) -> u32 {
        let tables = match self {
            Words::F16 => &F16_TABLES,
            Words::Bf16 => &BF16_TABLES,
        };
        let bytes = codes.to_le_bytes();
        tables.iter().zip(bytes).fold(0, |word, (table, byte)| word ^ table[usize::from(byte)])
    }

    /// The code words of eight codes with a single bit set, from bit 0 to bit 31: XORed together, those of any codes.
    pub(crate) fn encoder(self) -> &'static [u32; 32] {
        match self {
            Words::F16 => &F16_ENCODER,
            Words::Bf16 => &BF16_ENCODER,
        }
    }

    /// The scale word of two steps, each with the E5M3 scales of the low and the high row.
    pub(super) fn encode_scales(self, [even, odd]: [[u8; 2]; 2]) -> u32 {
        let place = |[low, high]: [u8; 2]| u32::from(low) << 7 | u32::from(high) << 23;
        (place(even) | place(odd).rotate_right(8)).rotate_right(self.scale_rotation())
    }

    /// The E5M3 scales of a scale word: of the low and the high row, for the even and for the odd step.
    pub(super) fn decode_scales(self, word: u32) -> [[u8; 2]; 2] {
        let even = word.rotate_left(self.scale_rotation());
        [even, even.rotate_left(8)].map(|step| [(step >> 7) as u8, (step >> 23) as u8])
    }

    fn scale_rotation(self) -> u32 {
        match self {
            Words::F16 => 0,
            Words::Bf16 => 3,
        }
    }

    /// The inverse of `decode`, which is linear over GF(2): Gauss-Jordan elimination on its columns.
    const fn inverse(self) -> [u32; 32] {
        // images[i] = decode(words[i]) holds all the time; in the end images[i] has only bit i.
        let (mut images, mut words) = ([0; 32], [0; 32]);
        let mut bit = 0;
        while bit < 32 {
            words[bit] = 1 << bit;
            images[bit] = self.decode(words[bit]);
            bit += 1;
        }
        bit = 0;
        while bit < 32 {
            let mut pivot = bit;
            while images[pivot] >> bit & 1 == 0 {
                pivot += 1;
                assert!(pivot < 32, "code words lose a bit");
            }
            images.swap(bit, pivot);
            words.swap(bit, pivot);
            let mut other = 0;
            while other < 32 {
                if other != bit && images[other] >> bit & 1 == 1 {
                    images[other] ^= images[bit];
                    words[other] ^= words[bit];
                }
                other += 1;
            }
            bit += 1;
        }
        words
    }
}

// Computed by the compiler: a decoding that cannot be inverted does not build.
static F16_ENCODER: [u32; 32] = Words::F16.inverse();
static BF16_ENCODER: [u32; 32] = Words::Bf16.inverse();
static F16_TABLES: Tables = tables(&Words::F16.inverse());
static BF16_TABLES: Tables = tables(&Words::Bf16.inverse());

const fn tables(encoder: &[u32; 32]) -> Tables {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 4 {
        let mut value = 1usize;
        while value < 256 {
            let lowest = value.trailing_zeros() as usize;
            tables[byte][value] = tables[byte][value & (value - 1)] ^ encoder[8 * byte + lowest];
            value += 1;
        }
        byte += 1;
    }
    tables
}

/// The E5M3 number of an e4m3 magnitude (its sign bit is ignored): bits 14 to 7 of the binary16 number of the same value,
/// 0xFF for NaN.
pub(super) const fn e5m3(e4m3: u8) -> u8 {
    match e4m3 & 0x7F {
        0 => 0,
        // m · 2^-9 with m below 8: the leading bit of m is no longer stored.
        subnormal @ 1..8 => {
            let leading = subnormal.ilog2() as u8;
            (15 - 9 + leading) << 3 | (subnormal << (3 - leading) & 7)
        }
        0x7F => 0xFF,
        // The exponent's bias grows from 7 to 15.
        normal => normal + ((15 - 7) << 3),
    }
}

/// The e4m3 magnitude of an E5M3 number, if there is one.
pub(super) fn e4m3(e5m3: u8) -> Option<u8> {
    static MAGNITUDES: [Option<u8>; 256] = magnitudes();
    MAGNITUDES[usize::from(e5m3)]
}

const fn magnitudes() -> [Option<u8>; 256] {
    let mut magnitudes = [None; 256];
    let mut magnitude = 0;
    while magnitude < 0x80 {
        magnitudes[e5m3(magnitude) as usize] = Some(magnitude);
        magnitude += 1;
    }
    magnitudes
}
