#!/usr/bin/env python3
"""Qrita and its peers side by side on one GPU: one table of microseconds, and how often a kept set is wrong.

Peers: torch (sort, topk), vLLM's Triton kernel, FlashInfer; with them the floor: a copy of the batch, and one read of it.
Every time is the median of CUDA graph replays on logits that are not in the L2 cache; every masker's kept sets are
compared with a stable sort in float64. Qrita's own times are those of `cuda-throughput`, taken in the same way on the
same rows. A peer that is not there, or fails, is left out with a word.

Usage, in the repository:
    cargo build --release -p qrita-benches
    target/release/cuda-throughput --kinds llm --dump rows.f32
    target/release/cuda-throughput --kinds llm --dtypes f32 --json ours.json
    benches/peers/fetch.sh --compile 9.0a peers
    python3 benches/peers/peers.py --peers peers --rows rows.f32 --ours ours.json --json all.json --plot all.svg
    python3 benches/peers/peers.py --figures all.json --plot all.svg        # the table and the plot again, without a GPU
    python3 benches/peers/peers.py --self-test                              # the check of kept sets, with numpy alone

Needs: numpy; to measure torch on a GPU, for vLLM's kernel triton, for FlashInfer nvcc and ninja unless
fetch.sh compiled it; to plot matplotlib.

Exit code: 0 if done, 1 if --self-test fails, 2 for bad usage or without a GPU.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import kept

K, P = 50, 0.9
FILTERS = {"k=50": (K, None), "k=50,p=0.9": (K, P), "p=0.9": (None, P)}
OURS = "Qrita"


@dataclass
class Case:
    """One figure. `differ` of `checked` rows have another kept set than the float64 sort; None where none is made. `memory` is
    what a call takes of the device's beside the logits, its result included, in bytes."""

    who: str
    what: str
    filter: str
    batch: int
    us: float
    differ: int | None = None
    checked: int | None = None
    memory: int | None = None


@dataclass
class Peer:
    """What is measured: `prepare` takes the rows of a batch and returns what runs on one."""

    who: str
    what: str
    filter: str
    prepare: Callable
    masks: bool = False
    in_place: bool = False
    # Frees what is kept from call to call.
    forget: Callable = lambda: None


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def torch_peers() -> list[Peer]:
    import torch

    def masked_by_sort(logits, k, p):
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        if k is not None:
            values[:, k:] = -torch.inf
        if p is not None:
            weights = values.softmax(dim=-1)
            # The token that crosses p is kept: what lies before it must be less.
            values[weights.cumsum(dim=-1) - weights >= p] = -torch.inf
        return torch.empty_like(logits).scatter_(-1, ids, values)

    def masked_by_topk(logits, k, p):
        values, ids = logits.topk(k, dim=-1)
        if p is not None:
            weights = values.softmax(dim=-1)
            values = values.masked_fill(weights.cumsum(dim=-1) - weights >= p, -torch.inf)
        return torch.full_like(logits, -torch.inf).scatter_(-1, ids, values)

    peers = [
        Peer("torch", "copy, device to device", "none", lambda _: lambda logits: logits.clone()),
        Peer("torch", "one read: amax", "none", lambda _: lambda logits: logits.amax(dim=-1)),
    ]
    for filter, (k, p) in FILTERS.items():
        sort = lambda _, k=k, p=p: lambda logits: masked_by_sort(logits, k, p)
        peers.append(Peer("torch", "mask by sort", filter, sort, masks=True))
        if k is not None:
            topk = lambda _, k=k, p=p: lambda logits: masked_by_topk(logits, k, p)
            peers.append(Peer("torch", "mask by topk", filter, topk, masks=True))
    return peers


def vllm_peers(folder: Path) -> list[Peer]:
    import torch

    import vllm_triton

    module = vllm_triton.load(folder)
    apply = module.apply_top_k_top_p_triton

    def forget():
        for name in ["_TRITON_BUFFER_CACHE", "_TRITON_TABLE_CACHE", "_TRITON_SPLIT_CACHE"]:
            getattr(module, name, {}).clear()

    def prepare(k, p):
        def for_batch(rows):
            ks = None if k is None else torch.full((rows,), k, dtype=torch.int32, device="cuda")
            ps = None if p is None else torch.full((rows,), p, dtype=torch.float32, device="cuda")
            return lambda logits: apply(logits, ks, ps, has_topp_only_rows=k is None)

        return for_batch

    return [
        Peer("vLLM", "mask in place", filter, prepare(k, p), masks=True, in_place=True, forget=forget)
        for filter, (k, p) in FILTERS.items()
    ]


