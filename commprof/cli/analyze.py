"""``commprof analyze``: measure a trace, print the summary, write the reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commprof.cli import options
from commprof.errors import CannotAnswer

_NARROWEST = 36
"""Below this many columns the terminal wraps lines itself, but no number of a table is cut."""

if TYPE_CHECKING:
    from commprof.analysis.model import Analysis
    from commprof.report.limits import Limit


def analyze(
    paths: options.Paths,
    html: options.Html = None,
    no_html: options.NoHtml = False,
    json: options.Json = None,
    markdown: options.Markdown = None,
    no_calls: options.NoCalls = False,
    steps: options.Steps = None,
    comm_pattern: options.CommPattern = None,
    only: options.Only = None,
    hardware: options.Hardware = None,
    hosts: options.Hosts = None,
    hta: Annotated[bool, typer.Option("--hta", help="Add what HTA says, as an appendix (extra hta).")] = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    debug: options.Debug = False,
) -> int:
    """Measure where the time of each training step goes and say whether communication is the bottleneck.

    Example: commprof analyze runs/ddp
    """
    from commprof.settings import load_settings

    options.refuse_contradiction(html, no_html)
    report_on(
        paths,
        html=html,
        no_html=no_html,
        json=json,
        markdown=markdown,
        calls=not no_calls,
        steps=steps,
        comm_patterns=[*load_settings().comm_patterns, *(comm_pattern or [])],
        only=only,
        jobs=jobs,
        scheduler=scheduler,
        hardware=hardware,
        hosts=hosts,
        hta=hta,
    )
    return 0


def report_on(
    paths: list[str],
    *,
    html: Path | None = None,
    no_html: bool = False,
    json: str | None = None,
    markdown: Path | None = None,
    calls: bool = True,
    steps: str | None = None,
    comm_patterns: list[str] | None = None,
    only: str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    hardware: str | None = None,
    hosts: str | None = None,
    limits: Sequence[Limit] = (),
    hta: bool = False,
) -> dict[str, Any]:
    """Read, judge, hold the report to ``limits``, print and write; returns the report.

    The HTML goes to ``html``, without one to ``reports`` under the name of the input. Raises errors of
    :mod:`commprof.errors`; where the trace holds device work the reports are written first.
    """
    from commprof.trace.workers import begin_early

    if scheduler is None:
        begin_early(paths, jobs)
    from commprof.analysis.run import analyze as measure
    from commprof.diagnosis.diagnose import diagnose
    from commprof.report.kept import refuse_kept
    from commprof.report.limits import check_rows
    from commprof.report.view import build_view
    from commprof.report.write import free_place, refuse_clashes

    usual = None if no_html or html is not None else Path("reports") / f"{report_name(paths)}.html"
    refuse_kept(paths)
    refuse_clashes([html or usual, None if json == "-" else json, markdown], paths)
    with _progress() as (on_total, on_bytes):
        analysis = measure(
            paths, comm_patterns=comm_patterns or [], steps=steps, only=only, jobs=jobs,
            progress=on_bytes, on_total=on_total, hosts=hosts, hardware=hardware, scheduler=scheduler,
        )  # fmt: skip
    for warning in analysis.warnings:
        print(f"commprof: warning: {warning}", file=sys.stderr)
    view = build_view(analysis, diagnose(analysis))
    view["report"]["checks"] = check_rows(view["report"], limits)
    if hta:
        from commprof.api import load
        from commprof.report.hta_rows import hta_appendix

        view["report"]["hta"] = hta_appendix(load(paths, only=only))
    machine = view["report"] if calls else {**view["report"], "collectives": None}
    if usual is not None:
        html = free_place(usual, view["report"]["input"]["path"])
    _write(view, machine, html, json, markdown)
    if usual is not None and html != usual:
        print(f"commprof: {usual} is the report of another input and stays as it is", file=sys.stderr)
    _refuse_silence(analysis)
    return machine


def _write(
    view: dict[str, Any], machine: dict[str, Any], html: Path | None, json: str | None, markdown: Path | None
) -> None:
    """Print the summary and write what was asked for; ``machine`` is the report that goes into the JSON."""
    from commprof.cli.output import Output
    from commprof.cli.streams import print_json
    from commprof.report.terminal import print_summary
    from commprof.report.write import encodable, json_text, write_bytes

    # With the JSON on standard output, people read standard error.
    console = Output(stderr=json == "-", highlight=False, soft_wrap=False)
    console.width = max(console.width, _NARROWEST)
    print_summary(view, console)
    if json == "-":
        print_json(json_text(machine))
    elif json is not None:
        write_bytes(json_text(machine), json)
    if markdown is not None:
        from commprof.report.markdown import render_markdown

        write_bytes(encodable(render_markdown(view)).encode(), markdown)
    if html is not None:
        from commprof.report.html import write_html

        write_html(view, html)
    places = [("Report", html), ("Markdown", markdown), ("JSON", None if json == "-" else json)]
    written = [f"{name}: {place}" for name, place in places if place is not None]
    if written:
        console.print("\n" + "\n".join(written), markup=False, soft_wrap=True)


def _refuse_silence(analysis: Analysis) -> None:
    """A job of several ranks without any communication recognised: the question cannot be answered."""
    if any((~rank.calls.fused).any() or rank.coverage.fused_calls for rank in analysis.ranks):
        return
    if (analysis.world_size or 1) > 1:
        raise CannotAnswer(
            f"{analysis.path}: no communication was recognised although {analysis.world_size} ranks are declared",
            hint="name its kernels with --comm-pattern",
        )


def report_name(paths: list[str]) -> str:
    """Name of the report: that of the file or folder, without its endings."""
    name = Path(paths[0].rstrip("/").rpartition("://")[2]).name or Path.cwd().name
    if name in (".", ".."):
        name = Path(paths[0]).resolve().name
    for ending in (".gz", ".zst", ".zip", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return "".join(c if c.isalnum() or c in "-_.@" else "-" for c in name).strip(".-") or "report"


def _progress() -> AbstractContextManager[tuple[Any, Any]]:
    """Callbacks for the total and for each piece of bytes read: a bar on a terminal, nothing when piped."""
    if not sys.stderr.isatty():
        return nullcontext((None, None))
    from commprof.cli.progress import byte_bar

    return byte_bar("Reading")
