//! A kernel that does nothing but read: what the memory gives to a single pass.

/// The kernel's name.
pub(crate) const ENTRY: &str = "read_all";

/// Threads of a block.
pub(crate) const THREADS: u32 = 256;

/// Its text. A store that depends on all that was read keeps the compiler from leaving the loads out; the value that it
/// waits for does not come up, and would do no harm.
pub(crate) const SOURCE: &str = r#"
extern "C" __global__ void read_all(const uint4* __restrict__ data, unsigned long long count, unsigned int* sink) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned int seen = 0;
    unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + 3 * step < count; at += 4 * step) {
        const uint4 a = data[at], b = data[at + step], c = data[at + 2 * step], d = data[at + 3 * step];
        seen ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; at < count; at += step) {
        const uint4 a = data[at];
        seen ^= a.x ^ a.y ^ a.z ^ a.w;
    }
    if (seen == 0x9E3779B9u) *sink = seen;
}
"#;
