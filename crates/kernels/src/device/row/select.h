// Selection among the gathered of a streamed row: the last token that the filters keep.

DEVICE u32 count_gathered_from(const Row &row, u64 low) {
    return sum_gathered<u32>(row, [=](u64 candidate) { return candidate >= low; });
}

// The least candidate of those that tie with one, or itself where ties are divided.
DEVICE u64 with_ties(const Row &row, u64 candidate) {
    return keeps_all_ties(row) ? candidate_of(candidate_key(candidate), ALL) : candidate;
}

// The boundary of a streamed row, from its gathered, whose greatest key is known, and, where top-p looks at the whole row, the
// sum over the rest. False: a miss.
DEVICE bool select(Row &row, double rest, float greatest, bool with_rest, Boundary &boundary) {
    const RowArgs &args = row.args;
    if (is_empty(row)) return false;
    u64 limit;
    u32 kept = 1;
    // By the block that streamed.
    bool are_clear = true;
    if (args.temperature == 0.0f) {
        limit = first_of_gathered(row);
    } else {
        u32 floor = floor_key(row), k = active_k(row);
        bool is_covered = covers(row, floor);
        bool has_min_p = args.farthest != 0xFFFFFFFFu;
        u64 low = candidate_of(is_covered ? floor : row.covered_above + 1, ALL);
        u32 held = is_covered ? count_gathered_from(row, low) : row.gathered_count;
        bool is_limit = k != 0 && held >= k;
        // Without top-k's limit the mass of the whole row is needed, less what min-p drops.
        if (!is_limit && !is_covered && (k != 0 || !with_rest || has_min_p)) return false;
        bool is_joint = is_limit && (args.flags & JOINT), is_done = args.top_p >= 1.0f;
        limit = low;
        kept = held;
        if (is_limit) {
            Interval interval = Interval{low, row.first, held, Measure{0, 0}};
            const Goal goal = Goal{false, k, false};
            narrow_to_few(row, interval, goal, are_clear);
            const u32 through = interval.above.count + interval.held;
            if (is_done || is_joint || keeps_all_ties(row) || through > few()) {
                limit = with_ties(row, cut_of_few(row, interval, goal, 0, 0).last);
                kept = keeps_all_ties(row) ? count_gathered_from(row, limit) : k;
            } else {
                // Top-p's cut is among as few, and found with the mass that top-k leaves.
                interval = Interval{interval.low, row.first, through, Measure{0, 0}};
                Cut cut = cut_of_few(row, interval, Goal{true, 0, false}, 0, k);
                limit = cut.last;
                kept = cut.kept;
                is_done = true;
            }
        }
        if (!is_done) {
            Interval interval = Interval{limit, row.first, kept, Measure{0, 0}};
            u64 lower = 0;
            u32 shift = divide(row, interval, true, is_joint ? low : limit, lower, are_clear);
            u64 mass = divided_mass(), least = mass + (is_joint ? block_sum_wide(lower) : 0);
            u64 most = least;
            if ((is_joint || !is_limit) && !is_covered) {
                Rest bound = bound_rest(rest, greatest, row.max, args.temperature, row.view.vocab);
                if (!bound.is_known || has_min_p) return false;
                least += bound.least;
                most += bound.most;
            }
            least = need_of(args.top_p, least);
            most = need_of(args.top_p, most);
            // Top-p of 0 keeps the first maximum.
            least = least == 0 ? 1 : least;
            if (mass >= least) {
                Goal goal = Goal{true, least, false};
                narrow(interval, shift, goal);
                narrow_to_few(row, interval, goal, are_clear);
                Cut cut = cut_of_few(row, interval, goal, most, 0);
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
