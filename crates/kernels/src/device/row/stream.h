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

// What the lanes of a warp have seen together.
DEVICE Seen warp_join(const Seen &seen, bool with_rest) {
    return Seen{with_rest ? warp_sum_double(seen.rest) : 0.0, warp_max(seen.nan), warp_max(seen.greatest)};
}

// What the threads of a block have seen together. Once in a row: it does not wait until the last result was read.
DEVICE Seen block_join(const Seen &seen, bool with_rest) {
    SHARED Seen parts[MOST_WARPS];
    Seen part = warp_join(seen, with_rest);
    if (lane_index() == 0) parts[warp_index()] = part;
    block_sync();
    part = Seen{0.0, 0, 0};
    if (lane_index() < warp_count()) part = parts[lane_index()];
    return warp_join(part, with_rest);
}

// Candidates of a region that a thread loads before it knows how many there are.
#define JOIN_AHEAD 4u

// Adds what this block has to the row's: to its own region of the row's memory, and what finds no room there to a list. True
// in the block that comes last, which then has all of it.
DEVICE bool join(Row &row, u32 chunk, bool with_rest, Seen &seen) {
    SHARED u32 shared[2];
    const Call &call = row.call;
    Arrivals *arrivals = call.arrivals + row.view.row;
    SplitRow *split = call.split_rows + row.view.row;
    const u32 shift = trailing_zeros(call.chunks), room = STREAM_CAPACITY >> shift;
    const u32 held = row.gathered_count < STREAM_CAPACITY ? row.gathered_count : STREAM_CAPACITY;
    const u32 over = held > room ? held - room : 0;
    // As many threads to each region, a power of two.
    const u32 sharing_shift = floor_shift_of(thread_count()) - shift, sharing = 1u << sharing_shift;
    const u32 ahead = JOIN_AHEAD * sharing < room ? JOIN_AHEAD * sharing : room;
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
        split->counts[chunk] = (u64)seen.greatest << 32 | seen.nan << 31 | row.gathered_count;
        split->rest[chunk] = seen.rest;
    }
    block_sync();
    if (thread_index() == 0) {
        // What the whole block wrote before the barrier, too.
        shared[1] = atomic_add_ordered(&arrivals->arrived, 1u);
    }
    block_sync();
    if (shared[1] != call.chunks - 1) return false;
    // What is read here waits for nothing else that is.
    const u32 region = thread_index() >> sharing_shift, own = thread_index() & (sharing - 1);
    const u64 *start = split->regions + (region < call.chunks ? region : 0) * room;
    u64 loaded[JOIN_AHEAD];
#pragma unroll
    for (u32 i = 0; i < JOIN_AHEAD; i++) loaded[i] = load_fresh(start + (own + i * sharing < ahead ? own + i * sharing : 0));
    // Every warp reads all counts, and has the sums without another barrier.
    const u32 each = MOST_CHUNKS / WARP;
    u32 ends[each], total = 0, placed = 0;
    seen = Seen{0.0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < each; i++) {
        u32 from = i * WARP + lane_index();
        u64 other = from < call.chunks ? load_fresh(&split->counts[from]) : 0;
        if (with_rest && from < call.chunks) seen.rest += bits_double(load_fresh((const u64 *)&split->rest[from]));
        seen.nan |= (u32)other >> 31;
        seen.greatest = (u32)(other >> 32) > seen.greatest ? (u32)(other >> 32) : seen.greatest;
        u32 count = (u32)other & 0x7FFFFFFFu, in_region = count < room ? count : room;
        total += warp_sum(count);
        ends[i] = placed + warp_sum_before(in_region) + in_region;
        placed += warp_sum(in_region);
    }
    seen = warp_join(seen, with_rest);
    row.gathered_count = total;
    // Who counts next finds them as they were.
    const u32 listed = load_fresh(&arrivals->listed);
    block_sync();
    if (thread_index() == 0) *arrivals = Arrivals{0, 0};
    if (total > STREAM_CAPACITY) return true;
    // Each region's candidates behind those before it, then the list's.
    u32 to = 0, end = 0;
#pragma unroll
    for (u32 i = 0; i < each; i++) {
        const u32 before = (u32)warp_shuffle(ends[i], (region - 1) % WARP), last = (u32)warp_shuffle(ends[i], region % WARP);
        if (region > 0 && (region - 1) / WARP == i) to = before;
        if (region / WARP == i) end = last;
    }
    if (region < call.chunks) {
        const u32 filled = end - to;
#pragma unroll
        for (u32 i = 0; i < JOIN_AHEAD; i++)
            if (own + i * sharing < filled) row.shared[to + own + i * sharing] = loaded[i];
#pragma unroll 1
        for (u32 i = own + JOIN_AHEAD * sharing; i < filled; i += sharing) row.shared[to + i] = load_fresh(start + i);
    }
