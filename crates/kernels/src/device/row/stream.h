// One read of the row: the candidates above a threshold, and a bound of the mass of all the rest.
//
// A launch of the default plan is two kernels. Stream reads each row once, `chunks` blocks to a row, gathers, and selects
// (select.h) in the block that ends last; it leaves the cut and the kept candidates in the row's slot. Finish writes the
// outputs, and for a mask stores −∞ without reading: the kept are put back from the slot. A row that the threshold missed
// is marked so, and finish runs it whole. Reading and writing apart is faster than both in one kernel: the memory does not
// turn around between them, and a small batch gets all multiprocessors for each.
//
// Nobody waits for another block: each adds what it has to the row's list, then counts itself; who counts last goes on. The
// count is back at 0 when the launch ends, which is why a workspace is zeroed once, before its first launch.
//
// Top-p needs the mass of the whole row, whose integer weights would take several times the time of the read. Of the
// candidates they are summed exactly; of the rest, which weighs little, the hardware's exponentials are summed in floating
// point, with an error that is bounded (rest.h): a cut that is the same at both ends of the bound is the exact one.

#define SAMPLE_LOGITS (SAMPLE_RUNS * SAMPLE_RUN)
#define RUN_VECTORS (SAMPLE_RUN / PER_VECTOR)

DEVICE Vector load_vector(const RowView &view, const Vectors &vectors, u32 at) {
    return ((const Vector *)(view.stored + vectors.head))[at];
}

// The greatest logit of this thread's share of the sample, −∞ if it has none: runs of vectors, spread evenly over the row.
DEVICE float sample_maximum(const Row &row, const Vectors &vectors) {
    const u32 wanted = SAMPLE_LOGITS / PER_VECTOR;
    u32 taken = vectors.count < wanted ? vectors.count : wanted;
    float most = bits_float(0xFF800000u);
#pragma unroll 4
    for (u32 i = thread_index(); i < taken; i += thread_count()) {
        u32 at = i;
        if (vectors.count > wanted)
            at = (u32)((u64)(i / RUN_VECTORS) * (vectors.count - RUN_VECTORS) / (SAMPLE_RUNS - 1)) + i % RUN_VECTORS;
        Vector loaded = load_vector(row.view, vectors, at);
        u32 id = vectors.head + at * PER_VECTOR;
#pragma unroll
        for (u32 lane = 0; lane < PER_VECTOR; lane++)
            most = max_ignoring_nan(most, adjust(row.call, row.args, row.view, id + lane, widen(loaded.lanes[lane])));
    }
    return most;
}

// A threshold that the wanted number of candidates lies above, and the greatest logit of the sample. −∞: all are wanted.
struct Threshold {
    float value, greatest;
};

// The order statistic of the threads' maxima at the share of the row that is wanted. It errs to the low side, by the
// sample's great logits that share a thread.
DEVICE Threshold stream_threshold(const Row &row, const Vectors &vectors) {
    SHARED float maxima[THREADS];
    SHARED float found;
    const float none = bits_float(0xFF800000u);
    float mine = sample_maximum(row, vectors);
    u32 sampled = vectors.count * PER_VECTOR < SAMPLE_LOGITS ? vectors.count * PER_VECTOR : SAMPLE_LOGITS;
    u32 rank = (u32)(((u64)row.args.wanted * sampled + row.view.vocab - 1) / row.view.vocab);
    block_sync();
    maxima[thread_index()] = mine;
    if (thread_index() == 0) found = none;
    block_sync();
    u32 greater = 0, equal = 0;
#pragma unroll 4
    for (u32 i = 0; i < thread_count(); i++) {
        greater += maxima[i] > mine;
        equal += maxima[i] == mine;
    }
    if (greater < rank && greater + equal >= rank) found = mine;
    float greatest = key_value((u32)block_max(key_of(mine)));
    return Threshold{found, greatest};
}

// What a thread has seen of a row.
struct Seen {
    double rest;
    u32 nan;
};

