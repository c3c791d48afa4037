// Thresholds that the candidates lie above, from a sample spread evenly over the row (paper, σ-truncation).
//
// A threshold is a hint: too high, and the search takes the whole row; too low, and more is gathered than there is room for.
// It comes from the sample's mean and deviation with δ from the tables, the margin as in the paper or in units of σ; or it
// is an order statistic of the sample.

#define SAMPLE_LOGITS (SAMPLE_RUNS * SAMPLE_RUN)
#define RUN_VECTORS (SAMPLE_RUN / PER_VECTOR)

DEVICE Vector load_vector(const RowView &view, const Vectors &vectors, u32 at) {
    return ((const Vector *)(view.stored + vectors.head))[at];
}

// Calls `each(y)` for the logits of the sample: runs of vectors, or all of the row's where they are not more.
template <typename Each>
DEVICE void for_sample(const Row &row, const Vectors &vectors, Each each) {
    const u32 wanted = SAMPLE_LOGITS / PER_VECTOR;
    u32 taken = vectors.count < wanted ? vectors.count : wanted;
    auto place = [&](u32 i) {
        if (vectors.count <= wanted) return i;
        return (u32)((u64)(i / RUN_VECTORS) * (vectors.count - RUN_VECTORS) / (SAMPLE_RUNS - 1)) + i % RUN_VECTORS;
    };
    if (ADJUSTED) {
#pragma unroll 1
        for (u32 i = thread_index(); i < taken * PER_VECTOR; i += thread_count())
            each(effective(row.call, row.args, row.view,
                           vectors.head + place(i / PER_VECTOR) * PER_VECTOR + i % PER_VECTOR));
        return;
    }
#pragma unroll 4
    for (u32 i = thread_index(); i < taken; i += thread_count()) {
        u32 at = place(i);
        Vector loaded = load_vector(row.view, vectors, at);
#pragma unroll
        for (u32 lane = 0; lane < PER_VECTOR; lane++) each(widen(loaded.lanes[lane]));
    }
}

// A threshold that the wanted number of candidates lies above, and the greatest logit of the sample. −∞: all are wanted; then
// also whether most of the row are none.
struct Threshold {
    float value, greatest;
    bool is_sparse;
};

struct alignas(16) FourMaxima {
    float lanes[4];
};

// The greatest logit of the sample that as many others are greater than as the wanted share of the row makes, of the maxima
// of pairs of threads. It errs to the low side, by the sample's great logits that share a pair; where great ones are equal,
// it lies below all of them.
DEVICE Threshold order_statistic(const Row &row, const Vectors &vectors) {
    SHARED FourMaxima maxima[THREADS / 8];
    float mine = bits_float(0xFF800000u);
    for_sample(row, vectors, [&](float y) { mine = max_ignoring_nan(mine, y); });
    mine = max_ignoring_nan(mine, bits_float((u32)warp_shuffle(float_bits(mine), lane_index() ^ 1)));
    u32 sampled = vectors.count * PER_VECTOR < SAMPLE_LOGITS ? vectors.count * PER_VECTOR : SAMPLE_LOGITS;
    u32 rank = (u32)(((u64)row.args.wanted * sampled + row.view.vocab - 1) / row.view.vocab);
    // The higher, the more great logits share a pair: three quarters of the pairs are the greatest of 177 of 4096 logits.
    const u32 pairs = thread_count() / 2;
    rank = rank < pairs * 3 / 4 ? rank : pairs * 3 / 4;
    block_sync();
    if (thread_index() % 2 == 0) maxima[thread_index() / 8].lanes[thread_index() / 2 % 4] = mine;
    u32 greatest = block_max(key_of(mine));
    u32 found = KEY_NEGATIVE_INFINITY, is_none = 0;
    if (thread_index() < pairs) {
        float own = maxima[thread_index() / 4].lanes[thread_index() % 4];
        u32 greater = 0;
#pragma unroll 4
        for (u32 i = 0; i < thread_count() / 8; i++) {
            FourMaxima four = maxima[i];
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) greater += four.lanes[lane] > own;
        }
        if (greater >= rank) found = key_of(own);
        is_none = key_of(own) == KEY_NEGATIVE_INFINITY;
    }
    found = block_max(found);
    bool is_sparse = found == KEY_NEGATIVE_INFINITY && block_sum(is_none) >= pairs / 2;
    return Threshold{key_value(found), key_value(greatest), is_sparse};
}

DEVICE bool is_finite(float y) { return (float_bits(y) & 0x7F800000u) != 0x7F800000u; }

DEVICE float gaussian_threshold(const Row &row, const Vectors &vectors) {
    // Moments about one of the logits: about 0 they would lose their digits where the mean is far from it.
    float about = effective(row.call, row.args, row.view, row.view.vocab / 2);
    if (!is_finite(about)) about = 0.0f;
    float count = 0.0f, sum = 0.0f, squares = 0.0f;
    for_sample(row, vectors, [&](float y) {
        if (!is_finite(y)) return;
        count += 1.0f;
        sum += y - about;
        squares += (y - about) * (y - about);
    });
    count = block_sum_hint(count);
    float shift = block_sum_hint(sum) / count;
    float variance = block_sum_hint(squares) / count - shift * shift;
    float mean = about + shift, sigma = variance > 0.0f ? sqrt_hint(variance) : 0.0f;
    // δ for top-p lies at every half σ/T; the entry below errs to the safe side.
    float scaled = sigma / row.args.temperature * 2.0f;
    u32 at = scaled < (float)(DELTA_SIGMAS - 1) ? (u32)scaled : DELTA_SIGMAS - 1;
    float t = mean + row.args.delta[at] * sigma;
    float margin = TRUNCATION == 1 ? 0.2f * (t < 0.0f ? -t : t) : SIGMA_MARGIN * sigma;
    return t - margin;
}

// The plan's threshold.
DEVICE float threshold_of(const Row &row, const Vectors &vectors) {
    const float gather_none = bits_float(0x7F800000u);
    if (TRUNCATION == 0 || row.args.temperature == 0.0f) return gather_none;
    if (TRUNCATION == 3) return has_filter(row) ? order_statistic(row, vectors).value : gather_none;
    float threshold = gaussian_threshold(row, vectors);
    // NaN: the sample had nothing finite, or overflowed.
    return threshold == threshold ? threshold : bits_float(0xFF800000u);
}
