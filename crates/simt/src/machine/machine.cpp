// The machine: runs the threads of a block as fibres of one host thread, and switches between them at collectives.
//
// A fibre runs until it waits: at a barrier for all threads of the block, at a ballot or shuffle for all lanes of its
// warp. Then the next fibre is drawn at random from those that can run. So between two collectives a thread is never
// interrupted, which is what a data race needs to be seen and no more: where two accesses are not ordered by a
// collective, some draw runs them one way round and some draw the other.
//
// Nothing here allocates while a block runs, nothing throws, and a fibre owns nothing: after a fault all fibres are simply
// abandoned.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel.h"
#include "prelude.h"

typedef uint32_t u32;
typedef uint64_t u64;

#if !defined(__x86_64__) || defined(SIMT_UCONTEXT)
#define SIMT_PORTABLE
#include <ucontext.h>
#endif

extern "C" {
__thread SimtNow simt_now;
}

// The way of a thread through a collective is what the machine does most: no calls on it but the switch.
#define INLINE __attribute__((always_inline)) inline

namespace {

const u32 MOST_THREADS = 1024;
const u32 LEAST_WARP = 32;
const size_t STACK = 64 * 1024;
const size_t MESSAGE = 1024;

#if defined(SIMT_PORTABLE)
typedef ucontext_t Context;
#else
// Everything else of a context lies on its stack.
typedef void *Context;
#endif

// What a fibre waits at, or waited at last, or that it has ended.
enum Wait : u32 { SYNC, BALLOT, SHUFFLE, ENDED };
const char *const NAMES[] = {"wait in block_sync", "wait in warp_ballot", "wait in warp_shuffle", "have ended"};

const SimtSite UNKNOWN = {"an unknown place", 0};

// A line of a template or of an inlined function has a site for each copy of it.
bool same(const SimtSite *a, const SimtSite *b) { return a == b || (a->line == b->line && strcmp(a->file, b->file) == 0); }

struct Fiber {
    Context context;
    Wait wait;
    const SimtSite *site;
    // What the lane gave to its last two shuffles, and which of the two is the newest.
    u64 given[2];
    u32 turn;
};

// One collective of a group of threads: who is there already, and for what.
struct Meeting {
    u32 arrived;
    Wait wait;
    const SimtSite *site;
    u32 first;
    // The bits of the last two ballots. Two suffice, here and in `Fiber::given`: a lane can be one collective ahead of
    // one that has not yet read its result, but not two, for the second needs all lanes.
    u64 ballots[2];
};

struct Machine {
    u32 threads, warp, block;
    // To divide by the warp without a division.
    u32 lane_mask, warp_shift;
    u32 current;
    // The fibres that can run, in no order; draws are made from the last `window` of them.
    u32 ready_count, window;
    uint16_t ready[MOST_THREADS];
    u32 ended;
    u64 random;
    u64 switches, limit;
    Meeting barrier;
    Meeting warps[MOST_THREADS / LEAST_WARP];
    Fiber fibers[MOST_THREADS];
    Context host;

    const SimtKernel *kernel;
    const void *argument;

