// Constants apart from the algorithm. A build defines DTYPE, TRUNCATION, SEARCH, STAGE, ADJUSTED, THREADS, WARP and the
// capacities: see `Specialization` in source.rs.

// Threads that a multiprocessor has at work at least: as many as leave each the registers it needs, so that none is spilled,
// by what the compiler makes of it for each architecture. The whole algorithm in one kernel needs up to 128 of them, stages 1 to 3
// without histograms 80, streaming 64 or somewhat more; there more threads hide the memory's latency.
#if ARCHITECTURE >= 1000
#define CUT_THREADS 512u
#define STREAM_THREADS (DTYPE == 0 ? 1024u : 512u)
#elif ARCHITECTURE > 0 && ARCHITECTURE < 900
#define CUT_THREADS 768u
#define STREAM_THREADS 768u
#else
#define CUT_THREADS 768u
#define STREAM_THREADS 1024u
#endif
#define RESIDENT_THREADS (STAGE == 5 ? STREAM_THREADS : STAGE == 7 && SEARCH != 3 ? CUT_THREADS : 512u)
// Loads of 16 bytes that a thread has in flight: one where more would spill, by what the compiler makes of it for each
// architecture.
#define VECTORS_IN_FLIGHT \
    (STAGE == 5 && DTYPE == 0 ? 4u : STAGE == 6 && DTYPE != 0 && ARCHITECTURE >= 1000 ? 1u : 2u)
// The same in passes over a row that do little with each logit.
#define CHEAP_AHEAD (STAGE == 6 && DTYPE == 0 ? 2u : 1u)
// Candidates that a block holds in shared memory.
#define CAPACITY (STAGE == 5 ? STREAM_CAPACITY : GATHER_CAPACITY)
// Whether a block has scratch memory, with room for every candidate of a row: `scratch_bytes` of source.rs.
#define HAS_SCRATCH (TRUNCATION == 1 || TRUNCATION == 2 || SEARCH == 2)
// Ranges of keys in a histogram: a power of two.
#define BUCKETS (STAGE == 5 ? 128u : 512u)
// The sample that thresholds are made of: runs spread evenly over the row.
#define SAMPLE_RUNS 128u
#define SAMPLE_RUN 32u
// Up to here candidates are ranked by counting what precedes each; above, sorted.
#define RANK_CAPACITY 1024u
// Margin of the Gaussian threshold in units of σ, for the error of a sample's tail.
#define SIGMA_MARGIN 0.25f