def flashinfer_peers(folder: Path, scratch: Path) -> list[Peer]:
    import torch

    import flashinfer_sampling

    sampling, hopper = flashinfer_sampling.load(folder, scratch)

    utils = sys.modules["flashinfer.utils"]

    def forget():
        for name in ["_cache_buf", "_stream_cache_buf"]:
            getattr(utils, name, {}).clear()

    # Tensors, so that a graph does not freeze the host's random state.
    seed = torch.zeros(1, dtype=torch.int64, device="cuda")

    def top_p(logits):
        return sampling.top_p_sampling_from_probs(sampling.softmax(logits), P, seed=seed, offset=seed)

    def joint(logits):
        probabilities = sampling.softmax(logits)
        return sampling.top_k_top_p_sampling_from_probs(
            probabilities, K, P, filter_apply_order="joint", seed=seed, offset=seed
        )

    def top_k(logits):
        return sampling.top_k_mask_logits(logits, K)

    def softmax(logits):
        return sampling.softmax(logits)

    peers = [
        Peer("FlashInfer", "top_k_mask_logits", "k=50", lambda _: top_k, masks=True, forget=forget),
        Peer("FlashInfer", "softmax alone", "none", lambda _: softmax, forget=forget),
        Peer("FlashInfer", "softmax, top-p sampling: token", "p=0.9", lambda _: top_p, forget=forget),
        Peer("FlashInfer", "softmax, joint sampling: token", "k=50,p=0.9", lambda _: joint, forget=forget),
    ]
    if hopper is not None:

        def fused(logits):
            probabilities = sampling.softmax(logits)
            return hopper.top_k_top_p_sampling_from_probs(probabilities, K, P, philox_seed=0, philox_offset=0)

        what = "softmax, sampler for Hopper: token"
        peers.append(Peer("FlashInfer", what, "k=50,p=0.9", lambda _: fused, forget=forget))
    return peers


def found_peers(args: argparse.Namespace, scratch: Path) -> list[Peer]:
    peers = []
    sources = {
        "torch": torch_peers,
        "vllm": lambda: vllm_peers(args.peers),
        "flashinfer": lambda: flashinfer_peers(args.peers, scratch),
    }
    for name, source in sources.items():
        if name in args.skip:
            continue
        if name != "torch" and args.peers is None:
            say(f"{name}: left out, since --peers names no folder")
            continue
        try:
            peers += source()
        except Exception as error:  # Whatever a peer's import fails with, the others can be measured.
            say(f"{name}: left out: {type(error).__name__}: {error}")
    return peers


def measure(args: argparse.Namespace, rows: np.ndarray, scratch: Path) -> dict:
    import torch

    import timing

    if not torch.cuda.is_available():
        say("no GPU that torch can use; see --figures and --self-test")
        sys.exit(2)
    properties = torch.cuda.get_device_properties(0)
    peers = found_peers(args, scratch)
    expected = {filter: kept.references(rows, k, p) for filter, (k, p) in FILTERS.items()}
    cases = []
    for batch in args.batches:
        batches = timing.Batches(rows, batch, properties.L2_cache_size)
        for peer in peers:
            try:
                run = peer.prepare(batch)
                case = Case(peer.who, peer.what, peer.filter, batch, 0.0)
                case.memory = batches.memory(run, peer.forget)
                if peer.masks:
                    masked = batches.masked(run, len(rows))
                    case.checked = len(masked)
                    case.differ = kept.differing(masked, expected[peer.filter][: len(masked)])
                case.us = batches.time(run, peer.in_place, args.repeats)
                cases.append(case)
            except Exception as error:  # As above; memory of a large batch may not suffice, too.
                say(f"{peer.who}, {peer.what}, {peer.filter}, batch {batch}: left out: {type(error).__name__}: {error}")
            torch.cuda.empty_cache()
        say(f"batch {batch}: done")
        del batches
        torch.cuda.empty_cache()
    return {
        "device": properties.name,
        "vocab": rows.shape[1],
        "rows": len(rows),
        "kind": args.kind,
        "repeats": args.repeats,
        "torch": torch.__version__,
        "cases": [asdict(case) for case in cases],
    }


def ours(path: Path, kind: str, vocab: int) -> list[dict]:
    """The figures of cuda-throughput for these rows in f32."""
    report = json.loads(path.read_text())
    if report["vocab"] != vocab:
        raise ValueError(f"{path}: rows of {report['vocab']}, not of {vocab}")
    names = {"mask": "mask in place", "candidates": "candidates with logprobs"}
    found = [
        asdict(Case(OURS, names[case["output"]], case["filter"], case["batch"], case["us"]))
        for case in report["cases"]
        if case["kind"] == kind and case["dtype"] == "f32"
    ]
    if not found:
        raise ValueError(f"{path}: no figures of {kind} rows in f32")
    taken = {case["batch"]: case["bytes"] for case in report.get("memory", []) if case["dtype"] == "f32"}
    for case in found:
        if case["what"] == names["mask"]:
            case["memory"] = taken.get(case["batch"])
    return found


def lines(figures: dict) -> dict[tuple[str, str, str], dict[int, dict]]:
    """The cases by line of the table and by batch."""
    table: dict = {}
    order = {filter: at for at, filter in enumerate(["none", *FILTERS])}
    for case in sorted(figures["cases"], key=lambda case: (order[case["filter"]], case["who"] != OURS)):
        table.setdefault((case["filter"], case["who"], case["what"]), {})[case["batch"]] = case
    return table