// Streams a part of the row. Candidates go to shared memory as long as there is room; all are counted.
template <bool WITH_REST>
DEVICE Seen stream_part(const Row &row, const Vectors &vectors, const Part &part, const Threshold &threshold, u32 *count) {
    const float t = threshold.value, reference = threshold.greatest;
    const float c = WITH_REST ? div_rn(LOG2_OF_E, row.args.temperature) : 0.0f;
    Seen seen = Seen{0.0, 0};
    auto gather = [&](u32 id, float y) {
        u32 at = atomic_add(count, 1u);
        if (at < GATHER_CAPACITY) row.shared[at] = candidate_of(key_of(y), id);
    };
    auto term = [&](float y) { return exp2_hint(mul_rn(sub_rn(y, reference), c)); };
    auto take = [&](u32 id, float y, float &sum) {
        if (y > t) gather(id, y);
        else if (WITH_REST && y == y) sum += term(y);
    };
    auto take_one = [&](u32 id) {
        float y = effective(row.call, row.args, row.view, id), sum = 0.0f;
        seen.nan |= y != y;
        take(id, y, sum);
        if (WITH_REST) seen.rest += (double)sum;
    };
    if (ADJUSTED) {
        // What is read beside each logit is most of the time.
#pragma unroll 1
        for (u32 at = part.from * PER_VECTOR + thread_index(); at < part.to * PER_VECTOR; at += thread_count())
            take_one(vectors.head + at);
    }
#pragma unroll 1
    for (u32 at = ADJUSTED ? part.to : part.from + thread_index(); at < part.to; at += VECTORS_IN_FLIGHT * thread_count()) {
        Vector loaded[VECTORS_IN_FLIGHT];
#pragma unroll
        for (u32 i = 0; i < VECTORS_IN_FLIGHT; i++)
            if (at + i * thread_count() < part.to) loaded[i] = load_vector(row.view, vectors, at + i * thread_count());
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < VECTORS_IN_FLIGHT; i++) {
            if (at + i * thread_count() >= part.to) break;
            u32 id = vectors.head + (at + i * thread_count()) * PER_VECTOR;
            float y[PER_VECTOR];
            float most = bits_float(0xFF800000u);
            bool unordered = false;
#pragma unroll
            for (u32 lane = 0; lane < PER_VECTOR; lane++) {
                y[lane] = widen(loaded[i].lanes[lane]);
                most = max_ignoring_nan(most, y[lane]);
                unordered |= y[lane] != y[lane];
            }
            seen.nan |= unordered;
            if (most > t || unordered) {
#pragma unroll
                for (u32 lane = 0; lane < PER_VECTOR; lane++) take(id + lane, y[lane], sum);
            } else if (WITH_REST) {
#pragma unroll
                for (u32 lane = 0; lane < PER_VECTOR; lane += 4)
                    sum += (term(y[lane]) + term(y[lane + 1])) + (term(y[lane + 2]) + term(y[lane + 3]));
            }
        }
        if (WITH_REST) seen.rest += (double)sum;
    }
    for_edges(row.view, vectors, part, take_one);
    return seen;
}

// Adds what this block has to the row's. True in the block that comes last, which then has all of it.
DEVICE bool join(Row &row, u32 chunk, double &rest) {
    SHARED u32 shared[2];
    const Call &call = row.call;
    Arrivals *arrivals = call.arrivals + row.view.row;
    SplitRow *split = call.split_rows + row.view.row;
    u32 count = row.gathered_count;
    if (thread_index() == 0) {
        shared[0] = atomic_add(&arrivals->gathered, count);
        if (row.nan) atomic_or(&arrivals->nan, 1u);
        split->rest[chunk] = rest;
    }
    block_sync();
    u32 start = shared[0];
    for (u32 i = thread_index(); i < count && i < GATHER_CAPACITY; i += thread_count())
        if (start + i < GATHER_CAPACITY) split->gathered[start + i] = row.shared[i];
    fence();
    block_sync();
    if (thread_index() == 0) shared[1] = atomic_add(&arrivals->arrived, 1u);
    block_sync();
    if (shared[1] != call.chunks - 1) return false;
    fence();
    row.gathered_count = load_fresh(&arrivals->gathered);
    row.nan = load_fresh(&arrivals->nan);
    for (u32 i = thread_index(); i < row.gathered_count && i < GATHER_CAPACITY; i += thread_count())
        row.shared[i] = load_fresh(&split->gathered[i]);
    rest = 0.0;
    for (u32 i = 0; i < call.chunks; i++) rest += bits_double(load_fresh((const u64 *)&split->rest[i]));
    block_sync();
    if (thread_index() == 0) *arrivals = Arrivals{0, 0, 0, 0};
    return true;
}

// One block's part of a row; the last one leaves the row's slot.
DEVICE void stream(Row &row, u32 chunk) {
    SHARED u32 count;
    const Call &call = row.call;
    Slot *slot = call.slots + row.view.row;
    const RowArgs &args = row.args;
    bool by_mass = args.top_p < 1.0f;
    bool is_bounded = active_k(row) || by_mass || args.farthest != 0xFFFFFFFFu || args.temperature == 0.0f;
    // Top-p after top-k needs no mass but the candidates' own.
    bool with_rest = by_mass && (active_k(row) == 0 || (args.flags & JOINT)) && args.temperature != 0.0f;
    Vectors vectors = vectors_of(row.view);
    Threshold threshold = Threshold{bits_float(0xFF800000u), 0.0f};
    if (is_bounded) threshold = stream_threshold(row, vectors);
    // All candidates of a wide row are too many.
    if (key_of(threshold.value) == KEY_NEGATIVE_INFINITY && (!is_bounded || row.view.vocab > GATHER_CAPACITY)) {
        if (chunk == 0 && thread_index() == 0) slot->is_hit = 0;
        return;
    }
    if (thread_index() == 0) count = 0;
    block_sync();
    Part part = part_of(vectors, chunk, call.chunks);
    Seen seen = with_rest ? stream_part<true>(row, vectors, part, threshold, &count)
                          : stream_part<false>(row, vectors, part, threshold, &count);
    double rest = with_rest ? block_sum_double(seen.rest) : 0.0;
    row.nan = (u32)block_max(seen.nan);
    row.gathered_count = count;
    row.covered_above = key_of(threshold.value);
    if (call.chunks > 1 && !join(row, chunk, rest)) return;
    Boundary boundary;
    bool is_hit = row.gathered_count <= GATHER_CAPACITY && select(row, rest, threshold.greatest, with_rest, boundary);
    if (thread_index() != 0) return;
    slot->is_hit = is_hit;
    if (!is_hit) return;
    slot->status = status_of(row);
    slot->max = candidate_key(row.first);
    slot->key = boundary.key;
    slot->id = boundary.id;
    slot->kept = boundary.kept;
}
