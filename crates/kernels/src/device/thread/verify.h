// What decides about draft tokens, in integers of 128 bits: `verify.rs` of qrita-core.

struct Wide {
    u64 low, high;
};

DEVICE Wide product_of(u64 a, u64 b) { return Wide{a * b, multiply_high(a, b)}; }
DEVICE bool is_less(const Wide &a, const Wide &b) { return a.high != b.high ? a.high < b.high : a.low < b.low; }
DEVICE Wide sum_of(const Wide &a, const Wide &b) {
    u64 low = a.low + b.low;
    return Wide{low, a.high + b.high + (low < a.low)};
}
// Of the greater and the less.
DEVICE Wide difference_of(const Wide &a, const Wide &b) { return Wide{a.low - b.low, a.high - b.high - (a.low < b.low)}; }
// The upper 128 bits of a product of 64 by 128.
DEVICE Wide upper_of(u64 random, const Wide &whole) {
    return sum_of(product_of(random, whole.high), Wide{multiply_high(random, whole.low), 0});
}

// A token's part of a law: its weight, and the kept mass of its row. Of a law of none: 0 and 1.
struct Share {
    u64 weight, mass;
};

DEVICE bool accepts(u64 random, const Share &draft, const Share &target) {
    return draft.weight != 0 &&
           is_less(upper_of(random, product_of(draft.weight, target.mass)), product_of(target.weight, draft.mass));
}

// What the target law has of a token in excess of the draft's, or 0.
DEVICE Wide excess_of(const Share &draft, const Share &target) {
    Wide more = product_of(target.weight, draft.mass), less = product_of(draft.weight, target.mass);
    return is_less(less, more) ? difference_of(more, less) : Wide{0, 0};
}
