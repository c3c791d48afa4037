"""Loads FlashInfer's sampling from the thinned wheel that fetch.sh makes, without the rest of FlashInfer.

`import flashinfer` imports everything that it has, with all that everything needs. Its packages are entered by path here
instead, so that only what sampling imports is read. The kernels are compiled at their first use, by nvcc and ninja, unless the folder has them compiled (`fetch.sh
--compile`).
"""

import importlib
import os
import shutil
import sys
import types
import zipfile
from pathlib import Path

ZIP = "flashinfer.zip"
COMPILED = "sampling.so"
HOPPER_SOURCE = "flashinfer/data/csrc/cake_sampling/generated/cake_sampling_kernels.cu"


def enter_packages(root: Path) -> None:
    """Makes the packages known that lie below `root`, without what importing them runs."""
    for name in ["flashinfer", "flashinfer.jit"]:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    sys.modules["flashinfer"].jit = sys.modules["flashinfer.jit"]


def load(folder: Path, scratch: Path) -> tuple[types.ModuleType, types.ModuleType | None]:
    """`flashinfer.sampling`, and the module of the sampler for Hopper where the folder has its source."""
    with zipfile.ZipFile(folder / ZIP) as archive:
        archive.extractall(scratch)
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch / "site")
    # What the machine has comes first: a second copy of a library that is loaded already may not fit the first.
    sys.path.append(str(scratch / "site"))
    os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", str(scratch / "compiled"))
    os.environ.setdefault("FLASHINFER_LOGGING_LEVEL", "error")
    if (folder / COMPILED).exists():
        # Where FlashInfer looks before it compiles; what can not be loaded from there is compiled.
        compiled = scratch / "flashinfer" / "data" / "aot" / "sampling" / "sampling.so"
        compiled.parent.mkdir(parents=True)
        shutil.copyfile(folder / COMPILED, compiled)
    enter_packages(scratch)
    sampling = importlib.import_module("flashinfer.sampling")
    has_hopper = (scratch / HOPPER_SOURCE).exists()
    return sampling, importlib.import_module("flashinfer.cake_sampling") if has_hopper else None
