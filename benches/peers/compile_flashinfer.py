"""Compiles FlashInfer's sampling kernels ahead of time, on a machine that needs neither a GPU nor torch: fetch.sh --compile.

The command lines are FlashInfer's own: it writes the build file that it would write at the kernels' first use. What it imports of
torch for that is the names of a few types, which a stand-in has.

Usage: compile_flashinfer.py ZIP CUDA ARCH SO, where ZIP is the thinned wheel, CUDA the folder of PyPI's compiler, as `pip
install --target` leaves it, ARCH as 9.0a, and SO the library to write. Needs in PYTHONPATH what FlashInfer imports.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import types
import zipfile
from pathlib import Path

# Before the stand-in, whose types are none.
import tvm_ffi  # noqa: F401

import flashinfer_sampling


def stand_in() -> types.ModuleType:
    """What stands in for torch while a build file is written: every name is its own value."""
    torch = types.ModuleType("torch")
    torch.__path__ = []
    torch.__getattr__ = lambda name: name
    # Of every torch for CUDA 13.
    torch._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
    return torch


def toolkit(packages: Path, folder: Path) -> Path:
    """A folder as a toolkit of CUDA has it: PyPI's has other names for libraries, and none for the driver's."""
    source = packages / "nvidia" / "cu13"
    (folder / "lib64" / "stubs").mkdir(parents=True)
    for part in ["bin", "include", "nvvm"]:
        (folder / part).symlink_to(source / part)
    runtime = next((source / "lib").glob("libcudart.so.*"))
    (folder / "lib64" / "libcudart.so").symlink_to(runtime)
    driver = folder / "lib64" / "stubs" / "libcuda.so"
    subprocess.run(
        ["cc", "-shared", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", driver], input=b"", check=True
    )
    return folder


def main() -> int:
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    archive, packages, arch, target = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with zipfile.ZipFile(archive) as thin:
            thin.extractall(scratch)
        os.environ["CUDA_HOME"] = str(toolkit(Path(packages), scratch / "cuda"))
        os.environ["FLASHINFER_CUDA_ARCH_LIST"] = arch
        os.environ["FLASHINFER_WORKSPACE_BASE"] = str(scratch / "compiled")
        sys.modules["torch"] = stand_in()
        flashinfer_sampling.enter_packages(scratch)
        spec = importlib.import_module("flashinfer.jit.sampling").gen_sampling_module()
        spec.write_ninja()
        ninja = shutil.which("ninja") or str(Path(packages) / "bin" / "ninja")
        subprocess.run([ninja, "-f", spec.ninja_path], check=True, cwd=spec.build_dir)
        shutil.copyfile(spec.jit_library_path, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
