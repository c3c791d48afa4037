// Counts and masses by range: of keys in a row, or of candidates among the gathered.

SHARED u32 range_counts[BUCKETS];
// In halves: shared memory adds 32 bits in one step, and 64 by trying until nobody came between.
SHARED u32 range_masses[2][BUCKETS];

// All threads together, between two barriers.
DEVICE void clear_ranges() {
#pragma unroll 1
    for (u32 i = thread_index(); i < BUCKETS; i += thread_count()) {
        range_counts[i] = 0;
        range_masses[0][i] = 0;
        range_masses[1][i] = 0;
    }
}

DEVICE u64 range_mass(u32 at) { return (u64)range_masses[1][at] << 32 | range_masses[0][at]; }

DEVICE void add_to_range(u32 at, u32 count, u64 mass) {
    atomic_add(&range_counts[at], count);
    if (mass == 0) return;
    u32 low = (u32)mass, before = atomic_add(&range_masses[0][at], low);
    atomic_add(&range_masses[1][at], (u32)(mass >> 32) + (before + low < before));
}

// As many ranges to each lane, from the top: this lane's first.
DEVICE u32 first_range() { return BUCKETS - 1 - lane_index() * (BUCKETS / WARP); }

// The range in which a goal is met from the top, and what lies above it; BUCKETS, and all there is, if it is in none.
struct Met {
    u32 at;
    Measure above;
};

// With what lies over all ranges. Every warp does the same, and has the result without another barrier.
DEVICE Met range_that_meets(Goal goal, const Measure &over) {
    const u32 top = first_range();
    u32 count = 0;
    u64 mass = 0;
#pragma unroll
    for (u32 i = 0; i < BUCKETS / WARP; i++) {
        count += range_counts[top - i];
        mass += goal.by_mass ? range_mass(top - i) : 0;
    }
    count = over.count + warp_sum_before(count);
    mass = goal.by_mass ? over.mass + warp_sum_before_wide(mass) : 0;
    Met own = Met{BUCKETS, Measure{0, 0}};
#pragma unroll
    for (u32 i = 0; i < BUCKETS / WARP; i++) {
        u32 count_through = count + range_counts[top - i];
        u64 mass_through = goal.by_mass ? mass + range_mass(top - i) : 0;
        if (!met(goal, count, mass) && met(goal, count_through, mass_through)) own = Met{top - i, Measure{mass, count}};
        count = count_through;
        mass = mass_through;
    }
    if (own.at == BUCKETS) own.above = Measure{mass, count};
    u64 lanes = warp_ballot(own.at < BUCKETS);
    u32 lane = lanes ? trailing_zeros(lanes) : WARP - 1;
    u64 mass_above = goal.by_mass ? warp_shuffle(own.above.mass, lane) : 0;
    return Met{(u32)warp_shuffle(own.at, lane), Measure{mass_above, (u32)warp_shuffle(own.above.count, lane)}};
}
