// Random bits: Philox4x32-10, `philox.rs` of qrita-core.

// The 64 bits of a row's draw: 0 is that of an ordinary call.
DEVICE_CALL u64 random_bits(u64 seed, u64 position, u32 stream, u32 draw) {
    u32 a = (u32)position, b = (u32)(position >> 32), c = stream, d = draw;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        u64 left = multiply_wide(a, 0xD2511F53u), right = multiply_wide(c, 0xCD9E8D57u);
        a = (u32)(right >> 32) ^ b ^ k0;
        b = (u32)right;
        c = (u32)(left >> 32) ^ d ^ k1;
        d = (u32)left;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (u64)b << 32 | a;
}
