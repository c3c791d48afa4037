// Stage 1, truncate: gather the candidates above a threshold (paper, σ-truncation).
//
// What does not fit into shared memory goes to scratch memory, which plans with a Gaussian threshold have; without any the
// row is searched whole. The row's first candidate is among the gathered, or, where none are, takes another pass.

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

// After stream has missed a row: nothing is gathered, only the first candidate and NaN are looked for.
DEVICE void scan(Row &row) {
    u64 first = 0;
    u32 nan = 0;
    for_each(row.call, row.args, row.view, [&](u32 id, float y) {
        nan |= y != y;
        u32 key = key_of(y);
        u64 candidate = key > KEY_NEGATIVE_INFINITY ? candidate_of(key, id) : 0;
        first = candidate > first ? candidate : first;
    });
    row.nan = block_max(nan);
    row.gathered_count = 0;
    row.covered_above = KEY_INFINITY;
    set_first(row, block_max_candidate(first));
}

DEVICE void truncate(Row &row) {
    SHARED u32 count;
    Vectors vectors = vectors_of(row.view);
    float threshold = threshold_of(row, vectors);
    block_sync();
    if (thread_index() == 0) count = 0;
    block_sync();
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
