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
    // From one run to the next, in vectors.
    u32 apart = vectors.count <= wanted ? RUN_VECTORS : (vectors.count - RUN_VECTORS) / (SAMPLE_RUNS - 1);
    auto place = [&](u32 i) { return i / RUN_VECTORS * apart + i % RUN_VECTORS; };
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
    u32 lanes[4];
};

// As many parts of the sample have a maximum each, of the lanes of a warp side by side.
#define MOST_MAXIMA 64u

// The greatest logit of the sample that as many others are greater than as the wanted share of the row makes, found among the
// maxima of parts: of r great logits that fall into n parts, some share one, and n·(1 − e^(−r/n)) parts have any. Where great
// ones are equal, it lies below all of them.
DEVICE Threshold order_statistic(const Row &row, const Vectors &vectors) {
    SHARED FourMaxima maxima[MOST_MAXIMA / 4];
    const u32 count = thread_count() < MOST_MAXIMA ? thread_count() : MOST_MAXIMA, lanes = thread_count() / count;
    u32 sampled = vectors.count * PER_VECTOR < SAMPLE_LOGITS ? vectors.count * PER_VECTOR : SAMPLE_LOGITS;
    float logits_each = (float)row.args.wanted * (float)sampled * reciprocal_hint((float)row.view.vocab * (float)count);
    u32 rank = (u32)((1.0f - exp2_hint(-LOG2_OF_E * logits_each)) * (float)count) + 1;
    // The higher, the more it varies: three quarters of 64 parts have the greatest 89 of 4096 logits.
    rank = rank < count * 3 / 4 ? rank : count * 3 / 4;
    float mine = bits_float(0xFF800000u);
    for_sample(row, vectors, [&](float y) { mine = max_ignoring_nan(mine, y); });
#pragma unroll
    for (u32 step = 1; step < lanes; step *= 2)
        mine = max_ignoring_nan(mine, bits_float((u32)warp_shuffle(float_bits(mine), lane_index() ^ step)));
    block_sync();
    const u32 at = thread_index() / lanes, part = thread_index() % lanes;
    // Keys without their last bit: the difference of two has a sign, which is one instruction less than to compare and to add.
    const u32 key = key_of(mine), shortened = key >> 1;
    if (part == 0 && at < count) maxima[at / 4].lanes[at % 4] = shortened;
    block_sync();
    // The lanes that share a maximum share the others.
    u32 greater = 0;
#pragma unroll
    for (u32 i = part; i < count / 4; i += lanes) {
        FourMaxima four = maxima[i];
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) greater += (shortened - four.lanes[lane]) >> 31;
    }
#pragma unroll
    for (u32 step = 1; step < lanes; step *= 2) greater += (u32)warp_shuffle(greater, lane_index() ^ step);
    Counts keys = block_max_counts(Counts{greater >= rank ? key : KEY_NEGATIVE_INFINITY, key});
    u32 found = keys.first, greatest = keys.second;
    bool is_sparse = found == KEY_NEGATIVE_INFINITY &&
                     block_sum(part == 0 && key == KEY_NEGATIVE_INFINITY) >= count / 2;
    return Threshold{key_value(found), key_value(greatest), is_sparse};
}

// Whether the sample has at least a share of its mass above a threshold.
DEVICE bool has_share_above(const Row &row, const Vectors &vectors, const Threshold &threshold, float share) {
    const float c = div_rn(LOG2_OF_E, row.args.temperature);
    u32 above = 0, all = 0;
    for_sample(row, vectors, [&](float y) {
        // In units that the whole sample has fewer than 2^32 of; 0 of NaN.
        float weight = exp2_hint(mul_rn(sub_rn(y, threshold.greatest), c)) * 65536.0f;
        u32 units = weight <= 65536.0f ? (u32)weight : 0;
        all += units;
        above += y > threshold.value ? units : 0;
    });
    Counts sums = block_sum_counts(Counts{above, all});
    return (float)sums.first >= share * (float)sums.second;
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
