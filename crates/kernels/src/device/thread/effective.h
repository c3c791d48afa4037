// Effective logits: widened, masked, biased and penalised as they are read.

#if DTYPE == 0
typedef float Stored;
#define STORED_NEGATIVE_INFINITY bits_float(0xFF800000u)
DEVICE float widen(Stored y) { return y; }
#else
typedef u16 Stored;
#if DTYPE == 1
#define STORED_NEGATIVE_INFINITY ((u16)0xFC00u)
DEVICE float widen(Stored y) { return half_value(y); }
#else
#define STORED_NEGATIVE_INFINITY ((u16)0xFF80u)
DEVICE float widen(Stored y) { return bits_float((u32)y << 16); }
#endif
#endif

// One row as the passes read it: its logits, which other rows may share, and its number, which all else goes by.
struct RowView {
    Stored *stored;
    u32 vocab;
    u32 row;
};
DEVICE RowView view_of(const Call &call, u64 at) {
    const u64 stored = call.index ? call.index[at] : at;
    return RowView{(Stored *)call.logits + stored * call.stride, call.vocab, (u32)at};
}

// The entry for `id` in an ascending list, or its end.
DEVICE u64 listed(const u32 *ids, u64 start, u64 end, u32 id) {
    u64 stop = end;
    while (start < end) {
        u64 middle = start + (end - start) / 2;
        if (ids[middle] < id) start = middle + 1;
        else end = middle;
    }
    return start < stop && ids[start] == id ? start : stop;
}

DEVICE float adjust(const Call &call, const RowArgs &args, const RowView &view, u32 id, float y) {
    if (!(ADJUSTED)) return y;
    const float none = bits_float(0xFF800000u);
    if (id >= call.valid_vocab) return none;
    if (call.bitmask) {
        if (id >= call.bitmask_ids) return none;
        u32 word = call.bitmask[view.row * call.bitmask_stride + id / 32];
        if (!(word >> (id % 32) & 1)) return none;
    }
    if (call.bias_offsets) {
        u64 end = call.bias_offsets[view.row + 1];
        u64 at = listed(call.bias_ids, call.bias_offsets[view.row], end, id);
        if (at != end) y = add_rn(y, call.bias_values[at]);
    }
    if (call.penalty_offsets) {
        u64 end = call.penalty_offsets[view.row + 1];
        u64 at = listed(call.penalty_ids, call.penalty_offsets[view.row], end, id);
        if (at != end) {
            y = y > 0.0f ? div_rn(y, args.repetition) : mul_rn(y, args.repetition);
            u32 count = call.penalty_counts[at];
            if (count != 0) y = sub_rn(sub_rn(y, mul_rn(args.frequency, (float)count)), args.presence);
        }
    }
    if (call.standing) y = sub_rn(y, call.standing[view.row * call.standing_stride + id]);
    return y;
}

DEVICE float effective(const Call &call, const RowArgs &args, const RowView &view, u32 id) {
    return adjust(call, args, view, id, widen(view.stored[id]));
}

// 16 bytes of stored logits.
#define PER_VECTOR (16u / (u32)sizeof(Stored))
struct alignas(16) Vector {
    Stored lanes[PER_VECTOR];
};

// Four logits of a vector, widened.
struct Four {
    float a, b, c, d;
};
DEVICE Four widen_four(const Vector &vector, u32 lane) {
#if DTYPE == 2
    // Two to a word, as they lie.
    u32 words[2];
    memory_copy(words, vector.lanes + lane, 8);
    return Four{bits_float(words[0] << 16), bits_float(words[0] & 0xFFFF0000u), bits_float(words[1] << 16),
                bits_float(words[1] & 0xFFFF0000u)};
#else
    const Stored *lanes = vector.lanes + lane;
    return Four{widen(lanes[0]), widen(lanes[1]), widen(lanes[2]), widen(lanes[3])};
#endif
}

// Logits before the first 16-byte boundary of a row.
DEVICE u32 head_of(const RowView &view) {
    u32 past = (u32)((u64)view.stored & 15) / (u32)sizeof(Stored);
    u32 head = past == 0 ? 0 : PER_VECTOR - past;
    return head < view.vocab ? head : view.vocab;
}

// The vectors of a row, and the logits before them: behind them less than one is left.
struct Vectors {
    u32 head, count;
};
DEVICE Vectors vectors_of(const RowView &view) {
    u32 head = head_of(view);
    return Vectors{head, (view.vocab - head) / PER_VECTOR};
}

