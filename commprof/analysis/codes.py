"""Operations and phases by name in the columns that hold their codes."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from commprof.trace.operations import OPERATIONS


def codes(*names: str) -> list[int]:
    """Indices of operations as calls hold them."""
    return [OPERATIONS.index(name) for name in names]


def operation_is(column: NDArray[np.integer], *names: str) -> NDArray[np.bool_]:
    """Which rows are of these operations, shape of ``column``."""
    found: NDArray[np.bool_] = _chosen(names)[column]
    return found


@cache
def _chosen(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Of each operation whether it is one of these: looking up a row is much faster than searching a list for it."""
    return np.isin(np.arange(len(OPERATIONS)), codes(*names))
