// The ordered key of a logit, and a logit with its id as one integer: `key.rs` of qrita-core says why.

#define KEY_NEGATIVE_INFINITY 0x007FFFFFu
#define KEY_LEAST 0x00800000u
#define KEY_INFINITY 0xFF800000u
// Of no logit: −0 has the key of 0.
#define KEY_NEGATIVE_ZERO 0x7FFFFFFFu

DEVICE u32 key_of(float y) {
    u32 bits = float_bits(y);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return KEY_NEGATIVE_INFINITY; // NaN
    if (bits == 0x80000000u) bits = 0; // −0
    return bits ^ ((bits & 0x80000000u) ? 0xFFFFFFFFu : 0x80000000u);
}

DEVICE float key_value(u32 key) {
    return bits_float(key ^ ((key & 0x80000000u) ? 0x80000000u : 0xFFFFFFFFu));
}

// The greatest logit with a key up to this one, and up to infinity's.
DEVICE float value_up_to(u32 key) { return key_value(key == KEY_NEGATIVE_ZERO ? key - 1 : key); }

DEVICE u64 candidate_of(u32 key, u32 id) { return (u64)key << 32 | (u32)~id; }
DEVICE u32 candidate_key(u64 candidate) { return (u32)(candidate >> 32); }
DEVICE u32 candidate_id(u64 candidate) { return ~(u32)candidate; }
