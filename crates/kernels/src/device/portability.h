// What differs between CUDA, HIP and the SIMT shim. No other file names a vendor.
//
// WARP is the number of lanes that run together: 32 on NVIDIA, 64 on AMD, either in the shim. Shuffles and ballots are
// called by all lanes of a warp. A ballot has a bit a lane, in 64 bits.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
typedef int i32;

#if defined(QRITA_SIMT)

// The shim supplies these: one fibre a thread, switched at every collective.
extern "C" {
u32 simt_thread();
u32 simt_threads();
u32 simt_block();
u32 simt_blocks();
void simt_sync();
u64 simt_ballot(bool predicate);
u64 simt_shuffle(u64 value, u32 lane);
}
// Of NVIDIA's devices the compute capability, as 900 for 9.0; 0 of all others.
#define ARCHITECTURE 0
#define DEVICE static inline
#define DEVICE_CALL static
#define KERNEL extern "C" void
#define LAUNCH_BOUNDS(threads, blocks)
#define ARGUMENT(type) const type
// A block runs on one thread of the host from its start to its end.
#define SHARED static thread_local
#define CONSTANT static const
#define memory_copy __builtin_memcpy
DEVICE u32 thread_index() { return simt_thread(); }
DEVICE u32 thread_count() { return simt_threads(); }
DEVICE u32 block_index() { return simt_block(); }
DEVICE u32 block_count() { return simt_blocks(); }
DEVICE void block_sync() { simt_sync(); }
DEVICE u64 warp_ballot(bool predicate) { return simt_ballot(predicate); }
DEVICE u64 warp_shuffle(u64 value, u32 lane) { return simt_shuffle(value, lane); }
DEVICE u32 atomic_add(u32 *at, u32 value) { u32 old = *at; *at = old + value; return old; }
DEVICE u64 atomic_add(u64 *at, u64 value) { u64 old = *at; *at = old + value; return old; }
// Kernels and blocks run one after the other.
DEVICE void let_second_start() {}
DEVICE void await_first() {}
DEVICE u32 atomic_add_ordered(u32 *at, u32 value) { return atomic_add(at, value); }
DEVICE u64 load_fresh(const u64 *at) { return *at; }
DEVICE u32 load_fresh(const u32 *at) { return *at; }
DEVICE u64 multiply_high(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
DEVICE u32 multiply_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEVICE u64 multiply_wide(u32 a, u32 b) { return (u64)a * b; }
DEVICE u64 shift_right(u64 value, u32 by) { return by < 64 ? value >> by : 0; }
DEVICE u32 leading_zeros(u64 value) { return (u32)__builtin_clzll(value); }
DEVICE u32 trailing_zeros(u64 value) { return (u32)__builtin_ctzll(value); }
DEVICE u32 count_bits(u64 value) { return (u32)__builtin_popcountll(value); }
DEVICE float add_rn(float a, float b) { return a + b; }
DEVICE float sub_rn(float a, float b) { return a - b; }
DEVICE float mul_rn(float a, float b) { return a * b; }
DEVICE float div_rn(float a, float b) { return a / b; }
DEVICE float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float sqrt_hint(float a) { return __builtin_sqrtf(a); }
DEVICE float exp2_hint(float a) { return __builtin_exp2f(a); }
DEVICE float reciprocal_hint(float a) { return 1.0f / a; }
DEVICE float max_ignoring_nan(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }
DEVICE u32 float_bits(float value) { u32 bits; __builtin_memcpy(&bits, &value, 4); return bits; }
DEVICE float bits_float(u32 bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
DEVICE float half_value(u16 bits) {
    u32 sign = (u32)(bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) return bits_float(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
    if (magnitude >= 0x0400u) return bits_float(sign | ((magnitude << 13) + 0x38000000u));
    // Subnormal: a multiple of 2^-24, which the product is exactly.
    return bits_float(sign | float_bits((float)magnitude * 5.9604644775390625e-8f));
}
DEVICE u64 double_bits(double value) { u64 bits; __builtin_memcpy(&bits, &value, 8); return bits; }
DEVICE double bits_double(u64 bits) { double value; __builtin_memcpy(&value, &bits, 8); return value; }

#else

#define DEVICE static __device__ __forceinline__
// For what many places call: inlined everywhere it would be most of the kernel. Streaming and the cut call it from few, and
// have no registers to save for a call.
#if STAGE == 5 || STAGE == 7
#define DEVICE_CALL DEVICE
#else
#define DEVICE_CALL static __device__ __noinline__
#endif
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define CONSTANT static __device__ const
#define memory_copy memcpy
DEVICE u32 thread_index() { return threadIdx.x; }
// As it is launched: a constant that addresses are made of.
DEVICE u32 thread_count() { return THREADS; }
DEVICE u32 block_index() { return blockIdx.x; }
DEVICE u32 block_count() { return gridDim.x; }
DEVICE void block_sync() { __syncthreads(); }
DEVICE u32 atomic_add(u32 *at, u32 value) { return atomicAdd(at, value); }
DEVICE u64 atomic_add(u64 *at, u64 value) { return atomicAdd(at, value); }
// What other blocks wrote, past the cache of this multiprocessor.
DEVICE u64 load_fresh(const u64 *at) { return *(const volatile u64 *)at; }
DEVICE u32 load_fresh(const u32 *at) { return *(const volatile u32 *)at; }
DEVICE u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }
DEVICE u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }
DEVICE u32 leading_zeros(u64 value) { return (u32)__clzll((long long)value); }
DEVICE u32 trailing_zeros(u64 value) { return (u32)__ffsll((long long)value) - 1; }
DEVICE u32 count_bits(u64 value) { return (u32)__popcll(value); }
// The compiler contracts none of these into a multiply-add.
DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
DEVICE float sub_rn(float a, float b) { return __fsub_rn(a, b); }
DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
DEVICE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float sqrt_hint(float a) { return sqrtf(a); }
DEVICE float max_ignoring_nan(float a, float b) { return fmaxf(a, b); }
DEVICE u32 float_bits(float value) { return __float_as_uint(value); }
DEVICE float bits_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u64 double_bits(double value) { return (u64)__double_as_longlong(value); }
DEVICE double bits_double(u64 bits) { return __longlong_as_double((long long)bits); }

#if defined(__HIP__)
#define ARCHITECTURE 0
// What a thread wrote before it, and its block before a barrier before that, other blocks see who find the sum.
DEVICE u32 atomic_add_ordered(u32 *at, u32 value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE void let_second_start() {}
DEVICE void await_first() {}
#define LAUNCH_BOUNDS(threads, blocks) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define ARGUMENT(type) const type
DEVICE u64 warp_ballot(bool predicate) { return __ballot(predicate); }
DEVICE u64 warp_shuffle(u64 value, u32 lane) { return __shfl(value, lane, WARP); }
DEVICE float half_value(u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }
DEVICE u64 multiply_wide(u32 a, u32 b) { return (u64)a * b; }
DEVICE u64 shift_right(u64 value, u32 by) { return by < 64 ? value >> by : 0; }
DEVICE float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }
DEVICE float exp2_hint(float a) { return __builtin_amdgcn_exp2f(a); }
DEVICE float reciprocal_hint(float a) { return __builtin_amdgcn_rcpf(a); }
#else
#define ARCHITECTURE __CUDA_ARCH__
#define LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
// The second of two kernels may be launched so that it starts before the first has ended: it then waits for all that the
// first writes. Otherwise neither does anything.
#if __CUDA_ARCH__ >= 900
DEVICE void let_second_start() { asm volatile("griddepcontrol.launch_dependents;"); }
DEVICE void await_first() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DEVICE void let_second_start() {}
DEVICE void await_first() {}
#endif
// What a thread wrote before it, and its block before a barrier before that, other blocks see who find the sum.
DEVICE u32 atomic_add_ordered(u32 *at, u32 value) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
    return old;
}
// Read where it lies: a copy would be in local memory.
#define ARGUMENT(type) const __grid_constant__ type
DEVICE u64 warp_ballot(bool predicate) { return __ballot_sync(0xFFFFFFFFu, predicate); }
DEVICE u64 warp_shuffle(u64 value, u32 lane) { return __shfl_sync(0xFFFFFFFFu, value, lane); }
// Written out, as the compiler makes of a product of sums one of 64 bits by 64.
DEVICE u64 multiply_wide(u32 a, u32 b) {
    u64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
}
// By 64 and more, too: 0.
DEVICE u64 shift_right(u64 value, u32 by) {
    u64 shifted;
    asm("shr.b64 %0, %1, %2;" : "=l"(shifted) : "l"(value), "r"(by));
    return shifted;
}
// The f16 with these bits, exactly.
DEVICE float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
// One instruction, from sm_80 on as all that follows.
DEVICE float max_or_nan(float a, float b) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}
// Instructions of their own; elsewhere block/reduce.h makes them of shuffles.
#define HAS_WARP_REDUCTIONS 1
DEVICE u32 warp_sum(u32 value) { return __reduce_add_sync(0xFFFFFFFFu, value); }
DEVICE u32 warp_max(u32 value) { return __reduce_max_sync(0xFFFFFFFFu, value); }
DEVICE u32 warp_min(u32 value) { return __reduce_min_sync(0xFFFFFFFFu, value); }
// The hardware's: a relative error of at most 2^-22, and 0 below 2^-126.
DEVICE float exp2_hint(float a) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a));
    return power;
}
DEVICE float reciprocal_hint(float a) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(a));
    return reciprocal;
}
#endif

#endif
