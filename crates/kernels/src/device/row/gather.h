// The pass that gathers: each logit is read once, what lies above a threshold becomes a candidate.
//
// Loads are 16 bytes wide where the row's alignment allows, several in flight. Few logits are candidates, so that four of
// them take three maxima and one comparison, which fails for NaN, too.

// What a thread has seen of a row: of the logits that are no candidates the sum of 2^((y − reference)·c), if asked for.
struct Seen {
    double rest;
    u32 nan;
    // The greatest key of its candidates, 0 for none.
    u32 greatest;
};

// The loads of a thread that are in flight together: VECTORS_IN_FLIGHT vectors, `step` apart.
struct Flight {
    Vector vectors[VECTORS_IN_FLIGHT];
};

DEVICE Flight load_flight(const Row &row, const Vectors &vectors, u32 at, u32 step, u32 to) {
    Flight flight;
#pragma unroll
    for (u32 i = 0; i < VECTORS_IN_FLIGHT; i++)
        if (at + i * step < to) flight.vectors[i] = load_vector(row.view, vectors, at + i * step);
    return flight;
}

// Calls `each(id, four)` for every four logits of the row, each on one thread, ids ascending, and `one(id, y)` for those of no
// vector: for passes that look at four at once. Without adjustments alone; with them all go to `one`. A thread's next
// `AHEAD` vectors are under way while it works on as many.
template <u32 AHEAD, typename Each, typename One>
DEVICE void for_fours(const Row &row, Each each, One one) {
    Vectors vectors = vectors_of(row.view);
    if (ADJUSTED) {
#pragma unroll 1
        for (u32 id = thread_index(); id < row.view.vocab; id += thread_count())
            one(id, effective(row.call, row.args, row.view, id));
        return;
    }
    Vector next[AHEAD];
    auto load = [&](u32 at) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++)
            if (at + i * thread_count() < vectors.count) next[i] = load_vector(row.view, vectors, at + i * thread_count());
    };
    load(thread_index());
#pragma unroll 1
    for (u32 at = thread_index(); at < vectors.count; at += AHEAD * thread_count()) {
        Vector now[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) now[i] = next[i];
        load(at + AHEAD * thread_count());
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            if (at + i * thread_count() >= vectors.count) break;
            u32 id = vectors.head + (at + i * thread_count()) * PER_VECTOR;
#pragma unroll
            for (u32 lane = 0; lane < PER_VECTOR; lane += 4) each(id + lane, widen_four(now[i], lane));
        }
    }
    for_edges(row.view, vectors, true, true,
              [&](u32 id) { one(id, effective(row.call, row.args, row.view, id)); });
}

// Where the sum over the rest refers to.
struct Reference {
    float greatest, c;
};

// Gathers from a strip of the row, whose first loads are under way. Candidates go to shared memory as long as there is room,
// then to scratch memory, if there is any; all are counted. Lanes take places one by one: to take them for a warp at once
// costs every warp its ballots, and was slower on an H200 for any share of candidates below a tenth.
template <bool WITH_REST>
DEVICE Seen gather_strip(const Row &row, const Vectors &vectors, const Strip &strip, Flight flight, float t,
                         const Reference &reference, u32 *count) {
    const float none = bits_float(0xFF800000u);
    Seen seen = Seen{0.0, 0, 0};
    auto gather = [&](u32 id, float y) {
        u32 at = atomic_add(count, 1u), key = key_of(y);
        seen.greatest = key > seen.greatest ? key : seen.greatest;
        if (at < CAPACITY) row.shared[at] = candidate_of(key, id);
        else if (row.scratch) row.scratch[at] = candidate_of(key, id);
    };
    auto term = [&](float y) { return rest_term(y, reference.greatest, reference.c); };
    // A candidate is nothing to the rest.
    auto take = [&](u32 id, float &y) {
        if (!(y > t)) return;
        gather(id, y);
        y = none;
    };
    auto take_one = [&](u32 id) {
        float y = effective(row.call, row.args, row.view, id);
        seen.nan |= y != y;
        take(id, y);
        if (WITH_REST) seen.rest += (double)term(y);
    };
    if (ADJUSTED) {
        // What is read beside each logit is most of the time.
#pragma unroll 1
        for (u32 at = strip.from + thread_index(); at < strip.to * PER_VECTOR; at += strip.step) take_one(vectors.head + at);
    }
#pragma unroll 1
    for (u32 at = ADJUSTED ? strip.to : strip.from + thread_index(); at < strip.to; at += VECTORS_IN_FLIGHT * strip.step) {
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < VECTORS_IN_FLIGHT; i++) {
            if (at + i * strip.step >= strip.to) break;
            u32 id = vectors.head + (at + i * strip.step) * PER_VECTOR;
#pragma unroll
            for (u32 lane = 0; lane < PER_VECTOR; lane += 4) {
                Four y = widen_four(flight.vectors[i], lane);
                float most = max_or_nan(max_or_nan(y.a, y.b), max_or_nan(y.c, y.d));
                // The comparison fails for NaN.
                if (!(most <= t)) {
                    seen.nan |= most != most;
                    take(id + lane, y.a);
                    take(id + lane + 1, y.b);
                    take(id + lane + 2, y.c);
                    take(id + lane + 3, y.d);
                }
                if (WITH_REST) sum += (term(y.a) + term(y.b)) + (term(y.c) + term(y.d));
            }
        }
        if (WITH_REST) seen.rest += (double)sum;
        flight = load_flight(row, vectors, at + VECTORS_IN_FLIGHT * strip.step, strip.step, strip.to);
    }
    for_edges(row.view, vectors, strip.has_head, strip.has_tail, take_one);
    return seen;
}
