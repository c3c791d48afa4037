// Chains of draft tokens (speculative decoding): which are accepted, and what is drawn behind them.
//
// The rows of both sides have been run before, all side by side, each as a row like any other: what is left of one is its law, the
// boundary and the kept mass. One block then walks the chain of a request: an acceptance reads two logits. Only where the walk
// ends is a row read again, to draw from it.

#if STAGE == 8

// A row of one side, with its law.
struct Side {
    const Call &call;
    const RowArgs &args;
    RowView view;
    const Law &law;
};

DEVICE Side side_of(const Call &call, u64 at) {
    const RowArgs &args = call.row_args ? call.row_args[at] : call.args;
    return Side{call, args, view_of(call, at), call.laws[at]};
}

// The weight of a token with this logit; 0 if it is not kept.
DEVICE u64 weight_in(const Side &side, u32 id, float y) {
    u32 key = key_of(y);
    Boundary boundary = Boundary{side.law.key, side.law.id, side.law.mass != 0};
    if (!keeps(boundary, candidate_of(key, id))) return 0;
    return weight_of_logit(y, key_value(side.law.max), side.args.temperature);
}

// A token's part. A row that does not have it does not keep it.
DEVICE Share share_of(const Side &side, u32 id) {
    if (id >= side.view.vocab) return Share{0, side.law.mass};
    return Share{weight_in(side, id, effective(side.call, side.args, side.view, id)), side.law.mass};
}

DEVICE Wide warp_sum_of(Wide value) {
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        u32 lane = lane_index() ^ step;
        u64 low = warp_shuffle(value.low, lane), high = warp_shuffle(value.high, lane);
        value = sum_of(value, Wide{low, high});
    }
    return value;
}

// Draws from what the target has in excess of the draft, if that has a say; else from all of the target.
//
// As `locate_in_row`: the row is divided among the warps, the part that holds what is drawn divided again. Only the first round
// reads the row, and sums all of it, on which depends what is drawn.
DEVICE u32 draw_excess(const Side &target, const Side &draft, bool has_draft, u64 random) {
    SHARED Wide sums[MOST_WARPS];
    const u32 items = 4;
    u32 start = 0, end = target.view.vocab;
    Wide left = Wide{0, 0};
    while (end - start > 1) {
        u32 each = (end - start + warp_count() - 1) / warp_count();
        u32 from = start + warp_index() * each, to = from + each < end ? from + each : end;
        Wide sum = Wide{0, 0};
#pragma unroll 1
        for (u32 id = from + lane_index(); id < to; id += items * WARP) {
            float loaded[items];
#pragma unroll
            for (u32 i = 0; i < items; i++) {
                u32 at = id + i * WARP;
                loaded[i] = at < to ? effective(target.call, target.args, target.view, at) : bits_float(0xFF800000u);
            }
#pragma unroll
            for (u32 i = 0; i < items; i++) {
                u64 weight = weight_in(target, id + i * WARP, loaded[i]);
                if (weight == 0) continue;
                Share of_draft = has_draft ? share_of(draft, id + i * WARP) : Share{0, 1};
                sum = sum_of(sum, excess_of(of_draft, Share{weight, target.law.mass}));
            }
        }
        sum = warp_sum_of(sum);
        block_sync();
        if (lane_index() == 0) sums[warp_index()] = sum;
        block_sync();
        if (start == 0 && end == target.view.vocab) {
            Wide whole = Wide{0, 0};
            for (u32 warp = 0; warp < warp_count(); warp++) whole = sum_of(whole, sums[warp]);
            left = upper_of(random, whole);
        }
        u32 part = 0;
        while (part + 1 < warp_count() && !is_less(left, sums[part])) left = difference_of(left, sums[part++]);
        start += part * each;
        end = start + each < end ? start + each : end;
    }
    return start;
}

#define ACCEPT_DRAW 0xFFFFFFFFu
#define REJECT_DRAW 0xFFFFFFFEu

DEVICE u64 random_of(const Side &target, u32 draw) {
    return random_bits(target.args.seed, target.args.position, target.args.stream, draw);
}

// The chain of one request. Every thread walks it; what they decide is the same.
DEVICE void verify(const ChainCall &chain, u32 request) {
    const u64 first_draft = chain.offsets[request], first_target = first_draft + request;
    const u32 drafts = (u32)(chain.offsets[request + 1] - first_draft);
    u32 accepted = 0, status = 0, draw = 0;
    bool draws = false, has_draft = false;
    load_table();
    block_sync();
    for (;; accepted++) {
        const Side target = side_of(chain.target, first_target + accepted);
        status |= target.law.status;
        draws = target.law.mass != 0;
        if (!draws || accepted == drafts) break;
        const Side draft = side_of(chain.draft, first_draft + accepted);
        const u32 token = chain.tokens[first_draft + accepted];
        const Share of_draft = share_of(draft, token);
        if (!accepts(random_of(target, ACCEPT_DRAW), of_draft, share_of(target, token))) {
            draw = REJECT_DRAW;
            has_draft = of_draft.weight != 0;
            break;
        }
        if (chain.emitted && thread_index() == 0) chain.emitted[first_target + accepted] = token;
    }
    u32 drawn = NO_TOKEN;
    if (draws) {
        const Side target = side_of(chain.target, first_target + accepted);
        const Side draft = has_draft ? side_of(chain.draft, first_draft + accepted) : target;
        drawn = draw_excess(target, draft, has_draft, random_of(target, draw));
    }
    if (chain.emitted)
        for (u32 i = accepted + thread_index(); i <= drafts; i += thread_count())
            chain.emitted[first_target + i] = i == accepted ? drawn : NO_TOKEN;
    if (thread_index() != 0) return;
    if (chain.accepted) chain.accepted[request] = accepted;
    if (chain.status) chain.status[request] = status;
}

#endif
