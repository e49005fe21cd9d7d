"""Reads one damaged file both ways and says what is wrong with the outcome, if anything is."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import signal
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import msgspec
import numpy as np

import commprof.trace.document
import commprof.trace.read
import commprof.trace.source
from commprof.analysis.across import AnalysisOptions, across
from commprof.analysis.combine import combine
from commprof.analysis.rank import analyze_rank
from commprof.diagnosis.diagnose import diagnose
from commprof.errors import CommprofError
from commprof.report.view import build_report
from commprof.report.write import json_text
from commprof.trace.model import RankTrace
from commprof.trace.read import read_rank
from tests.builders.command import strict_json
from tests.builders.team import InlineTeam
from tests.oracle.identities import check_identities

TIME_LIMIT_S = 10.0
CALL_KEYS = ("step", "op", "size_bytes", "start_ns", "duration_ns", "exposed_ns", "stream", "device")


class Hang(BaseException):
    """The reader took longer than :data:`TIME_LIMIT_S`; no ``except Exception`` may swallow it."""


@dataclass(frozen=True)
class Outcome:
    """What one way through a file gave: an error, or the content of the columns and the trace itself."""

    error: str | None = None
    content: tuple[Any, ...] = ()
    trace: RankTrace | None = None


@dataclass(frozen=True)
class Numbers:
    """What a report says, as far as damage may not change it in silence."""

    ranks: Any
    calls: Any


@dataclass(frozen=True)
class Verdict:
    """``kind`` is how the input ended; ``fault`` is what is wrong with that, ``None`` if nothing."""

    kind: str
    fault: str | None = None


@contextlib.contextmanager
def time_limit(seconds: float = TIME_LIMIT_S) -> Iterator[None]:
    """Raise :class:`Hang` in the block after so many seconds of processor time."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def small_blocks(size: int, walk: int) -> Iterator[None]:
    """Blocks of ``size`` bytes, batches of a third, walks of ``walk``: every border of the framing in a small file."""
    with (
        mock.patch.object(commprof.trace.source, "BLOCK_BYTES", size),
        mock.patch.object(commprof.trace.source, "_READ_BYTES", size),
        mock.patch.object(commprof.trace.document, "_WALK_BYTES", walk),
        mock.patch.object(commprof.trace.document, "BATCH_BYTES", max(size // 3, 1)),
    ):
        yield


@contextlib.contextmanager
def inline_helpers(count: int = 2) -> Iterator[None]:
    """Any file is read with the help of ``count`` other processes, which are this one."""
    with (
        mock.patch.object(commprof.trace.read, "team_for", InlineTeam),
        mock.patch.object(commprof.trace.read, "workers_for", return_value=count),
    ):
        yield


class Checker:
    """Judges damaged copies of one clean file."""

    def __init__(self, clean: bytes, folder: Path, *, with_timeline: bool = True) -> None:
        self.with_timeline = with_timeline
        self.path = folder / "rank0.json"
        self.clean = clean
        self.document = _document(clean)
        self._numbers: dict[tuple[Any, ...], Numbers | str] = {}
        outcome = self.read(clean)
        assert outcome.trace is not None, outcome.error
        self.numbers = self._measure(outcome)
        assert not any(_counts(outcome.trace)), "the clean file is not clean"

    def read(self, data: bytes | None = None, *, tolerant: bool = False, helpers: bool = False) -> Outcome:
        """Write ``data`` (else the file stays as it is) and read it one way."""
        if data is not None:
            self.path.write_bytes(data)
        try:
            trace = read_rank(str(self.path), tolerant=tolerant, helpers=helpers)
        except CommprofError as error:
            return Outcome(error=f"{type(error).__name__}: {error}")
        return Outcome(content=content_of(trace), trace=trace)

    def check(self, data: bytes, *, block: int = 0, walk: int = 0) -> Verdict:
        """Every promise of the reader about this input; ``block`` and ``walk`` add a reading in small blocks."""
        stage = "fast"
        try:
            with warnings.catch_warnings(), time_limit():
                warnings.simplefilter("error")
                fast = self.read(data)
                stage = "tolerant"
                tolerant = self.read(tolerant=True)
                stage = "small blocks"
                other = fast
                if block and unpacked(data) is data:
                    with small_blocks(block, walk):
                        other = self.read(tolerant=bool(block % 2))
                stage = "analysis"
                numbers = self._measure(fast) if fast.trace is not None else None
        except Hang:
            return Verdict("fault", f"{stage}: hangs")
        except Exception as error:
            return Verdict("fault", f"{stage}: {type(error).__name__}: {str(error)[:200]}")
        if fast.error != tolerant.error or fast.content != tolerant.content:
            return Verdict("fault", f"tolerant differs: {difference(fast, tolerant)}")
        if fast.error != other.error or fast.content != other.content:
            return Verdict("fault", f"blocks of {block} differ: {difference(fast, other)}")
        return self._judge(data, fast, numbers)

    def _judge(self, data: bytes, fast: Outcome, numbers: Numbers | str | None) -> Verdict:
        if fast.trace is None or isinstance(numbers, str):
            return Verdict(f"refused: {(fast.error or str(numbers)).split(':')[0]}")
        counted = any(_counts(fast.trace))
        if numbers == self.numbers:
            return Verdict("same numbers, counted" if counted else "same numbers")
        if counted:
            return Verdict("other numbers, counted")
        document = _document(unpacked(data), lenient=True)
        if document is None:
            return Verdict("fault", f"other numbers, nothing counted: {_first_difference(self.numbers, numbers)}")
        if document == self.document:
            return Verdict("fault", "the same document, other numbers")
        return Verdict("another valid trace")

    def _measure(self, outcome: Outcome) -> Numbers | str:
        """The numbers of a report, or the error that stands for them; the JSON is strict and keeps the identities."""
        # What else the file says of itself, and the counts, alter no number.
        facts = [outcome.content[_LABELS.index(part) - len(_LABELS)] for part in _MEASURED]
        key = (*outcome.content[: -len(_LABELS)], *facts)
        if key not in self._numbers:
            assert outcome.trace is not None
            if len(self._numbers) > 2000:
                self._numbers.clear()
            self._numbers[key] = report_numbers(str(self.path), outcome.trace, self.with_timeline)
        return self._numbers[key]


def report_numbers(path: str, trace: RankTrace, with_timeline: bool = True) -> Numbers | str:
    """Analyse, judge, write and parse again."""
    try:
        rank = analyze_rank(trace, with_timeline=with_timeline)
        analysis = combine(path, [rank], [])
        across(analysis, AnalysisOptions())
        text = json_text(build_report(analysis, diagnose(analysis)))
    except CommprofError as error:
        return f"{type(error).__name__}: {error}"
    report = strict_json(text)
    check_identities(report)
    ranks = [{key: row[key] for key in row if key != "rank"} for row in report["ranks"]]
    return Numbers(ranks, [[call[key] for key in CALL_KEYS] for call in report["collectives"]])


def content_of(trace: RankTrace) -> tuple[Any, ...]:
    """Everything that reading gave, in a form that compares; the order in which names were met is left out."""
    names = np.array([*trace.names, ""], object)
    parts: list[Any] = []
    for table in (trace.device, trace.runtime, trace.operators, trace.annotations):
        parts += [getattr(table, field).tobytes() for field in sorted(set(table.__slots__) - {"args", "name"})]
        parts.append(tuple(names[table.name].tolist()))
        parts.append(tuple((row, _plain(args)) for row, args in sorted(getattr(table, "args", {}).items())))
    facts = trace.file
    parts += [
        facts.events, facts.events_ignored, facts.truncated, facts.rank, facts.rank_source, facts.host,
        tuple(sorted((+facts.repaired).items())), tuple(sorted((+facts.skipped).items())), trace.base_ns,
        repr(trace.metadata),
        trace.world_size, trace.backend, repr(trace.groups), trace.device_names, trace.sm_counts, tuple(trace.warnings),
    ]  # fmt: skip
    return tuple(parts)


def _plain(args: Any) -> str:
    values = msgspec.structs.astuple(args)
    return repr([bytes(value) if isinstance(value, msgspec.Raw) else value for value in values])


_MEASURED = ("base", "world", "groups", "sms")
_LABELS = [
    "events",
    "ignored",
    "truncated",
    "rank",
    "source",
    "host",
    "repaired",
    "skipped",
    "base",
    "metadata",
    "world",
    "backend",
    "groups",
    "devices",
    "sms",
    "warnings",
]


def difference(one: Outcome, other: Outcome) -> str:
    """Where two outcomes part, in a few words."""
    if one.error != other.error:
        return f"{one.error or 'a trace'} | {other.error or 'a trace'}"
    for place, (left, right) in enumerate(zip(one.content, other.content, strict=True)):
        if left != right:
            label = place - len(one.content) + len(_LABELS)
            return f"{_LABELS[label] if label >= 0 else f'column {place}'}: {str(left)[:120]} | {str(right)[:120]}"
    return "nothing"


def _first_difference(one: Any, other: Any) -> str:
    if isinstance(other, Numbers):
        pairs = [(one.ranks, other.ranks), (one.calls, other.calls)]
        left, right = next(pair for pair in pairs if pair[0] != pair[1])
        a, b = json.dumps(left), json.dumps(right)
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
        return f"{a[max(0, at - 60) : at + 40]} | {b[max(0, at - 60) : at + 40]}"
    return str(other)


def _counts(trace: RankTrace) -> tuple[int, ...]:
    file = trace.file
    return (*file.repaired.values(), *file.skipped.values(), int(file.truncated), file.events_ignored)


def _document(data: bytes | None, lenient: bool = False) -> Any:
    """The document as Python's own parser sees it, numbers as text; ``None`` where it refuses.

    ``lenient`` also takes what the trace event format allows beyond JSON: a comma after the last event, and a list
    of events that is not closed.
    """
    if data is None:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        text = data.decode("utf-8-sig")
        for candidate in (text, *(_strict_forms(text) if lenient else ())):
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(candidate, parse_float=str, parse_int=str)
    return None


def _strict_forms(text: str) -> Iterator[str]:
    body = text.rstrip(" \t\r\n")
    yield re.sub(r",(\s*\])", r"\1", text)
    if body.lstrip().startswith("["):
        yield body.removesuffix(",") + "]"


def unpacked(data: bytes) -> bytes | None:
    """Decompressed by the standard library; ``None`` where that refuses."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return archive.read(archive.namelist()[0])
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
                return stream.read()
    except Exception:
        return None
    return data
