#!/usr/bin/env python3
"""Samples logits of torch on a CUDA device by raw pointers, as a decode loop does, and checks the answers.

Usage: crates/capi/examples/sample_torch.py LIBRARY, where LIBRARY is target/release/libqrita_capi.so.

Nothing is copied, and no step waits for the host: each launches on torch's current stream, in torch's memory. Needs torch with
CUDA, and NVRTC where the loader finds it, as torch's is. Exit code: 0 if all answers are right, 1 if not.
"""

import sys

import torch

import qrita

DTYPES = {torch.float32: qrita.F32, torch.float16: qrita.F16, torch.bfloat16: qrita.BF16}


class Decoder:
    """What a decode loop keeps between steps: the sampler, its workspace, and the parameters of its rows on the device."""

    def __init__(self, library: qrita.Library, rows: int, vocab: int, dtype: torch.dtype):
        self.library, self.rows, self.vocab, self.dtype = library, rows, vocab, DTYPES[dtype]
        self.sampler = library.cuda_sampler(torch.cuda.current_device(), self.dtype)
        size = library.cuda_workspace_bytes(self.sampler, rows, vocab)
        self.workspace = torch.zeros(size, dtype=torch.uint8, device="cuda")
        self.tokens = torch.zeros(rows, dtype=torch.int32, device="cuda")
        self.row_args = None
        self.params = library.params()

    def set_rows(self, params: qrita.Params) -> None:
        """Parameters with arrays of one a row, in host memory."""
        args = self.library.cuda_row_args(self.sampler, params, self.rows, self.vocab)
        self.row_args = torch.frombuffer(bytearray(args), dtype=torch.uint8).cuda()

    def launch(self, logits: torch.Tensor, outputs: qrita.Outputs) -> None:
        batch = qrita.Logits(logits.data_ptr(), self.dtype, self.rows, self.vocab, logits.stride(0))
        stream = torch.cuda.current_stream().cuda_stream
        workspace = (self.workspace.data_ptr(), self.workspace.numel())
        row_args = 0 if self.row_args is None else self.row_args.data_ptr()
        self.library.cuda_launch(self.sampler, stream, batch, self.params, outputs, *workspace, row_args=row_args)

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """A token of each row: the same memory in every call."""
        self.launch(logits, self.library.outputs(token=self.tokens.data_ptr()))
        return self.tokens


def main() -> int:
    library = qrita.Library(sys.argv[1])
    host = library.sampler("cpu")
    wrong = []
    rows, vocab = 33, 32_003
    generator = torch.Generator().manual_seed(1)
    for dtype, number in DTYPES.items():
        cpu = (3 * torch.randn(rows, vocab, generator=generator)).to(dtype).contiguous()
        logits = cpu.cuda()
        decoder = Decoder(library, rows, vocab, dtype)
        seeds = torch.arange(rows, dtype=torch.int64)
        right = torch.zeros(rows, dtype=torch.int32)
        on_host = qrita.Logits(cpu.data_ptr(), number, rows, vocab, vocab)
        for position in range(3):
            positions = torch.full((rows,), position, dtype=torch.int64)
            params = library.params(
                top_k=50, top_p=0.9, temperature=0.7, seeds=seeds.data_ptr(), positions=positions.data_ptr()
            )
            decoder.set_rows(params)
            tokens = decoder.sample(logits).cpu()
            library.run(host, on_host, params, library.outputs(token=right.data_ptr()))
            if not torch.equal(tokens, right):
                wrong.append(f"{dtype}, position {position}: not the CPU's tokens")
        # A graph holds the launch; its parameters are read where they lie.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            decoder.sample(logits)
        decoder.tokens.zero_()
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(decoder.tokens.cpu(), right):
            wrong.append(f"{dtype}: a replay has other tokens")
        decoder.launch(logits, library.outputs(mask=1))
        library.run(host, on_host, params, library.outputs(mask=1))
        if not torch.equal(logits.cpu(), cpu):
            wrong.append(f"{dtype}: not the CPU's mask")
        library.cuda_destroy(decoder.sampler)
    library.destroy(host)
    for what in wrong:
        print(f"wrong: {what}")
    if not wrong:
        print(f"{torch.cuda.get_device_name()}: all answers are the CPU's")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
