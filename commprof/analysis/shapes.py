"""The shape of a set of ranks: neighbours, every n-th rank, blocks; and whether sets of one shape tile the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Shape:
    """``kind`` is ``contiguous``, ``strided``, ``blocks`` or ``irregular``; ``stride`` is the distance of neighbouring
    ranks (of neighbouring blocks of ``block`` ranks)."""

    kind: str
    stride: int = 1
    block: int = 1


def shape_of(ranks: Sequence[int]) -> Shape:
    """Shape of a group of ranks, whatever the order they are listed in."""
    ordered = sorted(set(ranks))
    steps = [after - before for before, after in pairwise(ordered)]
    if not steps or set(steps) == {1}:
        return Shape("contiguous")
    if len(set(steps)) == 1:
        return Shape("strided", steps[0])
    block = next(index for index, step in enumerate(steps, start=1) if step != 1)
    starts = ordered[::block]
    whole = len(ordered) % block == 0 and ordered == [first + i for first in starts for i in range(block)]
    distances = {after - before for before, after in pairwise(starts)}
    if block > 1 and whole and len(distances) == 1:
        return Shape("blocks", distances.pop(), block)
    return Shape("irregular")


def shape_text(ranks: Sequence[int], tiles: int, world: int | None) -> str:
    """One sentence about the shape; ``tiles`` groups like it hold every rank of ``world`` once (0: they do not)."""
    shape, first, last = shape_of(ranks), min(ranks), max(ranks)
    if shape.kind == "contiguous":
        what = f"neighbouring ranks {first} to {last}"
    elif shape.kind == "strided":
        what = f"every {_ordinal(shape.stride)} rank from {first} to {last}"
    elif shape.kind == "blocks":
        what = f"blocks of {shape.block} ranks, {shape.stride} apart, from {first} to {last}"
    else:
        what = f"{len(ranks)} ranks in no regular order"
    if world is not None and len(ranks) == world:
        return f"all {world} ranks"
    return f"{what}; {tiles} such groups hold all {world} ranks" if tiles > 1 else what


def tiling(groups: Iterable[Sequence[int]], world: int | None) -> int:
    """How many distinct sets these are, if together they hold each rank of the job exactly once; else 0."""
    sets = {tuple(sorted(ranks)) for ranks in groups}
    members = [rank for ranks in sets for rank in ranks]
    return len(sets) if world and sorted(members) == list(range(world)) else 0


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
