"""Times on a GPU as `benches/src/cuda.rs` takes them: replays of CUDA graphs over enough copies of the batch that none is
in the L2 cache, masks undone before each replay, the median of them."""

import statistics
from collections.abc import Callable

import numpy as np
import torch

WARM_UPS = 3
MOST_COPIES = 1024


class Batches:
    """Copies of a batch, each with its own rows, cut from the endless repetition of the given ones."""

    def __init__(self, rows: np.ndarray, count: int, cache: int):
        vocab = rows.shape[1]
        self.copies = max(1, min(MOST_COPIES, -(-2 * cache // (count * vocab * 4))))
        source = torch.from_numpy(rows).cuda()
        index = torch.arange(self.copies * count, device="cuda") % len(rows)
        self.pristine = source[index].view(self.copies, count, vocab)
        self.work = self.pristine.clone()
        self.count = count

    def restore(self) -> None:
        """Undoes every mask."""
        self.work.copy_(self.pristine)

    def evict(self) -> None:
        """Reads other memory, as much as the batches have."""
        self.pristine.amax(dim=-1)

    def masked(self, run: Callable, rows: int) -> np.ndarray:
        """The first `rows` rows of all copies as `run` masks them."""
        self.restore()
        needed = -(-rows // self.count)
        masked = [run(self.work[copy]).clone() for copy in range(min(needed, self.copies))]
        return torch.cat(masked)[:rows].cpu().numpy()

    def memory(self, run: Callable, forget: Callable) -> int:
        """Most bytes that a first call of `run` holds beside the batch, its result included, as torch's allocator counts them: of
        what torch allocates, which is all that these peers do."""
        forget()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = run(self.work[0])
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        del result
        self.restore()
        return peak - before

    def time(self, run: Callable, in_place: bool, repeats: int) -> float:
        """Median microseconds of `run` on one copy."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for copy in range(min(2, self.copies)):
                run(self.work[copy])
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Results live to the end, so that each launch writes memory of its own.
        results = []
        with torch.cuda.graph(graph):
            for copy in range(self.copies):
                results.append(run(self.work[copy]))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for replay in range(WARM_UPS + repeats):
            if in_place:
                self.restore()
            else:
                self.evict()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if replay >= WARM_UPS:
                times.append(start.elapsed_time(end) * 1e3 / self.copies)
        return statistics.median(times)
