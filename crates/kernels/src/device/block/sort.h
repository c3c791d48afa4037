// A bitonic sort of any number of elements, in place, in any memory.
//
// Every comparator puts the greater element at the lower index, also in the first step of a merge, which pairs mirrored
// positions. So what would lie behind the end, being least, never moves, and comparators that reach there are left out.
// log²(n)/2 passes over n elements: for the ablation's sorting runs and for wide candidate lists.

template <typename Greater, typename Swap>
DEVICE void block_sort(u32 count, Greater greater, Swap swap) {
    u32 end = 1;
    while (end < count) end *= 2;
    for (u32 size = 2; size <= end; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            bool mirrored = step == size / 2;
            block_sync();
            for (u32 pair = thread_index(); pair < end / 2; pair += thread_count()) {
                u32 group = pair / step, at = pair % step;
                u32 low = group * 2 * step + at;
                u32 high = mirrored ? group * 2 * step + 2 * step - 1 - at : low + step;
                if (high < count && greater(high, low)) swap(low, high);
            }
        }
    }
    block_sync();
}

DEVICE void block_sort_candidates(u64 *candidates, u32 count) {
    block_sort(
        count, [=](u32 a, u32 b) { return candidates[a] > candidates[b]; },
        [=](u32 a, u32 b) {
            u64 swapped = candidates[a];
            candidates[a] = candidates[b];
            candidates[b] = swapped;
        });
}
