// The probability of every token of the row among the kept: 0 of what goes.

// `mass` is that of the kept; without any it is not looked at.
DEVICE void write_probabilities(const Row &row, const Boundary &boundary, u64 mass) {
    float *probabilities = row.call.probabilities + (u64)row.view.row * row.view.vocab;
    if (boundary.kept > 0 && !row.listed) {
        for_each(row.call, row.args, row.view, [&](u32 id, float y) {
            u32 key = key_of(y);
            bool is_kept = keeps(boundary, candidate_of(key, id));
            probabilities[id] = is_kept ? probability_of(weight_of_key(row, key), mass) : 0.0f;
        });
        return;
    }
    for (u32 id = thread_index(); id < row.view.vocab; id += thread_count()) probabilities[id] = 0.0f;
    block_sync();
    if (boundary.kept == 0) return;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        if (keeps(boundary, candidate))
            probabilities[candidate_id(candidate)] = probability_of(weight_of_key(row, candidate_key(candidate)), mass);
    }
}
