// Constants apart from the algorithm. A build defines DTYPE, TRUNCATION, SEARCH, STAGE, ADJUSTED, THREADS, WARP and
// GATHER_CAPACITY: see `Specialization` in source.rs.

// Threads that a multiprocessor has at work at least: at 512, up to 128 registers each, which is what the whole algorithm
// in one kernel needs without spilling any.
#define RESIDENT_THREADS 512u
// The same for streaming, whose 80 registers leave room for more threads to hide the memory's latency.
#define STREAM_RESIDENT_THREADS 768u
// Loads of 16 bytes that a thread has in flight. Of 16-bit logits each is twice as many registers once widened.
#define VECTORS_IN_FLIGHT (DTYPE == 0 ? 4u : 2u)
// Ranges of keys in a histogram.
#define BUCKETS 512u
// The sample that thresholds are made of: runs spread evenly over the row.
#define SAMPLE_RUNS 128u
#define SAMPLE_RUN 32u
// Up to here a candidate's rank is counted; above, the pivot search is faster.
#define RANK_CAPACITY 1024u
// Margin of the Gaussian threshold in units of σ, for the error of a sample's tail.
#define SIGMA_MARGIN 0.25f