// Part `part` of `parts` of a row, a power of two: vectors from `from` to `to`, and whether the logits before or behind all
// vectors are its.
struct Part {
    u32 from, to;
    bool has_head, has_tail;
};
DEVICE Part part_of(const Vectors &vectors, u32 part, u32 parts) {
    // Whole lines of 128 bytes.
    u32 each = (((vectors.count + parts - 1) >> trailing_zeros(parts)) + 7) / 8 * 8;
    u32 from = (u64)part * each < vectors.count ? part * each : vectors.count;
    u32 to = vectors.count - from < each ? vectors.count : from + each;
    return Part{from, to, part == 0, part + 1 == parts};
}

// Part `part` of `parts` of a row to be streamed: as many vectors as there are threads, and so on behind those of all other
// parts. What is great lies together in real rows, of the ids of frequent tokens: so all parts have of it.
struct Strip {
    u32 from, step, to;
    bool has_head, has_tail;
};
DEVICE Strip strip_of(const Vectors &vectors, u32 part, u32 parts) {
    return Strip{part * thread_count(), parts * thread_count(), vectors.count, part == 0, part + 1 == parts};
}

// Calls `each(id)` for the logits of a part that belong to no vector.
template <typename Each>
DEVICE void for_edges(const RowView &view, const Vectors &vectors, bool has_head, bool has_tail, Each each) {
    // One loop: `each` may be long.
    u32 head = has_head ? vectors.head : 0, behind = vectors.head + vectors.count * PER_VECTOR;
    u32 edges = head + (has_tail ? view.vocab - behind : 0);
#pragma unroll 1
    for (u32 i = thread_index(); i < edges; i += thread_count()) each(i < head ? i : behind + i - head);
}

#if STAGE == 7
// Calls `each(id, y)` for every logit of the row, each on one thread, in no order.
//
// One load at a time: registers for more would be spilled, or leave room for fewer threads, which is the dearer where a
// threshold hits and there are no such passes.
template <typename Each>
DEVICE void for_each(const Call &call, const RowArgs &args, const RowView &view, Each each) {
#pragma unroll 1
    for (u32 id = thread_index(); id < view.vocab; id += thread_count()) each(id, effective(call, args, view, id));
}
#else
// The logits of two vectors as words, of which one is taken by a number that is not known before: by choices, as an array
// that is indexed at run time would lie in local memory.
struct Words {
    u32 words[8];
};
DEVICE u32 word_at(const Words &all, u32 at) {
    u32 a = at & 1 ? all.words[1] : all.words[0], b = at & 1 ? all.words[3] : all.words[2];
    u32 c = at & 1 ? all.words[5] : all.words[4], d = at & 1 ? all.words[7] : all.words[6];
    u32 low = at & 2 ? b : a, high = at & 2 ? d : c;
    return at & 4 ? high : low;
}
DEVICE float value_at(const Words &all, u32 at) {
#if DTYPE == 0
    return bits_float(word_at(all, at));
#else
    return widen((Stored)(word_at(all, at / 2) >> (at % 2 * 16)));
#endif
}

// Calls `each(id, y)` for every logit of the row, each on one thread, in no order. Two loads of 16 bytes are in flight, where
// the row's alignment allows, and `each` is compiled once: most are long.
template <typename Each>
DEVICE void for_each(const Call &call, const RowArgs &args, const RowView &view, Each each) {
    if (ADJUSTED) {
        // What is read beside each logit is most of the time, and of the code.
#pragma unroll 1
        for (u32 id = thread_index(); id < view.vocab; id += thread_count()) each(id, effective(call, args, view, id));
        return;
    }
    Vectors vectors = vectors_of(view);
    const Vector *start = (const Vector *)(view.stored + vectors.head);
#pragma unroll 1
    for (u32 at = thread_index(); at < vectors.count; at += 2 * thread_count()) {
        Vector loaded[2];
        loaded[0] = start[at];
        bool has_second = at + thread_count() < vectors.count;
        loaded[1] = start[has_second ? at + thread_count() : at];
        Words words;
        memory_copy(&words, loaded, sizeof words);
        u32 lanes = has_second ? 2 * PER_VECTOR : PER_VECTOR;
#pragma unroll 1
        for (u32 lane = 0; lane < lanes; lane++) {
            u32 vector = at + lane / PER_VECTOR * thread_count();
            u32 id = vectors.head + vector * PER_VECTOR + lane % PER_VECTOR;
            each(id, adjust(call, args, view, id, value_at(words, lane)));
        }
    }
    for_edges(view, vectors, true, true, [&](u32 id) { each(id, effective(call, args, view, id)); });
}
#endif