def print_table(figures: dict) -> None:
    batches = sorted({case["batch"] for case in figures["cases"]})
    print(f"{figures['device']}, {figures['kind']} rows of {figures['vocab']} f32, µs; kept sets against a float64 sort")
    heads = "".join(f"{f'B={batch}':>10}" for batch in batches)
    print(f"{'filter':11} {'who':10} {'what':35}{heads}  rows that differ")
    for (filter, who, what), found in lines(figures).items():
        times = "".join(f"{found[batch]['us']:10.1f}" if batch in found else f"{'-':>10}" for batch in batches)
        checked = [case for case in found.values() if case["differ"] is not None]
        differ = " ".join(f"{case['differ']}/{case['checked']}" for case in checked)
        if who == OURS:
            differ = "(compared with the CPU backend when timed)"
        print(f"{filter:11} {who:10} {what:35}{times}  {differ}")
    copies = {batch: batch * figures["vocab"] * 4 for batch in batches}
    print("\nDevice memory that a call takes beside the logits, result included, measured, in MiB")
    print(f"{'filter':11} {'who':10} {'what':35}{heads}")
    for (filter, who, what), found in lines(figures).items():
        # Figures of earlier versions have none.
        taken = {batch: case["memory"] for batch, case in found.items() if case.get("memory") is not None}
        if taken:
            sizes = "".join(f"{taken[batch] / 2**20:10.2f}" if batch in taken else f"{'-':>10}" for batch in batches)
            print(f"{filter:11} {who:10} {what:35}{sizes}")
    print(f"{'':11} {'':10} {'B × V × 4 bytes':35}" + "".join(f"{copies[batch] / 2**20:10.2f}" for batch in batches))


def plot(figures: dict, path: Path) -> None:
    """Throughput against batch, a panel for each filter (the paper's Figure 2)."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(FILTERS), figsize=(5 * len(FILTERS), 4.5), sharey=True, layout="constrained")
    for panel, filter in zip(panels, FILTERS):
        for (of, who, what), found in lines(figures).items():
            if of == filter or "copy" in what:
                batches = sorted(found)
                rates = [batch / found[batch]["us"] for batch in batches]
                style = "--" if of != filter else "-"
                width = 2.5 if who == OURS else 1.2
                name = what if of != filter else f"{who}, {what}"
                panel.plot(batches, rates, style, marker="o", markersize=3, linewidth=width, label=name)
        panel.set(yscale="log", title=filter, xlabel="rows in a batch")
        panel.set_xscale("log", base=2)
        panel.grid(True, which="major", alpha=0.3)
        panel.legend(fontsize=7)
    panels[0].set_ylabel("rows per µs")
    figure.suptitle(f"{figures['device']}, {figures['kind']} rows of {figures['vocab']} f32 logits")
    figure.savefig(path, format="svg")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="the folder that fetch.sh filled")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="rows from `cuda-throughput --dump`")
    parser.add_argument("--vocab", type=int, default=128_256, help="logits of a row (default %(default)s)")
    parser.add_argument("--kind", default="llm", help="what cuda-throughput calls these rows (default %(default)s)")
    batches = lambda text: [int(batch) for batch in text.split(",")]
    parser.add_argument("--batches", type=batches, default=[1, 8, 32, 128, 1024], metavar="B,B,…")
    parser.add_argument("--repeats", type=int, default=21, help="replays that a median is of (default %(default)s)")
    parser.add_argument("--skip", type=lambda text: text.split(","), default=[], metavar="torch,vllm,flashinfer")
    parser.add_argument("--ours", type=Path, metavar="FILE", help="figures of `cuda-throughput --json` to merge in")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="take the figures from here, and measure nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write throughput against batch here, as SVG")
    parser.add_argument("--self-test", action="store_true", help="check the check of kept sets, and stop")
    args = parser.parse_args()
    if not args.self_test and (args.rows is None) == (args.figures is None):
        parser.error("give --rows to measure, or --figures of an earlier run")
    return args


def read_rows(path: Path, vocab: int) -> np.ndarray:
    values = np.fromfile(path, dtype="<f4")
    if values.size == 0 or values.size % vocab:
        raise ValueError(f"{path}: {values.size} logits are no whole rows of {vocab}")
    rows = values.reshape(-1, vocab).astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError(f"{path}: logits that are not finite; the check takes finite ones only")
    return rows


def main() -> int:
    args = arguments()
    if args.self_test:
        print(f"self-test: {kept.self_test()} checks passed")
        return 0
    try:
        if args.figures is not None:
            figures = json.loads(args.figures.read_text())
        else:
            with tempfile.TemporaryDirectory() as scratch:
                figures = measure(args, read_rows(args.rows, args.vocab), Path(scratch))
        if args.ours is not None:
            others = [case for case in figures["cases"] if case["who"] != OURS]
            figures["cases"] = ours(args.ours, figures["kind"], figures["vocab"]) + others
    except (OSError, ValueError, KeyError) as error:
        say(f"error: {error}")
        return 2
    # First of all what took long.
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    print_table(figures)
    if args.plot is not None:
        try:
            plot(figures, args.plot)
        except ImportError as error:
            say(f"no plot: {error}; --figures with --plot makes it elsewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
