// Kernels with planted faults, and their right counterparts. Compiled by build.rs for either warp.

#define TOY_JOIN_(a, b) a##b
#define TOY_JOIN(a, b) TOY_JOIN_(a, b)
#define TOY(name) TOY_JOIN(TOY_JOIN(name, _), WARP)

struct ToyCall {
    u32 *out;
    u64 *wide;
    u32 count, flag;
};

// Every thread writes its number into shared memory and reads its neighbour's. With `flag` there is a barrier between.
DEVICE void neighbour(const ToyCall &call) {
    SHARED u32 numbers[THREADS];
    numbers[thread_index()] = thread_index();
    if (call.flag) block_sync();
    u32 next = (thread_index() + 1) % thread_count();
    call.out[block_index() * thread_count() + thread_index()] = numbers[next];
}

// A sum in rounds through one shared cell. Without `flag` the barrier that keeps a fast thread from writing the next
// round's value before a slow one has read this round's is missing.
DEVICE void rounds(const ToyCall &call) {
    SHARED u32 cell;
    u32 sum = 0;
    for (u32 round = 0; round < call.count; round++) {
        if (thread_index() == 0) cell = round;
        block_sync();
        sum += cell;
        if (call.flag) block_sync();
    }
    call.out[block_index() * thread_count() + thread_index()] = sum;
}

// Two warps' sums through ballots, in shared memory, without (or with) a barrier before they are read: only a run in which a
// warp runs ahead shows it.
DEVICE void warps_ahead(const ToyCall &call) {
    SHARED u32 last[THREADS / WARP];
    if (thread_index() < THREADS / WARP) last[thread_index()] = 0;
    block_sync();
    for (u32 round = 1; round <= call.count; round++) {
        warp_ballot(true);
        if (thread_index() % WARP == 0) last[thread_index() / WARP] = round;
        warp_ballot(true);
    }
    if (call.flag) block_sync();
    u32 other = (thread_index() / WARP + 1) % (thread_count() / WARP);
    call.out[block_index() * thread_count() + thread_index()] = last[other];
}

// flag 0: a barrier for half of the threads. 1: two barriers at different places. 2: a thread leaves early. 3: half a warp
// at a ballot. 4: a ballot meets a shuffle. 5: a whole warp leaves early.
DEVICE void diverge(const ToyCall &call) {
    u32 i = thread_index();
    if (call.flag == 0 && i < thread_count() / 2) block_sync();
    if (call.flag == 1) {
        if (i % 2)
            block_sync();
        else
            block_sync();
    }
    if (call.flag == 2 && i == 5) return;
    if (call.flag == 3 && i % 2) warp_ballot(true);
    if (call.flag == 4) call.wide[i] = i % 2 ? warp_ballot(true) : warp_shuffle(1, 0);
    if (call.flag == 5 && i < WARP) return;
    block_sync();
}

// Writes `count` words from `out` on, each thread its own.
DEVICE void fill(const ToyCall &call) {
    for (u32 i = thread_index(); i < call.count; i += thread_count()) call.out[(int)(i - call.flag)] = i;
}

// Ballots and shuffles, whose results the test knows.
DEVICE void lanes(const ToyCall &call) {
    u32 i = thread_index(), lane = i % WARP;
    u64 *out = call.wide + i * 6;
    out[0] = warp_ballot(lane % 3 == 0);
    out[1] = warp_ballot(i == 0);
    out[2] = warp_shuffle(i * 0x100000001ull, lane ^ 1);
    out[3] = warp_shuffle(i, (lane + 5) % WARP);
    out[4] = warp_shuffle(i, lane + WARP - 1);
    u64 sum = i;
    for (u32 step = WARP / 2; step > 0; step /= 2) sum += warp_shuffle(sum, lane ^ step);
    out[5] = sum;
}

// Hands out what lies in shared memory before anything was written to it; then writes zeros.
DEVICE void stale(const ToyCall &call) {
    SHARED u32 cell;
    call.out[block_index() * thread_count() + thread_index()] = cell;
    block_sync();
    cell = 0;
}

// What each check of undefined behaviour is for.
DEVICE void undefined(const ToyCall &call) {
    SHARED u32 numbers[8];
    u32 at = call.count;
    if (call.flag == 0) numbers[at] = 1;
    if (call.flag == 1) call.out[0] = 1u << at;
    if (call.flag == 2) call.out[0] = 7 / at;
    if (call.flag == 3) call.out[0] = (u32)(bits_float(0x7F000000u));
    if (call.flag == 4) *(u32 *)((char *)call.out + at) = 1;
    if (call.flag == 5) *(u32 *)(u64)at = 1;
    block_sync();
    call.out[1] = numbers[7];
}

// Collectives and nothing else: how fast the machine switches.
DEVICE void spin(const ToyCall &call) {
    for (u32 round = 0; round < call.count; round++) call.flag ? block_sync() : (void)warp_ballot(true);
}

#include "kernel.h"
#define SIMT_TOY(name) SIMT_KERNEL(TOY(toy_##name), name, ToyCall)
SIMT_TOY(neighbour)
SIMT_TOY(rounds)
SIMT_TOY(warps_ahead)
SIMT_TOY(diverge)
SIMT_TOY(fill)
SIMT_TOY(lanes)
SIMT_TOY(stale)
SIMT_TOY(undefined)
SIMT_TOY(spin)
