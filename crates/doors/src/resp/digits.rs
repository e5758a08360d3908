//! The digits of numbers with a point, found by the algorithm that Redis uses: Grisu2 (Florian
//! Loitsch, *Printing floating-point numbers quickly and accurately with integers*, 2010).
//!
//! It nearly always finds the shortest digits that are read as the same number. For one number in a
//! thousand it finds others. A reply must have the same bytes as that of Redis, so other algorithms
//! will not do.

/// A number: a fraction of 64 bits times a power of two.
#[derive(Clone, Copy)]
struct Scaled {
    fraction: u64,
    exponent: i32,
}

impl Scaled {
    fn normalized(self) -> Scaled {
        let zeros = self.fraction.leading_zeros();
        Scaled { fraction: self.fraction << zeros, exponent: self.exponent - zeros as i32 }
    }

    fn times(self, other: Scaled) -> Scaled {
        let product = u128::from(self.fraction) * u128::from(other.fraction);
        let fraction = ((product + (1 << 63)) >> 64) as u64;
        Scaled { fraction, exponent: self.exponent + other.exponent + 64 }
    }
}

/// Bits of a number's fraction that are stored, and the bit that is not.
const FRACTION_BITS: u32 = 52;
const HIDDEN: u64 = 1 << FRACTION_BITS;

/// The bias of a stored exponent, for a fraction that is read as an integer.
const BIAS: i32 = 1075;

/// The exponents of two between which a product with a power of ten lies. Then its integer part has
/// at most 32 bits.
const EXPONENTS: std::ops::RangeInclusive<i32> = -60..=-32;

/// Returns the digits of a number that is finite, positive and not 0, and the power of ten by which
/// they are multiplied.
pub(super) fn digits(number: f64) -> (Vec<u8>, i32) {
    let bits = number.to_bits();
    let stored = (bits >> FRACTION_BITS) as i32 & 0x7ff;
    let fraction = bits & (HIDDEN - 1);
    let number = match stored {
        0 => Scaled { fraction, exponent: 1 - BIAS },
        stored => Scaled { fraction: fraction | HIDDEN, exponent: stored - BIAS },
    };
    // Between these two, every number is read as this one.
    let upper = Scaled { fraction: 2 * number.fraction + 1, exponent: number.exponent - 1 };
    let upper = upper.normalized();
    let nearer = u32::from(number.fraction == HIDDEN);
    let lower = Scaled {
        fraction: (number.fraction << (1 + nearer)) - 1,
        exponent: number.exponent - 1 - nearer as i32,
    };
    let lower = Scaled {
        fraction: lower.fraction << (lower.exponent - upper.exponent),
        exponent: upper.exponent,
    };
    let (power, ten) = power_of_ten(upper.exponent);
    let number = number.normalized().times(ten);
    // The products are not exact.
    let upper = upper.times(ten);
    let upper = Scaled { fraction: upper.fraction - 1, ..upper };
    let lower = lower.times(ten).fraction + 1;
    let (digits, more) = between(number.fraction, upper, upper.fraction - lower);
    (digits, more - power)
}

/// Returns a power of ten that brings a number with this exponent into the wanted range.
fn power_of_ten(exponent: i32) -> (i32, Scaled) {
    let wanted = |(_, own): &&(u64, i32)| EXPONENTS.contains(&(exponent + own + 64));
    // Of the two that may be in the range, Redis takes the one to which its estimate leads.
    let estimate = -f64::from(exponent + POWERS.len() as i32) * std::f64::consts::LOG10_2;
    let mut at = ((estimate - f64::from(FIRST)) / f64::from(STEP)) as usize;
    while let Some(power) = POWERS.get(at)
        && !wanted(&power)
    {
        at = if exponent + power.1 + 64 < *EXPONENTS.start() { at + 1 } else { at - 1 };
    }
    let (fraction, exponent) = POWERS[at];
    (FIRST + STEP * at as i32, Scaled { fraction, exponent })
}

/// Returns the first digits of `upper` that are no more than `delta` below it, changed towards
/// `number`, and the power of ten by which they are multiplied.
fn between(number: u64, upper: Scaled, mut delta: u64) -> (Vec<u8>, i32) {
    let mut digits = Vec::with_capacity(18);
    let shift = upper.exponent.unsigned_abs();
    let one = 1u64 << shift;
    let mut integer = upper.fraction >> shift;
    let mut rest = upper.fraction & (one - 1);
    let mut distance = upper.fraction - number;
    let mut divisor = 1_000_000_000;
    for power in (0..10).rev() {
        let digit = integer / divisor;
        if digit > 0 || !digits.is_empty() {
            digits.push(digit as u8);
        }
        integer %= divisor;
        let left = (integer << shift) + rest;
        if left <= delta {
            approach(&mut digits, delta, left, divisor << shift, distance);
            return (digits, power);
        }
        divisor /= 10;
    }
    let mut power = 0;
    loop {
        rest *= 10;
        delta *= 10;
        distance = distance.wrapping_mul(10);
        power -= 1;
        let digit = rest >> shift;
        if digit > 0 || !digits.is_empty() {
            digits.push(digit as u8);
        }
        rest &= one - 1;
        if rest < delta {
            approach(&mut digits, delta, rest, one, distance);
            return (digits, power);
        }
    }
}

/// Lowers the last digit as long as that brings the digits closer to the number.
fn approach(digits: &mut [u8], delta: u64, mut left: u64, step: u64, distance: u64) {
    let Some(last) = digits.last_mut() else { return };
    while left < distance
        && delta - left >= step
        && (left + step < distance || distance - left > left + step - distance)
    {
        *last -= 1;
        left += step;
    }
}

