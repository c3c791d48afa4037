#!/usr/bin/env python3
"""Filters, masks and samples rows in host memory by ctypes, and checks the answers. Needs Python alone.

Usage: crates/capi/examples/sample.py LIBRARY [BACKEND], where LIBRARY is target/release/libqrita_capi.so and BACKEND cpu.

Exit code: 0 if all answers are right, 1 if not.
"""

import math
import sys
from array import array

import qrita


def address(memory: array) -> int:
    return memory.buffer_info()[0]


def main() -> int:
    library = qrita.Library(sys.argv[1])
    sampler = library.sampler(sys.argv[2] if len(sys.argv) > 2 else "cpu", threads=1)
    print(library.description(sampler))
    wrong = []

    def check(is_right: bool, what: str) -> None:
        if not is_right:
            wrong.append(what)

    rows, vocab = 3, 1000
    # Peaks at 17, 500 and 999 on a slope; each row's first five are its peak and what lies around it.
    peaks = [17, 500, 999]
    data = array("f", (-abs(token - peak) / 8 for peak in peaks for token in range(vocab)))
    logits = qrita.Logits(address(data), qrita.F32, rows, vocab, vocab)

    capacity = 5
    kept, status = array("I", [7] * rows), array("I", [7] * rows)
    ids = array("I", [0] * rows * capacity)
    floats = [array("f", [0] * rows * capacity) for _ in range(2)]
    outputs = library.outputs(
        kept=address(kept),
        status=address(status),
        capacity=capacity,
        candidate_ids=address(ids),
        candidate_logits=address(floats[0]),
        candidate_logprobs=address(floats[1]),
    )
    library.run(sampler, logits, library.params(top_k=capacity), outputs)
    for row, peak in enumerate(peaks):
        # By logit, ties by id: a stable sort.
        right = sorted(range(vocab), key=lambda token: -data[row * vocab + token])[:capacity]
        check(list(ids[row * capacity :][:capacity]) == right, f"candidates of row {row}")
        mass = sum(math.exp(data[row * vocab + token]) for token in right)
        logprob = data[row * vocab + peak] - math.log(mass)
        check(abs(floats[1][row * capacity] - logprob) < 1e-6, f"log-probability of row {row}")
    check(list(kept) == [capacity] * rows and list(status) == [0] * rows, "kept and status")

    # The draws of a row: those of its seed and position, wherever it lies.
    draws = 200
    tokens = array("I", [0] * rows * draws)
    seeds, positions = array("Q", [5, 6, 7]), array("Q", [0, 9, 0])
    params = library.params(top_p=0.9, draws=draws, seeds=address(seeds), positions=address(positions))
    library.run(sampler, logits, params, library.outputs(token=address(tokens)))
    alone = array("I", [0] * draws)
    one = qrita.Logits(address(data) + 4 * vocab, qrita.F32, 1, vocab, vocab)
    library.run(sampler, one, library.params(top_p=0.9, draws=draws, seed=6, position=9), library.outputs(token=address(alone)))
    check(alone == tokens[draws : 2 * draws], "a row alone draws as in the batch")
    check(len(set(alone)) > 5 and all(abs(token - 500) < 40 for token in alone), "tokens around the peak")

    try:
        library.run(sampler, logits, library.params(top_p=float("nan")), library.outputs())
        check(False, "NaN must be refused")
    except qrita.QritaError as error:
        check(error.code == "PARAM" and "top_p is NaN" in str(error), f"a message that names the parameter: {error}")

    before = array("f", data)
    library.run(sampler, logits, library.params(top_k=1), library.outputs(mask=1))
    left = [token for token in range(rows * vocab) if data[token] != -math.inf]
    check(left == [row * vocab + peak for row, peak in enumerate(peaks)], "the mask leaves the peaks")
    check(all(data[token] == before[token] for token in left), "and does not change them")

    library.destroy(sampler)
    for what in wrong:
        print(f"wrong: {what}")
    if not wrong:
        print("all answers are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
