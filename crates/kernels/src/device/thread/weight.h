// The weight of a logit: `weight.rs` of qrita-core has the sequence and its proof; this is the same, operation for operation.
// EXP2_TABLE is generated from there.

#define WEIGHT_ONE (1ull << 42)
#define LAST_DISTANCE_BITS 0x41E8E5BFu

DEVICE u64 wide(u64 a, u64 b) { return (u64)(u32)a * (u32)b; }

WEIGHT_CALL u64 weight_of(u32 magnitude) {
    if (magnitude > LAST_DISTANCE_BITS) return 0;
    u32 exponent = magnitude >> 23;
    u64 significand = (magnitude & 0x007FFFFFu) | 0x00800000u;
    u64 x = exponent >= 92 ? significand << (exponent - 92) : (92 - exponent < 64 ? significand >> (92 - exponent) : 0);

    u64 k = wide(x >> 32, INV_LN2_64TH) >> 51;
    u64 r = x - ((wide(k, LN2_64TH >> 32) << 32) + wide(k, LN2_64TH & 0xFFFFFFFFu));
    u32 n = (u32)(k >> 6), j = (u32)k & 63;

    u64 r38 = r >> 20;
    u64 square = wide(r38, r38) >> 31;
    u64 poly = TAYLOR[2] - (wide(r38, TAYLOR[3]) >> 38);
    poly = TAYLOR[1] - (wide(r38, poly) >> 38);
    poly = TAYLOR[0] - (wide(r38, poly) >> 38);
    u64 u = r - (wide(square, poly) >> 19);

    u64 entry = EXP2_TABLE[j];
    u64 entry_hi = entry >> 31, entry_lo = entry & 0x7FFFFFFFu;
    u64 u_hi = u >> 20, u_lo = u & 0xFFFFFu;
    u64 product = (wide(entry_hi, u_hi) >> 7) + (wide(entry_hi, u_lo) >> 27) + (wide(entry_lo, u_hi) >> 38);
    return (((entry - product) >> (n + 19)) + 1) >> 1;
}

// The bits of |d|, d = (y − max) / temperature.
DEVICE u32 distance_bits(float y, float max, float temperature) {
    if (y == max) return 0;
    if (temperature == 0.0f) return 0x7F800000u;
    return float_bits(div_rn(sub_rn(y, max), temperature)) & 0x7FFFFFFFu;
}

// ceil(p · mass) for 0 ≤ p ≤ 1, p as the exact number that the float is.
DEVICE_CALL u64 need_of(float p, u64 mass) {
    u32 bits = float_bits(p) & 0x7FFFFFFFu;
    u32 exponent = bits >> 23;
    u64 significand = exponent == 0 ? bits : ((bits & 0x007FFFFFu) | 0x00800000u);
    u32 shift = 150 - (exponent == 0 ? 1 : exponent);
    u64 high = multiply_high(significand, mass), low = significand * mass;
    if (shift > 127) return (high | low) != 0;
    if (shift >= 64) {
        u64 rest = shift == 64 ? 0 : high & ((1ull << (shift - 64)) - 1);
        return (high >> (shift - 64)) + ((rest | low) != 0);
    }
    // p is at least 2^-40 here, and at most 1: shift is from 23 to 63.
    u64 rest = low & ((1ull << shift) - 1);
    return (high << (64 - shift) | low >> shift) + (rest != 0);
}
