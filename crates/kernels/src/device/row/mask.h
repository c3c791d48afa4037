// The mask: −∞ in place of everything that is not kept, whose bits stay as they were.

// Whether what surely goes may be masked before the cut is known: nothing else reads the row after that. What may yet go is
// among the gathered then.
DEVICE bool may_mask_early(const Call &call) { return STAGE == 6 && call.mask && !reads_row(call); }

// Stores −∞ over a part of the row, 16 bytes at a time where its alignment allows.
DEVICE void fill(const RowView &view, const Vectors &vectors, const Part &part) {
    Vector vector;
#pragma unroll
    for (u32 lane = 0; lane < PER_VECTOR; lane++) vector.lanes[lane] = STORED_NEGATIVE_INFINITY;
    Vector *start = (Vector *)(view.stored + vectors.head);
#pragma unroll 4
    for (u32 at = part.from + thread_index(); at < part.to; at += thread_count()) start[at] = vector;
    for_edges(view, vectors, part.has_head, part.has_tail, [&](u32 id) { view.stored[id] = STORED_NEGATIVE_INFINITY; });
}

// The part, as ids.
DEVICE bool is_in_part(u32 id, const Vectors &vectors, const Part &part) {
    u32 from = part.has_head ? 0 : vectors.head + part.from * PER_VECTOR;
    return id >= from && (part.has_tail || id < vectors.head + part.to * PER_VECTOR);
}

DEVICE u32 stored_bits(Stored y) {
#if DTYPE == 0
    return float_bits(y);
#else
    return y;
#endif
}
DEVICE Stored stored_of(u32 bits) {
#if DTYPE == 0
    return bits_float(bits);
#else
    return (Stored)bits;
#endif
}

// The bits that a candidate is stored with. Only where they do not follow from its key are they read: a read before the
// write costs the memory's latency.
DEVICE u32 bits_as_stored(const Row &row, u64 candidate) {
    u32 key = candidate_key(candidate);
    if (DTYPE == 1 || ADJUSTED || key == key_of(0.0f)) return stored_bits(row.view.stored[candidate_id(candidate)]);
    return float_bits(key_value(key)) >> (DTYPE == 0 ? 0 : 16);
}

// Reads a part of the row, and stores −∞ where `goes(id, y)` says so: whole vectors where something in them goes. Of the rest
// `take(id, y)` gets what `wants(y)`, which few should be.
template <typename Goes, typename Wants, typename Take>
DEVICE void mask_where(const Row &row, const Vectors &vectors, const Part &part, Goes goes, Wants wants, Take take) {
    Stored *stored = row.view.stored;
    auto one = [&](u32 id) {
        float y = effective(row.call, row.args, row.view, id);
        if (goes(id, y)) stored[id] = STORED_NEGATIVE_INFINITY;
        else if (wants(y)) take(id, y);
    };
    if (ADJUSTED) {
#pragma unroll 1
        for (u32 at = part.from * PER_VECTOR + thread_index(); at < part.to * PER_VECTOR; at += thread_count())
            one(vectors.head + at);
    } else {
        Flight flight = load_flight(row, vectors, part.from + thread_index(), thread_count(), part.to);
#pragma unroll 1
        for (u32 at = part.from + thread_index(); at < part.to; at += VECTORS_IN_FLIGHT * thread_count()) {
#pragma unroll
            for (u32 i = 0; i < VECTORS_IN_FLIGHT; i++) {
                if (at + i * thread_count() >= part.to) break;
                u32 id = vectors.head + (at + i * thread_count()) * PER_VECTOR;
                Vector &vector = flight.vectors[i];
                bool changes = false, has_wanted = false;
#pragma unroll
                for (u32 lane = 0; lane < PER_VECTOR; lane++) {
                    float y = widen(vector.lanes[lane]);
                    bool is_gone = goes(id + lane, y);
                    has_wanted |= !is_gone && wants(y);
                    changes |= is_gone;
                    if (is_gone) vector.lanes[lane] = STORED_NEGATIVE_INFINITY;
                }
                if (has_wanted) {
#pragma unroll
                    for (u32 lane = 0; lane < PER_VECTOR; lane++) {
                        float y = widen(vector.lanes[lane]);
                        if (wants(y)) take(id + lane, y);
                    }
                }
                if (changes) *(Vector *)(stored + id) = vector;
            }
            flight = load_flight(row, vectors, at + VECTORS_IN_FLIGHT * thread_count(), thread_count(), part.to);
        }
    }
    for_edges(row.view, vectors, part.has_head, part.has_tail, one);
}

// Stores −∞ over everything in a part of the row that the boundary does not keep.
DEVICE void mask(const Row &row, const Boundary &boundary, u32 part_index, u32 parts) {
    Stored *stored = row.view.stored;
    Vectors vectors = vectors_of(row.view);
    Part part = part_of(vectors, part_index, parts);
    if (STAGE == 6 && facts.is_masked_early) {
        for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
            if (!keeps(boundary, row.gathered[i])) stored[candidate_id(row.gathered[i])] = STORED_NEGATIVE_INFINITY;
        return;
    }
    if (boundary.kept != 0 && !row.listed) {
        const float last = key_value(boundary.key);
        // As `keeps`, of a logit: NaN goes, too.
        mask_where(
            row, vectors, part, [&](u32 id, float y) { return !(y > last) && !(y == last && id <= boundary.id); },
            [](float) { return false; }, [](u32, float) {});
        return;
    }
    // The kept are put aside with their bits as stored, the part is filled without being read, and they are put back.
    u32 count = boundary.kept == 0 ? 0 : row.gathered_count;
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        u64 candidate = row.gathered[i];
        u32 id = candidate_id(candidate);
        bool is_kept = keeps(boundary, candidate) && is_in_part(id, vectors, part);
        row.gathered[i] = is_kept ? (u64)bits_as_stored(row, candidate) << 32 | id : ~0ull;
    }
    block_sync();
    fill(row.view, vectors, part);
    block_sync();
    for (u32 i = thread_index(); i < count; i += thread_count()) {
        u64 aside = row.gathered[i];
        if (aside != ~0ull) stored[(u32)aside] = stored_of((u32)(aside >> 32));
    }
}
