// Passes over a row, or over the gathered, that come to one number.

// A count of candidates, and their mass where that is looked for.
struct Measure {
    u64 mass;
    u32 count;
};

DEVICE Measure block_sum_measure(const Measure &value, bool by_mass) {
    return block_reduce(value, Measure{0, 0}, [=](const Measure &part) {
        return Measure{by_mass ? warp_sum_wide(part.mass) : 0, warp_sum(part.count)};
    });
}

DEVICE u32 block_total(u32 count) { return block_sum(count); }
DEVICE u64 block_total(u64 mass) { return block_sum_wide(mass); }

// The sum of `each(id, key)` over the row: counts as u32, masses as u64.
template <typename T, typename Each>
DEVICE T sum_row(const Row &row, Each each) {
    T sum = 0;
    for_each(row.call, row.args, row.view, [&](u32 id, float y) { sum += each(id, key_of(y)); });
    return block_total(sum);
}

// The sum of `each(candidate)` over the gathered.
template <typename T, typename Each>
DEVICE T sum_gathered(const Row &row, Each each) {
    T sum = 0;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) sum += each(row.gathered[i]);
    return block_total(sum);
}

DEVICE u32 count_from(const Row &row, int source, u32 low) {
    if (source == FROM_ROW && low == KEY_LEAST && facts.candidates != 0) return facts.candidates;
    if (source == FROM_GATHERED)
        return sum_gathered<u32>(row, [=](u64 candidate) { return candidate_key(candidate) >= low; });
    return sum_row<u32>(row, [=](u32, u32 key) { return key >= low; });
}

DEVICE u32 count_equal(const Row &row, u32 wanted) {
    return sum_row<u32>(row, [=](u32, u32 key) { return key == wanted; });
}

// The mass of the row's candidates with keys from `floor` on.
DEVICE u64 mass_from(Row &row, u32 floor) {
    if (floor == KEY_LEAST && row.raw_known) return facts.raw_mass;
    const Row &fixed = row;
    u64 mass = sum_row<u64>(row, [&](u32, u32 key) { return key >= floor ? weight_of_key(fixed, key) : 0; });
    if (floor == KEY_LEAST) {
        row.raw_known = true;
        if (thread_index() == 0) facts.raw_mass = mass;
        block_sync();
    }
    return mass;
}

DEVICE u64 gathered_mass_above(const Row &row, u32 above) {
    return sum_gathered<u64>(row, [&](u64 candidate) {
        return candidate_key(candidate) > above ? weight_of_key(row, candidate_key(candidate)) : 0;
    });
}

// The mass above a key.
DEVICE u64 mass_above(Row &row, int source, u32 key) {
    if (source == FROM_GATHERED) return gathered_mass_above(row, key);
    return key == KEY_INFINITY ? 0 : mass_from(row, key + 1);
}

// How many candidates with the prefix's key belong to it.
DEVICE u64 tied_in(const Row &row, int source, const Prefix &prefix) {
    if (prefix.quota != ALL) return prefix.quota;
    if (source == FROM_GATHERED && covers(row, prefix.key))
        return sum_gathered<u32>(row, [=](u64 candidate) { return candidate_key(candidate) == prefix.key; });
    return count_equal(row, prefix.key);
}

// The id at which the cumulative sum of `value(id, key)` along the row first exceeds `target`. The whole sum does.
//
// The row is divided among the warps, the part that holds the target divided again: only the first round reads the row.
template <typename Value>
DEVICE u32 locate_in_row(const Row &row, u64 target, Value value) {
    SHARED u64 sums[MOST_WARPS];
    u32 start = 0, end = row.view.vocab;
    while (end - start > 1) {
        u32 each = (end - start + warp_count() - 1) / warp_count();
        u32 from = start + warp_index() * each, to = from + each < end ? from + each : end;
        u64 sum = 0;
        for (u32 id = from + lane_index(); id < to; id += WARP)
            sum += value(id, key_of(effective(row.call, row.args, row.view, id)));
        sum = warp_sum_wide(sum);
        block_sync();
        if (lane_index() == 0) sums[warp_index()] = sum;
        block_sync();
        u32 part = 0;
        while (part + 1 < warp_count() && target >= sums[part]) target -= sums[part++];
        start += part * each;
        end = start + each < end ? start + each : end;
    }
    return start;
}

// The same among the gathered.
template <typename Value>
DEVICE u32 locate_in_gathered(const Row &row, u64 target, Value value) {
    SHARED u64 sums[MOST_WARPS];
    u32 start = 0, end = row.view.vocab;
    while (end - start > 1) {
        u32 each = (end - start + MOST_WARPS - 1) / MOST_WARPS;
        block_sync();
        for (u32 part = thread_index(); part < MOST_WARPS; part += thread_count()) sums[part] = 0;
        block_sync();
        for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
            u32 id = candidate_id(row.gathered[i]);
            if (id >= start && id < end) {
                u64 add = value(row.gathered[i]);
                if (add) atomic_add(&sums[(id - start) / each], add);
            }
        }
        block_sync();
        u32 part = 0;
        while (part + 1 < MOST_WARPS && target >= sums[part]) target -= sums[part++];
        start += part * each;
        end = start + each < end ? start + each : end;
    }
    return start;
}
