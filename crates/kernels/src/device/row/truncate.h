// Stage 1, truncate: gather the candidates above a threshold (paper, σ-truncation).
//
// What does not fit into shared memory goes to scratch memory, which plans with a Gaussian threshold have; without any the
// row is searched whole. The row's first candidate is among the gathered, or, where none are, takes another pass.

// Gathers the candidates that `belongs(key, id)` accepts into `out`, which has room for `room`; how many there are.
template <typename Belongs>
DEVICE u32 gather_where(const Row &row, u64 *out, u32 room, Belongs belongs) {
    SHARED u32 count;
    block_zero(&count);
    for_each(row.call, row.args, row.view, [&](u32 id, float y) {
        u32 key = key_of(y);
        if (key > KEY_NEGATIVE_INFINITY && belongs(key, id)) {
            u32 at = atomic_add(&count, 1u);
            if (at < room) out[at] = candidate_of(key, id);
        }
    });
    block_sync();
    return count;
}

// Gathers the candidates of a range of keys into shared memory, which has room for them. Where
// what is below the range goes, and may be masked already, that is done in the same read.
DEVICE void gather_range(Row &row, u32 low, u32 high, bool rest_goes) {
    SHARED u32 count;
    const float from = key_value(low), to = value_up_to(high);
    block_zero(&count);
    auto is_in = [=](float y) { return y >= from && y <= to; };
    auto take = [&](u32 id, float y) { row.shared[atomic_add(&count, 1u)] = candidate_of(key_of(y), id); };
    auto one = [&](u32 id, float y) {
        if (is_in(y)) take(id, y);
    };
    if (rest_goes && may_mask_early(row.call)) {
        Vectors vectors = vectors_of(row.view);
        mask_where(
            row, vectors, part_of(vectors, 0, 1), [=](u32, float y) { return !(y >= from); }, is_in, take);
        if (thread_index() == 0) facts.is_masked_early = true;
    } else {
        for_fours<CHEAP_AHEAD>(
            row,
            [&](u32 id, const Four &y) {
                if (!is_in(y.a) && !is_in(y.b) && !is_in(y.c) && !is_in(y.d)) return;
                one(id, y.a);
                one(id + 1, y.b);
                one(id + 2, y.c);
                one(id + 3, y.d);
            },
            one);
    }
    block_sync();
    row.gathered = row.shared;
    row.gathered_count = count;
    row.covered_above = KEY_INFINITY;
    if (thread_index() == 0) {
        facts.ties_from = low;
        facts.ties_to = high;
    }
    block_sync();
}

// The row's first candidate, read from all of it.
DEVICE u64 first_of_row(const Row &row) {
    u64 first = 0;
    for_each(row.call, row.args, row.view, [&](u32 id, float y) {
        u32 key = key_of(y);
        u64 candidate = key > KEY_NEGATIVE_INFINITY ? candidate_of(key, id) : 0;
        first = candidate > first ? candidate : first;
    });
    return block_max_candidate(first);
}

DEVICE u64 first_of_gathered(const Row &row) {
    u64 first = 0;
#pragma unroll 1
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
        first = row.gathered[i] > first ? row.gathered[i] : first;
    return block_max_candidate(first);
}

// After stream has missed a row: nothing is gathered, only the first candidate, NaN and the number of candidates are looked
// for. A thread's ids ascend within four and from edge to edge, but not from vectors to edges: equal maxima go by id.
DEVICE void scan(Row &row) {
    const float none = bits_float(0xFF800000u);
    float best = none;
    u32 at = 0xFFFFFFFFu, nan = 0, count = 0;
    auto one = [&](u32 id, float y) {
        nan |= y != y;
        count += y > none;
        if (y > best || (y == best && id < at)) {
            best = y;
            at = id;
        }
    };
    for_fours<CHEAP_AHEAD>(
        row,
        [&](u32 id, const Four &y) {
            float most = max_or_nan(max_or_nan(y.a, y.b), max_or_nan(y.c, y.d));
            count += (y.a > none) + (y.b > none) + (y.c > none) + (y.d > none);
            // The comparison fails for NaN.
            if (most <= best) return;
            u32 counted = count;
            one(id, y.a);
            one(id + 1, y.b);
            one(id + 2, y.c);
            one(id + 3, y.d);
            count = counted;
        },
        one);
    nan = block_max(nan);
    row.gathered_count = 0;
    row.covered_above = KEY_INFINITY;
    count = block_sum(count);
    if (thread_index() == 0) {
        facts.candidates = count;
        facts.nan = nan;
    }
    set_first(row, block_max_candidate(best > none ? candidate_of(key_of(best), at) : 0));
}

DEVICE void truncate(Row &row) {
    SHARED u32 count;
    Vectors vectors = vectors_of(row.view);
    float threshold = threshold_of(row, vectors);
    block_zero(&count);
    Strip strip = strip_of(vectors, 0, 1);
    Flight flight = load_flight(row, vectors, strip.from + thread_index(), strip.step, ADJUSTED ? 0 : strip.to);
    Seen seen = gather_strip<false>(row, vectors, strip, flight, threshold, Reference{0.0f, 0.0f}, &count);
    u32 nan = block_max(seen.nan);
    if (thread_index() == 0) facts.nan = nan;
    if (count > CAPACITY && row.scratch) {
        for (u32 i = thread_index(); i < CAPACITY; i += thread_count()) row.scratch[i] = row.shared[i];
        row.gathered = row.scratch;
        block_sync();
    }
    bool fits = count <= CAPACITY || row.scratch;
    row.gathered_count = fits ? count : 0;
    row.covered_above = fits ? key_of(threshold) : KEY_INFINITY;
    set_first(row, row.gathered_count > 0 ? first_of_gathered(row) : first_of_row(row));
}
