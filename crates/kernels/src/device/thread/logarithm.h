// The logarithm of a mass and the log-probability: `logarithm.rs` of qrita-core has the sequence and its proof. The tables
// RECIPROCAL_TABLE, LN_TABLE, INVERSES and the constant LN2 are generated from there.

// ln(mass / 2^42) in Q60, for a mass of at least 2^42.
DEVICE_CALL u64 ln_mass(u64 mass) {
    if (mass < WEIGHT_ONE) mass = WEIGHT_ONE;
    u32 zeros = leading_zeros(mass);
    u64 m = mass << zeros;
    u64 j = (m >> 57) & 63;
    u64 rest = m - ((64 + j) << 57);
    u64 z = multiply_high(rest << 6, RECIPROCAL_TABLE[j]);
    u64 series = INVERSES[9];
    for (int i = 8; i >= 0; i--) series = INVERSES[i] - (multiply_high(z, series) >> 4);
    return (21 - zeros) * LN2 + LN_TABLE[j] + (multiply_high(z, series) >> 7);
}

// d − ln(mass / 2^42) rounded once, from the bits of |d| and the logarithm in Q60.
DEVICE_CALL float logprob_of(u32 bits, u64 ln) {
    u32 exponent = bits >> 23;
    if (exponent >= 127 + 30) return bits_float(bits | 0x80000000u);
    if (ln == 0) return bits == 0 ? 0.0f : bits_float(bits | 0x80000000u);
    u64 significand = exponent == 0 ? bits : ((bits & 0x007FFFFFu) | 0x00800000u);
    if (exponent == 0) exponent = 1;
    // |d| + ln in Q96, 128 bits; what of d lies below is one sticky bit.
    u64 high = 0, low;
    if (exponent >= 54) {
        u32 shift = exponent - 54;
        if (shift >= 64) {
            high = significand << (shift - 64);
            low = 0;
        } else {
            high = shift == 0 ? 0 : significand >> (64 - shift);
            low = significand << shift;
        }
    } else {
        u32 shift = 54 - exponent;
        low = (significand >> shift) | ((significand & ((1ull << shift) - 1)) != 0);
    }
    u64 sum = low + (ln << 36);
    high += (ln >> 28) + (sum < low);
    low = sum;
    // The nearest float, ties to even. The sum is at least 2^-43: at least 30 bits are dropped.
    u32 top = high != 0 ? 127 - leading_zeros(high) : 63 - leading_zeros(low);
    u32 drop = top - 23;
    u64 kept, above_half, half;
    if (drop > 64) {
        u32 by = drop - 64;
        kept = high >> by;
        u64 rest = high & ((1ull << by) - 1);
        half = 1ull << (by - 1);
        above_half = rest > half || (rest == half && low != 0);
        half = rest == half && low == 0;
    } else if (drop == 64) {
        kept = high;
        above_half = low > 1ull << 63;
        half = low == 1ull << 63;
    } else {
        kept = high << (64 - drop) | low >> drop;
        u64 rest = low & ((1ull << drop) - 1);
        above_half = rest > 1ull << (drop - 1);
        half = rest == 1ull << (drop - 1);
    }
    u32 up = above_half || (half && (kept & 1));
    u32 field = top + 127 - 96 - 1;
    return bits_float(0x80000000u | ((field << 23) + (u32)kept + up));
}
