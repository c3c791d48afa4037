// The first candidates in order: of the gathered, for outputs that list them; of the row, whatever of them is kept, with their
// log-probabilities in the whole row.

#define NO_TOKEN 0xFFFFFFFFu

DEVICE float logprob_of_key(const Row &row, u32 key, u64 ln) {
    return logprob_of(distance_bits(key_value(key), row.max, row.args.temperature), ln);
}

// Calls `each(rank, candidate)` for the first `count` of the gathered that `shown` keeps. They are a prefix of the row's order,
// with perhaps some that follow. Of many, all are sorted; of few, each one's rank is counted.
template <typename Each>
DEVICE void for_first(Row &row, const Boundary &shown, u32 count, Each each) {
    bool sorted = row.gathered_count > RANK_CAPACITY;
    if (sorted) block_sort_candidates(row.gathered, row.gathered_count);
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        if (!keeps(shown, candidate)) continue;
        u32 rank = sorted ? i : 0;
        for (u32 j = 0; j < row.gathered_count && !sorted; j++) rank += row.gathered[j] > candidate;
        if (rank < count) each(rank, candidate);
    }
}

// A key that at least `count` candidates reach; the least one where that is not seen at once. As many threads have a logit from
// it on as there must be candidates: among the threads' greatest it is found without the row.
DEVICE u32 key_reached(const Row &row, u32 count) {
    if (count > thread_count()) return KEY_LEAST;
    u32 greatest = 0;
    for_each(row.call, row.args, row.view, [&](u32, float y) {
        u32 key = key_of(y);
        greatest = key > greatest ? key : greatest;
    });
    u32 low = KEY_LEAST, high = candidate_key(row.first);
#pragma unroll 1
    while (low < high) {
        u32 middle = high - (high - low) / 2;
        if (block_sum(greatest >= middle) >= count) low = middle;
        else high = middle - 1;
    }
    return low;
}

// Makes the gathered the row's first `count` candidates, or all where there are not as many, with perhaps some that follow.
DEVICE void gather_first(Row &row, u32 count) {
    Boundary shown = Boundary{key_reached(row, count), ALL, count};
    row.gathered = row.shared;
#pragma unroll 1
    for (;;) {
        row.gathered_count = gather_where(row, row.shared, GATHER_CAPACITY,
                                          [=](u32 key, u32 id) { return keeps(shown, candidate_of(key, id)); });
        if (row.gathered_count <= GATHER_CAPACITY) return;
        // More than there is room for: those of a count.
        Found found = pivot_search<1>(row, FROM_ROW, Goal{false, count, false}, shown.key, candidate_key(row.first));
        shown = Boundary{found.key, tied_id(row, FROM_ROW, found.key, count - found.above), count};
    }
}

// Before all other outputs: what is gathered here has what they need, or leaves them what they had.
DEVICE void write_top(Row &row, const Boundary &boundary) {
    u32 count = row.call.top;
    u64 start = (u64)row.view.row * count;
    u32 *ids = row.call.top_ids + start;
    float *logprobs = row.call.top_logprobs + start;
    u32 found = 0;
    if (!is_empty(row) && count > 0) {
        // The kept are the first ones: those that are listed will do if they are enough, and are among them if not.
        if (!row.listed || boundary.kept < count) {
            gather_first(row, count);
            row.listed = boundary.kept <= count;
        }
        u64 ln = ln_mass(mass_from(row, KEY_LEAST));
        for_first(row, Boundary{KEY_LEAST, ALL, count}, count, [&](u32 rank, u64 candidate) {
            ids[rank] = candidate_id(candidate);
            logprobs[rank] = logprob_of_key(row, candidate_key(candidate), ln);
        });
        found = row.gathered_count;
    }
    for (u32 i = found + thread_index(); i < count; i += thread_count()) {
        ids[i] = NO_TOKEN;
        logprobs[i] = bits_float(0xFF800000u);
    }
}
