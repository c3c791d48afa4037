//! The loops with what the target guarantees.

use half::slice::HalfFloatSliceExt;

use super::generic::{mass as sum, scan_blocks, scan_range as range, weights as each};

super::kernels!(scan: scan_blocks, range: range, sum: sum, each: each, f16: widen, fma: false);

fn widen(stored: &[f16], out: &mut [f32]) {
    stored.convert_to_f32_slice(out);
}
