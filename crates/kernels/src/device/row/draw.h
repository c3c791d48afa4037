// The draw: the kept token whose interval holds the target in the cumulative sum of weights by ascending id.
//
// The gathered are walked by all threads, draw by draw. A row that is not listed is read once for all its draws: block by block its
// mass goes where gathered candidates would lie, each with what lies before it. Each warp then draws for itself, from one
// block; and a group of draws has its ranks from one more pass.

// Of the shared memory for gathered candidates: the masses of blocks, the tokens of a group of draws as they were drawn and in
// order, and counts of what precedes those.
#define MASS_BLOCKS 2048u
#define DRAW_GROUP 512u
#if MASS_BLOCKS + 2 * DRAW_GROUP + DRAW_GROUP / 2 > GATHER_CAPACITY
#error "the draws of a row have no room"
#endif

// Logits of a block: so many that there are no more blocks than have room.
DEVICE u32 block_width(const Row &row) {
    u32 width = 128;
    while (width * MASS_BLOCKS < row.view.vocab) width *= 2;
    return width;
}

DEVICE u64 kept_weight(const Row &row, const Boundary &boundary, u64 candidate) {
    return keeps(boundary, candidate) ? weight_of_key(row, candidate_key(candidate)) : 0;
}

DEVICE u64 candidate_at(const Row &row, u32 id) {
    return candidate_of(key_of(effective(row.call, row.args, row.view, id)), id);
}

// Adds to each of `count` numbers what lies before it; the whole sum.
template <typename T, typename Before>
DEVICE T accumulate(T *numbers, u32 count, Before sum_before) {
    SHARED T last;
    T carried = 0;
#pragma unroll 1
    for (u32 start = 0; start < count; start += thread_count()) {
        u32 at = start + thread_index();
        T own = at < count ? numbers[at] : 0;
        T through = carried + sum_before(own) + own;
        if (at < count) numbers[at] = through;
        if (thread_index() == thread_count() - 1) last = through;
        block_sync();
        carried = last;
    }
    return carried;
}

// The mass that a boundary keeps of a row that is not listed; its blocks' masses are in shared memory from then on.
DEVICE u64 sum_blocks(const Row &row, const Boundary &boundary) {
    const u32 items = 4, width = block_width(row), vocab = row.view.vocab, blocks = (vocab + width - 1) / width;
    block_sync();
#pragma unroll 1
    for (u32 block = warp_index(); block < blocks; block += warp_count()) {
        u32 end = (block + 1) * width < vocab ? (block + 1) * width : vocab;
        u64 sum = 0;
#pragma unroll 1
        for (u32 id = block * width + lane_index(); id < end; id += items * WARP) {
            float loaded[items];
#pragma unroll
            for (u32 i = 0; i < items; i++) {
                u32 at = id + i * WARP;
                loaded[i] = at < end ? effective(row.call, row.args, row.view, at) : bits_float(0xFF800000u);
            }
#pragma unroll
            for (u32 i = 0; i < items; i++)
                sum += kept_weight(row, boundary, candidate_of(key_of(loaded[i]), id + i * WARP));
        }
        sum = warp_sum_wide(sum);
        if (lane_index() == 0) row.shared[block] = sum;
    }
    block_sync();
    return accumulate(row.shared, blocks, [](u64 mass) { return block_sum_before_wide(mass); });
}

// The token that holds a target, from the masses of blocks. Each warp for itself.
DEVICE u64 find_in_blocks(const Row &row, const Boundary &boundary, u64 target) {
    const u32 width = block_width(row), vocab = row.view.vocab;
    u32 low = 0, high = (vocab + width - 1) / width - 1;
#pragma unroll 1
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (row.shared[middle] > target) high = middle;
        else low = middle + 1;
    }
    target -= low == 0 ? 0 : row.shared[low - 1];
    const u32 end = (low + 1) * width < vocab ? (low + 1) * width : vocab;
    // The mass of all is above the target: it lies in one of these.
#pragma unroll 1
    for (u32 start = low * width; start < end; start += WARP) {
        u32 id = start + lane_index();
        u64 candidate = id < end ? candidate_at(row, id) : 0;
        u64 weight = kept_weight(row, boundary, candidate);
        u64 sum = warp_sum_wide(weight);
        if (target >= sum) {
            target -= sum;
            continue;
        }
        u64 before = warp_sum_before_wide(weight);
        u64 lanes = warp_ballot(target >= before && target - before < weight);
        return warp_shuffle(candidate, trailing_zeros(lanes));
    }
    return candidate_at(row, end - 1);
}

// What a draw comes to, but for its rank. What all draws of a row have in common was summed before.
DEVICE void write_draw(const Row &row, u32 number, u64 token, u64 mass, u64 raw) {
    const Call &call = row.call;
    u32 distance = distance_bits(key_value(candidate_key(token)), row.max, row.args.temperature);
    u64 at = (u64)row.view.row * call.draws + number;
    if (call.token) call.token[at] = candidate_id(token);
    if (call.logprob) call.logprob[at] = logprob_of(distance, ln_mass(mass));
    if (call.raw_logprob) call.raw_logprob[at] = logprob_of(distance, ln_mass(raw));
}