#pragma unroll 1
    for (u32 i = thread_index(); i < listed; i += thread_count()) row.shared[placed + i] = load_fresh(&split->list[i]);
    block_sync();
    return true;
}

// What a block has seen of its part of a row.
struct Streamed {
    Threshold threshold;
    Seen seen;
    // Whether top-p looks at the mass of the whole row, and so at that of what is not gathered.
    bool with_rest;
    // The row is missed in any case, and was not streamed.
    bool is_hopeless;
};

// Streams a part of the row. All blocks of a row have the same threshold.
DEVICE Streamed stream_part(Row &row, u32 chunk) {
    SHARED u32 count;
    const u32 chunks = row.call.chunks;
    const RowArgs &args = row.args;
    Vectors vectors = vectors_of(row.view);
    Strip strip = strip_of(vectors, chunk, chunks);
    // The first loads do not wait for the threshold, nor for the parameters.
    Flight flight = load_flight(row, vectors, strip.from + thread_index(), strip.step, ADJUSTED ? 0 : strip.to);
    const u64 entry = read_table();
    if (thread_index() == 0) count = 0;
    clear_ranges();
    block_sync();
    bool by_mass = args.top_p < 1.0f;
    bool is_bounded = has_filter(row) || args.temperature == 0.0f;
    // Top-p after top-k needs no mass but the candidates' own.
    bool with_rest = by_mass && (active_k(row) == 0 || (args.flags & JOINT)) && args.temperature != 0.0f;
    Threshold threshold = Threshold{bits_float(0xFF800000u), 0.0f, false};
    if (is_bounded) threshold = order_statistic(row, vectors);
    put_table(entry);
    bool takes_all = key_of(threshold.value) == KEY_NEGATIVE_INFINITY;
    // All candidates of a wide row are too many, unless a bitmask leaves few.
    bool is_hopeless = takes_all && (!is_bounded || (row.view.vocab > STREAM_CAPACITY && !threshold.is_sparse));
    // Half of what top-p needs is far from it, as where the row is flat. The sample may not have what weighs most: then there
    // is more above the threshold than it shows, and a row is run whole that need not have been. With min-p the mass that
    // matters is another. Where several blocks share a row, to stream it takes less time than to look.
    if (with_rest && !takes_all && chunks == 1 && args.farthest == 0xFFFFFFFFu)
        is_hopeless = !has_share_above(row, vectors, threshold, 0.5f * args.top_p);
    // Where all are gathered, no rest is left to be summed.
    with_rest &= !takes_all;
    if (is_hopeless) return Streamed{threshold, Seen{0.0, 0, 0}, with_rest, true};
    Reference reference = Reference{threshold.greatest, with_rest ? div_rn(LOG2_OF_E, args.temperature) : 0.0f};
    Seen seen = with_rest ? gather_strip<true>(row, vectors, strip, flight, threshold.value, reference, &count)
                          : gather_strip<false>(row, vectors, strip, flight, threshold.value, reference, &count);
    seen = block_join(seen, with_rest);
    row.gathered_count = count;
    row.covered_above = key_of(threshold.value);
    return Streamed{threshold, seen, with_rest, false};
}

// One block's part of a row; the last one leaves the row's slot.
DEVICE void stream(Row &row, u32 chunk) {
    const Call &call = row.call;
    Streamed streamed = stream_part(row, chunk);
    if (streamed.is_hopeless) {
        if (chunk == 0) leave(row, Boundary{0, 0, 0}, SLOT_MISSED);
        return;
    }
    Seen &seen = streamed.seen;
    if (call.chunks > 1 && !join(row, chunk, streamed.with_rest, seen)) return;
    // By its key alone: of those that tie the first one is not known.
    set_first(row, seen.greatest ? candidate_of(seen.greatest, 0) : 0);
    // Read by the same thread.
    if (thread_index() == 0) facts.nan = seen.nan;
    Boundary boundary;
    bool is_hit = row.gathered_count <= STREAM_CAPACITY &&
                  select(row, seen.rest, streamed.threshold.greatest, streamed.with_rest, boundary);
    leave(row, boundary, is_hit ? SLOT_LISTED : SLOT_MISSED);
}
