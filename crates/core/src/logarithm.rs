//! The logarithm of a mass and the log-probability made of it, by integer operations alone.
//!
//! # The sequence
//!
//! A mass `W` that holds the row's maximum is at least 2^42, and at most 2^63: `ln(W / 2^42)` lies in `0 ..= 21·ln2`
//! and fits 64 bits with 60 of them behind the point (Q60). Write `W / 2^42 = 2^e · m` with `1 ≤ m < 2`, and `a` for `m`
//! truncated to six fractional bits. Then `ln = e·ln2 + ln a + ln(1 + z)` with `z = (m − a) / a < 2^-6`: two tables of 64
//! entries (`1/a` in Q63, `ln a` in Q60) and the alternating series to its tenth term, Horner in Q63 with 64-bit
//! multiply-high. What is dropped is below `z^11 / 11 < 2^-69`; the truncations stay below `2^-57`. It runs once or
//! twice a row, so it is made for precision: `qrita-testkit` checks it against a 100-bit reference on every mass that
//! is an f32 times a power of two, test `logarithm_exhaustive`.
//!
//! [`Logprob`] subtracts it from `d` exactly, in 128 bits, and rounds once: it is the f32 nearest to `d` less the integer
//! logarithm, so within half a unit in the last place and 2^-57 of the real one, and finite also where the weight itself
//! is below the quantum and counts as 0.

use crate::weight::ONE;

/// `ln 2` in Q60.
pub const LN2: u64 = 0x0B17_217F_7D1C_F79B;

/// `64 / (64 + j)` in Q63, each entry the nearest integer.
pub static RECIPROCAL_TABLE: [u64; 64] = [
    0x8000_0000_0000_0000,
    0x7E07_E07E_07E0_7E08,
    0x7C1F_07C1_F07C_1F08,
    0x7A44_C6AF_C2DD_9CA8,
    0x7878_7878_7878_7878,
    0x76B9_81DA_E607_6B98,
    0x7507_5075_0750_7507,
    0x7361_5A24_0E6C_2B45,
    0x71C7_1C71_C71C_71C7,
    0x7038_1C0E_0703_81C1,
    0x6EB3_E453_06EB_3E45,
    0x6D3A_06D3_A06D_3A07,
    0x6BCA_1AF2_86BC_A1AF,
    0x6A63_BD81_A98E_F607,
    0x6906_9069_0690_6907,
    0x67B2_3A54_40CF_6475,
    0x6666_6666_6666_6666,
    0x6522_C3F3_5BA7_8195,
    0x63E7_063E_7063_E706,
    0x62B2_E43D_AFCE_A68E,
    0x6186_1861_8618_6186,
    0x6060_6060_6060_6060,
    0x5F41_7D05_F417_D05F,
    0x5E29_3205_E293_205E,
    0x5D17_45D1_745D_1746,
    0x5C0B_8170_2E05_C0B8,
    0x5B05_B05B_05B0_5B06,
    0x5A05_A05A_05A0_5A06,
    0x590B_2164_2C85_90B2,
    0x5816_0581_6058_1606,
    0x5726_20AE_4C41_5C99,
    0x563B_48C2_0563_B48C,
    0x5555_5555_5555_5555,
    0x5474_1FAB_8BE0_5474,
    0x5397_829C_BC14_E5E1,
    0x52BF_5A81_4AFD_6A05,
    0x51EB_851E_B851_EB85,
    0x511B_E195_8B67_EBB9,
    0x5050_5050_5050_5050,
    0x4F88_B2F3_92A4_09F1,
    0x4EC4_EC4E_C4EC_4EC5,
    0x4E04_E04E_04E0_4E05,
    0x4D48_73EC_ADE3_04D5,
    0x4C8F_8D28_AC42_FD9C,
    0x4BDA_12F6_84BD_A12F,
    0x4B27_ED36_04B2_7ED3,
    0x4A79_04A7_904A_7905,
    0x49CD_42E2_049C_D42E,
    0x4924_9249_2492_4925,
    0x487E_DE04_87ED_E048,
    0x47DC_11F7_047D_C11F,
    0x473C_1AB6_8A04_73C2,
    0x469E_E584_69EE_5847,
    0x4604_6046_0460_4604,
    0x456C_797D_D49C_3411,
    0x44D7_2044_D720_44D7,
    0x4444_4444_4444_4444,
    0x43B3_D5AF_9A72_3F79,
    0x4325_C53E_F368_EB04,
    0x429A_0429_A042_9A04,
    0x4210_8421_0842_1084,
    0x4189_374B_C6A7_EF9E,
    0x4104_1041_0410_4104,
    0x4081_0204_0810_2041,
];

