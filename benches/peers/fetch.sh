#!/usr/bin/env bash
#
# Fetches the peers from PyPI, as much of them as peers.py runs, into a folder that can be carried to a machine with a GPU.
#
# Usage: benches/peers/fetch.sh [--hopper-sampler] [--compile ARCH] DIR
#
# DIR then holds vLLM's Triton kernel (one file), FlashInfer's sampling kernels with their headers (a zip) and the wheels
# that those need; below 40 MiB, which is checked. --hopper-sampler adds FlashInfer's sampler for Hopper, whose generated
# source is 54 MB and takes long to compile. --compile 9.0a compiles the sampling kernels for that architecture here, by PyPI's
# nvcc for CUDA 13, so that the GPU machine has nothing to compile: some minutes.
#
# Needs: python3 with pip, and 500 MB of temporary space, since pip downloads whole wheels; to compile a C++ compiler and
# another 500 MB. The GPU machine's Python is taken to be 3.12 on x86-64 Linux; PEER_PYTHON=3.x names another.
set -euo pipefail

vllm=vllm==0.33.0
flashinfer=flashinfer-python==0.7.4
kernel=vllm/v1/sample/ops/topk_topp_triton.py
most_mib=40

hopper=no arch=
while [[ ${1-} == --* ]]; do
    case $1 in
        --hopper-sampler) hopper=yes ;;
        --compile) arch=${2-} && shift ;;
        *) break ;;
    esac
    shift
done
if [[ $# -ne 1 || $1 == -* ]]; then
    sed -n '3,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Downloads wheels for the GPU machine, not for this one.
download() {
    local to=$1 platform=()
    shift
    for tag in manylinux_2_{39,35,34,31,28,27,24,17}_x86_64 manylinux2014_x86_64 manylinux1_x86_64; do
        platform+=(--platform "$tag")
    done
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --implementation cp --python-version "${PEER_PYTHON:-3.12}" "${platform[@]}" --dest "$to" "$@"
}

echo "$vllm: one file"
download "$scratch/vllm" "$vllm"
python3 - "$scratch"/vllm/vllm-*.whl "$kernel" "$folder/topk_topp_triton.py" <<'PYTHON'
import pathlib, sys, zipfile

wheel, kernel, target = sys.argv[1:]
pathlib.Path(target).write_bytes(zipfile.ZipFile(wheel).read(kernel))
PYTHON
rm -r "$scratch/vllm"

echo "$flashinfer: the sampling kernels"
download "$scratch/flashinfer" "$flashinfer"
python3 - "$scratch"/flashinfer/flashinfer_python-*.whl "$folder/flashinfer.zip" "$hopper" <<'PYTHON'
import re, sys, zipfile

wheel, target, hopper = sys.argv[1:]
# The modules that sampling imports, the headers, the vendored CCCL, and the sources that lie beside the kernels.
wanted = r"[a-z0-9_]+\.py|jit/[a-z0-9_]+\.py|trace/.*\.py|data/include/.*|data/cccl/(cub|libcudacxx|thrust)/.*"
wanted += r"|data/csrc/[a-z0-9_]*(sampling|renorm|utils|topk)[a-z0-9_]*\.(cu|cuh|h|inc)|data/csrc/logging\.cc"
if hopper == "yes":
    wanted += r"|data/csrc/cake_sampling/.*"
with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as thin:
    for name in source.namelist():
        if re.fullmatch(f"flashinfer/({wanted})", name):
            thin.writestr(name, source.read(name))
PYTHON
rm -r "$scratch/flashinfer"

echo "what FlashInfer imports"
rm -rf "$folder/wheels"
download "$folder/wheels" "apache-tvm-ffi>=0.1.11,<0.2" nvidia-ml-py filelock packaging

rm -f "$folder/sampling.so"
if [[ -n $arch ]]; then
    echo "FlashInfer's sampling kernels for $arch"
    # For this machine, unlike the wheels above.
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$scratch/site" \
        nvidia-cuda-{nvcc,crt,runtime,cccl}==13.0.* nvidia-nvvm==13.0.* "nvidia-curand>=10.4,<10.5" ninja \
        "apache-tvm-ffi>=0.1.11,<0.2" filelock packaging nvidia-ml-py
    PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1 python3 "$(dirname "$0")/compile_flashinfer.py" \
        "$folder/flashinfer.zip" "$scratch/site" "$arch" "$folder/sampling.so"
fi

size=$(du -sm "$folder" | cut -f1)
echo "$folder: $size MiB"
if ((size >= most_mib)); then
    echo "more than $most_mib MiB" >&2
    exit 1
fi
