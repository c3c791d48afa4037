// Constants apart from the algorithm. A build defines DTYPE, TRUNCATION, SEARCH, STAGE, ADJUSTED, THREADS and WARP: see `Specialization` in source.rs.

// Candidates that a block holds in shared memory: 32 KiB, which with the histogram stays below the 48 KiB that every
// device gives a block without asking.
#define GATHER_CAPACITY 4096u
// Ranges of keys in a histogram.
#define BUCKETS 512u
// The sample that thresholds are made of: runs spread evenly over the row.
#define SAMPLE_RUNS 128u
#define SAMPLE_RUN 32u
// Up to here a candidate's rank is counted; above, the pivot search is faster.
#define RANK_CAPACITY 1024u
// Margin of the Gaussian threshold in units of σ, for the error of a sample's tail.
#define SIGMA_MARGIN 0.25f