/// `ln(1 + j/64)` in Q60, each entry the nearest integer.
pub static LN_TABLE: [u64; 64] = [
    0x0000_0000_0000_0000,
    0x003F_8151_61F8_07C8,
    0x007E_0A6C_39E0_CC01,
    0x00BB_A2C7_B196_E7E2,
    0x00F8_5186_008B_1533,
    0x0134_1D79_61BD_1D09,
    0x016F_0D28_AE56_B4BA,
    0x01A9_26D3_A4AD_5636,
    0x01E2_7076_E2AF_2E5F,
    0x021A_EFCF_9A11_CB2D,
    0x0252_AA5F_03FE_A46A,
    0x0289_A56D_996F_A3CD,
    0x02BF_E60E_14F2_7A79,
    0x02F5_7120_421B_2123,
    0x032A_4B53_9E8A_D68F,
    0x035E_7929_D017_FE5B,
    0x0391_FEF8_F353_4436,
    0x03C4_E0ED_C55E_5CBD,
    0x03F7_230D_ABC7_C552,
    0x0428_C938_9CE4_38D8,
    0x0459_D72A_EAE9_8381,
    0x048A_507E_F3DE_5969,
    0x04BA_38AE_B847_4C27,
    0x04E9_9315_5A51_7A72,
    0x0518_62F0_8717_B09F,
    0x0546_AB61_CB7E_0B42,
    0x0574_6F6F_D602_7294,
    0x05A1_B207_A6C5_2BB1,
    0x05CE_75FD_AEF4_01A7,
    0x05FA_BE0E_E0AB_F0D9,
    0x0626_8CE1_B050_96AD,
    0x0651_E507_0845_BEAF,
    0x067C_C8FB_2FE6_12FD,
    0x06A7_3B26_A682_1263,
    0x06D1_3DDE_F323_D8A3,
    0x06FA_D367_69C6_DEFE,
    0x0723_FDF1_E6A6_886B,
    0x074C_BF9F_803A_F558,
    0x0775_1A81_3071_2830,
    0x079D_1098_75A1_E1F9,
    0x07C4_A3D7_EBC1_BB2D,
    0x07EB_D623_DE3C_C7B6,
    0x0812_A952_D2E8_7F63,
    0x0839_1F2E_0E6F_A027,
    0x085F_3972_1295_415B,
    0x0884_F9CF_16A6_4B7F,
    0x08AA_61E9_7A6A_F4D5,
    0x08CF_735A_33E4_B766,
    0x08F4_2FAF_3820_681F,
    0x0918_986B_DF5F_A141,
    0x093C_AF09_44D8_8D76,
    0x0960_74F6_A247_45DD,
    0x0983_EB99_A788_5F10,
    0x09A7_144E_CE70_E98B,
    0x09C9_F069_AB15_0CD5,
    0x09EC_8135_38AB_7D52,
    0x0A0E_C7F4_2339_5732,
    0x0A30_C5E1_0E2F_613F,
    0x0A52_7C2E_D81F_5D81,
    0x0A73_EC08_DBAD_D84E,
    0x0A95_1693_2DE2_D577,
    0x0AB5_FCEA_D9F9_CCA1,
    0x0AD6_A026_1ACF_967E,
    0x0AF7_0154_920B_3AB8,
];

/// `1/1, 1/2, … 1/10` in Q63: the coefficients of the series.
pub static INVERSES: [u64; 10] = [
    0x8000_0000_0000_0000,
    0x4000_0000_0000_0000,
    0x2AAA_AAAA_AAAA_AAAB,
    0x2000_0000_0000_0000,
    0x1999_9999_9999_999A,
    0x1555_5555_5555_5555,
    0x1249_2492_4924_9249,
    0x1000_0000_0000_0000,
    0x0E38_E38E_38E3_8E39,
    0x0CCC_CCCC_CCCC_CCCD,
];

