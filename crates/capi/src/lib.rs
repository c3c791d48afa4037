//! Qrita for C, and for whatever calls C: the functions of `include/qrita.h`.
//!
//! The header is made of this crate by cbindgen and committed; a test holds the two together, and `QRITA_WRITE_HEADER=1 cargo test
//! -p qrita-capi` writes it anew. `examples/` has a C program and Python scripts.
//!
//! Every function catches panics, every failure is a [`QritaCode`] with a message ([`qrita_message`]), and what a call refuses it
//! leaves untouched. What addresses are of is the caller's to know: a null where memory is needed is refused, any other address is
//! believed.
#![deny(missing_docs)]

mod code;
mod cuda;
mod host;
mod types;

pub use code::{QritaCode, qrita_message};
pub use cuda::{
    QritaCuda, qrita_cuda_create, qrita_cuda_destroy, qrita_cuda_launch, qrita_cuda_row_args,
    qrita_cuda_row_args_bytes, qrita_cuda_workspace_bytes,
};
pub use host::{QritaSampler, qrita_create, qrita_description, qrita_destroy, qrita_run};
pub use types::{
    QRITA_ABI, QRITA_BF16, QRITA_EMPTY, QRITA_F16, QRITA_F32, QRITA_JOINT, QRITA_KEEP_ALL, QRITA_LOWEST_ID, QRITA_NAN,
    QRITA_NO_TOKEN, QRITA_OVERFLOW, QRITA_POS_INF, QRITA_TOP_K_THEN_TOP_P, QritaLogits, QritaOutputs, QritaParams,
    qrita_abi, qrita_outputs_init, qrita_params_init,
};
