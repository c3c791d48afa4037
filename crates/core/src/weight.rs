//! The weight of a logit: `2^42 · e^d` as an integer, by integer operations alone.
//!
//! # Why integers
//!
//! Every decision of a filter compares sums of `e^d`. A floating-point `exp` differs between a CPU, two GPUs and two
//! compilers, and a floating-point sum differs between two launch shapes on one GPU. A sum of integers is associative,
//! and integer operations have one answer on all hardware, so neither can move a token across a cut.
//!
//! # The sequence
//!
//! With `x = −d ≥ 0` as a fixed-point number with 58 fractional bits (written Q58; exact down to 2^-58):
//!
//! 1. `x = k·ln2/64 + r` with `0 ≤ r < ln2/64 + 2^-26`: `k` by one 32-bit multiply on the upper half of `x`, truncated
//!    so that it never exceeds the true quotient, `r` by subtraction in Q58. Write `k = 64n + j`.
//! 2. `1 − e^-r = u = r − v` with `v = r²·(1/2 − r/6 + r²/24 − r³/120)`, Horner in Q32 on the upper 32 bits of `r`.
//! 3. `2^(−j/64)·(1 − u)` from a 64-entry table in Q62, the product assembled of three 32×32→64 multiplies.
//! 4. Shift right by `n + 20` and round half up: Q62 becomes Q42.
//!
//! Eleven 32×32→64 multiplies and no wider one, because that is the multiply which AVX2, AVX-512, NEON and every GPU
//! have; one table of 512 bytes.
//!
//! # Bounds
//!
//! The remainder term of step 2 is below `r⁶/720 < 2^-48.6`, the truncations of `r`, of the products and of the table
//! stay below `2^-44` together, and step 4 adds half a unit: `|w − 2^42·e^d| < 0.75` wherever `d ≥ −42·ln2`. Below
//! that, `2^42·e^d < 1` and `w` is 0. That the error stays within one unit and that `w` is monotone is not argued but
//! *checked*, on every non-positive `f32`, against a 100-bit reference: `qrita-testkit`, test `weight_exhaustive`.

/// `w(0)`: the weight of the row's largest logit, 2^42.
pub const ONE: u64 = 1 << 42;

/// Fractional bits of a weight: `ONE = 1 << FRACTION_BITS`.
pub const FRACTION_BITS: u32 = 42;

/// Bits of the largest `|d|` whose weight is not zero: the last f32 before 42·ln2 = 29.112…
pub const LAST_DISTANCE_BITS: u32 = 0x41E8_E5BF;

/// `2^(−j/64)` in Q62, each entry the nearest integer; `qrita-testkit` checks every one.
pub static EXP2_TABLE: [u64; 64] = [
    0x4000_0000_0000_0000,
    0x3F4F_8303_3D21_B05D,
    0x3EA0_ECB6_DC8A_80CF,
    0x3DF4_37DC_C2B4_4EEE,
    0x3D49_5F45_4921_B30B,
    0x3CA0_5DCF_167F_EC4E,
    0x3BF9_2E66_F736_BD73,
    0x3B53_CC07_B665_0AE1,
    0x3AB0_31B9_F749_0E4C,
    0x3A0E_5A94_0F12_F71A,
    0x396E_41B9_DF20_D22A,
    0x38CF_E25C_AFA2_9694,
    0x3833_37BB_0AA5_3844,
    0x3798_3D20_9783_A449,
    0x36FE_EDE5_F6BC_8DD5,
    0x3667_4570_9E2B_F5ED,
    0x35D1_3F32_B5A7_5ABD,
    0x353C_D6AA_F3FB_7E88,
    0x34AA_0764_7C4A_B917,
    0x3418_CCF6_BBCA_C965,
    0x3389_2305_47E1_2039,
    0x32FB_053F_BC9C_9F17,
    0x326E_6F61_9B8B_C9E9,
    0x31E3_5D32_2AEE_6C57,
    0x3159_CA84_5541_B6B7,
    0x30D1_B336_8925_D902,
    0x304B_1332_999C_2516,
    0x2FC5_E66D_9E9C_C421,
    0x2F42_28E7_D603_0DB0,
    0x2EBF_D6AC_84CF_917F,
    0x2E3E_EBD1_D8BE_E7BA,
    0x2DBF_6478_CA34_5DE4,
    0x2D41_3CCC_FE77_9921,
    0x2CC4_7104_AA44_4922,
    0x2C48_FD60_74AB_0964,
    0x2BCE_DE2B_5A42_90DD,
    0x2B56_0FBA_90A8_52B2,
    0x2ADE_8E6D_6A4F_B4CE,
    0x2A68_56AD_3A9F_03BE,
    0x29F3_64ED_3A59_4D5A,
    0x297F_B5AA_6C54_4E3B,
    0x290D_456B_8279_A028,
    0x289C_10C0_C312_5A06,
    0x282C_1443_EE5C_53F1,
    0x27BD_4C98_2468_446B,
    0x274F_B669_CB3F_EDD4,
    0x26E3_4E6E_7553_954E,
    0x2678_1164_C82D_FE99,
    0x260D_FC14_636E_2A5C,
    0x25A5_0B4D_C806_1680,
    0x253D_3BEA_3FBD_C258,
    0x24D6_8ACB_C4F9_BA4B,
    0x2470_F4DC_EAC4_70CE,
    0x240C_7710_C519_AC77,
    0x23A9_0E62_D173_54F0,
    0x2346_B7D6_DF96_EA79,
    0x22E5_7078_FAA2_F5BA,
    0x2285_355D_525B_BF67,
    0x2226_03A0_24B6_A14A,
    0x21C7_D865_A7A3_4404,
    0x216A_B0D9_F312_1EC5,
    0x210E_8A30_EB37_9012,
    0x20B3_61A6_2B0A_E876,
    0x2059_347C_EF00_C1DD,
];

