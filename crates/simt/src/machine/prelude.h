#pragma once
// Before the device source: what a build for a device takes from macros, and this one takes from the launch.

// `Switches` of src/grid.rs.
struct SimtSwitches {
    unsigned truncation, search, adjusted;
};

// A place in the source.
struct SimtSite {
    const char *file;
    unsigned line;
};

// Who runs now on this host thread, and in which launch.
struct SimtNow {
    unsigned thread, threads, block, blocks;
    SimtSwitches switches;
    // Where the collective is that is called next; null if that is not known.
    const SimtSite *site;
};

// Read where it is used: these are asked for in the innermost loops, where a call would cost more than all the rest.
// `__thread`, as it needs no construction.
extern "C" __thread SimtNow simt_now;

#define TRUNCATION (simt_now.switches.truncation)
#define SEARCH (simt_now.switches.search)
#define ADJUSTED (simt_now.switches.adjusted)
