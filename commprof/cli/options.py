"""Arguments that several verbs share, each defined once."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from commprof.errors import UsageError


def _refuse_all_kernels(patterns: list[str] | None) -> list[str] | None:
    """Refuse a pattern that finds the empty name, and so every kernel: all compute would count as communication."""
    for pattern in patterns or ():
        # One that is no regular expression is refused where it is used.
        with suppress(re.error):
            if re.search(pattern, "") is not None:
                hint = "give a part of the names of kernels that communicate"
                raise UsageError(f"--comm-pattern {pattern!r}: matches every kernel", hint=hint)
    return patterns


Paths = Annotated[
    list[str], typer.Argument(help="Trace file, capture folder, glob, several files, or a URL.", metavar="PATH...")
]
Html = Annotated[
    Path | None,
    typer.Option(
        "-o", "--html", help="Where to write the HTML report [reports/NAME.html; NAME-2 if another input has that]."
    ),
]
NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no HTML report.")]
Json = Annotated[str | None, typer.Option("--json", help="Write the report as JSON; - is standard output.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write the summary as Markdown.")]
NoCalls = Annotated[bool, typer.Option("--no-calls", help="Leave single calls out of the JSON.")]
Steps = Annotated[str | None, typer.Option("--steps", help="Only these steps, such as 4-6 or 4,9.")]
CommPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--comm-pattern",
        help="Regular expression of kernels that communicate; may be repeated.",
        callback=_refuse_all_kernels,
    ),
]
Only = Annotated[str | None, typer.Option("--only", help="Only files that match this glob: one capture of several.")]
Hardware = Annotated[
    str | None,
    typer.Option("--hardware", help="Peaks to compare with: a machine (dgx-h100), a file, or a rate in GB/s."),
]
Hosts = Annotated[
    str | None, typer.Option("--hosts", help="File with the host of every rank: 'RANK HOST', or a hostfile.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes [cores].")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="Read ranks on a Dask cluster: tcp://HOST:PORT (extra dask).", metavar="ADDRESS"),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def refuse_contradiction(html: Path | None, no_html: bool) -> None:
    """Raise :class:`UsageError` where a place for the HTML is given together with the wish for none."""
    if no_html and html is not None:
        raise UsageError("--no-html and --html contradict each other")
