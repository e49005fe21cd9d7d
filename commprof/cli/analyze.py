"""``commprof analyze``: measure a trace, print the summary, write the reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commprof.errors import CannotAnswer, UsageError

_NARROWEST = 78
"""Below this many columns lines wrap, but no number of a table is cut."""

if TYPE_CHECKING:
    from commprof.analysis.model import Analysis
    from commprof.report.limits import Limit


def analyze(
    paths: Annotated[
        list[str], typer.Argument(help="Trace file, capture folder, glob, several files, or a URL.", metavar="PATH...")
    ],
    html: Annotated[
        Path | None, typer.Option("-o", "--html", help="Where to write the HTML report [reports/NAME.html].")
    ] = None,
    no_html: Annotated[bool, typer.Option("--no-html", help="Write no HTML report.")] = False,
    json: Annotated[str | None, typer.Option("--json", help="Write the report as JSON; - is standard output.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the summary as Markdown.")] = None,
    no_calls: Annotated[bool, typer.Option("--no-calls", help="Leave single calls out of the JSON.")] = False,
    steps: Annotated[str | None, typer.Option("--steps", help="Only these steps, such as 4-6 or 4,9.")] = None,
    comm_pattern: Annotated[
        list[str] | None,
        typer.Option("--comm-pattern", help="Regular expression of kernels that communicate; may be repeated."),
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="Only files that match this glob.")] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", help="Peaks to compare with: a machine (dgx-h100), a file, or a rate in GB/s."),
    ] = None,
    hosts: Annotated[
        str | None, typer.Option("--hosts", help="File with the host of every rank: 'RANK HOST', or a hostfile.")
    ] = None,
    hta: Annotated[bool, typer.Option("--hta", help="Add what HTA says, as an appendix (extra hta).")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes [cores].")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> int:
    """Measure where the time of each training step goes and say whether communication is the bottleneck.

    Example: commprof analyze runs/ddp
    """
    from commprof.settings import load_settings

    if no_html and html is not None:
        raise UsageError("--no-html and --html contradict each other")
    target = None if no_html else html or Path("reports") / f"{report_name(paths)}.html"
    report_on(
        paths,
        html=target,
        json=json,
        markdown=markdown,
        calls=not no_calls,
        steps=steps,
        comm_patterns=[*load_settings().comm_patterns, *(comm_pattern or [])],
        only=only,
        jobs=jobs,
        hardware=hardware,
        hosts=hosts,
        hta=hta,
    )
    return 0


def report_on(
    paths: list[str],
    *,
    html: Path | None,
    json: str | None = None,
    markdown: Path | None = None,
    calls: bool = True,
    steps: str | None = None,
    comm_patterns: list[str] | None = None,
    only: str | None = None,
    jobs: int | None = None,
    hardware: str | None = None,
    hosts: str | None = None,
    limits: Sequence[Limit] = (),
    hta: bool = False,
) -> dict[str, Any]:
    """Read, judge, hold the report to ``limits``, print and write; returns the report.

    Raises errors of :mod:`commprof.errors`; where the trace holds device work the reports are written first.
    """
    from commprof.analysis.run import analyze as measure
    from commprof.diagnosis.diagnose import diagnose
    from commprof.report.limits import check_rows
    from commprof.report.view import build_view
    from commprof.report.write import refuse_clashes

    refuse_clashes([html, None if json == "-" else json, markdown], paths)
    with _progress() as (on_total, on_bytes):
        analysis = measure(
            paths, comm_patterns=comm_patterns or [], steps=steps, only=only, jobs=jobs,
            progress=on_bytes, on_total=on_total, hosts=hosts, hardware=hardware,
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
    _write(view, machine, html, json, markdown)
    _refuse_silence(analysis)
    return machine


def _write(
    view: dict[str, Any], machine: dict[str, Any], html: Path | None, json: str | None, markdown: Path | None
) -> None:
    """Print the summary and write what was asked for; ``machine`` is the report that goes into the JSON."""
    from commprof.cli.output import Output as _Output
    from commprof.report.terminal import print_summary
    from commprof.report.write import json_text, write_bytes

    # With the JSON on standard output, people read standard error.
    console = _Output(stderr=json == "-", highlight=False, soft_wrap=False)
    console.width = max(console.width, _NARROWEST)
    print_summary(view, console)
    if json == "-":
        sys.stdout.write(json_text(machine).decode())
    elif json is not None:
        write_bytes(json_text(machine), json)
    if markdown is not None:
        from commprof.report.markdown import render_markdown

        write_bytes(render_markdown(view).encode(), markdown)
    if html is not None:
        from commprof.report.html import write_html

        write_html(view, html)
        console.print(f"\nReport: {html}", markup=False, soft_wrap=True)


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
