// Behind portability.h: what only the shim wants to know or to have.

// Each collective is announced with its place in the source. The name inside its own macro is not expanded again, so the
// function of portability.h, with all its overloads, is called as before. One pointer is stored, not a file and a line:
// this happens before every switch.
#define SIMT_HERE                                             \
    ((void)({                                                 \
        static const SimtSite here = {__FILE__, __LINE__};    \
        simt_now.site = &here;                                \
    }))
#define block_sync() (SIMT_HERE, block_sync())
#define warp_ballot(...) (SIMT_HERE, warp_ballot(__VA_ARGS__))
#define warp_shuffle(...) (SIMT_HERE, warp_shuffle(__VA_ARGS__))

#define thread_index() (simt_now.thread)
#define thread_count() (simt_now.threads)
#define block_index() (simt_now.block)
#define block_count() (simt_now.blocks)

// The shared memory of a kernel lies in a section of its own, so that the machine can find all of it and spoil it before
// every block. It is the kernel's, not the thread's: that of 30 kernels, in every host thread, would not leave room for the
// stacks of Rust's test threads. A kernel therefore runs on one host thread at a time; the busiest have a second copy.
#if defined(__ELF__)
#undef SHARED
#define SHARED static __attribute__((section(SIMT_SECTION)))
#endif
