// Stage 3, dedup: the last token that a prefix keeps (paper, duplication handling).

// The id of the `quota`-th logit of the row with this key, which one has: from the row's start on, tile by tile, as far as it
// takes, for ties are often many and their quota small.
DEVICE u32 tied_id_in_row(const Row &row, u32 key, u32 quota) {
    const u32 items = 8;
    SHARED u32 found;
    u32 before = 0;
    for (u32 tile = 0; tile < row.view.vocab; tile += items * thread_count()) {
        // Neighbouring ids to neighbouring threads; each item of the tile is a slice of it.
        u32 mine = 0, count = 0;
        float loaded[items];
#pragma unroll
        for (u32 i = 0; i < items; i++) {
            u32 id = tile + i * thread_count() + thread_index();
            loaded[i] = id < row.view.vocab ? effective(row.call, row.args, row.view, id) : bits_float(0xFF800000u);
        }
#pragma unroll
        for (u32 i = 0; i < items; i++) {
            bool is_tied = key_of(loaded[i]) == key;
            mine |= (u32)is_tied << i;
            count += is_tied;
        }
        u32 in_tile = block_sum(count);
        if (before + in_tile < quota) {
            before += in_tile;
            continue;
        }
        // In the tile: slice by slice.
#pragma unroll 1
        for (u32 i = 0; i < items; i++) {
            u32 is_tied = mine >> i & 1;
            u32 rank = before + block_sum_before(is_tied);
            if (is_tied && rank + 1 == quota) found = tile + i * thread_count() + thread_index();
            u32 in_slice = block_sum(is_tied);
            if (before + in_slice >= quota) return found;
            before += in_slice;
        }
    }
    // Fewer than the quota: the last of them.
    return locate_in_row(row, before - 1, [=](u32, u32 other) { return (u64)(other == key); });
}

// The id of the `quota`-th candidate with this key; the last one's where there are fewer.
DEVICE u32 tied_id(const Row &row, int source, u32 key, u32 quota) {
    if (source == FROM_GATHERED)
        return locate_in_gathered(row, quota - 1, [=](u64 candidate) { return (u64)(candidate_key(candidate) == key); });
    return tied_id_in_row(row, key, quota);
}

DEVICE Boundary dedup(Row &row, const Prefix &prefix) {
    row.listed = covers(row, prefix.key);
    int source = covers_ties(row, prefix.key) ? FROM_GATHERED : FROM_ROW;
    if (prefix.counted && prefix.quota != ALL)
        return Boundary{prefix.key, tied_id(row, source, prefix.key, prefix.quota), prefix.above + prefix.quota};
    return Boundary{prefix.key, ALL, count_from(row, row.listed ? FROM_GATHERED : FROM_ROW, prefix.key)};
}

// The cut of a prefix, with the counts that only the stage's own output needs.
DEVICE void write_cut(const Row &row, Prefix prefix, StageRow &out) {
    if (!prefix.counted) {
        u32 least = KEY_INFINITY;
        for_each(row.call, row.args, row.view, [&](u32, float y) {
            u32 key = key_of(y);
            if (key >= prefix.key && key < least) least = key;
        });
        prefix.key = block_min(least);
        prefix.above = prefix.key == KEY_INFINITY ? 0 : count_from(row, FROM_ROW, prefix.key + 1);
    }
    u32 tied = count_equal(row, prefix.key);
    if (thread_index() == 0) {
        out.max = candidate_key(row.first);
        out.key = prefix.key;
        out.above = prefix.above;
        out.tied = tied;
        out.quota = prefix.quota < tied ? prefix.quota : tied;
    }
}
