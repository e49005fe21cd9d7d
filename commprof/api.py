"""The calls of the Python API that join stages; the rest of it are the stages' own functions."""

from __future__ import annotations

import os
from collections.abc import Iterable

from commprof.analysis.model import Analysis
from commprof.diagnosis.diagnose import diagnose
from commprof.diagnosis.model import Diagnosis
from commprof.errors import InputRefused
from commprof.report.markdown import render_markdown
from commprof.report.view import build_view
from commprof.report.write import encodable, json_text, write_bytes
from commprof.trace.discover import LEADS_NOWHERE, find_candidates
from commprof.trace.model import Trace
from commprof.trace.read import read_rank
from commprof.trace.recaptures import newest_captures

Pathish = str | os.PathLike[str]


def load(paths: Pathish | Iterable[Pathish], *, only: str | None = None) -> Trace:
    """The columns of every rank, for analyses of one's own; all of them are held in memory.

    ``paths`` and ``only`` as for :func:`commprof.analyze`. Raises errors of :mod:`commprof.errors`.
    """
    given = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    ranks, ignored = [], []
    dangling: list[str] = []
    found = newest_captures(find_candidates(given, only, dangling))
    candidates = found.kept
    ignored += [(candidate.display, "an older capture in the same folder") for candidate in found.older]
    ignored += [(path, LEADS_NOWHERE) for path in dangling]
    for candidate in candidates:
        try:
            ranks.append(read_rank(candidate.path, manifest=candidate.manifest))
        except InputRefused as error:
            if candidate.named or len(candidates) == 1:
                raise
            ignored.append((candidate.display, error.message))
    ranks.sort(key=lambda rank: rank.rank)
    world = max((rank.world_size for rank in ranks if rank.world_size), default=None)
    return Trace(", ".join(given), ranks, ignored, world, [warning for rank in ranks for warning in rank.warnings])


def write_report(
    analysis: Analysis,
    diagnosis: Diagnosis | None = None,
    *,
    html: Pathish | None = None,
    json: Pathish | None = None,
    markdown: Pathish | None = None,
    calls: bool = True,
) -> None:
    """Write the report of an analysis as one self-contained HTML file, as JSON, as Markdown, or as several of them.

    ``calls=False`` leaves single calls out of the JSON. Raises :class:`~commprof.errors.CommprofError` when a file
    cannot be written.
    """
    view = build_view(analysis, diagnosis or diagnose(analysis))
    if json is not None:
        write_bytes(json_text(view["report"] if calls else {**view["report"], "collectives": None}), json)
    if markdown is not None:
        write_bytes(encodable(render_markdown(view)).encode(), markdown)
    if html is not None:
        from commprof.report.html import write_html

        write_html(view, os.fspath(html))
