// Selection among the gathered of a streamed row: the last token that the filters keep.
//
// The paper's pivot search, on whole candidates: key and id as one integer, no two of which are equal, so that ties are
// never a case of their own. Pivots divide the interval that holds the cut until no more candidates are in it than a warp has lanes;
// then each lane takes one and counts, or weighs, what precedes it: exactly one lane has the cut. As a pass divides a span of 64
// bits by four, or by two for a mass, there are at most 32, or 64; on the logits of a model 3 to 6. A pass over n candidates
// costs n/threads steps and two barriers.

SHARED u64 gathered_weights[STREAM_CAPACITY];

// Two counts at once.
struct Counts {
    u32 first, second;
};

DEVICE Counts block_sum_counts(const Counts &value) {
    return block_reduce(value, Counts{0, 0}, [](const Counts &part) {
        return Counts{warp_sum(part.first), warp_sum(part.second)};
    });
}

DEVICE u32 count_gathered_from(const Row &row, u64 low) {
    return sum_gathered<u32>(row, [=](u64 candidate) { return candidate >= low; });
}

// The interval that a cut is looked for in: `held` candidates from `low` to `high`, and what lies above.
struct Interval {
    u64 low, high;
    u32 held;
    Measure above;
};

// A pass that looks for a count: three pivots.
DEVICE void narrow_by_count(const Row &row, Interval &interval, u64 goal) {
    // More candidates than lanes are in it, so that a quarter of the span is not 0.
    u64 step = (interval.high - interval.low) / 4;
    u64 first = interval.low + step, second = first + step, third = second + step;
    Counts counts = Counts{0, 0};
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.shared[i];
        if (candidate < first || candidate > interval.high) continue;
        // Two in one, each below 2^16.
        counts.first += candidate >= second ? 0x10001u : 1;
        counts.second += candidate >= third;
    }
    counts = block_sum_counts(counts);
    u32 wanted = (u32)goal - interval.above.count;
    u32 from_first = counts.first & 0xFFFFu, from_second = counts.first >> 16, from_third = counts.second;
    // What of the interval lies above the part that has the cut, and from the part on.
    u32 higher = 0, from = from_third;
    if (from_third >= wanted) {
        interval.low = third;
    } else if (from_second >= wanted) {
        higher = from_third, from = from_second;
        interval.low = second, interval.high = third - 1;
    } else if (from_first >= wanted) {
        higher = from_second, from = from_first;
        interval.low = first, interval.high = second - 1;
    } else {
        higher = from_first, from = interval.held;
        interval.high = first - 1;
    }
    interval.held = from - higher;
    interval.above.count += higher;
}

// A pass that looks for a mass: one pivot, as a sum of masses takes as long as several counts.
DEVICE void narrow_by_mass(const Row &row, Interval &interval, u64 goal) {
    u64 pivot = interval.low + (interval.high - interval.low) / 2 + 1;
    Measure from = Measure{0, 0};
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.shared[i];
        if (candidate < pivot || candidate > interval.high) continue;
        from.count += 1;
        from.mass += gathered_weights[i];
    }
    from = block_sum_measure(from, true);
    if (interval.above.mass + from.mass >= goal) {
        interval.held = from.count;
        interval.low = pivot;
        return;
    }
    interval.held -= from.count;
    interval.above.count += from.count;
    interval.above.mass += from.mass;
    interval.high = pivot - 1;
}

// The first candidate with which a goal is reached, and how many that keeps; whether that reaches `most`, too.
struct Cut {
    u64 last;
    u32 kept;
    bool reaches_most;
};

// Among the `held` candidates from `low` on, which reach the goal `least`.
DEVICE Cut cut_of(const Row &row, bool by_mass, u64 low, u32 held, u64 least, u64 most) {
    SHARED u64 finalists[WARP];
    SHARED u64 weights[WARP];
    SHARED u32 count;
    Interval interval = Interval{low, row.first, held, Measure{0, 0}};
#pragma unroll 1
    while (interval.held > WARP) {
        if (by_mass) narrow_by_mass(row, interval, least);
        else narrow_by_count(row, interval, least);
    }
    if (thread_index() == 0) count = 0;
    block_sync();
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.shared[i];
        if (candidate < interval.low || candidate > interval.high) continue;
        u32 at = atomic_add(&count, 1u);
        finalists[at] = candidate;
        weights[at] = by_mass ? gathered_weights[i] : 1;
    }
    block_sync();
    // Every warp does the same, and has the result without another barrier.
    u32 lane = lane_index(), before = interval.above.count;
    u64 own = lane < interval.held ? finalists[lane] : 0, sum = by_mass ? interval.above.mass : before;
    u64 weight = lane < interval.held ? weights[lane] : 0;
