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

// Adds what this block has to the row's: to its own region of the row's memory, and what finds no room there to a list. True
// in the block that comes last, which then has all of it.
DEVICE bool join(Row &row, u32 chunk, bool with_rest, double &rest) {
    SHARED u32 shared[2];
    SHARED u32 counts[MOST_CHUNKS];
    SHARED double rests[MOST_CHUNKS];
    const Call &call = row.call;
    Arrivals *arrivals = call.arrivals + row.view.row;
    SplitRow *split = call.split_rows + row.view.row;
    const u32 room = STREAM_CAPACITY / call.chunks;
    u32 held = row.gathered_count < STREAM_CAPACITY ? row.gathered_count : STREAM_CAPACITY;
    u32 over = held > room ? held - room : 0;
#pragma unroll 1
    for (u32 i = thread_index(); i < held && i < room; i += thread_count())
        split->regions[chunk * room + i] = row.shared[i];
    if (over > 0) {
        if (thread_index() == 0) shared[0] = atomic_add(&arrivals->listed, over);
        block_sync();
        u32 start = shared[0];
#pragma unroll 1
        for (u32 i = thread_index(); i < over; i += thread_count())
            if (start + i < STREAM_CAPACITY) split->list[start + i] = row.shared[room + i];
    }
    if (thread_index() == 0) {
        split->counts[chunk] = (u64)row.nan << 32 | row.gathered_count;
        split->rest[chunk] = rest;
    }
    block_sync();
    if (thread_index() == 0) {
        // What the whole block wrote before the barrier, too.
        fence();
        shared[1] = atomic_add(&arrivals->arrived, 1u);
        fence();
    }
    block_sync();
    if (shared[1] != call.chunks - 1) return false;
    u32 listed = load_fresh(&arrivals->listed);
    u64 mine = 0;
    if (thread_index() < call.chunks) {
        mine = load_fresh(&split->counts[thread_index()]);
        rests[thread_index()] = bits_double(load_fresh((const u64 *)&split->rest[thread_index()]));
        counts[thread_index()] = (u32)mine;
    }
    Counts total = block_sum_counts(Counts{(u32)mine, (u32)(mine >> 32)});
    row.gathered_count = total.first;
    row.nan = total.second != 0;
    // In the order of the blocks.
    rest = 0.0;
    if (with_rest)
        for (u32 i = 0; i < call.chunks; i++) rest += rests[i];
    if (thread_index() == 0) {
        *arrivals = Arrivals{0, 0};
        shared[0] = 0;
    }
    if (row.gathered_count > STREAM_CAPACITY) return true;
    block_sync();
    // As many threads to each region; two loads of each in flight.
    u32 sharing = thread_count() / call.chunks, region = thread_index() / sharing;
    u32 filled = region < call.chunks ? (counts[region] < room ? counts[region] : room) : 0;
    const u64 *start = split->regions + region * room;
#pragma unroll 1
    for (u32 i = thread_index() % sharing; i < filled; i += 2 * sharing) {
        bool has_second = i + sharing < filled;
        u64 first = load_fresh(start + i), second = has_second ? load_fresh(start + i + sharing) : 0;
        u32 at = atomic_add(&shared[0], has_second ? 2u : 1u);
        row.shared[at] = first;
        if (has_second) row.shared[at + 1] = second;
    }
#pragma unroll 1
    for (u32 i = thread_index(); i < listed; i += thread_count())
        row.shared[atomic_add(&shared[0], 1u)] = load_fresh(&split->list[i]);
    block_sync();
    return true;
}

// One block's part of a row; the last one leaves the row's slot.
DEVICE void stream(Row &row, u32 chunk) {
    SHARED u32 count;
    const Call &call = row.call;
    Slot *slot = call.slots + row.view.row;
    const RowArgs &args = row.args;
    bool by_mass = args.top_p < 1.0f;
    bool is_bounded = has_filter(row) || args.temperature == 0.0f;
    // Top-p after top-k needs no mass but the candidates' own.
    bool with_rest = by_mass && (active_k(row) == 0 || (args.flags & JOINT)) && args.temperature != 0.0f;
    Vectors vectors = vectors_of(row.view);
    Part part = part_of(vectors, chunk, call.chunks);
    // The first loads do not wait for the threshold.
    Flight flight = load_flight(row, vectors, part.from + thread_index(), ADJUSTED ? part.from : part.to);
    Threshold threshold = Threshold{bits_float(0xFF800000u), 0.0f, false};
    if (is_bounded) threshold = order_statistic(row, vectors);
    bool takes_all = key_of(threshold.value) == KEY_NEGATIVE_INFINITY;
    // All candidates of a wide row are too many, unless a bitmask leaves few.
    if (takes_all && (!is_bounded || (row.view.vocab > STREAM_CAPACITY && !threshold.is_sparse))) {
        if (chunk == 0 && thread_index() == 0) slot->state = SLOT_MISSED;
        return;
    }
    if (thread_index() == 0) count = 0;
    block_sync();
    // Where all are gathered, no rest is left to be summed.
    with_rest &= !takes_all;
    Reference reference = Reference{threshold.greatest, with_rest ? div_rn(LOG2_OF_E, args.temperature) : 0.0f};
    Seen seen = with_rest ? gather_part<true>(row, vectors, part, flight, threshold.value, reference, &count)
                          : gather_part<false>(row, vectors, part, flight, threshold.value, reference, &count);
    double rest = with_rest ? block_sum_double(seen.rest) : 0.0;
    row.nan = block_max(seen.nan);
    row.gathered_count = count;
    row.covered_above = key_of(threshold.value);
    if (call.chunks > 1 && !join(row, chunk, with_rest, rest)) return;
    Boundary boundary;
    bool is_hit =
        row.gathered_count <= STREAM_CAPACITY && select(row, rest, threshold.greatest, with_rest, boundary);
    leave(row, boundary, is_hit ? SLOT_LISTED : SLOT_MISSED);
}
