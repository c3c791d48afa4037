// What one kernel leaves of a row for the next.

// Leaves a boundary, with all that it keeps if that is to be listed: it must be among the gathered, and have room.
DEVICE void leave(const Row &row, const Boundary &boundary, u32 state) {
    Slot *slot = row.call.slots + row.view.row;
    if (state == SLOT_LISTED) {
#pragma unroll 1
        for (u32 start = 0; start < row.gathered_count; start += thread_count()) {
            u32 i = start + thread_index();
            u64 candidate = i < row.gathered_count ? row.gathered[i] : 0;
            bool is_kept = i < row.gathered_count && keeps(boundary, candidate);
            u32 place = take_place(&few_places, is_kept);
            if (is_kept) slot->candidates[place] = candidate;
        }
    }
    // Who takes up the first of them does not wait to know whether there are any.
#pragma unroll 1
    for (u32 i = (state == SLOT_LISTED ? boundary.kept : 0) + thread_index(); i < SLOT_AHEAD; i += thread_count())
        slot->candidates[i] = 0;
    if (thread_index() != 0) return;
    slot->state = state;
    slot->gathered = row.gathered_count;
    if (state == SLOT_MISSED) return;
    slot->status = status_of(row);
    slot->max = is_empty(row) ? KEY_NEGATIVE_INFINITY : candidate_key(row.first);
    slot->key = boundary.key;
    slot->id = boundary.id;
    slot->kept = boundary.kept;
}

// This thread's of the first candidates of a slot.
DEVICE u64 take_ahead(const Slot &slot) {
    return thread_index() < SLOT_AHEAD ? slot.candidates[thread_index()] : 0;
}

// The boundary that was left, and what it keeps if that is listed.
DEVICE Boundary take_up(Row &row, u64 ahead) {
    const Slot *slot = row.call.slots + row.view.row;
    Boundary boundary = Boundary{slot->key, slot->id, slot->kept};
    row.listed = slot->state == SLOT_LISTED;
    row.gathered_count = row.listed ? boundary.kept : 0;
    if (thread_index() < SLOT_AHEAD) row.shared[thread_index()] = ahead;
#pragma unroll 1
    for (u32 i = (thread_count() < SLOT_AHEAD ? thread_count() : SLOT_AHEAD) + thread_index(); i < row.gathered_count;
         i += thread_count())
        row.shared[i] = slot->candidates[i];
    if (thread_index() == 0) facts.nan = slot->status & STATUS_NAN;
    set_first(row, slot->max == KEY_NEGATIVE_INFINITY ? 0 : candidate_of(slot->max, 0));
    block_sync();
    return boundary;
}
