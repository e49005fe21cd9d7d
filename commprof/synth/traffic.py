"""Who sends how much to whom in an all-to-all with unequal splits."""

from __future__ import annotations

import functools

import numpy as np

Matrix = tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=4096)
def traffic(seed: int, group: int, key: tuple[int, ...], members: int, total: int, imbalance_permille: int) -> Matrix:
    """Elements that member ``i`` sends to member ``j``, as ``matrix[i][j]``; every row adds up to ``total``.

    Some experts are more popular than others: member ``j`` gets a weight between 1 and
    ``1 + imbalance_permille / 1000``, the same for all senders of one call.
    """
    rng = np.random.default_rng([seed, group, *key, 77])
    weights = 1000 + rng.integers(0, imbalance_permille + 1, size=members)
    row = [int(total * int(w) // int(weights.sum())) for w in weights]
    row[int(weights.argmax())] += total - sum(row)
    return tuple(tuple(row) for _ in range(members))


def sent(matrix: Matrix, member: int, transposed: bool) -> list[int]:
    """Elements that ``member`` sends to each other member; ``transposed`` is the way back."""
    return [row[member] for row in matrix] if transposed else list(matrix[member])


def received(matrix: Matrix, member: int, transposed: bool) -> list[int]:
    """Elements that ``member`` receives from each other member."""
    return sent(matrix, member, not transposed)
