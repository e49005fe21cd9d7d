"""From paths to an :class:`Analysis`: every rank is read and reduced on its own, several at once if that pays."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from commprof.analysis.across import AnalysisOptions, across
from commprof.analysis.combine import combine
from commprof.analysis.model import Analysis, Note, RankAnalysis
from commprof.analysis.needs import NEEDED
from commprof.analysis.rank import analyze_rank
from commprof.analysis.selection import StepSelection, parse_steps
from commprof.errors import CannotAnswer, CommprofError, InputRefused, NotATrace, WorkerDied
from commprof.manifest import Manifest
from commprof.trace.classify import compile_patterns
from commprof.trace.discover import LEADS_NOWHERE, Candidate, find_candidates, manifests_without_trace
from commprof.trace.read import read_rank
from commprof.trace.recaptures import newest_captures
from commprof.trace.workers import open_pool
from commprof.units import format_ns

_POOL_PAYS_BYTES = 24 << 20
_TIMELINES = 8
_LATE_DRAWN = 2

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does: read one file and reduce it."""

    candidate: Candidate
    patterns: tuple[str, ...]
    steps: StepSelection | None
    with_timeline: bool
    tolerant: bool = False
    helpers: bool = False


def analyze(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    comm_patterns: Sequence[str] = (),
    steps: str | None = None,
    only: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    on_total: Progress | None = None,
    tolerant: bool = False,
    hosts: str | None = None,
    hardware: str | None = None,
    scheduler: str | None = None,
) -> Analysis:
    """Read and measure one trace file, a capture folder, a glob, a URL, or several of them.

    ``jobs`` is the number of worker processes (default: as many as cores, if the files are large enough to pay for
    them); the result does not depend on it. ``progress`` is told of every compressed byte read, ``on_total`` of how
    many there are. ``hosts`` is a file with the host of every rank (:mod:`commprof.analysis.hosts`), ``hardware`` a
    machine by name, a file that describes it, or a rate in GB/s (:mod:`commprof.analysis.hardware`). ``scheduler`` is
    the address of a Dask scheduler whose workers read the ranks (:mod:`commprof.analysis.cluster`). Raises errors of
    :mod:`commprof.errors`.
    """
    given = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    compile_patterns(comm_patterns)
    options = AnalysisOptions(hosts, hardware)
    options.check()
    selection = None if steps is None else parse_steps(steps)
    dangling: list[str] = []
    found = newest_captures(find_candidates(given, only, dangling))
    candidates = found.kept
    if on_total is not None:
        on_total(sum(candidate.size for candidate in candidates))
    # Timelines are kept of the first ranks only: a screen shows no more, and they are the largest part of a result.
    # Late ranks further behind are read once more for theirs.
    first = sorted(candidates, key=lambda candidate: _natural(candidate.path))[:_TIMELINES]
    work = [
        Job(
            candidate,
            tuple(comm_patterns),
            selection,
            candidate in first,
            tolerant,
            helpers=len(candidates) == 1 and jobs != 1 and scheduler is None,
        )
        for candidate in candidates
    ]
    ranks: list[RankAnalysis] = []
    ignored: list[tuple[str, str]] = []
    errors: list[CommprofError] = []
    manifests = []
    for job, outcome in zip(work, _outcomes(work, jobs, progress, scheduler), strict=True):
        if isinstance(outcome, RankAnalysis):
            outcome.file.path = job.candidate.display
            ranks.append(outcome)
            if job.candidate.manifest is not None:
                manifests.append(job.candidate.manifest)
        elif _may_ignore(outcome, job, len(work)):
            errors.append(outcome)
            ignored.append((job.candidate.display, _reason(outcome, job)))
        else:
            raise outcome
    if not ranks and (answers := [error for error in errors if isinstance(error, CannotAnswer)]):
        # What a trace lacks is the news, not that a file beside it is none.
        raise answers[0]
    if not ranks:
        listed = "; ".join(f"{path}: {reason}" for path, reason in ignored[:3])
        raise InputRefused(f"{', '.join(given)}: no trace found ({listed})", hint="give a Kineto JSON trace")
    ignored += [(candidate.display, "an older capture in the same folder") for candidate in found.older]
    ignored += [(path, LEADS_NOWHERE) for path in dangling]
    analysis = combine(given[0] if len(given) == 1 else ", ".join(given), ranks, ignored, manifests, comm_patterns)
    if dangling:
        listed = ", ".join(dangling[:3]) + (", ..." if len(dangling) > 3 else "")
        what = "link leads nowhere and was" if len(dangling) == 1 else "links lead nowhere and were"
        analysis.warnings.append(f"{len(dangling):,} {what} left out: {listed}")
    if (told := found.told()) is not None:
        analysis.warnings.insert(0, told)
        analysis.notes.insert(0, Note("older-captures", f"{told[:1].upper()}{told[1:]}."))
    across(analysis, options)
    _add_timelines(analysis, work)
    recorded = {manifest.rank for manifest in manifests}
    for manifest in manifests_without_trace(candidates):
        if manifest.rank in recorded:  # an earlier or later try of the same rank
            continue
        reason = manifest.reason or "no reason given"
        analysis.notes.append(Note("capture-incomplete", f"rank {manifest.rank}: its capture wrote no trace: {reason}"))
    analysis.notes += [
        Note("capture-incomplete", f"rank {manifest.rank}: its capture ended early: {manifest.reason or 'unknown why'}")
        for manifest in manifests
        if manifest.partial
    ]
    analysis.notes += _slow_steps(manifests)
    return analysis