/// `ln(mass / 2^42)` in Q60, for a mass that holds at least the weight of the row's maximum; a smaller one counts as that.
///
/// ```
/// use qrita_core::logarithm::ln_mass;
/// use qrita_core::weight::ONE;
/// assert_eq!(ln_mass(ONE), 0);
/// let two = ln_mass(2 * ONE) as f64 / (1u64 << 60) as f64;
/// assert!((two - std::f64::consts::LN_2).abs() < 1e-15);
/// ```
#[inline]
pub fn ln_mass(mass: u64) -> u64 {
    let mass = mass.max(ONE);
    let zeros = mass.leading_zeros();
    let m = mass << zeros; // Q63
    let e = u64::from(21 - zeros);
    let j = (m >> 57) & 63;
    let rest = m - ((64 + j) << 57);
    let z = multiply_high(rest << 6, RECIPROCAL_TABLE[j as usize]); // Q68
    let mut series = INVERSES[9];
    for &inverse in INVERSES[..9].iter().rev() {
        series = inverse - (multiply_high(z, series) >> 4);
    }
    e * LN2 + LN_TABLE[j as usize] + (multiply_high(z, series) >> 7)
}

/// The log-probabilities of one law: `d − ln(mass / 2^42)`, with the logarithm taken once.
///
/// ```
/// use qrita_core::logarithm::Logprob;
/// use qrita_core::weight::ONE;
/// let law = Logprob::new(2 * ONE);
/// assert_eq!(law.of(0.0), -std::f32::consts::LN_2);
/// assert_eq!(law.of(f32::NEG_INFINITY), f32::NEG_INFINITY);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Logprob {
    ln: u64,
}

impl Logprob {
    /// The law with this mass: of the kept set, or of the whole row.
    #[inline]
    pub fn new(mass: u64) -> Logprob {
        Logprob { ln: ln_mass(mass) }
    }

    /// The log-probability of a token at the scaled distance `d` (see [`distance`](crate::weight::distance)), rounded
    /// once to f32. A `d` of `−∞` stays `−∞`.
    #[inline]
    pub fn of(self, d: f32) -> f32 {
        let bits = d.to_bits() & 0x7FFF_FFFF;
        let exponent = bits >> 23;
        // From 2^30 on, 21·ln2 is less than half the distance to the next f32.
        if exponent >= 127 + 30 {
            return d;
        }
        if self.ln == 0 {
            return if bits == 0 { 0.0 } else { d };
        }
        // |d| + ln in Q96. Bits of d below that are kept as one sticky bit: the sum is at least 2^-43, so they can only
        // break a tie.
        let significand = if exponent == 0 { bits } else { (bits & 0x007F_FFFF) | 0x0080_0000 };
        let (exponent, significand) = (exponent.max(1), u128::from(significand));
        let magnitude = if exponent >= 54 {
            significand << (exponent - 54)
        } else {
            let shift = 54 - exponent;
            (significand >> shift) | u128::from(significand & ((1 << shift) - 1) != 0)
        };
        -round_q96(magnitude + (u128::from(self.ln) << 36))
    }
}

/// One log-probability: [`Logprob::of`] of the law with this mass.
///
/// ```
/// use qrita_core::logarithm::logprob;
/// use qrita_core::weight::ONE;
/// assert_eq!(logprob(0.0, ONE), 0.0);
/// assert_eq!(logprob(-500.0, ONE), -500.0);
/// ```
pub fn logprob(d: f32, mass: u64) -> f32 {
    Logprob::new(mass).of(d)
}

/// The f32 nearest to `value · 2^-96`, ties to even, for values whose nearest f32 is normal.
fn round_q96(value: u128) -> f32 {
    let top = 127 - value.leading_zeros();
    let drop = top - 23;
    let kept = (value >> drop) as u32;
    let rest = value & ((1 << drop) - 1);
    let half = 1u128 << (drop - 1);
    let up = rest > half || (rest == half && kept & 1 == 1);
    // The implicit bit adds one to the exponent field; a carry out of the significand adds the next one.
    let field = top + 127 - 96 - 1;
    f32::from_bits((field << 23) + kept + u32::from(up))
}

#[inline]
fn multiply_high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}
