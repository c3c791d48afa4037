#pragma once
// Behind the device source: how the machine calls a kernel and finds its shared memory.

// `Kernel` of src/grid.rs.
struct SimtKernel {
    void (*call)(const void *argument);
    char *shared_start, *shared_end;
};

#define SIMT_JOIN_(a, b) a##b
#define SIMT_JOIN(a, b) SIMT_JOIN_(a, b)

// The linker defines these two for every section whose name is an identifier; weak, as a kernel need not have any.
#if defined(__ELF__)
#define SIMT_START SIMT_JOIN(__start_, SIMT_SECTION_NAME)
#define SIMT_STOP SIMT_JOIN(__stop_, SIMT_SECTION_NAME)
extern "C" char SIMT_START[] __attribute__((weak, visibility("hidden")));
extern "C" char SIMT_STOP[] __attribute__((weak, visibility("hidden")));
#else
#define SIMT_START nullptr
#define SIMT_STOP nullptr
#endif

// A table entry named `name` for a kernel of one argument.
#define SIMT_KERNEL(name, kernel, Argument)                                                                   \
    static void SIMT_JOIN(simt_call_, name)(const void *argument) { kernel(*(const Argument *)argument); }    \
    extern "C" const SimtKernel name;                                                                         \
    const SimtKernel name = {SIMT_JOIN(simt_call_, name), SIMT_START, SIMT_STOP};
