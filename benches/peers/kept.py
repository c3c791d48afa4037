"""The kept set by a stable sort and float64, and which masked rows differ from it.

Nothing is shared with what is measured: numpy alone.
"""

from dataclasses import dataclass

import numpy as np

# A float64 sum of 2^18 weights is far better than this; a row whose cut lies closer may fall on either side.
CLOSE = 1e-9


@dataclass
class Reference:
    """The order of a row, and how many of it are kept: `few` and `many` differ where float64 can not decide."""

    order: np.ndarray
    few: int
    many: int

    def kept_is(self, kept: np.ndarray) -> bool:
        """Whether a boolean per token is the kept set."""
        count = int(kept.sum())
        return self.few <= count <= self.many and bool(kept[self.order[:count]].all())


def reference(row: np.ndarray, k: int | None, p: float | None) -> Reference:
    """Top-k, then top-p over what it left, ties by ascending id. The row is finite; `p` is taken as an f32."""
    values = row.astype(np.float64)
    order = np.argsort(-values, kind="stable")
    if k is not None:
        order = order[:k]
    if p is None:
        return Reference(order, len(order), len(order))
    weights = np.exp(values[order] - values[order[0]])
    sums = np.cumsum(weights)
    need = float(np.float32(p)) * sums[-1]

    def prefix(need: float) -> int:
        return min(int(np.searchsorted(sums, need, side="left")) + 1, len(order))

    margin = CLOSE * sums[-1]
    return Reference(order, prefix(need - margin), prefix(need + margin))


def references(rows: np.ndarray, k: int | None, p: float | None) -> list[Reference]:
    """Those of all rows."""
    return [reference(row, k, p) for row in rows]


def differing(masked: np.ndarray, expected: list[Reference]) -> int:
    """In how many masked rows what is not minus infinity is another set than expected."""
    return sum(not wanted.kept_is(row > -np.inf) for row, wanted in zip(masked, expected, strict=True))


def self_test() -> int:
    """Checks this module against a literal computation and against planted faults; returns the number of checks."""
    checks = 0

    def check(condition: bool, what: str) -> None:
        nonlocal checks
        checks += 1
        if not condition:
            raise AssertionError(what)

    def literal(row: np.ndarray, k: int | None, p: float | None) -> set[int]:
        order = sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:k]
        if p is None:
            return set(order)
        weights = [float(np.exp(np.float64(row[token]) - np.float64(row[order[0]]))) for token in order]
        need, sum_, kept = float(np.float32(p)) * sum(weights), 0.0, set()
        for token, weight in zip(order, weights):
            kept.add(token)
            sum_ += weight
            if sum_ >= need:
                break
        return kept

    def masked(row: np.ndarray, kept: set[int]) -> np.ndarray:
        result = np.full_like(row, -np.inf)
        result[list(kept)] = row[list(kept)]
        return result

    random = np.random.default_rng(7)
    rows = np.concatenate(
        [
            random.normal(0, 3, (6, 500)),
            random.normal(0, 0.01, (6, 500)),
            np.round(random.normal(0, 2, (6, 500))),
            np.full((1, 500), 1.5),
        ]
    ).astype(np.float32)
    for k, p in [(50, None), (50, 0.9), (None, 0.9), (1, None), (500, None), (None, 0.001)]:
        expected = references(rows, k, p)
        right = [literal(row, k, p) for row in rows]
        check(differing(np.stack([masked(*pair) for pair in zip(rows, right)]), expected) == 0, f"k={k}, p={p}")
        for row, kept, wanted in zip(rows, right, expected):
            last = max(kept, key=lambda token: (-float(row[token]), token))
            check(not wanted.kept_is(masked(row, kept - {last}) > -np.inf), "one token less must differ")
            if len(kept) < len(row):
                outside = min(set(range(len(row))) - kept, key=lambda token: (-float(row[token]), token))
                check(not wanted.kept_is(masked(row, kept | {outside}) > -np.inf), "one token more must differ")
                swapped = masked(row, kept - {last} | {outside}) > -np.inf
                check(not wanted.kept_is(swapped), "another token in the last one's place must differ")
    # The smallest tie: the lowest ids are kept, whoever else is as large.
    tie = np.float32([1, 4, 2, 4, 4])
    check(differing(np.float32([[-np.inf, 4, -np.inf, 4, -np.inf]]), references(tie[None], 2, None)) == 0, "lowest ids")
    check(differing(np.float32([[-np.inf, 4, -np.inf, -np.inf, 4]]), references(tie[None], 2, None)) == 1, "not id 4")
    # Half of two equal weights is met by the first one exactly: float64 may not decide, and neither is called wrong.
    edge = reference(np.float32([0, 0]), None, 0.5)
    check((edge.few, edge.many) == (1, 2), "a cut at the end of an interval")
    return checks
