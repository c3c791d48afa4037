// Stage 1, truncate: gather the candidates above a threshold (paper, σ-truncation).
//
// The threshold is a hint: too high, and the search takes the whole row; too low, and more is gathered than shared memory
// has room for: they go to scratch memory, which a plan with a Gaussian threshold has, or else the row is searched whole. It comes from a sample spread over the row: of its mean and deviation with δ from the tables,
// the margin as in the paper or in units of σ, or as the sample's order statistic. The row's first candidate is among the
// gathered, or, where none are, takes another pass.

DEVICE u32 sample_size(const Row &row) {
    u32 whole = SAMPLE_RUNS * SAMPLE_RUN;
    return row.view.vocab < whole ? row.view.vocab : whole;
}

// The logit number `i` of the sample.
DEVICE float sampled(const Row &row, u32 i) {
    u32 id = i;
    if (row.view.vocab > SAMPLE_RUNS * SAMPLE_RUN) {
        u64 run = i / SAMPLE_RUN;
        id = (u32)(run * (row.view.vocab - SAMPLE_RUN) / (SAMPLE_RUNS - 1)) + i % SAMPLE_RUN;
    }
    return effective(row.call, row.args, row.view, id);
}

DEVICE bool is_finite(float y) { return (float_bits(y) & 0x7F800000u) != 0x7F800000u; }

// Puts the sample's finite logits where candidates will be gathered; how many they are.
DEVICE u32 take_sample(const Row &row, float *sample) {
    SHARED u32 taken;
    block_sync();
    if (thread_index() == 0) taken = 0;
    block_sync();
    for (u32 i = thread_index(); i < sample_size(row); i += thread_count()) {
        float y = sampled(row, i);
        if (is_finite(y)) sample[atomic_add(&taken, 1u)] = y;
    }
    block_sync();
    return taken;
}

template <typename Each>
DEVICE float sum_sample(const float *sample, u32 count, Each each) {
    float sum = 0.0f;
    for (u32 i = thread_index(); i < count; i += thread_count()) sum += each(sample[i]);
    return block_sum_hint(sum);
}

DEVICE float gaussian_threshold(const Row &row, const float *sample, u32 count) {
    float mean = sum_sample(sample, count, [](float y) { return y; }) / (float)count;
    float variance = sum_sample(sample, count, [=](float y) { return (y - mean) * (y - mean); }) / (float)count;
    float sigma = sqrt_hint(variance);
    // δ for top-p lies at every half σ/T; the entry below errs to the safe side.
    float scaled = sigma / row.args.temperature * 2.0f;
    u32 at = scaled < (float)(DELTA_SIGMAS - 1) ? (u32)scaled : DELTA_SIGMAS - 1;
    float t = mean + row.args.delta[at] * sigma;
    float margin = TRUNCATION == 1 ? 0.2f * (t < 0.0f ? -t : t) : SIGMA_MARGIN * sigma;
    return t - margin;
}

// Close to the sample's order statistic at the share of the row that is wanted: the lower edge of the range of values, one of
// equally many as the block has threads, in which it lies.
DEVICE float quantile_threshold(const Row &row, const float *sample, u32 count) {
    SHARED u32 counts[THREADS];
    SHARED float edge;
    const float none = bits_float(0xFF800000u);
    u32 rank = (u32)(((u64)row.args.wanted * sample_size(row) + row.view.vocab - 1) / row.view.vocab);
    if (rank >= count) return none;
    u32 least = KEY_INFINITY, greatest = 0;
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        u32 key = key_of(sample[i]);
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    }
    float low = key_value(block_min(least)), high = key_value(block_max(greatest));
    // Ranges from the top. A span that overflows, or is 0, puts everything into the first.
    float width = (high - low) / (float)thread_count();
    counts[thread_index()] = 0;
    block_sync();
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        float range = (high - sample[i]) / width;
        u32 at = range < (float)thread_count() ? (u32)range : thread_count() - 1;
        atomic_add(&counts[range >= 0.0f ? at : 0], 1u);
    }
    if (thread_index() == 0) edge = none;
    block_sync();
    u32 before = block_sum_before(counts[thread_index()]);
    if (before < rank && before + counts[thread_index()] >= rank)
        edge = high - (float)(thread_index() + 1) * width;
    block_sync();
    // The threshold is exclusive: what equals the least of the row has nothing to lose.
    return edge > low ? edge : none;
}

DEVICE float threshold_of(const Row &row) {
    const float gather_none = bits_float(0x7F800000u);
    bool bounded = active_k(row) || row.args.top_p < 1.0f || row.args.farthest != 0xFFFFFFFFu;
    if (TRUNCATION == 0 || row.args.temperature == 0.0f) return gather_none;
    if (TRUNCATION == 3 && !bounded) return gather_none;
    float *sample = (float *)row.gathered;
    u32 count = take_sample(row, sample);
    float threshold =
        TRUNCATION == 3 ? quantile_threshold(row, sample, count) : gaussian_threshold(row, sample, count);
    // NaN: the sample had nothing finite, or overflowed.
    return threshold == threshold ? threshold : bits_float(0xFF800000u);
}

// Gathers the candidates that `belongs(key, id)` accepts into `out`, which has room for `room`; how many there are.
template <typename Belongs>
DEVICE u32 gather_where(const Row &row, u64 *out, u32 room, Belongs belongs) {
    SHARED u32 count;
    block_sync();
    if (thread_index() == 0) count = 0;
    block_sync();
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

// The row's first candidate, read from all of it.
DEVICE u64 first_of_row(const Row &row) {
    u64 first = 0;
    for_each_wide(row.call, row.args, row.view, [&](u32 id, float y) {
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

DEVICE void truncate(Row &row) {
    SHARED u32 count;
    float threshold = threshold_of(row);
    block_sync();
    if (thread_index() == 0) count = 0;
    block_sync();
    Vectors vectors = vectors_of(row.view);
    Part part = part_of(vectors, 0, 1);
    Flight flight = load_flight(row, vectors, ADJUSTED ? part.to : part.from + thread_index(), part.to);
    Seen seen = gather_part<false>(row, vectors, part, flight, threshold, Reference{0.0f, 0.0f}, &count);
    row.nan = block_max(seen.nan);
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
