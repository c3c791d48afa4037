// Finds where a goal is met in the whole row, by histograms of ranges of keys.
//
// A pass counts, and weighs, what lies above a window of keys, and in each of its ranges. It tells in which range the goal is met,
// or whether above or below the window, which is the next pass's. The first window comes from the sample: it has some twentieth
// of the row or of its mass, so that few logits are added to shared memory, and most rows take one pass. What of a range fits
// into shared memory is gathered, and the search ends there. Each pass leaves at most a 512th of the keys, or one side of the
// window: at most five passes.
//
// A pass by mass takes as long as its weights: integer instructions, which a multiprocessor of an H200 issues at half the rate
// of others. Pivots in registers in place of ranges in shared memory made no difference.

// A range of keys.
struct Window {
    u32 low, high;
};

// Where the sample has a goal that is met by a share of the row, with room for the sample's error; all of `whole` where the
// sample says nothing.
DEVICE Window window_of_sample(const Row &row, const Window &whole, bool by_mass, float share) {
    SHARED u32 edges[2];
    Vectors vectors = vectors_of(row.view);
    u32 least = KEY_INFINITY, greatest = KEY_NEGATIVE_INFINITY;
    for_sample(row, vectors, [&](float y) {
        u32 key = key_of(y);
        if (!is_finite(y)) return;
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    });
    least = block_min(least);
    greatest = block_max(greatest);
    if (greatest == KEY_NEGATIVE_INFINITY) return whole;
    // Steps of the sample's span, from the top.
    const float top = key_value(greatest), step = (top - key_value(least)) / (float)BUCKETS;
    const float c = LOG2_OF_E / row.args.temperature;
    for (u32 i = thread_index(); i < BUCKETS; i += thread_count()) range_counts[i] = 0;
    if (thread_index() == 0) {
        edges[0] = 0;
        edges[1] = BUCKETS;
    }
    block_sync();
    for_sample(row, vectors, [&](float y) {
        if (!is_finite(y)) return;
        float place = (top - y) / step;
        u32 at = place < (float)BUCKETS ? (u32)place : BUCKETS - 1;
        // In units that the whole sample has fewer than 2^32 of.
        float weight = y == top ? 1.0f : exp2_hint((y - top) * c);
        atomic_add(&range_counts[place >= 0.0f ? at : 0], by_mass ? (u32)(weight * 65536.0f) : 1u);
    });
    block_sync();
    u32 each = (BUCKETS + thread_count() - 1) / thread_count(), start = thread_index() * each;
    u32 sum = 0;
    for (u32 i = start; i < start + each && i < BUCKETS; i++) sum += range_counts[i];
    u32 before = block_sum_before(sum), all = block_sum(sum);
    // Five deviations of a share's estimate from 4096 logits, and a few logits.
    float margin = 5.0f * sqrt_hint(share * (1.0f - share) / (float)SAMPLE_LOGITS) + 4.0f / (float)SAMPLE_LOGITS;
    float from = (share - margin) * (float)all, to = (share + margin) * (float)all;
    for (u32 i = start; i < start + each && i < BUCKETS; i++) {
        float upper = (float)before;
        before += range_counts[i];
        float lower = (float)before;
        if (upper < from && lower >= from) edges[0] = i;
        if (upper < to && lower >= to) edges[1] = i + 1;
    }
    block_sync();
    Window window = whole;
    if (edges[0] > 0) window.high = key_of(top - (float)edges[0] * step);
    if (edges[1] < BUCKETS) window.low = key_of(top - (float)edges[1] * step);
    bool is_sound = window.low >= whole.low && window.low <= window.high && window.high <= whole.high;
    return is_sound ? window : whole;
}

// What a pass finds beside the ranges: what is above the window, and the mass of all it looked at.
struct Beside {
    Measure above;
    u64 all;
};

