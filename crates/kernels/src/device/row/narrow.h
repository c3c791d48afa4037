// A cut among the gathered: the candidate with which a count, or a mass, is reached from the top.
//
// On whole candidates: key and id as one integer, no two of which are equal, so that ties are never a case of their own.
//
// The interval that holds the cut is divided into ranges, all candidates in it counted, or weighed, by range, and the range
// that has the cut is the next interval, until few are in it. Of those each counts, and weighs, what precedes it, several lanes
// to one, and one finds that it is the cut. A pass over n candidates costs n/threads steps and three barriers, and divides a span
// of 64 bits by the number of ranges: there are at most ten, on the logits of a model one.
//
// What counts for a streamed row is the number of instructions from the first to the last: one block has the row, and few of
// its warps have work, so that nothing hides what each waits for the one before.

// The interval that a cut is looked for in: `held` candidates from `low` to `high`, and what lies above.
struct Interval {
    u64 low, high;
    u32 held;
    Measure above;
};

// Counts, or weighs, the interval's candidates by ranges; the shift of a range's width. Where masses are asked for, `lower` is
// what this thread has found of the mass from `low` to the interval. The ranges may be clear already; then they are not.
DEVICE u32 divide(const Row &row, const Interval &interval, bool by_mass, u64 low, u64 &lower, bool &are_clear) {
    const u32 index_bits = floor_shift_of(BUCKETS);
    u64 span = interval.high - interval.low;
    u32 bits = span == 0 ? 0 : 64 - leading_zeros(span);
    u32 shift = bits > index_bits ? bits - index_bits : 0;
    const Scale scale = scale_of(row.max, row.args.temperature);
    if (!are_clear) {
        block_sync();
        clear_ranges();
        block_sync();
    }
    are_clear = false;
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        if (candidate < low || candidate > interval.high) continue;
        u64 weight = by_mass ? weight_at(scale, key_value(candidate_key(candidate))) : 0;
        if (candidate < interval.low) lower += weight;
        else add_to_range((u32)((candidate - interval.low) >> shift), 1, weight);
    }
    block_sync();
    return shift;
}

// The mass of the interval that was divided. Every warp sums it, and has it without another barrier.
DEVICE u64 divided_mass() {
    u64 mass = 0;
#pragma unroll
    for (u32 i = 0; i < BUCKETS / WARP; i++) mass += range_mass(first_range() - i);
    return warp_sum_wide(mass);
}

// Narrows an interval that was divided to the range in which the goal is met; it is in one.
DEVICE void narrow(Interval &interval, u32 shift, Goal goal) {
    Met met_in = range_that_meets(goal, interval.above);
    interval.above = met_in.above;
    interval.held = range_counts[met_in.at];
    interval.low += (u64)met_in.at << shift;
    // The last range may end beyond all integers.
    u64 width = (1ull << shift) - 1;
    if (interval.high - interval.low > width) interval.high = interval.low + width;
}

// As many candidates are compared with each other at most: not more than there are threads.
#define MOST_FEW 128u
DEVICE u32 few() { return thread_count() < MOST_FEW ? thread_count() : MOST_FEW; }

// Narrows an interval that meets the goal to few candidates.
DEVICE void narrow_to_few(const Row &row, Interval &interval, Goal goal, bool &are_clear) {
#pragma unroll 1
    while (interval.held > few()) {
        u64 lower = 0;
        u32 shift = divide(row, interval, goal.by_mass, interval.low, lower, are_clear);
        narrow(interval, shift, goal);
    }
}

// The first candidate with which a goal is reached, and how many that keeps; whether that reaches `most`, too.
struct Cut {
    u64 last;
    u32 kept, reaches_most;
};

struct alignas(16) Two {
    u64 lanes[2];
};

SHARED Cut found_cut;
// How many of the few have a place: 0 whenever none are looked at.
SHARED u32 few_places;