/// The exponent of the first of these powers of ten, and their distance.
const FIRST: i32 = -348;
const STEP: i32 = 8;

/// Powers of ten, rounded to 64 bits, with the exponents of two.
#[rustfmt::skip]
const POWERS: [(u64, i32); 87] = [
    (0xfa8f_d5a0_081c_0288, -1220),
    (0xbaae_e17f_a23e_bf76, -1193),
    (0x8b16_fb20_3055_ac76, -1166),
    (0xcf42_894a_5dce_35ea, -1140),
    (0x9a6b_b0aa_5565_3b2d, -1113),
    (0xe61a_cf03_3d1a_45df, -1087),
    (0xab70_fe17_c79a_c6ca, -1060),
    (0xff77_b1fc_bebc_dc4f, -1034),
    (0xbe56_91ef_416b_d60c, -1007),
    (0x8dd0_1fad_907f_fc3c, -980),
    (0xd351_5c28_3155_9a83, -954),
    (0x9d71_ac8f_ada6_c9b5, -927),
    (0xea9c_2277_23ee_8bcb, -901),
    (0xaecc_4991_4078_536d, -874),
    (0x823c_1279_5db6_ce57, -847),
    (0xc210_9436_4dfb_5637, -821),
    (0x9096_ea6f_3848_984f, -794),
    (0xd774_85cb_2582_3ac7, -768),
    (0xa086_cfcd_97bf_97f4, -741),
    (0xef34_0a98_172a_ace5, -715),
    (0xb238_67fb_2a35_b28e, -688),
    (0x84c8_d4df_d2c6_3f3b, -661),
    (0xc5dd_4427_1ad3_cdba, -635),
    (0x936b_9fce_bb25_c996, -608),
    (0xdbac_6c24_7d62_a584, -582),
    (0xa3ab_6658_0d5f_daf6, -555),
    (0xf3e2_f893_dec3_f126, -529),
    (0xb5b5_ada8_aaff_80b8, -502),
    (0x8762_5f05_6c7c_4a8b, -475),
    (0xc9bc_ff60_34c1_3053, -449),
    (0x964e_858c_91ba_2655, -422),
    (0xdff9_7724_7029_7ebd, -396),
    (0xa6df_bd9f_b8e5_b88f, -369),
    (0xf8a9_5fcf_8874_7d94, -343),
    (0xb944_7093_8fa8_9bcf, -316),
    (0x8a08_f0f8_bf0f_156b, -289),
    (0xcdb0_2555_6531_31b6, -263),
    (0x993f_e2c6_d07b_7fac, -236),
    (0xe45c_10c4_2a2b_3b06, -210),
    (0xaa24_2499_6973_92d3, -183),
    (0xfd87_b5f2_8300_ca0e, -157),
    (0xbce5_0864_9211_1aeb, -130),
    (0x8cbc_cc09_6f50_88cc, -103),
    (0xd1b7_1758_e219_652c, -77),
    (0x9c40_0000_0000_0000, -50),
    (0xe8d4_a510_0000_0000, -24),
    (0xad78_ebc5_ac62_0000, 3),
    (0x813f_3978_f894_0984, 30),
    (0xc097_ce7b_c907_15b3, 56),
    (0x8f7e_32ce_7bea_5c70, 83),
    (0xd5d2_38a4_abe9_8068, 109),
    (0x9f4f_2726_179a_2245, 136),
    (0xed63_a231_d4c4_fb27, 162),
    (0xb0de_6538_8cc8_ada8, 189),
    (0x83c7_088e_1aab_65db, 216),
    (0xc45d_1df9_4271_1d9a, 242),
    (0x924d_692c_a61b_e758, 269),
    (0xda01_ee64_1a70_8dea, 295),
    (0xa26d_a399_9aef_774a, 322),
    (0xf209_787b_b47d_6b85, 348),
    (0xb454_e4a1_79dd_1877, 375),
    (0x865b_8692_5b9b_c5c2, 402),
    (0xc835_53c5_c896_5d3d, 428),
    (0x952a_b45c_fa97_a0b3, 455),
    (0xde46_9fbd_99a0_5fe3, 481),
    (0xa59b_c234_db39_8c25, 508),
    (0xf6c6_9a72_a398_9f5c, 534),
    (0xb7dc_bf53_54e9_bece, 561),
    (0x88fc_f317_f222_41e2, 588),
    (0xcc20_ce9b_d35c_78a5, 614),
    (0x9816_5af3_7b21_53df, 641),
    (0xe2a0_b5dc_971f_303a, 667),
    (0xa8d9_d153_5ce3_b396, 694),
    (0xfb9b_7cd9_a4a7_443c, 720),
    (0xbb76_4c4c_a7a4_4410, 747),
    (0x8bab_8eef_b640_9c1a, 774),
    (0xd01f_ef10_a657_842c, 800),
    (0x9b10_a4e5_e991_3129, 827),
    (0xe710_9bfb_a19c_0c9d, 853),
    (0xac28_20d9_623b_f429, 880),
    (0x8044_4b5e_7aa7_cf85, 907),
    (0xbf21_e440_03ac_dd2d, 933),
    (0x8e67_9c2f_5e44_ff8f, 960),
    (0xd433_179d_9c8c_b841, 986),
    (0x9e19_db92_b4e3_1ba9, 1013),
    (0xeb96_bf6e_badf_77d9, 1039),
    (0xaf87_023b_9bf0_ee6b, 1066),
];
