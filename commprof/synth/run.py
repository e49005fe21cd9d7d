"""From a scenario to a folder: one gzipped trace per rank and ``truth.json``."""

from __future__ import annotations

import io
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import BinaryIO

from isal import igzip

from commprof.errors import CommprofError, InputRefused
from commprof.synth.clock import clocks, observe
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.scenario import Scenario
from commprof.synth.timeline import Timeline
from commprof.synth.truth import TruthWriter, header
from commprof.synth.writer import TraceWriter

LEAN_RANKS = 64
"""Above this many ranks traces are lean, and the truth leaves out calls and causes unless asked for them."""


@dataclass(frozen=True, slots=True)
class Written:
    """What :func:`write_run` left behind."""

    folder: Path
    traces: list[Path]
    truth: Path
    bytes_written: int


def write_run(
    scenario: Scenario,
    folder: Path,
    *,
    seed: int = 0,
    causes: bool | None = None,
    calls: bool | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Simulate ``scenario`` and write ``rank<r>.json.gz`` for each rank and ``truth.json`` into ``folder``.

    The same scenario and seed give the same bytes. ``causes``: also run without each cause and state the step
    time; ``calls``: the truth of every call and not of the steps alone (both by default up to 64 ranks, beyond which
    ``truth.json`` would grow by 270 kB a rank). ``jobs`` processes write files; ``progress`` is told ranks done and
    all ranks.
    Raises ``UsageError`` for an impossible scenario, ``InputRefused`` when the folder cannot be used.
    """
    ranks = scenario.ranks
    plan = make_plan(scenario, seed)
    _make_folder(folder)
    timeline = simulate(plan)
    lean = ranks > LEAN_RANKS
    job = _Job(timeline, folder, lean=lean, calls=not lean if calls is None else calls)
    head = header(scenario, plan, seed, causes=not lean if causes is None else causes, timeline=timeline)
    size = 0

    def rows() -> Iterator[str]:
        nonlocal size
        for done, (row, written) in enumerate(_all_ranks(job, ranks, jobs), 1):
            size += written
            if progress is not None:
                progress(done, ranks)
            yield row

    truth = folder / "truth.json"
    try:
        with truth.open("w", encoding="utf-8") as out:
            job.truth.write(out, head, rows())
    except OSError as error:
        raise CommprofError(f"{folder}: {error.strerror or error}") from None
    return Written(folder, [folder / trace_name(r) for r in range(ranks)], truth, size)


def trace_name(rank: int) -> str:
    """File name of the trace of ``rank``."""
    return f"rank{rank}.json.gz"


class _Job:
    """What it takes to write one rank; handed to worker processes by forking, not by pickling."""

    def __init__(self, timeline: Timeline, folder: Path, *, lean: bool, calls: bool) -> None:
        self.timeline, self.folder, self.lean, self.calls = timeline, folder, lean, calls
        self.clocks = clocks(timeline.plan)
        self.truth = TruthWriter(timeline)

    def __call__(self, rank: int) -> tuple[str, int]:
        shown = observe(self.timeline.ranks[rank], self.clocks[rank])
        writer = TraceWriter(self.timeline.plan, rank, shown, lean=self.lean)
        path = self.folder / trace_name(rank)
        with path.open("wb") as raw, _gzip(raw) as out:
            for piece in writer.pieces():
                out.write(piece.encode())
        return self.truth.rank_row(rank, calls=self.calls), path.stat().st_size


@contextmanager
def _gzip(raw: BinaryIO) -> Iterator[io.BufferedIOBase]:
    # No file name and no time in the header: the same run gives the same bytes.
    with igzip.IGzipFile(filename="", fileobj=raw, mode="wb", compresslevel=1, mtime=0) as out:  # type: ignore[no-untyped-call]
        yield out


_current: _Job | None = None


def _work(rank: int) -> tuple[str, int]:
    assert _current is not None
    return _current(rank)


def _all_ranks(job: _Job, ranks: int, jobs: int) -> Iterator[tuple[str, int]]:
    """Rows of all ranks in order. This process writes every ``jobs``-th rank, forked ones the others."""
    global _current
    if jobs <= 1 or not hasattr(os, "fork"):
        yield from map(job, range(ranks))
        return
    _current = job
    try:
        with _forked(jobs - 1) as pool:
            others = pool.imap(_work, (rank for rank in range(ranks) if rank % jobs))
            for rank in range(ranks):
                yield next(others) if rank % jobs else job(rank)
    finally:
        _current = None


def _forked(jobs: int) -> Pool:
    """Worker processes that share the timeline with this one instead of receiving copies of it.

    Python warns of forking beside threads; the workers only format and compress, and take no lock of another thread.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return multiprocessing.get_context("fork").Pool(jobs)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputRefused(f"{folder}: not empty", hint="give a new folder")
    except OSError as error:
        raise InputRefused(f"{folder}: {error.strerror or error}") from None
