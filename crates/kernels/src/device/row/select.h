// Selection among the gathered of a streamed row: the cut of all filters, without a search.
//
// A candidate's bin is a step of its logit between the least gathered and the maximum: subtraction, product and conversion
// are monotone as they round, so that a lower bin has the greater logits, and equal ones share a bin. One pass
// counts the bins, a second puts the candidates in the order of their bins. Inside a bin the order does not matter until a
// cut falls into it: then each of its few members counts those before it. A count's cut is at a known place; a mass's lies
// where the sums of weights, in that order, first reach the need: the bin is the same whatever the order inside.
//
// n candidates cost n/threads steps and some twenty barriers; a bin that a cut falls into must have at most MEMBERS, or the
// row is a miss: ties and far outliers are what finish has its histograms for.

// The candidates from the floor on, by descending bin, as indices of the gathered.
struct Bins {
    u32 count;
    float low, scale;
};

#define BINS 512u
#define MEMBERS 256u

SHARED u16 ordered[GATHER_CAPACITY];
// Where the next candidate of a bin goes: when all are placed, the end of the bin.
SHARED u32 bin_ends[BINS];

DEVICE u32 bin_of(const Bins &bins, u64 candidate) {
    float step = mul_rn(sub_rn(key_value(candidate_key(candidate)), bins.low), bins.scale);
    // Not a number where an infinity meets a scale of 0, or 0 an infinite scale: both are the lowest step.
    if (!(step >= 0.0f)) step = 0.0f;
    return BINS - 1 - (step < (float)(BINS - 1) ? (u32)step : BINS - 1);
}

DEVICE u32 bin_start(u32 bin) { return bin == 0 ? 0 : bin_ends[bin - 1]; }
DEVICE u64 ordered_at(const Row &row, u32 place) { return row.shared[ordered[place]]; }
DEVICE u64 weight_at(const Row &row, u32 place) { return weight_of_key(row, candidate_key(ordered_at(row, place))); }

DEVICE Bins sort_into_bins(const Row &row, u32 floor) {
    u64 least = KEY_INFINITY;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count()) {
        u64 key = candidate_key(row.shared[i]);
        least = key >= floor && key < least ? key : least;
    }
    Bins bins;
    bins.low = key_value((u32)block_min(least));
    bins.scale = div_rn((float)BINS, sub_rn(row.max, bins.low));
    for (u32 i = thread_index(); i < BINS; i += thread_count()) bin_ends[i] = 0;
    block_sync();
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
        if (candidate_key(row.shared[i]) >= floor) atomic_add(&bin_ends[bin_of(bins, row.shared[i])], 1u);
    block_sync();
    u32 each = (BINS + thread_count() - 1) / thread_count(), start = thread_index() * each;
    u32 count = 0;
    for (u32 i = start; i < start + each && i < BINS; i++) count += bin_ends[i];
    u32 before = (u32)block_sum_before(count);
    for (u32 i = start; i < start + each && i < BINS; i++) {
        u32 held = bin_ends[i];
        bin_ends[i] = before;
        before += held;
    }
    block_sync();
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
        if (candidate_key(row.shared[i]) >= floor)
            ordered[atomic_add(&bin_ends[bin_of(bins, row.shared[i])], 1u)] = (u16)i;
    block_sync();
    bins.count = bin_ends[BINS - 1];
    return bins;
}

// Puts the bin that holds a place into its exact order. False if it has too many members.
DEVICE bool order_bin(const Row &row, const Bins &bins, u32 place) {
    SHARED u16 ranked[MEMBERS];
    u32 bin = bin_of(bins, ordered_at(row, place)), start = bin_start(bin), members = bin_ends[bin] - start;
    if (members > MEMBERS) return false;
    for (u32 i = thread_index(); i < members; i += thread_count()) {
        u64 candidate = ordered_at(row, start + i);
        u32 before = 0;
        for (u32 j = 0; j < members; j++) before += ordered_at(row, start + j) > candidate;
        ranked[before] = ordered[start + i];
    }
    block_sync();
    for (u32 i = thread_index(); i < members; i += thread_count()) ordered[start + i] = ranked[i];
    block_sync();
    return true;
}

// The first `kept`, or with them all that equal the last of them. Its bin is in order.
DEVICE u32 with_ties(const Row &row, const Bins &bins, u32 kept) {
    if (!keeps_all_ties(row)) return kept;
    u64 last = ordered_at(row, kept - 1);
    u32 end = bin_ends[bin_of(bins, last)];
    u64 tied = 0;
    for (u32 i = kept + thread_index(); i < end; i += thread_count())
        tied += candidate_key(ordered_at(row, i)) == candidate_key(last);
    return kept + (u32)block_sum(tied);
}

