"""What a look at every file of a run finds, before anything is judged: one broken file does not hide the others.

An analysis refuses a run as a whole; here each file stands for itself, and what is refused is listed with its reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from commprof.analysis.model import RankAnalysis
from commprof.analysis.rank import analyze_rank
from commprof.analysis.windows import step_marks
from commprof.errors import CannotAnswer, CommprofError, InputRefused, NotATrace
from commprof.manifest import SUFFIX, Manifest, read_manifest
from commprof.trace.discover import LEADS_NOWHERE, Candidate, find_candidates
from commprof.trace.metadata import rank_in_name
from commprof.trace.model import FileFacts, RankTrace
from commprof.trace.read import read_rank
from commprof.trace.recaptures import newest_captures

_ABSOLUTE_NS = 1_000_000_000_000_000_000
"""Later times are Unix times: this is September 2001, and no machine has been up for 32 years."""

_OPTIONS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_LAUNCH = re.compile(r"Launch|launch")

Progress = Callable[[int], None]


@dataclass(slots=True, eq=False)
class Examined:
    """One readable trace file.

    ``analysis`` is ``None`` where the file holds no device work. ``marks`` are the names of its step marks in order.
    ``other_events`` are in no table that figures are made from: Python frames, flows, marks of memory. ``options`` are
    those that the profiler says were on; older ones say nothing. ``absolute_clock``: times are Unix times.
    """

    facts: FileFacts
    analysis: RankAnalysis | None
    marks: tuple[str, ...]
    operators: int
    launches: int
    other_events: int
    options: frozenset[str]
    absolute_clock: bool
    world_size: int | None
    backend: str | None
    variables: dict[str, str]
    manifest: Manifest | None

    @property
    def rank(self) -> int:
        return self.facts.rank

    @property
    def span(self) -> tuple[int, int] | None:
        """First start and last end of device work, nanoseconds on the file's own absolute clock."""
        if self.analysis is None:
            return None
        wholes = [device.whole for device in self.analysis.devices]
        base = self.analysis.base_ns
        return base + min(whole.start for whole in wholes), base + max(whole.end for whole in wholes)


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that should be part of the run and cannot be used; ``unanswerable`` if it was read and holds nothing."""

    path: str
    reason: str
    hint: str | None
    unanswerable: bool = False


@dataclass(slots=True, eq=False)
class Examination:
    """All files of one run, in order of rank.

    ``without_trace`` are manifests of ranks whose trace is not there, each with the reason.
    """

    path: str
    files: list[Examined] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    without_trace: list[tuple[Manifest, str]] = field(default_factory=list)

    @property
    def analyses(self) -> list[RankAnalysis]:
        """The files that hold device work."""
        return [file.analysis for file in self.files if file.analysis is not None]

    @property
    def several_ranks(self) -> bool:
        """Whether ranks can be compared: more than one, each in one file."""
        return 1 < len(self.files) == len({file.rank for file in self.files})

    @property
    def world_size(self) -> int | None:
        """The largest world size that a file or manifest states."""
        stated = [file.world_size for file in self.files] + [manifest.world_size for manifest, _ in self.without_trace]
        return max((size for size in stated if size), default=None)

    @property
    def manifests(self) -> list[Manifest]:
        return [file.manifest for file in self.files if file.manifest is not None]

    def refusal(self) -> CommprofError | None:
        """The error of a run of which nothing could be read, ``None`` where something was."""
        if self.files:
            return None
        listed = [f"{broken.path}: {broken.reason}" for broken in self.broken] or [
            f"{path}: {reason}" for path, reason in self.passed_over
        ]
        more = f"; and {len(listed) - 3} more" if len(listed) > 3 else ""
        text = f"{self.path}: no trace could be read ({'; '.join(listed[:3])}{more})"
        if self.broken and all(broken.unanswerable for broken in self.broken):
            return CannotAnswer(text, hint="was the profiler active while the job ran?")
        return InputRefused(text, hint="give a Kineto JSON trace")


def examine(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    only: str | None = None,
    progress: Progress | None = None,
    on_total: Progress | None = None,
) -> Examination:
    """Read every trace of a run, one after the other; ``progress`` is told of each compressed byte read.

    Raises errors of :mod:`commprof.errors` for a path that is not there and for a single file that cannot be used.
    """
    given = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    found = Examination(", ".join(given))
    candidates = _candidates(given, only, found)
    if on_total is not None:
        on_total(sum(candidate.size for candidate in candidates))
    for candidate in candidates:
        try:
            found.files.append(_examine_file(candidate, progress))
        except CommprofError as error:
            if len(candidates) == 1:
                raise
            _refused(candidate, error, found)
    found.files.sort(key=lambda file: (file.rank, file.facts.path))
    return found


def _examine_file(candidate: Candidate, progress: Progress | None) -> Examined:
    rank = read_rank(candidate.path, manifest=candidate.manifest, progress=progress)
    marks = step_marks(rank)
    try:
        analysis = analyze_rank(rank, with_timeline=False)
    except CannotAnswer:
        analysis = None
    rank.file.path = candidate.display
    launch_names = [code for code, name in enumerate(rank.names) if _LAUNCH.search(name)]
    tables = len(rank.operators) + len(rank.runtime) + len(rank.annotations) + len(rank.device)
    return Examined(
        facts=rank.file,
        analysis=analysis,
        marks=tuple(marks.names),
        operators=len(rank.operators),
        launches=sum(int((rank.runtime.name == code).sum()) for code in launch_names),
        other_events=max(0, rank.file.events - tables - left_out(rank.file) - rank.file.events_ignored),
        options=frozenset(option for option in _OPTIONS if rank.metadata.get(option) == 1),
        absolute_clock=rank.base_ns + _first_start(rank) > _ABSOLUTE_NS,
        world_size=rank.world_size,
        backend=rank.backend,
        variables=_variables(rank, candidate.manifest),
        manifest=candidate.manifest,
    )


def left_out(facts: FileFacts) -> int:
    """Events that were read and could not be used; unreadable metadata is no event."""
    return facts.skipped.total() - facts.skipped["bad_metadata"]


def _first_start(rank: RankTrace) -> int:
    starts = [table.start for table in (rank.device, rank.operators, rank.annotations, rank.runtime) if len(table)]
    return min((int(start.min()) for start in starts), default=0)


def _variables(rank: RankTrace, manifest: Manifest | None) -> dict[str, str]:
    """Environment variables: those of the manifest, and those that a job wrote into the metadata of its trace."""
    written = {
        key: str(value)
        for key, value in rank.metadata.items()
        if isinstance(value, (str, int)) and re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", key)
    }
    return written | (manifest.environment if manifest is not None else {})


def _refused(candidate: Candidate, error: CommprofError, found: Examination) -> None:
    reason = error.message.removeprefix(f"{candidate.path}: ")
    if isinstance(error, NotATrace) and not candidate.named and not _meant_as_trace(candidate):
        found.passed_over.append((candidate.display, reason))
    else:
        found.broken.append(Broken(candidate.display, reason, error.hint, isinstance(error, CannotAnswer)))


def _meant_as_trace(candidate: Candidate) -> bool:
    """Whether the name says that this should be the trace of a rank; a folder may hold other things too."""
    return candidate.manifest is not None or _named_as_trace(candidate.path)


def _named_as_trace(path: str) -> bool:
    name = os.path.basename(path)
    return rank_in_name(name) is not None or ".trace." in name


def _candidates(given: list[str], only: str | None, found: Examination) -> list[Candidate]:
    """As for an analysis, but a broken manifest is listed and its trace read without it."""
    manifests = _manifests(given, found)
    broken = list(found.broken)
    try:
        dangling: list[str] = []
        newest = newest_captures(find_candidates(given, only, dangling))
    except InputRefused:
        if not broken:
            raise
    else:
        found.passed_over += [(it.display, "an older capture in the same folder") for it in newest.older]
        for path in dangling:
            if _named_as_trace(path):
                found.broken.append(Broken(path, LEADS_NOWHERE, "copy the file that it stands for"))
            else:
                found.passed_over.append((path, LEADS_NOWHERE))
        return newest.kept
    files = [file for path in given for file in _local_files(path)]
    return [
        Candidate(str(file), os.path.relpath(file, root), named, manifests.get(file), file.stat().st_size)
        for file, root, named in files
        if only is None or file.match(only)
    ]


def _manifests(given: list[str], found: Examination) -> dict[Path, Manifest]:
    """Manifests by the trace that they belong to; broken ones and those without a trace go into ``found``."""
    by_trace: dict[Path, Manifest] = {}
    for path, root in _manifest_files(given):
        try:
            manifest = read_manifest(path)
        except InputRefused as error:
            shown = os.path.relpath(path, root)
            found.broken.append(Broken(shown, error.message.removeprefix(f"{path}: "), error.hint))
            continue
        trace = None if manifest.trace is None else path.parent / manifest.trace
        if trace is not None and trace.is_file():
            by_trace[trace] = manifest
        else:
            reason = manifest.reason or "no reason given" if trace is None else f"{trace.name} is not there"
            found.without_trace.append((manifest, reason))
    return by_trace


def _manifest_files(given: list[str]) -> list[tuple[Path, Path]]:
    """Every manifest below the folders given and beside the files given, with what its name is shown relative to."""
    found: dict[Path, Path] = {}
    for path in (Path(path) for path in given if "://" not in path):
        if path.is_dir():
            found |= dict.fromkeys(sorted(path.rglob(f"rank-*{SUFFIX}")), path)
        elif path.is_file():
            found |= dict.fromkeys(sorted(path.parent.glob(f"rank-*{SUFFIX}")), path.parent)
    return list(found.items())


def _local_files(path: str) -> list[tuple[Path, str, bool]]:
    """The files below a folder, or the file itself: path, what its name is shown relative to, whether it was named."""
    if os.path.isfile(path):
        return [(Path(path), os.path.dirname(path) or ".", True)]
    return [
        (file, path, False)
        for file in sorted(Path(path).rglob("*"))
        if file.is_file() and not file.name.endswith(SUFFIX) and not file.name.startswith(".")
    ]
