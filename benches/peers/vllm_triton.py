"""Loads vLLM's Triton kernel from its one file, without vLLM.

The file imports what vLLM compiles its kernels ahead of time with, and asks which platform it runs on. Small modules
stand in for them; what they offer is no more than the file uses. A launch goes through the file's own dispatch functions.
"""

import contextlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path

FILE = "topk_topp_triton.py"


def bind(kernel_names: list[str], inputs: dict, constants: dict) -> dict:
    """The arguments of a kernel: constants by name, inputs by name in capitals, strides by `X_STRIDE_0`."""
    bound = dict(constants)
    for name in kernel_names:
        if name in bound:
            continue
        tensor, found, dimension = name.partition("_STRIDE_")
        if name.lower() in inputs:
            bound[name] = inputs[name.lower()]
        elif found and tensor.lower() in inputs:
            bound[name] = inputs[tensor.lower()].stride(int(dimension))
        else:
            raise TypeError(f"nothing to pass as {name}")
    return bound


def _dispatcher(*, kernel, warmup_inputs):
    """In the place of vLLM's decorator: a dispatch function gives grid and constants, and the kernel is launched."""
    del warmup_inputs

    def decorate(dispatch: Callable) -> Callable:
        names = dispatch.__code__.co_varnames[: dispatch.__code__.co_argcount]

        def launch(*values):
            grid, constants = dispatch(*values)
            inputs = dict(zip(names, values, strict=True))
            kernel[grid](**bind(kernel.arg_names, inputs, constants))

        return launch

    return decorate


def _stand_ins() -> dict[str, dict]:
    import torch
    import triton
    import triton.language

    class Unused:
        """Named by the file where vLLM warms up, which is not done here."""

        def __init__(self, *_, **__):
            raise NotImplementedError("only vLLM's warm-up makes one")

    def processors(device: int | None = None) -> int:
        return torch.cuda.get_device_properties(device or 0).multi_processor_count

    return {
        "vllm.model_executor.warmup.jit_warmup": {"WarmupChoices": Unused, "WarmupIntRange": Unused, "_when": Unused},
        "vllm.model_executor.warmup.jit_warmup_triton_helper": {
            "DispatchSpec": tuple,
            "TritonWarmupTensor": Unused,
            "triton_kernel_dispatcher_with_warmup": _dispatcher,
        },
        "vllm.platforms": {"current_platform": types.SimpleNamespace(is_cuda_alike=lambda: True)},
        "vllm.triton_utils": {"tl": triton.language, "triton": triton},
        "vllm.utils.gpu_sync_debug": {"gpu_sync_allowed": contextlib.nullcontext},
        "vllm.utils.math_utils": {"next_power_of_2": triton.next_power_of_2},
        "vllm.utils.platform_utils": {"num_compute_units": processors},
    }


def load(folder: Path) -> types.ModuleType:
    """The module. Raises what the import raises: a file that is missing, or another version's."""
    for name, contents in _stand_ins().items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            parent = ".".join(parts[:depth])
            module = sys.modules.setdefault(parent, types.ModuleType(parent))
            module.__path__ = []
        vars(module).update(contents)
    spec = importlib.util.spec_from_file_location("vllm_topk_topp_triton", folder / FILE)
    module = importlib.util.module_from_spec(spec)
    # Triton reads a kernel's source through its module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
