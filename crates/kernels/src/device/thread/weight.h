// The weight of a logit: `weight.rs` of qrita-core has the sequence and its proof; this has the same values at every step.
// EXP2_TABLE is generated from there.

#define WEIGHT_ONE (1ull << 42)
#define LAST_DISTANCE_BITS 0x41E8E5BFu

// EXP2_TABLE where the block has it: a first read from the device's memory takes as long as the rest of some weights.
#define EXP2_ENTRIES 64u
SHARED u64 exp2_table[EXP2_ENTRIES];

// All threads call it, and meet before the first weight. In two halves where there is something to do between them: this
// thread's entry is read, and later put down.
DEVICE u64 read_table() { return thread_index() < EXP2_ENTRIES ? EXP2_TABLE[thread_index()] : 0; }
DEVICE void put_table(u64 entry) {
    if (thread_index() < EXP2_ENTRIES) exp2_table[thread_index()] = entry;
    // Of a block with fewer threads.
    for (u32 i = thread_count() + thread_index(); i < EXP2_ENTRIES; i += thread_count()) exp2_table[i] = EXP2_TABLE[i];
}
DEVICE void load_table() { put_table(read_table()); }

// Every intermediate value of 32 bits is written as one: sums and shifts of 64 bits take the hardware twice the instructions.
DEVICE u64 weight_of(u32 magnitude) {
    if (magnitude > LAST_DISTANCE_BITS) return 0;
    // The significand's 24 bits at the top of a word, so that for every exponent x comes of one shift to the right.
    u64 significand = (u64)((magnitude & 0x007FFFFFu) | 0x00800000u) << 40;
    u64 x = shift_right(significand, 132 - (magnitude >> 23));

    u32 k = multiply_high((u32)(x >> 32), (u32)INV_LN2_64TH) >> 19;
    u64 r = x - (multiply_wide(k, (u32)LN2_64TH) + ((u64)(k * (u32)(LN2_64TH >> 32)) << 32));
    u32 n = k >> 6, j = k & 63;

    u32 r38 = (u32)(r >> 20);
    u32 square = (u32)(multiply_wide(r38, r38) >> 31);
    u32 poly = (u32)TAYLOR[2] - (multiply_high(r38, (u32)TAYLOR[3]) >> 6);
    poly = (u32)TAYLOR[1] - (multiply_high(r38, poly) >> 6);
    poly = (u32)TAYLOR[0] - (multiply_high(r38, poly) >> 6);
    u64 u = r - (multiply_wide(square, poly) >> 19);

    u64 entry = exp2_table[j];
    u32 entry_hi = (u32)(entry >> 31), entry_lo = (u32)entry & 0x7FFFFFFFu;
    u32 u_hi = (u32)(u >> 20), u_lo = (u32)u & 0xFFFFFu;
    u64 product = (multiply_wide(entry_hi, u_hi) >> 7) + ((u32)(multiply_wide(entry_hi, u_lo) >> 27) + (multiply_high(entry_lo, u_hi) >> 6));
    return (((entry - product) >> (n + 19)) + 1) >> 1;
}

// The bits of |d|, d = (y − max) / temperature.
DEVICE u32 distance_bits(float y, float max, float temperature) {
    if (y == max) return 0;
    if (temperature == 0.0f) return 0x7F800000u;
    return float_bits(div_rn(sub_rn(y, max), temperature)) & 0x7FFFFFFFu;
}

// What the weights of a whole row are made with, if there are many: the same bits for less time.
//
// A division by T is one multiplication by its reciprocal, corrected twice by the remainder, which a fused multiply-add has
// exactly. The first correction leaves one of the two floats about the quotient; the second, as the reciprocal is the
// correctly rounded one, the rounded quotient (Markstein, IBM J. Res. Dev. 34, 1990). That is so where no remainder underflows
// and nothing overflows. With T between 2^-30 and 2^30 they do only for a dividend below 2^-90, whose weight is that of 0
// whatever the quotient's error, or for one so great that the quotient, an infinity or NaN in its place, weighs nothing.
struct Scale {
    float max, temperature, reciprocal;
    bool is_plain;
};

DEVICE Scale scale_of(float max, float temperature) {
    bool is_plain = temperature >= 9.313225746154785e-10f && temperature <= 1073741824.0f && max < bits_float(0x7F800000u);
    return Scale{max, temperature, div_rn(1.0f, is_plain ? temperature : 1.0f), is_plain};
}

DEVICE u64 weight_at(const Scale &scale, float y) {
    u32 bits;
    if (scale.is_plain) {
        float difference = sub_rn(y, scale.max);
        float quotient = mul_rn(difference, scale.reciprocal);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            float remainder = fma_rn(-quotient, scale.temperature, difference);
            quotient = fma_rn(remainder, scale.reciprocal, quotient);
        }
        bits = float_bits(quotient) & 0x7FFFFFFFu;
    } else {
        bits = distance_bits(y, scale.max, scale.temperature);
    }
    return weight_of(bits);
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
