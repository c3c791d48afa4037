// Stage 2, search: the prefix that the filters keep. `row.rs` of qrita-cpu has the same, and says why.

// Whether the gathered provably contain the kept set, but for ties with the last key of top-k.
DEVICE bool is_hit(Row &row, u32 floor) {
    if (row.call.force_fallback) return false;
    if (covers(row, floor)) return true;
    if (row.args.temperature == 0.0f) return row.gathered_count > 0;
    if (active_k(row)) return row.gathered_count >= active_k(row);
    if (row.args.top_p < 1.0f && row.gathered_count > 0)
        return gathered_mass_above(row, 0) >= need_of(row.args.top_p, mass_from(row, floor));
    return false;
}

// Top-k's prefix, with what top-p needs of it.
struct Limit {
    bool is_set;
    Prefix prefix;
    u64 weight, mass_above;
};

// Top-k's prefix without its count, before it is known to bind: everything that min-p keeps.
DEVICE Limit no_limit(u32 floor) { return Limit{false, Prefix{floor, 0, ALL, false}, 0, 0}; }

DEVICE Limit limit_of(Row &row, int source, Found found) {
    Limit limit;
    limit.is_set = true;
    limit.prefix = Prefix{found.key, found.above, keeps_all_ties(row) ? ALL : active_k(row) - found.above, true};
    limit.weight = weight_of_key(row, found.key);
    limit.mass_above = row.args.top_p < 1.0f ? mass_above(row, source, found.key) : 0;
    return limit;
}

// Leaves of the gathered those with keys from `low` on, of which they are known to have all above it, where there is room
// to put them aside.
DEVICE void narrow_gathered(Row &row, u32 low) {
    SHARED u32 count;
    u64 *spare = row.shared;
    if (row.gathered == row.shared) {
        if (row.gathered_count > RANK_CAPACITY && !row.scratch) return;
        spare = row.scratch ? row.scratch : row.shared + RANK_CAPACITY;
    }
    block_zero(&count);
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        if (candidate_key(candidate) < low) continue;
        u32 at = atomic_add(&count, 1u);
        // Scratch has room for all.
        if (at < GATHER_CAPACITY || spare != row.shared) spare[at] = candidate;
    }
    block_sync();
    if (spare == row.shared) {
        if (count > GATHER_CAPACITY) return;
        row.gathered = row.shared;
    } else {
        for (u32 i = thread_index(); i < count; i += thread_count()) row.shared[i] = spare[i];
    }
    row.gathered_count = count;
    u32 covered = low - 1;
    row.covered_above = covered > row.covered_above ? covered : row.covered_above;
    block_sync();
}

// The prefix of a need that is met at `found`.
DEVICE Prefix top_p_prefix(const Row &row, Found found, const Limit &limit, u64 need) {
    u32 quota = ALL;
    if (!keeps_all_ties(row)) {
        u64 weight = weight_of_key(row, found.key);
        // A weight of 0 can only be at top-k's own value, where the joint order has not met its need.
        u64 tied = weight == 0 ? ALL : (need - found.mass_above + weight - 1) / weight;
        quota = tied < ALL ? (u32)tied : ALL;
        if (limit.is_set && found.key == limit.prefix.key && limit.prefix.quota < quota) quota = limit.prefix.quota;
    }
    return Prefix{found.key, found.above, quota, true};
}

// `top_k_key` becomes the key of top-k's cut, or of the least that min-p keeps.
DEVICE Prefix search(Row &row, bool hit, u32 &top_k_key) {
    u32 max = candidate_key(row.first);
    top_k_key = max;
    if (row.args.temperature == 0.0f) return Prefix{max, 0, 1, true};
    u32 floor = floor_key(row), k = active_k(row);
    int source = hit ? FROM_GATHERED : FROM_ROW;
    // Shared, as in registers it would take those that the passes of the search need.
    SHARED Limit limit;
    block_sync();
    if (thread_index() == 0) limit = no_limit(floor);
    block_sync();
    // Top-k, then top-p: one after the other through the same search, which is most of the kernel's code.
#pragma unroll 1
    for (int filter = 0; filter < 2; filter++) {
        Goal goal;
        float share;
        if (filter == 0) {
            if (k == 0 || count_from(row, source, floor) < k) continue;
            goal = Goal{false, k, false};
            share = (float)k / (float)row.view.vocab;
        } else {
            top_k_key = limit.prefix.key;
            if (row.args.top_p >= 1.0f) return limit.prefix;
            // Without top-k's limit histograms find the mass of the row on their way.
            bool is_open =
                SEARCH == 3 && source == FROM_ROW && !limit.is_set && !row.raw_known && row.args.top_p > 0.0f;
            u64 universe = WEIGHT_ONE;
            if (!is_open)
                universe = limit.is_set && !(row.args.flags & JOINT)
                               ? limit.mass_above + limit.weight * tied_in(row, source, limit.prefix)
                               : mass_from(row, floor);
            goal = Goal{true, need_of(row.args.top_p, universe), is_open};
            share = (float)goal.value / (float)(row.raw_known ? facts.raw_mass : universe);
            if (goal.value == 0) return Prefix{max, 0, keeps_all_ties(row) ? ALL : 1, true};
            // Top-p's cut is at top-k's value or, with the joint order, below it.
            if (limit.is_set && limit.mass_above < goal.value)
                return top_p_prefix(row, Found{limit.prefix.key, limit.prefix.above, limit.mass_above}, limit, goal.value);
        }
        Found found = find(row, source, goal, share, floor, filter == 1 || row.args.top_p >= 1.0f);
        if (filter == 1) return top_p_prefix(row, found, limit, goal.value);
        Limit top_k_limit = limit_of(row, source, found);
        if (thread_index() == 0) limit = top_k_limit;
        block_sync();
        if (SEARCH == 2) source = FROM_GATHERED; // a sort gathers everything
        // Top-p looks at what top-k left alone, and so does all that follows.
        if (source == FROM_GATHERED) narrow_gathered(row, found.key);
    }
    return limit.prefix;
}