DEVICE u64 target_of(const Row &row, u32 number, u64 mass) {
    return multiply_high(random_bits(row.args.seed, row.args.position, row.args.stream, number), mass);
}

// How many of `count` numbers in descending order are at least this one.
DEVICE u32 count_at_least(const u64 *descending, u32 count, u64 number) {
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (descending[middle] >= number) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The ranks of a group of draws: for each of their tokens in order, what precedes it and none before it is counted, in one pass.
DEVICE void write_ranks(const Row &row, u32 first, u32 count, const u64 *drawn, u64 *ordered, u32 *counts) {
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        ordered[i] = drawn[i];
        counts[i] = 0;
    }
    block_sort_candidates(ordered, count);
    // Most of a row precedes none, or may precede all: those are counted apart.
    u32 before_all = 0;
    for_each(row.call, row.args, row.view, [&](u32 id, float y) {
        u64 candidate = candidate_of(key_of(y), id);
        if (candidate <= ordered[count - 1]) return;
        u32 at = count_at_least(ordered, count, candidate);
        if (at == 0) before_all++;
        else atomic_add(&counts[at], 1u);
    });
    before_all = block_sum(before_all);
    accumulate(counts, count, [](u32 part) { return block_sum_before(part); });
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        u32 at = count_at_least(ordered, count, drawn[i] + 1);
        row.call.rank[(u64)row.view.row * row.call.draws + first + i] = before_all + counts[at];
    }
    block_sync();
}

// The draws of a row that is not listed, behind `sum_blocks`.
DEVICE void draw_from_blocks(const Row &row, const Boundary &boundary, u64 mass, u64 raw) {
    u64 *drawn = row.shared + MASS_BLOCKS, *ordered = drawn + DRAW_GROUP;
    const u32 draws = row.call.draws;
#pragma unroll 1
    for (u32 first = 0; first < draws; first += DRAW_GROUP) {
        u32 count = draws - first < DRAW_GROUP ? draws - first : DRAW_GROUP;
#pragma unroll 1
        for (u32 i = warp_index(); i < count; i += warp_count()) {
            u64 token = find_in_blocks(row, boundary, target_of(row, first + i, mass));
            if (lane_index() != 0) continue;
            drawn[i] = token;
            write_draw(row, first + i, token, mass, raw);
        }
        if (!row.call.rank) continue;
        block_sync();
        write_ranks(row, first, count, drawn, ordered, (u32 *)(ordered + DRAW_GROUP));
    }
    // Who goes on may gather anew where others still look.
    block_sync();
}

// The draws of a row that is listed.
DEVICE void draw_from_gathered(const Row &row, const Boundary &boundary, u64 mass, u64 raw) {
#pragma unroll 1
    for (u32 number = 0; number < row.call.draws; number++) {
        u32 id = locate_in_gathered(row, target_of(row, number, mass),
                                    [&](u64 candidate) { return kept_weight(row, boundary, candidate); });
        // The key is not read from the row: other blocks may be masking that.
        u32 key = 0;
        for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
            if (candidate_id(row.gathered[i]) == id) key = candidate_key(row.gathered[i]);
        u64 token = candidate_of(block_max(key), id);
        u32 rank = 0;
        if (row.call.rank) rank = sum_gathered<u32>(row, [=](u64 candidate) { return candidate > token; });
        if (thread_index() != 0) continue;
        write_draw(row, number, token, mass, raw);
        if (row.call.rank) row.call.rank[(u64)row.view.row * row.call.draws + number] = rank;
    }
}

DEVICE bool is_drawn(const Call &call) { return call.token || call.logprob || call.raw_logprob || call.rank; }

// The mass of what a boundary keeps. Of a row that is not listed, draws need its parts.
DEVICE u64 kept_mass_of(const Row &row, const Boundary &boundary) {
    if (row.listed)
        return sum_gathered<u64>(row, [&](u64 candidate) { return kept_weight(row, boundary, candidate); });
    if (is_drawn(row.call)) return sum_blocks(row, boundary);
    return sum_row<u64>(row, [&](u32 id, u32 key) { return kept_weight(row, boundary, candidate_of(key, id)); });
}

// Draws the row's tokens, from what `kept_mass_of` left.
DEVICE void draw_all(Row &row, const Boundary &boundary, u64 mass) {
    u64 raw = row.call.raw_logprob ? mass_from(row, KEY_LEAST) : 0;
    if (row.listed) draw_from_gathered(row, boundary, mass, raw);
    else draw_from_blocks(row, boundary, mass, raw);
}

// What draws from an empty row come to.
DEVICE void draw_nothing(const Row &row) {
    const Call &call = row.call;
    u64 start = (u64)row.view.row * call.draws;
    for (u64 at = start + thread_index(); at < start + call.draws; at += thread_count()) {
        if (call.token) call.token[at] = NO_TOKEN;
        if (call.rank) call.rank[at] = NO_TOKEN;
        if (call.logprob) call.logprob[at] = bits_float(0xFF800000u);
        if (call.raw_logprob) call.raw_logprob[at] = bits_float(0xFF800000u);
    }
}