    char *stacks;
    u32 stack_count;
    bool failed;
    char message[MESSAGE];
};

// The machine of this host thread, while one runs.
thread_local Machine *machine;

INLINE u32 draw(Machine *m, u32 below) {
    // xorshift64*, and a multiplication instead of a division.
    u64 x = m->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    m->random = x;
    return (u32)(((x * 0x2545F4914F6CDD1Dull) >> 32) * below >> 32);
}

void seed(Machine *m, u64 seed) {
    // splitmix64: seeds that lie side by side give numbers that do not.
    u64 z = seed + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    m->random = z ? z : 1;
}

#if defined(SIMT_PORTABLE)

void switch_context(Context *from, Context *to) { swapcontext(from, to); }

#else

// Saves what the System V convention asks a function to preserve, and goes on where `to` was saved. The floating-point
// control words are left out: no kernel can change them. It returns, though to another fibre's caller: fibres mostly wait at
// the same place, so that the processor predicts this return, and those that follow it, right.
asm(R"(
    .text
    .p2align 4
    .type qrita_simt_switch, @function
qrita_simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size qrita_simt_switch, . - qrita_simt_switch
)");
extern "C" void qrita_simt_switch(void **from, void *to) __asm__("qrita_simt_switch");

void switch_context(Context *from, Context *to) { qrita_simt_switch(from, *to); }

#endif

// Ends the launch with a message. The fibre that calls it never goes on.
__attribute__((noreturn, format(printf, 2, 3))) void fail(Machine *m, const char *format, ...) {
    int length = snprintf(m->message, MESSAGE, "block %u, thread %u: ", m->block, m->current);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(m->message + length, MESSAGE - (size_t)length, format, arguments);
    va_end(arguments);
    m->failed = true;
    switch_context(&m->fibers[m->current].context, &m->host);
    abort();
}

// Fails with which threads wait, or waited last, at what, in runs of threads that do the same.
__attribute__((noreturn)) void fail_with_places(Machine *m, const char *what) {
    char text[MESSAGE - 64];
    size_t length = 0;
    for (u32 first = 0; first < m->threads;) {
        const Fiber &fiber = m->fibers[first];
        u32 next = first + 1;
        while (next < m->threads && m->fibers[next].wait == fiber.wait && same(m->fibers[next].site, fiber.site)) next++;
        char place[128] = "";
        if (fiber.wait != ENDED) snprintf(place, sizeof place, " at %s:%u", fiber.site->file, fiber.site->line);
        int added = snprintf(text + length, sizeof text - length, "%s%u..%u %s%s", first ? "; " : "", first, next - 1,
                             NAMES[fiber.wait], place);
        length += (size_t)added;
        if (length >= sizeof text) break;
        first = next;
    }
    fail(m, "%s: threads %s", what, text);
}

// Goes on with some fibre that can run.
INLINE void run_next(Machine *m) {
    if (m->ready_count == 0) {
        if (m->ended < m->threads) fail_with_places(m, "no thread can run");
        switch_context(&m->fibers[m->current].context, &m->host);
        abort();
    }
    u32 window = m->ready_count < m->window ? m->ready_count : m->window;
    u32 place = m->ready_count - 1 - (window > 1 ? draw(m, window) : 0);
    u32 last = m->current, next = m->ready[place];
    m->ready[place] = m->ready[--m->ready_count];
    m->current = next;
    simt_now.thread = next;
    if (next == last) return;
    if (++m->switches == m->limit) fail_with_places(m, "no end is in sight");
    switch_context(&m->fibers[last].context, &m->fibers[next].context);
}

// Waits until all of the `size` threads from `first` on are at this meeting.
INLINE void meet(Machine *m, Meeting *meeting, u32 first, u32 size, Wait wait) {
    Fiber &fiber = m->fibers[m->current];
    fiber.wait = wait;
    fiber.site = simt_now.site ? simt_now.site : &UNKNOWN;
    simt_now.site = nullptr;
    if (meeting->arrived == 0) {
        meeting->wait = wait;
        meeting->site = fiber.site;
        meeting->first = m->current;
    } else if (meeting->wait != wait || !same(meeting->site, fiber.site)) {
        fail(m, "the threads diverge: %u %s at %s:%u while %u %s at %s:%u", m->current, NAMES[wait] + 5,
             fiber.site->file, fiber.site->line, meeting->first, NAMES[meeting->wait] + 5, meeting->site->file,
             meeting->site->line);
    }
    if (++meeting->arrived == size) {
        meeting->arrived = 0;
        uint16_t *ready = m->ready + m->ready_count;
        for (u32 i = 0; i < size; i++) ready[i] = (uint16_t)(first + i);
        m->ready_count += size;
    }
    run_next(m);
}

void fiber_main() {
    machine->kernel->call(machine->argument);
    Machine *m = machine;
    m->fibers[m->current].wait = ENDED;
    m->ended++;
    run_next(m);
    abort();
}

// Makes the fibre start at `fiber_main`.
void prepare(Machine *m, u32 index) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *bottom = m->stacks + index * (STACK + page) + page;
    Fiber &fiber = m->fibers[index];
#if defined(SIMT_PORTABLE)
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = bottom;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
#else
    // What `switch_context` pops: six registers, and where to go. There the stack is as behind a call: 8 off a multiple of
    // 16. The tops are staggered, or the same slot of every stack would lie in the same set of the cache.
    u64 *top = (u64 *)(bottom + STACK - (index % 64) * 64);
    *--top = 0;
    *--top = (u64)fiber_main;
    for (int i = 0; i < 6; i++) *--top = 0;
    fiber.context = top;
#endif
    fiber.wait = SYNC;
    fiber.site = &UNKNOWN;
    fiber.turn = 0;
}

bool make_stacks(Machine *m, u32 count) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (m->stacks) munmap(m->stacks, m->stack_count * (STACK + page));
    m->stacks = nullptr;
    void *stacks =
        mmap(nullptr, count * (STACK + page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return false;
    m->stacks = (char *)stacks;
    m->stack_count = count;
    // A page below each stack that no access survives.
    for (u32 i = 0; i < count; i++) mprotect(m->stacks + i * (STACK + page), page, PROT_NONE);
    return true;
}

void run_block(Machine *m, u32 block) {
    m->block = block;
    simt_now.block = block;
    m->current = 0;
    m->ended = 0;
    simt_now.site = nullptr;
    memset(&m->barrier, 0, sizeof m->barrier);
    memset(m->warps, 0, sizeof m->warps);
    // Either every fibre that can run is as likely as any other; or the warp that was let go last is preferred, so that a
    // warp runs ahead of the others as far as it can, which fair draws hardly ever let it.
    m->window = draw(m, 2) ? MOST_THREADS : m->warp;
    // Shared memory starts with anything: here with what no kernel writes.
    if (m->kernel->shared_start) {
        memset(m->kernel->shared_start, 0xA5, (size_t)(m->kernel->shared_end - m->kernel->shared_start));
    }
    m->ready_count = m->threads;
    for (u32 i = 0; i < m->threads; i++) {
        prepare(m, i);
        m->ready[i] = (uint16_t)i;
    }
    for (u32 i = m->threads; i > 1; i--) {
        u32 j = draw(m, i);
        uint16_t swapped = m->ready[i - 1];
        m->ready[i - 1] = m->ready[j];
        m->ready[j] = swapped;
    }
    u32 first = m->ready[--m->ready_count];
    m->current = first;
    simt_now.thread = first;
    m->switches++;
    switch_context(&m->host, &m->fibers[first].context);
}

} // namespace