// One pass over the logits from `least` to `most`: what falls into each of the window's ranges, of 2^shift keys, and beside it.
template <bool BY_MASS>
DEVICE Beside histogram_pass(const Row &row, const Window &window, u32 shift, float least, float most) {
    const float from = key_value(window.low), to = value_up_to(window.high);
    const Scale scale = scale_of(row.max, row.args.temperature);
    Beside beside = Beside{Measure{0, 0}, 0};
    // A thread adds up what falls into the same range one after the other: ties would all wait for one word.
    u32 own = 0, own_count = 0;
    u64 own_mass = 0;
    auto add = [&](float y, u64 weight) {
        bool is_in = y >= least && y <= most;
        bool is_above = is_in && y > to;
        weight = is_in ? weight : 0;
        beside.all += weight;
        beside.above.count += is_above;
        beside.above.mass += is_above ? weight : 0;
        if (!is_in || is_above || !(y >= from)) return;
        u32 at = (key_of(y) - window.low) >> shift;
        if (at != own) {
            if (own_count > 0) add_to_range(own, own_count, own_mass);
            own = at;
            own_count = 0;
            own_mass = 0;
        }
        own_count += 1;
        own_mass += weight;
    };
    auto one = [&](u32, float y) { add(y, BY_MASS ? weight_at(scale, y) : 0); };
    // Where registers are short, and `one` is long, it is compiled once.
    if (STAGE != 6 || (BY_MASS && DTYPE != 0)) {
        for_each(row.call, row.args, row.view, one);
    } else {
        for_fours<BY_MASS ? 1 : CHEAP_AHEAD>(
            row,
            [&](u32 id, const Four &y) {
                // Most are below.
                float most_of = max_ignoring_nan(max_ignoring_nan(y.a, y.b), max_ignoring_nan(y.c, y.d));
                if (!BY_MASS && most_of < from) return;
                one(id, y.a);
                one(id, y.b);
                one(id, y.c);
                one(id, y.d);
            },
            one);
    }
    if (own_count > 0) add_to_range(own, own_count, own_mass);
    block_sync();
    beside.above = block_sum_measure(beside.above, BY_MASS);
    beside.all = BY_MASS ? block_sum_wide(beside.all) : 0;
    return beside;
}

// Top-p's need, which is known when the whole mass is.
DEVICE void close(Row &row, Goal &goal, u64 all) {
    if (!goal.is_open) return;
    goal = Goal{true, need_of(row.args.top_p, all), false};
    // All that weighs anything is in it, unless min-p drops some.
    row.raw_known = row.args.farthest == 0xFFFFFFFFu;
    if (thread_index() == 0) facts.raw_mass = all;
    block_sync();
}

// True when the key is found. Else the goal is met from `low` on among the gathered, which are the candidates of a small range
// of keys, on top of `found`. `is_last`: what is below the range goes.
DEVICE bool histogram_search(Row &row, Goal &goal, float share, u32 low, u32 high, bool is_last, Found &found) {
    Window window = Window{low, high};
    if (row.view.vocab > 2 * SAMPLE_LOGITS) window = window_of_sample(row, window, goal.by_mass, share);
    for (;;) {
        u32 shift = 0;
        while (((u64)(window.high - window.low) >> shift) >= BUCKETS) shift++;
        block_sync();
        clear_ranges();
        block_sync();
        const float least = key_value(low), most = value_up_to(high);
        Beside beside = goal.by_mass ? histogram_pass<true>(row, window, shift, least, most)
                                     : histogram_pass<false>(row, window, shift, least, most);
        u32 count_above = found.above + beside.above.count;
        u64 mass_above = found.mass_above + beside.above.mass;
        close(row, goal, beside.all);
        if (met(goal, count_above, mass_above)) {
            low = window.high + 1;
            window = Window{low, high};
            continue;
        }
        Met met_in = range_that_meets(goal, Measure{mass_above, count_above});
        found.above = met_in.above.count;
        found.mass_above = met_in.above.mass;
        if (met_in.at == BUCKETS) {
            high = window.low - 1;
            window = Window{low, high};
            continue;
        }
        u32 held = range_counts[met_in.at];
        low = window.low + (met_in.at << shift);
        u32 end = low + ((1u << shift) - 1);
        high = end < window.high ? end : window.high;
        found.key = low;
        if (low == high) return true;
        if (held <= GATHER_CAPACITY) {
            gather_range(row, low, high, is_last);
            return false;
        }
        window = Window{low, high};
    }
}