/// `ln2/64` in Q58, rounded down, so that the remainder never turns negative.
pub const LN2_64TH: u64 = 0x000B_1721_7F7D_1CF7;
/// `64/ln2` in Q25, rounded down.
pub const INV_LN2_64TH: u64 = 0xB8AA_3B29;
/// `1/2`, `1/6`, `1/24`, `1/120` in Q32.
pub const TAYLOR: [u64; 4] = [0x8000_0000, 0x2AAA_AAAB, 0x0AAA_AAAB, 0x0222_2222];

/// The weight of a logit `d` nats below the row's largest: `2^42 · e^d` to within one unit, monotone in `d`.
///
/// `d` is the scaled distance `(y − M) / T` of the contract (see [`distance`]): non-positive, `−∞` for a logit that
/// can not be drawn. Only the magnitude is read, so that `+0` and `−0` weigh the same.
///
/// ```
/// use qrita_core::weight::{ONE, weight};
/// assert_eq!(weight(0.0), ONE);
/// assert_eq!(weight(-29.2), 0);
/// assert_eq!(weight(f32::NEG_INFINITY), 0);
/// let third = weight(-1.098_612_3) as f64 / ONE as f64;
/// assert!((third - 1.0 / 3.0).abs() < 1e-7);
/// ```
#[inline]
pub fn weight(d: f32) -> u64 {
    let magnitude = d.to_bits() & 0x7FFF_FFFF;
    if magnitude > LAST_DISTANCE_BITS {
        return 0;
    }
    let exponent = magnitude >> 23;
    // Subnormals get the implicit bit too: they vanish in Q58 either way.
    let significand = u64::from((magnitude & 0x007F_FFFF) | 0x0080_0000);
    // significand · 2^(exponent − 150), in Q58.
    let x = if exponent >= 92 {
        significand << (exponent - 92)
    } else {
        significand.checked_shr(92 - exponent).unwrap_or(0)
    };

    let k = ((x >> 32) * INV_LN2_64TH) >> 51;
    let r = x - k * LN2_64TH;
    let (n, j) = ((k >> 6) as u32, (k & 63) as usize);

    let r38 = r >> 20;
    let square = (r38 * r38) >> 31; // Q45
    let poly = TAYLOR[2] - ((r38 * TAYLOR[3]) >> 38);
    let poly = TAYLOR[1] - ((r38 * poly) >> 38);
    let poly = TAYLOR[0] - ((r38 * poly) >> 38);
    let u = r - ((square * poly) >> 19); // Q58

    let entry = EXP2_TABLE[j];
    let (entry_hi, entry_lo) = (entry >> 31, entry & 0x7FFF_FFFF);
    let (u_hi, u_lo) = (u >> 20, u & 0xF_FFFF);
    let product = ((entry_hi * u_hi) >> 7) + ((entry_hi * u_lo) >> 27) + ((entry_lo * u_hi) >> 38);
    (((entry - product) >> (n + 19)) + 1) >> 1
}

/// The scaled distance `d = (y − M) / T` of a logit `y` from the row's largest logit `max`.
///
/// One subtraction and one division, each rounded to nearest; 0 for every `y` equal to `max`, also when both are `+∞`.
/// At `temperature` 0 the law is the limit: everything below the maximum is `−∞` away.
///
/// ```
/// use qrita_core::weight::distance;
/// assert_eq!(distance(1.0, 3.0, 0.5), -4.0);
/// assert_eq!(distance(f32::INFINITY, f32::INFINITY, 1.0), 0.0);
/// assert_eq!(distance(2.0, 3.0, 0.0), f32::NEG_INFINITY);
/// ```
#[inline]
pub fn distance(y: f32, max: f32, temperature: f32) -> f32 {
    if y == max {
        0.0
    } else if temperature == 0.0 {
        f32::NEG_INFINITY
    } else {
        (y - max) / temperature
    }
}

/// The mass that top-p must gather: `ceil(p · mass)`, with `p` taken as the exact real number that the f32 is.
///
/// Also min-p's least weight, with `mass` = [`ONE`]. `p` is in `0 ..= 1`; at 1 the answer is `mass`.
///
/// ```
/// use qrita_core::weight::need;
/// assert_eq!(need(0.5, 7), 4);
/// // 0.9f32 is 0.89999997615814…, so nine of ten equal weights are enough.
/// assert_eq!(need(0.9, 10 << 42), 39_582_417_551_360);
/// ```
pub fn need(p: f32, mass: u64) -> u64 {
    debug_assert!((0.0..=1.0).contains(&p));
    let bits = p.to_bits() & 0x7FFF_FFFF;
    let exponent = bits >> 23;
    let significand = if exponent == 0 { bits } else { (bits & 0x007F_FFFF) | 0x0080_0000 };
    // p = significand · 2^-shift; the product has at most 24 + 63 bits.
    let shift = 150 - exponent.max(1);
    let product = u128::from(significand) * u128::from(mass);
    if shift > 127 {
        return u64::from(product != 0);
    }
    product.div_ceil(1u128 << shift) as u64
}
