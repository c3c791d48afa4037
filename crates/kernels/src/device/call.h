// The argument of every kernel: `call.rs` declares the same.

#define DELTA_SIGMAS 32

struct RowArgs {
    u64 seed;
    u64 position;
    u32 stream;
    float temperature;
    u32 top_k;
    float top_p;
    u32 farthest;
    u32 flags;
    float repetition;
    float frequency;
    float presence;
    float delta[DELTA_SIGMAS];
    u32 wanted;
    // What a step makes of standing penalties.
    float decay;
    float standing_presence;
    float standing_repetition;
    u32 unused;
};

struct StageRow {
    u32 status, max, covered_above, gathered, hit;
    u32 key, above, tied, quota, id, kept, unused;
};

struct Call {
    void *logits;
    // The stored row of each row, or 0 where it is the row's own number.
    const u32 *index;
    u64 stride;
    u32 rows, vocab;
    RowArgs args;
    const RowArgs *row_args;

    const u32 *bitmask;
    u64 bitmask_stride;
    const u64 *bias_offsets;
    const u32 *bias_ids;
    const float *bias_values;
    const u64 *penalty_offsets;
    const u32 *penalty_ids;
    const u32 *penalty_counts;
    u32 bitmask_ids, valid_vocab;
    // A penalty for every token of every row, or 0.
    float *standing;
    u64 standing_stride;

    u32 mask, capacity;
    u32 *candidate_ids;
    float *candidate_logits;
    float *candidate_logprobs;
    u32 *status;
    u32 *kept;
    // Of `draws` elements a row, up to rank.
    u32 *token;
    float *logprob;
    float *raw_logprob;
    u32 *rank;
    // Of the row's first candidates, `top` a row.
    u32 *top_ids;
    float *top_logprobs;
    float *probabilities;
    struct Law *laws;

    StageRow *stage_rows;
    u64 *gathered;
    u64 gathered_stride;

    u64 *scratch;
    u64 scratch_stride;

    // Of a launch in two kernels: see row/stream.h and row/slot.h.
    struct Slot *slots;
    struct Arrivals *arrivals;
    struct SplitRow *split_rows;
    // Of a step's update, the parts of a row are `chunks`, too.
    u32 chunks, mask_chunks;

    u32 force_fallback, draws, top, unused;
};

// What the first of two kernels leaves of a row for finish: its cut and what it keeps, or where that is too much its cut alone;
// or that the row must be run whole.
#define SLOT_MISSED 0u
#define SLOT_LISTED 1u
#define SLOT_CUT 2u
// As many of a slot's candidates are always written.
#define SLOT_AHEAD 64u
struct Slot {
    u32 state, status, max, key, id, kept;
    // For studies: how many candidates were above the threshold; 0 of a row that was given up before it was streamed.
    u32 gathered;
    u32 unused;
    u64 candidates[KEPT_CAPACITY];
};

// What a verification needs of a row: its status, its maximum, the last token kept, and the kept mass, 0 where nothing is kept.
struct Law {
    u64 mass;
    u32 status, max, key, id;
};

// The argument of the kernel that verifies chains: see row/chain.h. Both calls have their laws.
struct ChainCall {
    Call draft, target;
    const u64 *offsets;
    const u32 *tokens;
    u32 *accepted;
    u32 *emitted;
    u32 *status;
    u32 requests, unused;
};

// How far the blocks that share a row are: 0 before every launch and after it.
struct Arrivals {
    u32 arrived, listed;
};

// What the blocks that share a row have gathered.
struct SplitRow {
    double rest[MOST_CHUNKS];
    u64 counts[MOST_CHUNKS];
    // Each block's own candidates, as many as a share of the room; and those that find none there.
    u64 regions[STREAM_CAPACITY];
    u64 list[STREAM_CAPACITY];
};

#define KEEP_ALL 1u
#define JOINT 2u
