// Reductions over a warp and over a block. All threads of it call them together, and all get the result.
//
// Integers of 32 bits are what the hardware reduces over a warp in one instruction; sums of 64 bits are three of those; elsewhere shuffles do both. Over
// the block, each warp leaves its part, and every warp reduces all parts once more: two barriers, no loop.

DEVICE u32 lane_index() { return thread_index() % WARP; }
DEVICE u32 warp_index() { return thread_index() / WARP; }
DEVICE u32 warp_count() { return thread_count() / WARP; }

// By what the greatest power of two in a number shifts.
DEVICE u32 floor_shift_of(u32 number) { return 63 - leading_zeros(number); }

// Of at least 32 lanes, and at most 1024 threads in a block.
#define MOST_WARPS 32u

template <typename Op>
DEVICE u64 warp_reduce(u64 value, Op op) {
    for (u32 step = WARP / 2; step > 0; step /= 2) value = op(value, warp_shuffle(value, lane_index() ^ step));
    return value;
}

#ifndef HAS_WARP_REDUCTIONS
DEVICE u32 warp_sum(u32 value) {
    return (u32)warp_reduce(value, [](u64 a, u64 b) { return a + b; });
}
DEVICE u32 warp_max(u32 value) {
    return (u32)warp_reduce(value, [](u64 a, u64 b) { return a > b ? a : b; });
}
DEVICE u32 warp_min(u32 value) {
    return (u32)warp_reduce(value, [](u64 a, u64 b) { return a < b ? a : b; });
}
DEVICE u64 warp_sum_wide(u64 value) {
    return warp_reduce(value, [](u64 a, u64 b) { return a + b; });
}
#else
// In pieces of 22 bits, whose sums over a warp fit into 32.
DEVICE u64 warp_sum_wide(u64 value) {
    const u64 piece = (1ull << 22) - 1;
    u64 low = warp_sum((u32)(value & piece)), middle = warp_sum((u32)(value >> 22 & piece));
    return low + (middle << 22) + ((u64)warp_sum((u32)(value >> 44)) << 44);
}
#endif

template <typename T, typename Reduce>
DEVICE T block_reduce(T value, T none, Reduce reduce) {
    SHARED T parts[MOST_WARPS];
    value = reduce(value);
    block_sync(); // the last reduction's results were read
    if (lane_index() == 0) parts[warp_index()] = value;
    block_sync();
    // Not one expression: a choice between two memories would put `none` into local memory.
    T part = none;
    if (lane_index() < warp_count()) part = parts[lane_index()];
    return reduce(part);
}

// Sets a word of shared memory to 0, between what was done with it before and what is done next.
DEVICE void block_zero(u32 *shared) {
    block_sync();
    if (thread_index() == 0) *shared = 0;
    block_sync();
}

DEVICE_CALL u32 block_sum(u32 value) {
    return block_reduce(value, 0u, [](u32 part) { return warp_sum(part); });
}
DEVICE_CALL u32 block_max(u32 value) {
    return block_reduce(value, 0u, [](u32 part) { return warp_max(part); });
}
// Two at once, for the time of one.
struct Counts {
    u32 first, second;
};
DEVICE Counts block_sum_counts(const Counts &value) {
    return block_reduce(value, Counts{0, 0}, [](const Counts &part) {
        return Counts{warp_sum(part.first), warp_sum(part.second)};
    });
}
DEVICE Counts block_max_counts(const Counts &value) {
    return block_reduce(value, Counts{0, 0}, [](const Counts &part) {
        return Counts{warp_max(part.first), warp_max(part.second)};
    });
}
DEVICE_CALL u32 block_min(u32 value) {
    return block_reduce(value, 0xFFFFFFFFu, [](u32 part) { return warp_min(part); });
}
DEVICE_CALL u64 block_sum_wide(u64 value) {
    return block_reduce(value, (u64)0, [](u64 part) { return warp_sum_wide(part); });
}
// A floating-point sum: for hints alone.
DEVICE_CALL float block_sum_hint(float value) {
    return block_reduce(value, 0.0f, [](float part) {
        for (u32 step = WARP / 2; step > 0; step /= 2)
            part += bits_float((u32)warp_shuffle(float_bits(part), lane_index() ^ step));
        return part;
    });
}
// The same over a warp, with the error of a few roundings in 53 bits: for bounded masses.
DEVICE double warp_sum_double(double part) {
    for (u32 step = WARP / 2; step > 0; step /= 2)
        part += bits_double(warp_shuffle(double_bits(part), lane_index() ^ step));
    return part;
}

// The greatest candidate: of the greatest key, the least id.
DEVICE u64 block_max_candidate(u64 candidate) {
    u32 key = block_max((u32)(candidate >> 32));
    return (u64)key << 32 | block_max((u32)(candidate >> 32) == key ? (u32)candidate : 0u);
}

// A place behind a shared counter for each lane that wants one. All lanes of the warp call it: one of them adds for all, as a
// word of shared memory takes the lanes' additions one after the other.
DEVICE u32 take_place(u32 *counter, bool wants) {
    u64 all = warp_ballot(wants);
    u32 start = 0;
    if (lane_index() == 0 && all != 0) start = atomic_add(counter, count_bits(all));
    return (u32)warp_shuffle(start, 0) + count_bits(all & ((1ull << lane_index()) - 1));
}

// The sum of the values of the lanes before this one.
template <typename T>
DEVICE T warp_sum_before_of(T value) {
    T sum = value;
    for (u32 step = 1; step < WARP; step *= 2) {
        T other = (T)warp_shuffle(sum, lane_index() >= step ? lane_index() - step : lane_index());
        if (lane_index() >= step) sum += other;
    }
    return sum - value;
}
DEVICE u32 warp_sum_before(u32 value) { return warp_sum_before_of(value); }
DEVICE u64 warp_sum_before_wide(u64 value) { return warp_sum_before_of(value); }

// The sum of the values of the threads before this one.
template <typename T>
DEVICE T block_sum_before_of(T value) {
    SHARED T parts[MOST_WARPS];
    T before = warp_sum_before_of(value);
    block_sync();
    if (lane_index() == WARP - 1) parts[warp_index()] = before + value;
    block_sync();
    for (u32 warp = 0; warp < warp_index(); warp++) before += parts[warp];
    return before;
}
DEVICE_CALL u64 block_sum_before_wide(u64 value) { return block_sum_before_of(value); }
DEVICE_CALL u32 block_sum_before(u32 value) { return block_sum_before_of(value); }

// The value of the thread that has one, which is not 0; 0 if none has.
DEVICE u64 block_pick(u64 value) { return block_sum_wide(value); }