DEVICE u64 mass_of_first(const Row &row, u32 limit) {
    u64 mass = 0;
    for (u32 i = thread_index(); i < limit; i += thread_count()) mass += weight_at(row, i);
    return block_sum(mass);
}

// How many of the first `limit` it takes to reach both needs, 0 if the one takes more than the other; the first `limit`
// reach the lesser. A need that they do not reach takes all of them, if `is_limit`: top-k has no more to give.
DEVICE u32 count_for_mass(const Row &row, const Bins &bins, u32 limit, bool is_limit, u64 least, u64 most) {
    SHARED u32 found;
    SHARED u32 taken;
    u32 each = (limit + thread_count() - 1) / thread_count(), start = thread_index() * each;
    u32 end = start + each < limit ? start + each : limit;
    u64 mass = 0;
    for (u32 i = start; i < end; i++) mass += weight_at(row, i);
    u64 before = block_sum_before(mass);
    if (before < least && before + mass >= least) {
        u32 i = start;
        for (u64 sum = before + weight_at(row, i); sum < least; sum += weight_at(row, i)) i++;
        found = i;
    }
    block_sync();
    u32 bin = bin_of(bins, ordered_at(row, found)), bin_first = bin_start(bin);
    // The sums before the bin, from the thread that has its first place: the order of earlier bins is the same to all.
    u64 sum = before;
    bool has_first = start <= bin_first && bin_first < end;
    if (has_first)
        for (u32 i = start; i < bin_first; i++) sum += weight_at(row, i);
    if (!order_bin(row, bins, found)) return 0;
    if (has_first) {
        u32 i = bin_first;
        for (sum += weight_at(row, i); sum < least && i + 1 < limit; sum += weight_at(row, i)) i++;
        taken = sum >= most || (is_limit && i + 1 == limit) ? i + 1 : 0;
    }
    block_sync();
    return taken;
}

// The boundary of a streamed row, from its gathered and, where top-p looks at the whole row, the sum over the rest. False: a
// miss. Leaves the kept in the row's slot.
DEVICE bool select(Row &row, double rest, float greatest, bool with_rest, Boundary &boundary) {
    u64 first = 0;
    for (u32 i = thread_index(); i < row.gathered_count; i += thread_count())
        first = row.shared[i] > first ? row.shared[i] : first;
    set_first(row, block_max(first));
    if (is_empty(row)) return false;
    Slot *slot = row.call.slots + row.view.row;
    if (row.args.temperature == 0.0f) {
        boundary = Boundary{candidate_key(row.first), candidate_id(row.first), 1};
        if (thread_index() == 0) slot->candidates[0] = row.first;
        return true;
    }
    u32 floor = floor_key(row), k = active_k(row);
    bool is_covered = covers(row, floor);
    Bins bins = sort_into_bins(row, floor);
    bool is_limit = k != 0 && bins.count >= k;
    if (!is_limit && !is_covered && (k != 0 || !with_rest || row.args.farthest != 0xFFFFFFFFu)) return false;
    u32 kept = bins.count;
    if (is_limit) {
        if (!order_bin(row, bins, k - 1)) return false;
        kept = with_ties(row, bins, k);
    }
    if (row.args.top_p < 1.0f) {
        u64 mass = mass_of_first(row, kept);
        u64 least = mass, most = mass;
        if (!is_limit || (row.args.flags & JOINT)) {
            least = most = mass_of_first(row, bins.count);
            if (!is_covered) {
                Rest bound = bound_rest(row, rest, greatest);
                // Min-p leaves less than the whole row.
                if (!bound.is_known || row.args.farthest != 0xFFFFFFFFu) return false;
                least += bound.least;
                most += bound.most;
            }
        }
        u64 need = need_of(row.args.top_p, least), need_most = need_of(row.args.top_p, most);
        // Top-p of 0 keeps the first maximum.
        if (need == 0) need = 1;
        if (need_most == 0) need_most = 1;
        if (mass >= need) {
            kept = count_for_mass(row, bins, kept, is_limit, need, need_most);
            if (kept == 0) return false;
            kept = with_ties(row, bins, kept);
        } else if (!is_limit) {
            return false;
        }
    }
    if (kept > KEPT_CAPACITY || !order_bin(row, bins, kept - 1)) return false;
    u64 last = ordered_at(row, kept - 1);
    boundary = Boundary{candidate_key(last), candidate_id(last), kept};
    for (u32 i = thread_index(); i < kept; i += thread_count()) slot->candidates[i] = ordered_at(row, i);
    return true;
}