extern "C" {

unsigned simt_thread() { return simt_now.thread; }
unsigned simt_threads() { return simt_now.threads; }
unsigned simt_block() { return simt_now.block; }
unsigned simt_blocks() { return simt_now.blocks; }

void simt_sync() {
    Machine *m = machine;
    meet(m, &m->barrier, 0, m->threads, SYNC);
}

u64 simt_ballot(bool predicate) {
    Machine *m = machine;
    u32 lane = m->current & m->lane_mask, first = m->current - lane;
    Meeting *warp = &m->warps[first >> m->warp_shift];
    Fiber &fiber = m->fibers[m->current];
    u32 turn = fiber.turn ^= 1;
    if (warp->arrived == 0) warp->ballots[turn] = 0;
    warp->ballots[turn] |= (u64)predicate << lane;
    meet(m, warp, first, m->warp, BALLOT);
    return warp->ballots[turn];
}

// As on both vendors' devices the lane is taken modulo the warp.
u64 simt_shuffle(u64 value, u32 lane) {
    Machine *m = machine;
    u32 first = m->current & ~m->lane_mask;
    Fiber &fiber = m->fibers[m->current];
    u32 turn = fiber.turn ^= 1;
    fiber.given[turn] = value;
    meet(m, &m->warps[first >> m->warp_shift], first, m->warp, SHUFFLE);
    return m->fibers[first + (lane & m->lane_mask)].given[turn];
}

Machine *qrita_simt_new() { return (Machine *)calloc(1, sizeof(Machine)); }

// Runs a grid; the message of a fault, or null. Blocks run one after the other, in an order that is drawn too; `order` is
// room for it.
const char *qrita_simt_run(Machine *m, const SimtKernel *kernel, const void *argument, const SimtSwitches *switches,
                           u32 warp, u32 threads, u32 blocks, u32 *order, u64 first_seed, u64 limit, u64 *count) {
    m->kernel = kernel;
    m->argument = argument;
    m->warp = warp;
    m->lane_mask = warp - 1;
    m->warp_shift = warp == 64 ? 6 : 5;
    m->threads = threads;
    simt_now.threads = threads;
    simt_now.blocks = blocks;
    simt_now.switches = *switches;
    m->failed = false;
    m->switches = 0;
    m->limit = limit;
    seed(m, first_seed);
    if (m->stack_count < threads && !make_stacks(m, threads)) return "no memory for the threads' stacks";
    for (u32 i = 0; i < blocks; i++) order[i] = i;
    for (u32 i = blocks; i > 1; i--) {
        u32 j = draw(m, i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    machine = m;
    for (u32 i = 0; i < blocks && !m->failed; i++) run_block(m, order[i]);
    machine = nullptr;
    *count = m->switches;
    return m->failed ? m->message : nullptr;
}

// What the compiler's checks of undefined behaviour call (-fsanitize=… in build.rs). All that is wanted of their argument
// is its head, the place in the source.
struct SimtPlace {
    const char *file;
    u32 line, column;
};
#define SIMT_CHECK(name, text)                                                                          \
    void __ubsan_handle_##name(const SimtPlace *place, u64 value) {                                     \
        if (!machine) abort();                                                                          \
        fail(machine, "%s:%u: " text " (operand %llu)", place->file, place->line, (unsigned long long)value); \
    }                                                                                                   \
    void __ubsan_handle_##name##_abort(const SimtPlace *place, u64 value) { __ubsan_handle_##name(place, value); }
SIMT_CHECK(out_of_bounds, "an index is outside its array")
SIMT_CHECK(shift_out_of_bounds, "a shift is negative or as wide as its operand")
SIMT_CHECK(divrem_overflow, "a division by zero, or one that overflows")
SIMT_CHECK(float_cast_overflow, "a conversion to an integer that can not hold the value")
SIMT_CHECK(type_mismatch_v1, "a null or misaligned access")
SIMT_CHECK(invalid_builtin, "zeros of a zero are counted")
SIMT_CHECK(builtin_unreachable, "a place that is never reached is reached")
SIMT_CHECK(missing_return, "a function ends without its value")
SIMT_CHECK(load_invalid_value, "a bool that is neither true nor false")
}
