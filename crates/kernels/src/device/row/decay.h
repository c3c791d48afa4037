// What a step leaves of the standing penalties: a kernel of its own, behind those that have read them for the last time and have
// drawn the tokens.

#if STAGE == 9

// One NaN for all devices.
DEVICE float canonical(float penalty) { return penalty != penalty ? bits_float(0x7FC00000u) : penalty; }

// Part `part` of the `parts` of a row.
DEVICE void decay(const Call &call, u32 at, u32 part, u32 parts) {
    const u32 items = 4;
    const RowArgs &args = call.row_args ? call.row_args[at] : call.args;
    const float factor = args.decay;
    // An empty row has no token: no id is that.
    const u32 token = call.token[at], step = parts * thread_count();
    float *penalties = call.standing + at * call.standing_stride;
#pragma unroll 1
    for (u32 id = part * thread_count() + thread_index(); id < call.vocab; id += items * step) {
        float before[items];
#pragma unroll
        for (u32 i = 0; i < items; i++) before[i] = id + i * step < call.vocab ? penalties[id + i * step] : 0.0f;
#pragma unroll
        for (u32 i = 0; i < items; i++) {
            u32 place = id + i * step;
            if (place >= call.vocab) break;
            float after = canonical(mul_rn(before[i], factor));
            if (place == token)
                after = canonical(add_rn(after, before[i] == 0.0f ? args.standing_presence : args.standing_repetition));
            penalties[place] = after;
        }
    }
}

KERNEL LAUNCH_BOUNDS(THREADS, RESIDENT_THREADS / THREADS) qrita(ARGUMENT(Call) call) {
    decay(call, block_index() / call.chunks, block_index() % call.chunks, call.chunks);
}

#endif
