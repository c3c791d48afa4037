//! Qrita in an engine that runs on candle: logits in a tensor on the device, tokens out, nothing copied.
//!
//! It is checked, not run: that it compiles says that both use one cudarc, in a build that suits both.
#![deny(missing_docs)]

use std::error::Error;

use candle_core::cuda_backend::cudarc::driver::CudaSlice;
use candle_core::{Storage, Tensor};
use qrita::cuda::{Context, CudaSampler, LaunchParams, ViewInput, ViewOutputs};
use qrita::{Dtype, Params, Plan, Shape};

/// A sampler on the device that candle runs on, for `f32` logits.
///
/// # Errors
/// Where candle runs elsewhere, or the kernels cannot be compiled.
pub fn sampler(device: &candle_core::Device) -> Result<CudaSampler, Box<dyn Error>> {
    let context = Context::on(device.as_cuda_device()?.cuda_stream().context().clone())?;
    Ok(CudaSampler::new(&context, Dtype::F32, Plan::default(), false)?)
}

/// Draws a token from each row of a contiguous tensor `[rows, vocab]`, on candle's stream.
///
/// # Errors
/// A tensor of another kind, parameters out of range, or a failure of the device's.
pub fn sample(sampler: &CudaSampler, logits: &Tensor, params: &Params<'_>) -> Result<CudaSlice<u32>, Box<dyn Error>> {
    let (rows, vocab) = logits.dims2()?;
    let (storage, layout) = logits.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else { return Err("the logits are not on a CUDA device".into()) };
    let Some((start, end)) = layout.contiguous_offsets() else { return Err("the logits are not contiguous".into()) };
    let view = storage.as_cuda_slice::<f32>()?.slice(start..end);

    let stream = storage.device.cuda_stream();
    let mut tokens = stream.alloc_zeros::<u32>(rows)?;
    let mut workspace = stream.alloc_zeros::<u8>(sampler.workspace_bytes(rows, vocab))?;
    let outputs = ViewOutputs { token: Some(tokens.as_view_mut()), ..ViewOutputs::default() };
    let params = LaunchParams::all(sampler.row_args(params, 0, vocab)?);
    let shape = Shape { rows, vocab, stride: vocab };
    // SAFETY: the parameters have no address of memory.
    unsafe { sampler.run(&stream, ViewInput::Read(view), shape, &params, outputs, workspace.as_view_mut())? };
    Ok(tokens)
}
