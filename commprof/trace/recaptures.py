"""Several captures of ``commprof.Capture`` in one folder: the newest is meant, and the others are named.

Whoever records again into a folder wants to see what was recorded last. Files of other profilers do not say when they
were recorded and are never chosen from.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from commprof.manifest import Manifest
from commprof.trace.discover import Candidate

_NUMBERED = re.compile(r"rank-\d+\.(\d+)\.pt\.trace\.")


@dataclass(frozen=True, slots=True)
class Recaptures:
    """``kept`` are the candidates of the newest capture of each folder and all that belong to no capture, ``older``
    the others."""

    kept: list[Candidate]
    older: list[Candidate]

    def told(self) -> str | None:
        """One line on which capture was taken, and how to get the others; ``None`` where there was nothing to choose.

        A pattern that fits only the first capture cannot be told from names of the later ones but by their length.
        """
        if not self.older:
            return None
        numbers = sorted({_number(candidate) for candidate in self.older} - {_number(it) for it in self.kept})
        others = " or ".join(f"--only '{_pattern(number)}'" for number in numbers[-3:])
        how = f"; {others} takes {'the other' if len(numbers) == 1 else 'another'}" if others else ""
        files = f"{len(self.older)} file{'' if len(self.older) == 1 else 's'}"
        return f"the folder holds several captures, and the newest is taken; {files} of older ones left out{how}"


def newest_captures(candidates: Sequence[Candidate]) -> Recaptures:
    """Of every folder that holds several captures of one rank, the newest: the last trace of each rank, without ranks
    that were not part of that run."""
    folders: dict[str, dict[int, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
    for candidate in candidates:
        if candidate.manifest is not None and not candidate.named:
            folders[os.path.dirname(candidate.path)][candidate.manifest.rank].append(candidate)
    older: set[str] = set()
    for ranks in folders.values():
        if any(len(found) > 1 for found in ranks.values()):
            older |= _older(ranks)
    kept = [candidate for candidate in candidates if candidate.path not in older]
    return Recaptures(kept, [candidate for candidate in candidates if candidate.path in older])


def _older(ranks: dict[int, list[Candidate]]) -> set[str]:
    """Paths of what is not of the newest run in a folder."""
    last = {rank: max(found, key=_recorded) for rank, found in ranks.items()}
    newest = max(last.values(), key=_recorded)
    kept = {candidate.path for candidate in last.values() if _one_run(candidate, newest)}
    return {candidate.path for found in ranks.values() for candidate in found if candidate.path not in kept}


def _one_run(one: Candidate, newest: Candidate) -> bool:
    """Whether two captures are of one run: as many ranks, and as often recorded, or at the same time."""
    mine, other = _manifest(one), _manifest(newest)
    if mine.world_size != other.world_size:
        return False
    first, last = _span(mine), _span(other)
    return _number(one) == _number(newest) or (first[0] <= last[1] and last[0] <= first[1])


def _recorded(candidate: Candidate) -> tuple[int, int]:
    return _manifest(candidate).clock.start_ns or 0, _number(candidate)


def _span(manifest: Manifest) -> tuple[int, int]:
    start = manifest.clock.start_ns or 0
    return start, manifest.clock.stop_ns or start


def _manifest(candidate: Candidate) -> Manifest:
    assert candidate.manifest is not None
    return candidate.manifest


def _number(candidate: Candidate) -> int:
    """Which capture of its folder a trace is of, by its name: the first has no number there."""
    found = _NUMBERED.match(os.path.basename(candidate.path))
    return int(found[1]) if found else 1


def _pattern(number: int) -> str:
    return "rank-?????.pt.trace.*" if number == 1 else f"rank-?????.{number}.*"
