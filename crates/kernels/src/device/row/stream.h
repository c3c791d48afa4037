// One read of the row: the candidates above a threshold, and a bound of the mass of all the rest.
//
// A launch of the default plan is two kernels. Stream reads each row once, `chunks` blocks to a row, gathers, and selects
// (select.h) in the block that ends last; it leaves the cut and the kept candidates in the row's slot. Finish writes the
// outputs, and for a mask stores −∞ without reading: the kept are put back from the slot. A row that the threshold missed
// is marked so, and finish runs it whole. Reading and writing apart is faster than both in one kernel: the memory does not
// turn around between them, and a small batch gets all multiprocessors for each. Where blocks are few, finish is launched
// to start while stream runs, and waits for it: its own start is hidden.
//
// Nobody waits for another block: each adds what it has to the row's list, then counts itself; who counts last goes on. The
// count is back at 0 when the launch ends, which is why a workspace is zeroed once, before its first launch.
//
// Top-p needs the mass of the whole row, whose integer weights would take several times the time of the read. Of the
// candidates they are summed exactly; of the rest, which weighs little, the hardware's exponentials are summed in floating
// point, with an error that is bounded (rest.h): a cut that is the same at both ends of the bound is the exact one.

// What blocks, or threads, have of a row together.
struct Joined {
    u32 count, nan, greatest;
};

DEVICE Joined block_join(const Joined &value) {
    return block_reduce(value, Joined{0, 0, 0}, [](const Joined &part) {
        return Joined{warp_sum(part.count), warp_max(part.nan), warp_max(part.greatest)};
    });
}

// Adds what this block has to the row's: to its own region of the row's memory, and what finds no room there to a list. True
// in the block that comes last, which then has all of it.
DEVICE bool join(Row &row, u32 chunk, bool with_rest, double &rest, u32 &greatest) {
    SHARED u32 shared[2];
    SHARED double rests[MOST_CHUNKS];
    const Call &call = row.call;
    Arrivals *arrivals = call.arrivals + row.view.row;
    SplitRow *split = call.split_rows + row.view.row;
    const u32 room = STREAM_CAPACITY / call.chunks;
    u32 held = row.gathered_count < STREAM_CAPACITY ? row.gathered_count : STREAM_CAPACITY;
    u32 over = held > room ? held - room : 0;
    const u32 sharing = thread_count() / call.chunks, ahead = 2 * sharing < room ? 2 * sharing : room;
    // At least as much as is read ahead.
#pragma unroll 1
    for (u32 i = thread_index(); i < room && (i < held || i < ahead); i += thread_count())
        split->regions[chunk * room + i] = i < held ? row.shared[i] : 0;
    if (over > 0) {
        if (thread_index() == 0) shared[0] = atomic_add(&arrivals->listed, over);
        block_sync();
        u32 start = shared[0];
#pragma unroll 1
        for (u32 i = thread_index(); i < over; i += thread_count())
            if (start + i < STREAM_CAPACITY) split->list[start + i] = row.shared[room + i];
    }
    if (thread_index() == 0) {
        split->counts[chunk] = (u64)greatest << 32 | facts.nan << 31 | row.gathered_count;
        split->rest[chunk] = rest;
    }
    block_sync();
    if (thread_index() == 0) {
        // What the whole block wrote before the barrier, too.
        shared[1] = atomic_add_ordered(&arrivals->arrived, 1u);
    }
    block_sync();
    if (shared[1] != call.chunks - 1) return false;
    u32 listed = load_fresh(&arrivals->listed);
    // As many threads to each region. Their first loads do not wait for the counts.
    const u32 region = thread_index() / sharing, own = thread_index() % sharing;
    const u64 *start = split->regions + (region < call.chunks ? region : 0) * room;
    u64 first = load_fresh(start + (own < ahead ? own : 0));
    u64 second = load_fresh(start + (own + sharing < ahead ? own + sharing : 0));
    u64 mine = 0;
    if (thread_index() < call.chunks) {
        mine = load_fresh(&split->counts[thread_index()]);
        if (with_rest) rests[thread_index()] = bits_double(load_fresh((const u64 *)&split->rest[thread_index()]));
    }
    Joined total = block_join(Joined{(u32)mine & 0x7FFFFFFFu, (u32)mine >> 31, (u32)(mine >> 32)});
    row.gathered_count = total.count;
    if (thread_index() == 0) facts.nan = total.nan;
    greatest = total.greatest;
    // In the order of the blocks.
    rest = 0.0;
    if (with_rest)
        for (u32 i = 0; i < call.chunks; i++) rest += rests[i];
    if (thread_index() == 0) *arrivals = Arrivals{0, 0};
    if (row.gathered_count > STREAM_CAPACITY) return true;
    // Each region's candidates behind those before it, then the list's.
    SHARED u32 ends[MOST_CHUNKS];
    u32 in_region = (u32)mine & 0x7FFFFFFFu;
    in_region = in_region < room ? in_region : room;
    u32 before = block_sum_before(in_region);
    if (thread_index() < call.chunks) ends[thread_index()] = before + in_region;
    block_sync();
    if (region < call.chunks) {
        u32 to = region == 0 ? 0 : ends[region - 1], filled = ends[region] - to;
#pragma unroll 1
        for (u32 i = own; i < filled; i += 2 * sharing) {
            row.shared[to + i] = first;
            if (i + sharing < filled) row.shared[to + i + sharing] = second;
            u32 next = i + 2 * sharing;
            if (next < filled) first = load_fresh(start + next);
            if (next + sharing < filled) second = load_fresh(start + next + sharing);
        }
    }
    const u32 listed_at = ends[call.chunks - 1];
#pragma unroll 1
    for (u32 i = thread_index(); i < listed; i += thread_count()) row.shared[listed_at + i] = load_fresh(&split->list[i]);
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
    bool is_hopeless = takes_all && (!is_bounded || (row.view.vocab > STREAM_CAPACITY && !threshold.is_sparse));
    // Half of what top-p needs is far from it, as where the row is flat. The sample may not have what weighs most: then there
    // is more above the threshold than it shows, and a row is run whole that need not have been. With min-p the mass that
    // matters is another.
    if (with_rest && !takes_all && args.farthest == 0xFFFFFFFFu)
        is_hopeless = !has_share_above(row, vectors, threshold, 0.5f * args.top_p);
    if (is_hopeless) {
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
    Joined mine = block_join(Joined{0, seen.nan, seen.greatest});
    if (thread_index() == 0) facts.nan = mine.nan;
    row.gathered_count = count;
    row.covered_above = key_of(threshold.value);
    u32 greatest = mine.greatest;
    if (call.chunks > 1 && !join(row, chunk, with_rest, rest, greatest)) return;
    // By its key alone: of those that tie the first one is not known.
    set_first(row, greatest ? candidate_of(greatest, 0) : 0);
    Boundary boundary;
    bool is_hit =
        row.gathered_count <= STREAM_CAPACITY && select(row, rest, threshold.greatest, with_rest, boundary);
    leave(row, boundary, is_hit ? SLOT_LISTED : SLOT_MISSED);
}
