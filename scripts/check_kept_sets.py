#!/usr/bin/env python3
"""Checks the kept sets of the `qrita` command against a stable sort and float64, on logits of real models.

Nothing is shared with the Rust code: the safetensors files are parsed here, the order is numpy's stable sort, the
probabilities are float64. Where the top-p cut lies so close to the end of a token's interval that float64 could
put it on the wrong side, it is decided with 60 decimal digits.

Usage:
    python3 -m pip install -r scripts/requirements.txt
    cargo build --release -p qrita-cli
    python3 scripts/check_kept_sets.py [--qrita PATH] [--self-test] [FILE ...]

Without FILE: fixtures/real_logits_small.safetensors, and the *_wikitext2.safetensors in the folder that QRITA_DATA
names, or in shared/data beside the repository, where there are any.

For every tensor and for top-k 50, top-p 0.9 and both (top-p over the mass that top-k left), it compares ids and their
order, logits, and log-probabilities (within 1e-5), row by row. The table's last column is the least relative distance,
over all rows, between the mass that top-p needs and the end of an interval.

Exit code: 0 if all rows are equal, 1 if any differs, 2 if the check could not be made.
"""

import argparse
import decimal
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
FIXTURE = REPOSITORY / "fixtures" / "real_logits_small.safetensors"
TOP_K = 50
# The filter takes p as the f32 that it is given.
TOP_P = float(np.float32(0.9))
CASES = {"k=50": (TOP_K, None), "p=0.9": (None, TOP_P), "k=50 p=0.9": (TOP_K, TOP_P)}
# A float64 sum of 2^18 weights is far better than this; any closer and decimals decide.
CLOSE = 1e-9
LOGPROB_TOLERANCE = 1e-5
DECIMALS = decimal.Context(prec=60)


class CheckError(Exception):
    """The check could not be made."""


@dataclass
class Kept:
    """The kept tokens of one row."""

    ids: np.ndarray
    logits: np.ndarray
    logprobs: np.ndarray
    # Relative distance of top-p's need from the nearest end of an interval.
    margin: float = math.inf


@dataclass
class Report:
    """The comparison of one tensor in one case."""

    rows: int = 0
    equal: int = 0
    kept: list[int] = field(default_factory=list)
    margin: float = math.inf
    differences: list[str] = field(default_factory=list)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The bf16 tensors [rows, vocab] of a safetensors file, widened to float32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16" or len(entry["shape"]) != 2:
            raise CheckError(f"{path}: tensor {name} is not a bf16 matrix")
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        upper = np.frombuffer(data[start:end], dtype="<u2").astype(np.uint32)
        rows = (upper << 16).view(np.float32).reshape(entry["shape"])
        if not np.isfinite(rows).all():
            raise CheckError(f"{path}: tensor {name} has logits that are not finite")
        tensors[name] = rows
    return tensors


def prefix_float(weights: np.ndarray, p: float) -> tuple[int, float]:
    """The size of the smallest prefix with a share of at least p, and how close the decision was."""
    total = math.fsum(weights)
    sums = np.cumsum(weights)
    need = p * total
    size = min(int(np.searchsorted(sums, need)) + 1, len(sums))
    ends = sums[max(size - 2, 0) : size + 1]
    return size, float(np.abs(ends - need).min() / need)


def prefix_decimal(distances: np.ndarray, p: float) -> int:
    """The same size with 60 digits. Equal distances are one group: a row of bf16 logits has few of them."""
    values, counts = np.unique(distances, return_counts=True)
    groups = [
        (DECIMALS.exp(decimal.Decimal(value)), int(count))
        for value, count in zip(values[::-1].tolist(), counts[::-1], strict=True)
    ]
    with decimal.localcontext(DECIMALS):
        need = decimal.Decimal(p) * sum(weight * count for weight, count in groups)
        size = 0
        for weight, count in groups:
            if need <= weight * count:
                return size + max(int((need / weight).to_integral_value(decimal.ROUND_CEILING)), 1)
            need -= weight * count
            size += count
    return size


def expected(row: np.ndarray, k: int | None, p: float | None) -> tuple[Kept, bool]:
    """What is kept of a row, and whether decimals had to decide it."""
    order = np.argsort(-row, kind="stable")[:k]
    distances = row[order].astype(np.float64) - float(row.max())
    weights = np.exp(distances)
    size, margin, close = len(order), math.inf, False
    if p is not None:
        size, margin = prefix_float(weights, p)
        close = margin < CLOSE
        if close:
            size = prefix_decimal(distances, p)
    logprobs = distances[:size] - math.log(math.fsum(weights[:size]))
    return Kept(order[:size], row[order[:size]], logprobs, margin), close


