// Constants apart from the algorithm. A build defines DTYPE, TRUNCATION, SEARCH, STAGE, ADJUSTED, THREADS, WARP and
// GATHER_CAPACITY: see `Specialization` in source.rs.

// Threads that a multiprocessor has at work at least: at 512, up to 128 registers each, which is what the whole algorithm
// in one kernel needs without spilling any.
#define RESIDENT_THREADS 512u
// The same for streaming, which needs fewer registers, and more threads to hide the memory's latency: as many as no
// register is spilled for, by what the compiler makes of it for each architecture.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define STREAM_RESIDENT_THREADS 768u
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define STREAM_RESIDENT_THREADS (DTYPE == 0 ? 1024u : 512u)
#else
#define STREAM_RESIDENT_THREADS (DTYPE == 0 ? 1024u : 768u)
#endif
// Loads of 16 bytes that a thread has in flight.
#define VECTORS_IN_FLIGHT (STAGE == 5 ? 3u : 2u)
// Candidates that a block holds in shared memory.
#define CAPACITY (STAGE == 5 ? STREAM_CAPACITY : GATHER_CAPACITY)
// Ranges of keys in a histogram.
#define BUCKETS 512u
// The sample that thresholds are made of: runs spread evenly over the row.
#define SAMPLE_RUNS 128u
#define SAMPLE_RUN 32u
// Up to here a candidate's rank is counted; above, the pivot search is faster.
#define RANK_CAPACITY 1024u
// Margin of the Gaussian threshold in units of σ, for the error of a sample's tail.
#define SIGMA_MARGIN 0.25f
