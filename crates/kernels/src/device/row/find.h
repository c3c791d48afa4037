// Stage 2's inner step: where a goal is met, by the search that the plan names, among the gathered or in the whole row.

// The candidates from one pivot on: see `pivot.rs` of qrita-cpu for the search, its cost and its proof. The mass of the
// least follows from its key.
struct Tally {
    u64 mass;
    u32 count, least, least_count;
};

DEVICE void tally_add(Tally &tally, u32 pivot, u32 key, u64 weight) {
    if (key < pivot) return;
    tally.count += 1;
    tally.mass += weight;
    if (key < tally.least) {
        tally.least = key;
        tally.least_count = 0;
    }
    tally.least_count += key == tally.least;
}

// The tally of all lanes of the warp. Without `by_mass` there are no masses.
DEVICE Tally tally_warp(const Tally &tally, bool by_mass) {
    u32 least = warp_min(tally.least);
    u32 of_least = warp_sum(tally.least == least ? tally.least_count : 0);
    return Tally{by_mass ? warp_sum_wide(tally.mass) : 0, warp_sum(tally.count), least, of_least};
}

// The tallies of the whole block, for all pivots between the same two barriers.
template <u32 PIVOTS>
DEVICE void tally_block(Tally *tallies, bool by_mass) {
    SHARED Tally parts[PIVOTS][MOST_WARPS];
#pragma unroll
    for (u32 i = 0; i < PIVOTS; i++) tallies[i] = tally_warp(tallies[i], by_mass);
    block_sync();
    if (lane_index() == 0) {
#pragma unroll
        for (u32 i = 0; i < PIVOTS; i++) parts[i][warp_index()] = tallies[i];
    }
    block_sync();
#pragma unroll
    for (u32 i = 0; i < PIVOTS; i++) {
        Tally part = Tally{0, 0, 0xFFFFFFFFu, 0};
        if (lane_index() < warp_count()) part = parts[i][lane_index()];
        tallies[i] = tally_warp(part, by_mass);
    }
}

template <u32 PIVOTS>
DEVICE Found pivot_search(const Row &row, int source, Goal goal, u32 low, u32 high) {
    for (;;) {
        u64 span = (u64)(high - low) + 1;
        u32 at[PIVOTS];
        Tally tallies[PIVOTS];
#pragma unroll
        for (u32 i = 0; i < PIVOTS; i++) {
            at[i] = low + (u32)(span * (i + 1) / (PIVOTS + 1));
            tallies[i] = Tally{0, 0, 0xFFFFFFFFu, 0};
        }
        auto add = [&](u32 key) {
            u64 weight = goal.by_mass && key >= at[0] ? weight_of_key(row, key) : 0;
#pragma unroll
            for (u32 i = 0; i < PIVOTS; i++) tally_add(tallies[i], at[i], key, weight);
        };
        if (source == FROM_GATHERED) {
#pragma unroll 1
            for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
                add(candidate_key(row.gathered[i]));
        } else {
            for_each(row.call, row.args, row.view, [&](u32, float y) { add(key_of(y)); });
        }
        tally_block<PIVOTS>(tallies, goal.by_mass);
        // The greatest pivot that meets the goal, if one does.
        bool is_met = false;
        Tally tally = tallies[0];
#pragma unroll
        for (int i = (int)PIVOTS - 1; i >= 0; i--) {
            if (is_met) continue;
            tally = tallies[i];
            is_met = met(goal, tally.count, tally.mass);
            if (!is_met) high = at[i] - 1;
        }
        if (!is_met) continue;
        u32 above = tally.count - tally.least_count;
        u64 mass = goal.by_mass ? tally.mass - tally.least_count * weight_of_key(row, tally.least) : 0;
        if (!met(goal, above, mass)) return Found{tally.least, above, mass};
        low = tally.least + 1;
    }
}

// Where a goal is met among the gathered.
DEVICE Found narrow_search(const Row &row, Goal goal) {
    u32 least = KEY_INFINITY;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u32 key = candidate_key(row.gathered[i]);
        least = key < least ? key : least;
    }
    Interval interval =
        Interval{candidate_of(block_min(least), ALL), first_of_gathered(row), row.gathered_count, Measure{0, 0}};
    bool are_clear = false;
    narrow_to_few(row, interval, goal, are_clear);
    u32 key = candidate_key(cut_of_few(row, interval, goal, 0, 0).last);
    u32 above = sum_gathered<u32>(row, [=](u64 candidate) { return candidate_key(candidate) > key; });
    return Found{key, above, goal.by_mass ? gathered_mass_above(row, key) : 0};
}

// Where a goal is met in candidates that lie sorted.
DEVICE Found sorted_search(const Row &row, const u64 *sorted, u32 count, Goal goal) {
    u32 at;
    u64 through = 0;
    if (goal.by_mass) {
        u64 before_tile = 0;
        u64 hit = 0;
        for (u32 tile = 0; tile < count; tile += thread_count()) {
            u32 i = tile + thread_index();
            u64 weight = i < count ? weight_of_key(row, candidate_key(sorted[i])) : 0;
            u64 before = before_tile + block_sum_before_wide(weight);
            u64 mine = before < goal.value && before + weight >= goal.value ? i + 1 : 0;
            hit = block_pick(mine);
            u64 total = block_sum_wide(weight);
            if (hit) {
                through = block_pick(mine ? before + weight : 0);
                break;
            }
            before_tile += total;
        }
        at = (u32)hit - 1;
    } else {
        at = (u32)goal.value - 1;
    }
    u32 key = candidate_key(sorted[at]);
    u32 low = 0, high = at;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (candidate_key(sorted[middle]) > key) low = middle + 1;
        else high = middle;
    }
    u64 mass = goal.by_mass ? through - (u64)(at + 1 - low) * weight_of_key(row, key) : 0;
    return Found{key, low, mass};
}

// Finds where a goal is met, by the plan's search. The source's candidates with keys from `floor` on meet it.
// A goal that is a share of the row is met near that place of the sample. `is_last`: nothing below it is kept.
DEVICE Found find(Row &row, int source, Goal &goal, float share, u32 floor, bool is_last) {
    u32 max = candidate_key(row.first);
    if (goal.by_mass) {
        // What weighs nothing can not help to meet a need. The last weight is 29.2 below the maximum.
        u32 weighs = key_of(row.max - 29.5f * row.args.temperature);
        floor = floor > weighs ? floor : weighs;
    }
    if (SEARCH == 0) return pivot_search<3>(row, source, goal, floor, max);
    if (SEARCH == 1) return pivot_search<1>(row, source, goal, floor, max);
    if (SEARCH == 2) {
        if (source == FROM_ROW) {
            row.gathered = row.scratch;
            row.gathered_count = gather_where(row, row.scratch, row.view.vocab, [=](u32 key, u32) { return key >= floor; });
            row.covered_above = floor - 1;
        }
        block_sort_candidates(row.gathered, row.gathered_count);
        return sorted_search(row, row.gathered, row.gathered_count, goal);
    }
    Found found = Found{floor, 0, 0};
    if (source == FROM_ROW && histogram_search(row, goal, share, floor, max, is_last, found)) return found;
    Goal rest = Goal{goal.by_mass, goal.value - (goal.by_mass ? found.mass_above : found.above), false};
    // Where the gathered may be in either memory, narrowing them takes more registers than there are.
    Found within = HAS_SCRATCH ? pivot_search<3>(row, FROM_GATHERED, rest, found.key, max) : narrow_search(row, rest);
    return Found{within.key, found.above + within.above, found.mass_above + within.mass_above};
}