#pragma unroll 4
    for (u32 i = 0; i < interval.held; i++) {
        bool precedes = finalists[i] > own;
        before += precedes;
        sum += precedes ? weights[i] : 0;
    }
    bool is_cut = lane < interval.held && sum < least && sum + weight >= least;
    u32 found = trailing_zeros(warp_ballot(is_cut));
    u64 rest = warp_shuffle((u64)before << 1 | (sum + weight >= most), found);
    return Cut{warp_shuffle(own, found), (u32)(rest >> 1) + 1, (rest & 1) != 0};
}

// The least candidate of those that tie with one, or itself where ties are divided.
DEVICE u64 with_ties(const Row &row, u64 candidate) {
    return keeps_all_ties(row) ? candidate_of(candidate_key(candidate), ALL) : candidate;
}

// Writes the weights of the gathered from `low` on; the mass of those from `limit` on, and of all of them.
DEVICE u64 weigh_gathered(const Row &row, u64 low, u64 limit, u64 &all) {
    u64 mass = 0, sum = 0;
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 candidate = row.shared[i];
        if (candidate < low) continue;
        u64 weight = weight_of_key(row, candidate_key(candidate));
        gathered_weights[i] = weight;
        sum += weight;
        mass += candidate >= limit ? weight : 0;
    }
    mass = block_sum_wide(mass);
    all = low == limit ? mass : block_sum_wide(sum);
    return mass;
}

// The boundary of a streamed row, from its gathered and, where top-p looks at the whole row, the sum over the rest. False: a
// miss.
DEVICE bool select(Row &row, double rest, float greatest, bool with_rest, Boundary &boundary) {
    const RowArgs &args = row.args;
    set_first(row, first_of_gathered(row));
    if (is_empty(row)) return false;
    u64 limit = row.first;
    u32 kept = 1;
    if (args.temperature != 0.0f) {
        u32 floor = floor_key(row), k = active_k(row);
        bool is_covered = covers(row, floor);
        bool has_min_p = args.farthest != 0xFFFFFFFFu;
        u64 low = candidate_of(is_covered ? floor : row.covered_above + 1, ALL);
        u32 held = is_covered ? count_gathered_from(row, low) : row.gathered_count;
        bool is_limit = k != 0 && held >= k;
        // Without top-k's limit the mass of the whole row is needed, less what min-p drops.
        if (!is_limit && !is_covered && (k != 0 || !with_rest || has_min_p)) return false;
        limit = low;
        kept = held;
        if (is_limit) {
            limit = with_ties(row, cut_of(row, false, low, held, k, k).last);
            kept = keeps_all_ties(row) ? count_gathered_from(row, limit) : k;
        }
        if (args.top_p < 1.0f) {
            bool is_joint = is_limit && (args.flags & JOINT);
            u64 least;
            u64 mass = weigh_gathered(row, is_joint ? low : limit, limit, least);
            u64 most = least;
            if ((is_joint || !is_limit) && !is_covered) {
                Rest bound = bound_rest(row, rest, greatest);
                if (!bound.is_known || has_min_p) return false;
                least += bound.least;
                most += bound.most;
            }
            least = need_of(args.top_p, least);
            most = need_of(args.top_p, most);
            // Top-p of 0 keeps the first maximum.
            least = least == 0 ? 1 : least;
            if (mass >= least) {
                Cut cut = cut_of(row, true, limit, kept, least, most);
                if (!cut.reaches_most && !(is_limit && cut.kept == kept)) return false;
                limit = with_ties(row, cut.last);
                kept = keeps_all_ties(row) ? count_gathered_from(row, limit) : cut.kept;
            } else if (!is_limit) {
                // What top-k leaves may be less than the joint order needs; what is gathered must not.
                return false;
            }
        }
    }
    if (kept > KEPT_CAPACITY) return false;
    // With `ALL` as its id all that equal the last one are kept.
    boundary = Boundary{candidate_key(limit), candidate_id(limit), kept};
    return true;
}
