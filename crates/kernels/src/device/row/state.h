// A row in work. Every thread of the block holds the same values; what is shared is behind the pointers.

struct Row {
    const Call &call;
    const RowArgs &args;
    RowView view;
    // Candidates in no order: in shared memory, or in scratch memory where they are too many for it.
    u64 *gathered;
    u64 *shared;
    // The block's scratch memory, with room for every candidate of the row; 0 where the plan has none.
    u64 *scratch;
    u32 gathered_count;
    // Every candidate with a greater key is among the gathered.
    u32 covered_above;
    // The row's first candidate, 0 for none; its logit is the maximum.
    u64 first;
    float max;
    // Whether the gathered have all that the boundary keeps, from stage 3 on.
    bool listed;
    // Whether the facts have the mass of the whole row.
    bool raw_known;
};

// What is asked for seldom, in shared memory: registers would hold it through all passes.
struct Facts {
    u64 raw_mass;
    // Every candidate with a key from here to there is among the gathered, too.
    u32 ties_from, ties_to;
    // How many candidates the row has, where that is known: not 0.
    u32 candidates;
    // Whether it has NaN.
    u32 nan;
    // Whether everything that goes is masked already, but for the gathered.
    bool is_masked_early;
};
SHARED Facts facts;

#define FROM_GATHERED 0
#define FROM_ROW 1

// All candidates above a key, and of those equal to it the first `quota` by id, or ALL.
struct Prefix {
    u32 key, above, quota;
    // `above` is not known of a prefix that only min-p bounds, or nothing.
    bool counted;
};
#define ALL 0xFFFFFFFFu

struct Found {
    u32 key, above;
    u64 mass_above;
};

// What to reach from the top: a count, or a mass where `by_mass`; at least 1. Of an open one the value is not known before the
// first pass has summed the whole mass: it is top-p's share of that.
struct Goal {
    bool by_mass;
    u64 value;
    bool is_open;
};
DEVICE bool met(Goal goal, u32 count, u64 mass) { return (goal.by_mass ? mass : count) >= goal.value; }

struct Boundary {
    u32 key, id, kept;
};
DEVICE bool keeps(const Boundary &boundary, u64 candidate) {
    return boundary.kept > 0 && candidate >= candidate_of(boundary.key, boundary.id);
}

// Whether an output other than the mask, the status and the count reads the row.
DEVICE bool reads_row(const Call &call) {
    return call.token || call.logprob || call.raw_logprob || call.rank || call.candidate_ids || call.top_ids ||
           call.probabilities || call.laws;
}

DEVICE bool is_empty(const Row &row) { return row.first == 0; }

DEVICE void set_first(Row &row, u64 first) {
    row.first = first;
    row.max = first ? key_value(candidate_key(first)) : bits_float(0xFF800000u);
}

// Without duplication handling the host asks for all ties: nothing else would divide a group of them.
DEVICE bool keeps_all_ties(const Row &row) { return row.args.flags & KEEP_ALL; }

// Top-k, or 0 where it is off.
DEVICE u32 active_k(const Row &row) { return row.args.top_k < row.view.vocab ? row.args.top_k : 0; }

// Whether a filter is on.
DEVICE bool has_filter(const Row &row) {
    return active_k(row) || row.args.top_p < 1.0f || row.args.farthest != 0xFFFFFFFFu;
}

DEVICE_CALL u64 weight_of_logit(float y, float max, float temperature) {
    return weight_of(distance_bits(y, max, temperature));
}
DEVICE u64 weight_of_key(const Row &row, u32 key) {
    return weight_of_logit(key_value(key), row.max, row.args.temperature);
}

// The least key within a distance: distances grow as keys fall.
DEVICE_CALL u32 least_key_within(u32 high, float temperature, u32 farthest) {
    u32 low = KEY_LEAST;
    float max = key_value(high);
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (distance_bits(key_value(middle), max, temperature) <= farthest) high = middle;
        else low = middle + 1;
    }
    return low;
}

DEVICE u32 least_key(const Row &row, u32 farthest) {
    return least_key_within(candidate_key(row.first), row.args.temperature, farthest);
}

// The least key that min-p keeps.
DEVICE u32 floor_key(const Row &row) {
    return row.args.farthest == 0xFFFFFFFFu ? KEY_LEAST : least_key(row, row.args.farthest);
}

DEVICE bool covers(const Row &row, u32 key) { return key > row.covered_above; }
DEVICE bool covers_ties(const Row &row, u32 key) { return covers(row, key) || (key >= facts.ties_from && key <= facts.ties_to); }
