//! Whether the driver and NVRTC are there. To be asked before cudarc is, which panics where it cannot load one.

use std::sync::OnceLock;

/// cudarc has functions of this name only where it loads libraries at run time. Features add up, and an engine may have it
/// link them instead, as candle does: then they are there, or the process would not have started. A crate cannot ask for
/// another's features, but names can: cudarc's, where it has them, come before this one in the blocks that import them.
#[allow(dead_code, reason = "used where cudarc has none")]
unsafe fn is_culib_present() -> bool {
    true
}

/// Whether there is a driver, `libcuda`.
pub(crate) fn driver() -> bool {
    #[allow(unused_imports, reason = "not used where cudarc links libraries")]
    use cudarc::driver::sys::*;
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loads a shared library and runs its initialisers; the driver's do nothing that others could see.
    *PRESENT.get_or_init(|| unsafe { is_culib_present() })
}

/// Whether there is a compiler, `libnvrtc`.
pub(crate) fn nvrtc() -> bool {
    #[allow(unused_imports, reason = "not used where cudarc links libraries")]
    use cudarc::nvrtc::sys::*;
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loads a shared library and runs its initialisers; NVRTC's do nothing that others could see.
    *PRESENT.get_or_init(|| unsafe { is_culib_present() })
}
