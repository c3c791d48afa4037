// The kernel: a block has one part of a row; or, where blocks have scratch memory, takes rows until none is left.

#if STAGE == 8

// A block has the chain of one request.
KERNEL LAUNCH_BOUNDS(THREADS, RESIDENT_THREADS / THREADS) qrita(ARGUMENT(ChainCall) chain) { verify(chain, block_index()); }

// That of stage 9 is in row/decay.h.
#elif STAGE != 9

// Stages 1 to 3 of a row.
DEVICE Boundary boundary_of(Row &row) {
    if (STAGE == 6) scan(row);
    else truncate(row);
    if (is_empty(row)) {
        row.listed = false;
        return Boundary{KEY_NEGATIVE_INFINITY, 0, 0};
    }
    u32 top_k_key;
    bool hit = is_hit(row, floor_key(row));
    Prefix prefix = search(row, hit, top_k_key);
    return dedup(row, prefix);
}

// A row from its logits to its outputs, or what is left of it after another kernel. The mask is divided into parts, unless
// someone reads the row while others would mask it; the rest is the first part's.
DEVICE void run_or_finish(Row &row, u32 part) {
    u32 state = SLOT_MISSED;
    u64 ahead = 0;
    if (STAGE == 6) {
        const Slot &slot = row.call.slots[row.view.row];
        state = slot.state;
        ahead = take_ahead(slot);
    }
    bool is_divided = state == SLOT_LISTED || (state == SLOT_CUT && !reads_row(row.call));
    if (part > 0 && !is_divided) return;
    if (STAGE == 6 && (state == SLOT_MISSED || (part == 0 && reads_row(row.call)))) load_table();
    Boundary boundary = state == SLOT_MISSED ? boundary_of(row) : take_up(row, ahead);
    if (part == 0) emit(row, boundary, status_of(row));
    block_sync();
    if (row.call.mask) mask(row, boundary, part, is_divided ? row.call.mask_chunks : 1);
}

DEVICE void run_row(Row &row, u32 part) {
#if STAGE >= 1 && STAGE <= 4
    const Call &call = row.call;
    StageRow *stage = call.stage_rows + row.view.row;
#endif
#if STAGE == 0 || STAGE == 6
    run_or_finish(row, part);
#elif STAGE == 1
    truncate(row);
    u32 covered_above = row.covered_above, count = row.gathered_count;
    u64 *out = call.gathered + row.view.row * call.gathered_stride;
    for (u32 i = thread_index(); i < count; i += thread_count()) out[i] = row.gathered[i];
    bool hit = false;
    if (!is_empty(row)) {
        u32 floor = floor_key(row);
        hit = is_hit(row, floor);
        if (hit && keeps_all_ties(row) && row.args.temperature != 0.0f) {
            // Whole groups of ties are needed: at top-k's cut, or else at the last key kept.
            u32 top_k_key;
            Prefix prefix = search(row, true, top_k_key);
            hit = (active_k(row) ? top_k_key : prefix.key) > covered_above;
        }
    }
    if (thread_index() == 0) {
        stage->status = status_of(row);
        stage->max = is_empty(row) ? KEY_NEGATIVE_INFINITY : candidate_key(row.first);
        stage->covered_above = covered_above;
        stage->gathered = count;
        stage->hit = hit;
    }
#elif STAGE == 2
    if (stage->max == KEY_NEGATIVE_INFINITY) {
        if (thread_index() == 0) stage->key = KEY_NEGATIVE_INFINITY;
        return;
    }
    set_first(row, candidate_of(stage->max, 0));
    bool hit = stage->hit && (stage->gathered <= GATHER_CAPACITY || row.scratch) && !call.force_fallback;
    if (stage->gathered > GATHER_CAPACITY) row.gathered = row.scratch;
    row.covered_above = stage->covered_above;
    row.gathered_count = hit ? stage->gathered : 0;
    const u64 *in = call.gathered + row.view.row * call.gathered_stride;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) row.gathered[i] = in[i];
    block_sync();
    u32 top_k_key;
    Prefix prefix = search(row, hit, top_k_key);
    write_cut(row, prefix, *stage);
#elif STAGE == 3
    if (stage->quota == 0) return;
    Prefix prefix = Prefix{stage->key, stage->above, stage->quota, true};
    Boundary boundary = dedup(row, prefix);
    if (thread_index() == 0) {
        stage->id = boundary.id;
        stage->kept = boundary.kept;
    }
#elif STAGE == 5
    stream(row, part);
#elif STAGE == 7
    Boundary boundary = boundary_of(row);
    leave(row, boundary, row.listed && boundary.kept <= KEPT_CAPACITY ? SLOT_LISTED : SLOT_CUT);
#else
    set_first(row, stage->kept ? candidate_of(stage->max, 0) : 0);
    row.listed = false;
    Boundary boundary = Boundary{stage->key, stage->id, stage->kept};
    emit(row, boundary, 0);
    block_sync();
    if (call.mask) mask(row, boundary, 0, 1);
#endif
}

// Member by member: what is an instruction each is a loop otherwise.
DEVICE void copy_args(RowArgs &to, const RowArgs &from) {
    to.seed = from.seed;
    to.position = from.position;
    to.stream = from.stream;
    to.temperature = from.temperature;
    to.top_k = from.top_k;
    to.top_p = from.top_p;
    to.farthest = from.farthest;
    to.flags = from.flags;
    if (ADJUSTED) {
        to.repetition = from.repetition;
        to.frequency = from.frequency;
        to.presence = from.presence;
    }
    if (TRUNCATION == 1 || TRUNCATION == 2) {
#pragma unroll 1
        for (u32 i = 0; i < DELTA_SIGMAS; i++) to.delta[i] = from.delta[i];
    }
    to.wanted = from.wanted;
}

// Part `part` of a row, or all of it.
DEVICE void run_part(const Call &call, u64 *gathered, u32 at, u32 part) {
    u64 *scratch = HAS_SCRATCH ? call.scratch + block_index() * (call.scratch_stride / sizeof(u64)) : 0;
    // Read in many places, and where they come from each read takes as long as one of the device's memory.
    SHARED RowArgs args;
    if (thread_index() == 0) {
        few_places = 0;
        // Two copies: of an address that may be of either memory the compiler knows neither.
        if (call.row_args) copy_args(args, call.row_args[at]);
        else copy_args(args, call.args);
    }
    Row row = Row{call, args, view_of(call, at), gathered, gathered, scratch, 0, KEY_INFINITY, 0, 0.0f, false, false};
    if (STAGE != 5) {
        if (STAGE != 6) load_table();
        if (thread_index() == 0) facts = Facts{0, 1, 0, 0, 0, false};
        block_sync();
    }
    if (STAGE == 6) await_first();
    run_row(row, part);
}

KERNEL LAUNCH_BOUNDS(THREADS, RESIDENT_THREADS / THREADS) qrita(ARGUMENT(Call) call) {
    SHARED u64 gathered[CAPACITY];
    if (STAGE == 5 || STAGE == 7) let_second_start();
    if (HAS_SCRATCH && STAGE != 5 && STAGE != 6) {
        for (u32 at = block_index(); at < call.rows; at += block_count()) {
            block_sync();
            run_part(call, gathered, at, 0);
        }
        return;
    }
    // A block for each part of each row: a loop would hold registers through all of it.
    const u32 parts = STAGE == 5 ? call.chunks : STAGE == 6 ? call.mask_chunks : 1;
    // A power of two.
    run_part(call, gathered, block_index() >> trailing_zeros(parts), block_index() & (parts - 1));
}

#endif
