// Counts and masses by range: of keys in a row, or of candidates among the gathered.

SHARED u32 range_counts[BUCKETS];
// In halves: shared memory adds 32 bits in one step, and 64 by trying until nobody came between.
SHARED u32 range_masses[2][BUCKETS];

// All threads together, between two barriers.
DEVICE void clear_ranges() {
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
