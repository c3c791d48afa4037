// Stage 3, dedup: the last token that a prefix keeps (paper, duplication handling).

// The id of the `quota`-th candidate with this key; the last one's where there are fewer.
DEVICE u32 tied_id(const Row &row, int source, u32 key, u32 quota) {
    if (source == FROM_GATHERED)
        return locate_in_gathered(row, quota - 1, [=](u64 candidate) { return (u64)(candidate_key(candidate) == key); });
    return locate_in_row(row, quota - 1, [=](u32, u32 other) { return (u64)(other == key); });
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