def _natural(path: str) -> list[tuple[int, str]]:
    """Order of paths in which ``rank2`` comes before ``rank10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path)]


def _add_timelines(analysis: Analysis, work: Sequence[Job]) -> None:
    """Timelines of the late ranks that have none yet: few files are read again, and only of large runs."""
    jobs = {job.candidate.display: job for job in work}
    late = {row.rank for row in analysis.stragglers[:_LATE_DRAWN] if row.rank is not None}
    for rank in analysis.ranks:
        if rank.rank in late and not rank.timeline:
            again = _run(replace(jobs[rank.file.path], with_timeline=True))
            if isinstance(again, RankAnalysis):
                rank.timeline = again.timeline


def _slow_steps(manifests: Sequence[Manifest]) -> list[Note]:
    """Steps that took much longer than those before them, and where the step after each was recorded."""
    found = {slow.step: slow for manifest in manifests for slow in manifest.slow_steps}
    recorded = {slow.step: slow.folder for manifest in manifests for slow in manifest.slow_steps if slow.folder}
    notes = [
        Note(
            "slow-step",
            f"Step {step} took {format_ns(found[step].duration_ns)}, the median before it was "
            f"{format_ns(found[step].median_ns)}; the step after it is recorded in {folder}.",
        )
        for step, folder in sorted(recorded.items())
    ]
    others = sorted(set(found) - set(recorded))
    if others:
        listed = ", ".join(map(str, others[:10])) + (", ..." if len(others) > 10 else "")
        notes.append(Note("slow-step", f"Slow steps that no recording follows: {listed}."))
    return notes


def _may_ignore(error: CommprofError, job: Job, files: int) -> bool:
    """A folder may hold other things beside traces; a file that was named may not be one of them."""
    if job.candidate.named or files == 1:
        return False
    return isinstance(error, (NotATrace, CannotAnswer))


def _reason(error: CommprofError, job: Job) -> str:
    return error.message.removeprefix(f"{job.candidate.path}: ")


def _outcomes(
    work: list[Job], jobs: int | None, progress: Progress | None, scheduler: str | None
) -> Iterator[RankAnalysis | CommprofError]:
    if scheduler is not None:
        from commprof.analysis.cluster import on_cluster

        for job, outcome in zip(work, on_cluster(_run, work, scheduler), strict=True):
            if progress is not None:
                progress(job.candidate.size)
            yield outcome
        return
    size = sum(job.candidate.size for job in work)
    workers = min(jobs or os.cpu_count() or 1, len(work))
    if workers < 2 or (jobs is None and size < _POOL_PAYS_BYTES):
        for job in work:
            yield _run(job, progress)
        return
    from concurrent.futures.process import BrokenProcessPool

    with open_pool(workers) as pool:
        try:
            for job, outcome in zip(work, pool.map(_run, work), strict=True):
                if progress is not None:
                    progress(job.candidate.size)
                yield outcome
        except BrokenProcessPool:
            raise WorkerDied(
                "a worker process ended before its rank was read", hint="out of memory? try --jobs 1"
            ) from None


def _run(job: Job, progress: Progress | None = None) -> RankAnalysis | CommprofError:
    manifest = job.candidate.manifest
    try:
        rank = read_rank(
            job.candidate.path,
            manifest=manifest,
            progress=progress,
            tolerant=job.tolerant,
            keep=NEEDED,
            helpers=job.helpers,
        )
        patterns = [re.compile(pattern) for pattern in job.patterns]
        return analyze_rank(
            rank,
            patterns,
            steps=job.steps,
            cut_step=manifest.cut_step if manifest else None,
            with_timeline=job.with_timeline,
            ddp=manifest.ddp if manifest else (),
            consume=True,
        )
    except CommprofError as error:
        return error