// Finds the cut among the `count` gathered from `low` to `high`, which are few: where they, on top of what lies above, meet a
// goal; they do. A goal by mass without a value is the share `top_p` of the mass of the first `among` of them, and nothing lies
// above. Of numbers alone: what a call takes by its address lies in local memory.
DEVICE_CALL void find_cut(const u64 *gathered, u32 gathered_count, u64 low, u64 high, u32 count, u32 count_above,
                          u64 mass_above, bool by_mass, u64 value, u64 most, u32 among, float max, float temperature,
                          float top_p) {
    SHARED Two taken[MOST_FEW / 2], weights[MOST_FEW / 2];
    SHARED u64 mass_among;
    const Scale scale = scale_of(max, temperature);
#pragma unroll 1
    for (u32 start = 0; start < gathered_count; start += thread_count()) {
        u32 i = start + thread_index();
        u64 candidate = i < gathered_count ? gathered[i] : 0;
        bool is_taken = candidate >= low && candidate <= high;
        if (!is_taken) continue;
        u32 place = atomic_add(&few_places, 1u);
        taken[place / 2].lanes[place % 2] = candidate;
        if (by_mass) weights[place / 2].lanes[place % 2] = weight_at(scale, key_value(candidate_key(candidate)));
    }
    // The second of the last two: nothing is greater than 0, nor has it weight.
    if (thread_index() == 0 && count % 2 == 1) {
        taken[count / 2].lanes[1] = 0;
        weights[count / 2].lanes[1] = 0;
    }
    block_sync();
    if (thread_index() == 0) few_places = 0;
    // As many lanes to a candidate as there are, a power of two; more than eight would be longer at adding up than at looking.
    u32 shift = floor_shift_of(thread_count()) - floor_shift_of(2 * count - 1);
    shift = shift < 3 ? shift : 3;
    const u32 lanes = 1u << shift, at = thread_index() >> shift, part = thread_index() & (lanes - 1);
    const u64 own = at < count ? taken[at / 2].lanes[at % 2] : 0;
    u32 before = 0;
    u64 mass_before = 0;
#pragma unroll 2
    for (u32 i = part; i < (count + 1) / 2; i += lanes) {
        Two two = taken[i];
        bool first = two.lanes[0] > own, second = two.lanes[1] > own;
        before += first + second;
        if (!by_mass) continue;
        Two weigh = weights[i];
        mass_before += (first ? weigh.lanes[0] : 0) + (second ? weigh.lanes[1] : 0);
    }
#pragma unroll 1
    for (u32 step = 1; step < lanes; step *= 2) {
        const u32 other = lane_index() ^ step;
        before += (u32)warp_shuffle(before, other);
        if (by_mass) mass_before += warp_shuffle(mass_before, other);
    }
    before += count_above;
    mass_before += mass_above;
    const bool is_own = at < count && part == 0;
    const u64 mass = is_own && by_mass ? mass_before + weights[at / 2].lanes[at % 2] : 0;
    if (value == 0) {
        if (is_own && before + 1 == among) mass_among = mass;
        block_sync();
        value = need_of(top_p, mass_among);
        // Top-p of 0 keeps the first maximum.
        value = value == 0 ? 1 : value;
        most = value;
    }
    if (is_own) {
        const Goal goal = Goal{by_mass, value, false};
        if (!met(goal, before, mass_before) && met(goal, before + 1, mass)) found_cut = Cut{own, before + 1, mass >= most};
    }
    block_sync();
}

// The cut in an interval that is few, and meets the goal; without a value top-p's share of the first `among`. Another cut may be
// found when all threads have met once more.
DEVICE Cut cut_of_few(const Row &row, const Interval &interval, Goal goal, u64 most, u32 among) {
    find_cut(row.gathered, row.gathered_count, interval.low, interval.high, interval.held, interval.above.count,
             interval.above.mass, goal.by_mass, goal.value, most, among, row.max, row.args.temperature, row.args.top_p);
    return found_cut;
}
