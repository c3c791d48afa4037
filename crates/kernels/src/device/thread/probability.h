// The probability of a kept token: `probability.rs` of qrita-core has the same bits.

// The float nearest to weight / mass, ties to even, for weights up to the mass and masses up to 2^63: a long division, bit by
// bit, as no device divides 128 bits by 64. What is left after 24 bits and one for the half says where it is rounded to.
DEVICE_CALL float probability_of(u64 weight, u64 mass) {
    if (weight == 0) return 0.0f;
    if (weight >= mass) return 1.0f;
    // Between 1 and 2 times 2^-shift.
    u32 shift = leading_zeros(weight) - leading_zeros(mass);
    u64 rest = weight << shift;
    if (rest < mass) {
        rest <<= 1;
        shift += 1;
    }
    rest -= mass;
    u32 quotient = 1;
#pragma unroll 1
    for (u32 i = 0; i < 24; i++) {
        // Less than the mass before, and than 2^64 now.
        rest <<= 1;
        bool fits = rest >= mass;
        quotient = quotient << 1 | fits;
        rest -= fits ? mass : 0;
    }
    bool is_up = (quotient & 1) && (rest != 0 || (quotient & 2));
    // The leading bit adds one to the exponent's field, and a carry another.
    return bits_float(((126 - shift) << 23) + (quotient >> 1) + is_up);
}
