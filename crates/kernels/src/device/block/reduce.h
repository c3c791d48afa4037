// Reductions over a block. All threads call them together, and all get the result.

DEVICE u32 lane_index() { return thread_index() % WARP; }
DEVICE u32 warp_index() { return thread_index() / WARP; }
DEVICE u32 warp_count() { return thread_count() / WARP; }

#define MOST_WARPS 32u

template <typename Op>
DEVICE u64 warp_reduce(u64 value, Op op) {
    for (u32 step = WARP / 2; step > 0; step /= 2) value = op(value, warp_shuffle(value, lane_index() ^ step));
    return value;
}

template <typename Op>
DEVICE u64 block_reduce(u64 value, Op op) {
    SHARED u64 parts[MOST_WARPS];
    value = warp_reduce(value, op);
    block_sync(); // the last reduction's results were read
    if (lane_index() == 0) parts[warp_index()] = value;
    block_sync();
    value = parts[0];
    for (u32 warp = 1; warp < warp_count(); warp++) value = op(value, parts[warp]);
    return value;
}

DEVICE_CALL u64 block_sum(u64 value) {
    return block_reduce(value, [](u64 a, u64 b) { return a + b; });
}
DEVICE_CALL u64 block_max(u64 value) {
    return block_reduce(value, [](u64 a, u64 b) { return a > b ? a : b; });
}
DEVICE_CALL u64 block_min(u64 value) {
    return block_reduce(value, [](u64 a, u64 b) { return a < b ? a : b; });
}
// A floating-point sum: for hints alone.
DEVICE_CALL float block_sum_hint(float value) {
    u64 sum = block_reduce(float_bits(value), [](u64 a, u64 b) {
        return (u64)float_bits(add_rn(bits_float((u32)a), bits_float((u32)b)));
    });
    return bits_float((u32)sum);
}
// The same with the error of a few roundings in 53 bits: for bounded masses.
DEVICE_CALL double block_sum_double(double value) {
    u64 sum = block_reduce(double_bits(value), [](u64 a, u64 b) { return double_bits(bits_double(a) + bits_double(b)); });
    return bits_double(sum);
}

// The sum of the values of the threads before this one.
DEVICE_CALL u64 block_sum_before(u64 value) {
    SHARED u64 parts[MOST_WARPS];
    u64 sum = value;
    for (u32 step = 1; step < WARP; step *= 2) {
        u64 other = warp_shuffle(sum, lane_index() >= step ? lane_index() - step : lane_index());
        if (lane_index() >= step) sum += other;
    }
    block_sync();
    if (lane_index() == WARP - 1) parts[warp_index()] = sum;
    block_sync();
    u64 before = sum - value;
    for (u32 warp = 0; warp < warp_index(); warp++) before += parts[warp];
    return before;
}

// The value of the thread that has one, which is not 0; 0 if none has.
DEVICE_CALL u64 block_pick(u64 value) {
    return block_reduce(value, [](u64 a, u64 b) { return a | b; });
}
