// Stage 4, emit: the outputs asked for, from a boundary.

#define STATUS_NAN 1u
#define STATUS_POS_INF 2u
#define STATUS_EMPTY 4u
#define STATUS_OVERFLOW 8u

DEVICE u32 status_of(const Row &row) {
    u32 status = facts.nan ? STATUS_NAN : 0;
    if (is_empty(row)) return status | STATUS_EMPTY;
    return candidate_key(row.first) == KEY_INFINITY ? status | STATUS_POS_INF : status;
}

// Writes the first candidates of the kept, in order, as many as there is room for.
DEVICE void write_candidates(Row &row, const Boundary &boundary, u64 mass) {
    u32 room = row.call.capacity;
    if (room == 0) return;
    u64 start = (u64)row.view.row * room;
    u32 *ids = row.call.candidate_ids + start;
    float *logits = row.call.candidate_logits + start;
    float *logprobs = row.call.candidate_logprobs + start;
    u64 ln = ln_mass(mass);
    Boundary shown = boundary;
    if (!row.listed) {
        if (room < boundary.kept) {
            // Only as many as there is room for: up to the boundary of a count.
            Found found = pivot_search<1>(row, FROM_ROW, Goal{false, room, false}, KEY_LEAST, candidate_key(row.first));
            shown = Boundary{found.key, tied_id(row, FROM_ROW, found.key, room - found.above), room};
        }
        if (shown.kept <= GATHER_CAPACITY) {
            row.gathered = row.shared;
            row.gathered_count = gather_where(row, row.shared, GATHER_CAPACITY,
                                              [=](u32 key, u32 id) { return keeps(shown, candidate_of(key, id)); });
            row.listed = shown.kept == boundary.kept;
        }
    }
    if (row.listed || shown.kept <= GATHER_CAPACITY) {
        for_first(row, shown, room, [&](u32 rank, u64 candidate) {
            ids[rank] = candidate_id(candidate);
            logits[rank] = key_value(candidate_key(candidate));
            logprobs[rank] = logprob_of_key(row, candidate_key(candidate), ln);
        });
        return;
    }
    // Wide: into the caller's memory in any order, and sorted there.
    SHARED u32 written;
    block_zero(&written);
    for_each(row.call, row.args, row.view, [&](u32 id, float y) {
        u32 key = key_of(y);
        if (keeps(shown, candidate_of(key, id))) {
            u32 at = atomic_add(&written, 1u);
            ids[at] = id;
            logits[at] = key_value(key);
        }
    });
    u32 count = shown.kept;
    block_sort(
        count, [=](u32 a, u32 b) { return candidate_of(key_of(logits[a]), ids[a]) > candidate_of(key_of(logits[b]), ids[b]); },
        [=](u32 a, u32 b) {
            u32 id = ids[a];
            ids[a] = ids[b];
            ids[b] = id;
            float logit = logits[a];
            logits[a] = logits[b];
            logits[b] = logit;
        });
    for (u32 i = thread_index(); i < count; i += thread_count()) logprobs[i] = logprob_of_key(row, key_of(logits[i]), ln);
}

// All outputs but the mask, which destroys what they read.
DEVICE void emit(Row &row, const Boundary &boundary, u32 status) {
    const Call &call = row.call;
    u32 at = row.view.row;
    if (call.top_ids) write_top(row, boundary);
    if (boundary.kept == 0) {
        if (is_drawn(call)) draw_nothing(row);
        if (call.probabilities) write_probabilities(row, boundary, 0);
        if (call.laws && thread_index() == 0)
            call.laws[at] = Law{0, status, KEY_NEGATIVE_INFINITY, boundary.key, boundary.id};
    } else if (is_drawn(call) || call.candidate_ids || call.probabilities || call.laws) {
        u64 mass = kept_mass_of(row, boundary);
        if (call.laws && thread_index() == 0)
            call.laws[at] = Law{mass, status, candidate_key(row.first), boundary.key, boundary.id};
        if (is_drawn(call)) draw_all(row, boundary, mass);
        if (call.probabilities) write_probabilities(row, boundary, mass);
        if (call.candidate_ids) {
            write_candidates(row, boundary, mass);
            if (boundary.kept > call.capacity) status |= STATUS_OVERFLOW;
        }
    }
    if (thread_index() == 0) {
        if (call.status) call.status[at] = status;
        if (call.kept) call.kept[at] = boundary.kept;
    }
}