def filtered(qrita: list[str], path: Path, tensor: str, k: int | None, p: float | None) -> list[dict]:
    """The rows that the command prints."""
    command = [*qrita, "filter", str(path), "--tensor", tensor, "--format", "jsonl"]
    if k is not None:
        command += ["--top-k", str(k)]
    if p is not None:
        command += ["--top-p", str(np.float32(p))]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CheckError(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0:
        raise CheckError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def difference(found: dict, right: Kept) -> str | None:
    """The first difference between a printed row and what is right."""
    ids = found["ids"]
    if found["status"]:
        return f"status {found['status']}"
    if not found["kept"] == len(ids) == len(found["logits"]) == len(found["logprobs"]):
        return "kept, ids, logits and logprobs are not as many"
    if len(ids) != len(right.ids):
        return f"keeps {len(ids)} tokens and must keep {len(right.ids)}; the cut's margin is {right.margin:.1e}"
    wrong = np.flatnonzero(np.asarray(ids) != right.ids)
    if wrong.size:
        place = wrong[0]
        return f"token {place} is {ids[place]} and must be {right.ids[place]}"
    if not np.array_equal(np.asarray(found["logits"], dtype=np.float32), right.logits):
        return "logits are not those of the file"
    error = np.abs(np.asarray(found["logprobs"], dtype=np.float64) - right.logprobs).max()
    if not error <= LOGPROB_TOLERANCE:
        return f"a logprob is off by {error:.1e}"
    return None


def compare(printed: list[dict], right: list[Kept]) -> Report:
    """Compares what was printed for a tensor, row by row."""
    report = Report(rows=len(right))
    if [row["row"] for row in printed] != list(range(len(right))):
        report.differences.append(f"{len(printed)} rows were printed, not rows 0 to {len(right) - 1} in order")
        return report
    for index, (found, kept) in enumerate(zip(printed, right, strict=True)):
        report.kept.append(len(kept.ids))
        report.margin = min(report.margin, kept.margin)
        text = difference(found, kept)
        if text is None:
            report.equal += 1
        else:
            report.differences.append(f"row {index}: {text}")
    return report


def print_table(lines: list[list[str]]) -> None:
    """Prints lines in columns; the first is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def self_test(qrita: list[str]) -> None:
    """Checks the check: the two ways to a prefix agree, and every kind of fault is reported."""
    for equal, p, size in [(10, 0.5, 5), (10, TOP_P, 9), (8, 0.125, 1), (3, 0.0, 1), (4, 1.0, 4)]:
        if prefix_decimal(np.zeros(equal), p) != size:
            raise CheckError(f"self-test: {equal} equal logits and p = {p} do not keep {size}")
    tensor, rows = next(reversed(read_tensors(FIXTURE).items()))
    for row in rows:
        kept, close = expected(row, None, TOP_P)
        distances = np.sort(row.astype(np.float64))[::-1] - float(row.max())
        if close or prefix_decimal(distances, TOP_P) != len(kept.ids):
            raise CheckError("self-test: float64 and decimals do not agree on a cut that is not close")

    printed = filtered(qrita, FIXTURE, tensor, TOP_K, None)
    right = [expected(row, TOP_K, None)[0] for row in rows]
    clean = compare(printed, right)
    if clean.differences:
        raise CheckError(f"self-test: the rows differ before anything is changed: {clean.differences[0]}")
    faults = {
        "an id": lambda row: row["ids"].__setitem__(7, row["ids"][7] + 1),
        "the order": lambda row: row["ids"].reverse(),
        "the count": lambda row: [row[name].pop() for name in ("ids", "logits", "logprobs")] and row.update(kept=49),
        "a logit": lambda row: row["logits"].__setitem__(0, row["logits"][0] + 1),
        "a logprob": lambda row: row["logprobs"].__setitem__(0, row["logprobs"][0] + 1e-3),
        "the status": lambda row: row["status"].append("nan"),
    }
    for name, fault in faults.items():
        broken = json.loads(json.dumps(printed))
        fault(broken[1])
        report = compare(broken, right)
        if len(report.differences) != 1 or report.equal != len(rows) - 1:
            raise CheckError(f"self-test: a change of {name} goes unnoticed")
    print(f"self-test: {len(faults)} of {len(faults)} faults reported")


def default_files() -> list[Path]:
    """The fixture, and the larger files where they are at hand."""
    folder = Path(os.environ.get("QRITA_DATA", REPOSITORY.parent / "shared" / "data"))
    larger = sorted(folder.glob("*_wikitext2.safetensors"))
    if not larger:
        print("skipped: the larger files are not here (*_wikitext2.safetensors in the folder that QRITA_DATA names)")
    return [FIXTURE, *larger]


def check(qrita: list[str], files: list[Path]) -> bool:
    """Checks all files, prints the table, and says whether all rows are equal."""
    table = [["file", "tensor", "rows", "case", "equal rows", "mean kept", "max kept", "closest cut"]]
    differences, decided = [], 0
    for path in files:
        for tensor, rows in read_tensors(path).items():
            for case, (k, p) in CASES.items():
                answers = [expected(row, k, p) for row in rows]
                decided += sum(close for _, close in answers)
                report = compare(filtered(qrita, path, tensor, k, p), [kept for kept, _ in answers])
                differences += [f"{path.name} {tensor} {case}: {text}" for text in report.differences]
                mean = sum(report.kept) / max(len(report.kept), 1)
                margin = f"{report.margin:.1e}" if p is not None else "-"
                counts = [str(report.rows), case, str(report.equal), f"{mean:.1f}", str(max(report.kept, default=0))]
                table.append([path.name, tensor, *counts, margin])
    print_table(table)
    print(f"rows whose cut was decided with {DECIMALS.prec} digits: {decided}")
    for text in differences:
        print(f"DIFFERENT {text}")
    return not differences


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Checks kept sets against a stable sort and float64.")
    parser.add_argument("--qrita", type=Path, help="the command; without it target/release/qrita, else cargo run")
    parser.add_argument("--self-test", action="store_true", help="check first that faults are reported")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="safetensors files of bf16 rows")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    built = REPOSITORY / "target" / "release" / "qrita"
    if args.qrita:
        qrita = [str(args.qrita.resolve())]
    elif built.exists():
        qrita = [str(built)]
    else:
        qrita = ["cargo", "run", "--release", "--quiet", "-p", "qrita-cli", "--"]
    try:
        if args.self_test:
            self_test(qrita)
        files = [path.resolve() for path in args.files] or default_files()
        return 0 if check(qrita, files) else 1
    except (CheckError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
