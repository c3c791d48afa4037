// A cut among the gathered: the candidate with which a count, or a mass, is reached from the top.
//
// On whole candidates: key and id as one integer, no two of which are equal, so that ties are never a case of their own.
//
// The interval that holds the cut is divided into ranges, all candidates in it counted, or weighed, by range, and the range
// that has the cut is the next interval, until few are in it. Those, and what lies above them if that is little, are put in
// order: each counts what precedes it, several lanes to one. The cut of a count is then at its place; that of a mass is where
// the sum along the order reaches it. A pass over n candidates costs n/threads steps and three barriers, and divides a span of
// 64 bits by the number of ranges: there are at most ten, on the logits of a model one.
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
// what this thread has found of the mass from `low` to the interval.
DEVICE u32 divide(const Row &row, const Interval &interval, bool by_mass, u64 low, u64 &lower) {
    const u32 index_bits = 63 - leading_zeros(BUCKETS);
    u64 span = interval.high - interval.low;
    u32 bits = span == 0 ? 0 : 64 - leading_zeros(span);
    u32 shift = bits > index_bits ? bits - index_bits : 0;
    block_sync();
    clear_ranges();
    block_sync();
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        if (candidate < low || candidate > interval.high) continue;
        u64 weight = by_mass ? weight_of_key(row, candidate_key(candidate)) : 0;
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

// As many candidates are put in order at most: not more than there are threads.
#define MOST_FEW 128u
DEVICE u32 few() { return thread_count() < MOST_FEW ? thread_count() : MOST_FEW; }

SHARED u64 ordered[MOST_FEW];

// What is in order: `count` candidates, and what lies above them.
struct List {
    u32 count;
    Measure above;
};

// Narrows an interval that meets the goal to few candidates.
DEVICE void narrow_to_few(const Row &row, Interval &interval, Goal goal) {
#pragma unroll 1
    while (interval.held > few()) {
        u64 lower = 0;
        u32 shift = divide(row, interval, goal.by_mass, interval.low, lower);
        narrow(interval, shift, goal);
    }
}

// Puts the `count` gathered from `low` to `high`, which are few, in order.
DEVICE_CALL void put_in_order(const u64 *gathered, u32 gathered_count, u64 low, u64 high, u32 count) {
    SHARED u64 taken[MOST_FEW];
    SHARED u32 places;
    block_zero(&places);
#pragma unroll 1
    for (u32 start = 0; start < gathered_count; start += thread_count()) {
        u32 i = start + thread_index();
        u64 candidate = i < gathered_count ? gathered[i] : 0;
        bool is_taken = candidate >= low && candidate <= high;
        u32 place = take_place(&places, is_taken);
        if (is_taken) taken[place] = candidate;
    }
    block_sync();
    // As many lanes to a candidate as there are.
    u32 lanes = 1;
    while (lanes < WARP && thread_count() / (2 * lanes) >= count) lanes *= 2;
    u32 at = thread_index() / lanes, greater = 0;
    u64 own = at < count ? taken[at] : 0;
#pragma unroll 4
    for (u32 i = thread_index() % lanes; i < count; i += lanes) greater += taken[i] > own;
    for (u32 step = 1; step < lanes; step *= 2) greater += (u32)warp_shuffle(greater, lane_index() ^ step);
    if (at < count && thread_index() % lanes == 0) ordered[greater] = own;
    block_sync();
}

// Puts the few candidates of an interval in order, with all from `first` on that is above if they are few together.
DEVICE List order(const Row &row, const Interval &interval, u64 first) {
    List list = List{interval.held, interval.above};
    u64 high = interval.high;
    if (list.count + list.above.count <= few()) {
        list = List{list.count + list.above.count, Measure{0, 0}};
        high = first;
    }
    put_in_order(row.gathered, row.gathered_count, interval.low, high, list.count);
    return list;
}

// The first candidate with which a goal is reached, and how many that keeps; whether that reaches `most`, too.
struct Cut {
    u64 last;
    u32 kept;
    bool reaches_most;
};

// Where the first `count` of a list, with what lies above, reach a mass; with `is_share` top-p's share of their own.
DEVICE Cut cut_by_mass(const Row &row, const List &list, u32 count, bool is_share, u64 least, u64 most) {
    SHARED u64 weights[MOST_FEW];
    const u32 each = MOST_FEW / WARP;
    for (u32 i = thread_index(); i < MOST_FEW; i += thread_count())
        weights[i] = i < count ? weight_of_key(row, candidate_key(ordered[i])) : 0;
    block_sync();
    // Every warp does the same, and has the result without another barrier.
    u64 own[each], sum = 0;
#pragma unroll
    for (u32 i = 0; i < each; i++) {
        own[i] = weights[lane_index() * each + i];
        sum += own[i];
    }
    if (is_share) {
        least = need_of(row.args.top_p, warp_sum_wide(sum));
        // Top-p of 0 keeps the first maximum.
        least = least == 0 ? 1 : least;
        most = least;
    }
    sum = list.above.mass + warp_sum_before_wide(sum);
    u32 found = MOST_FEW;
    bool reaches_most = false;
#pragma unroll
    for (u32 i = 0; i < each; i++) {
        u64 through = sum + own[i];
        if (sum < least && through >= least) {
            found = lane_index() * each + i;
            reaches_most = through >= most;
        }
        sum = through;
    }
    u32 lane = trailing_zeros(warp_ballot(found < MOST_FEW));
    u32 result = (u32)warp_shuffle(found << 1 | reaches_most, lane);
    return Cut{ordered[result >> 1], list.above.count + (result >> 1) + 1, (result & 1) != 0};
}
