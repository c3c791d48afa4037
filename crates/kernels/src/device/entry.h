// The kernel: a block takes rows until none is left.

DEVICE void run_row(Row &row) {
#if STAGE != 0
    const Call &call = row.call;
    StageRow *stage = call.stage_rows + row.view.row;
#endif
#if STAGE == 0
    truncate(row);
    if (is_empty(row)) {
        row.listed = false;
        emit(row, Boundary{KEY_NEGATIVE_INFINITY, 0, 0}, status_of(row));
        return;
    }
    u32 top_k_key;
    bool hit = is_hit(row, floor_key(row));
    Prefix prefix = search(row, hit, top_k_key);
    Boundary boundary = dedup(row, prefix);
    emit(row, boundary, status_of(row));
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
    bool hit = stage->hit && stage->gathered <= GATHER_CAPACITY && !call.force_fallback;
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
#else
    set_first(row, stage->kept ? candidate_of(stage->max, 0) : 0);
    row.listed = false;
    emit(row, Boundary{stage->key, stage->id, stage->kept}, 0);
#endif
}

KERNEL LAUNCH_BOUNDS(THREADS) qrita(ARGUMENT(Call) call) {
    SHARED u64 gathered[GATHER_CAPACITY];
    u64 *scratch = call.scratch ? call.scratch + block_index() * (call.scratch_stride / sizeof(u64)) : 0;
    for (u32 at = block_index(); at < call.rows; at += block_count()) {
        const RowArgs &args = call.row_args ? call.row_args[at] : call.args;
        RowView view = RowView{(Stored *)call.logits + at * call.stride, call.vocab, at};
        Row row = Row{call, args, view, gathered, scratch, 0, KEY_INFINITY, 0, 0.0f, 0, false, false, 0};
        block_sync();
        run_row(row);
    }
}
