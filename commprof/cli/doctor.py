"""``commprof doctor``: is a trace fit for analysis, and how to capture a better one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commprof.cli import options

if TYPE_CHECKING:
    from commprof.diagnosis.examination import Examination


def doctor(
    paths: options.Paths,
    json: Annotated[str | None, typer.Option("--json", help="Write the checks as JSON; - is standard output.")] = None,
    only: options.Only = None,
    debug: options.Debug = False,
) -> int:
    """Say whether a trace is fit for analysis, what is missing in it, and how to capture a better one.

    Exit code 1 if a check failed; warnings alone give 0.

    Example: commprof doctor runs/ddp
    """
    from commprof.diagnosis.doctor import judge
    from commprof.report.doctor_view import build_doctor_view
    from commprof.report.kept import refuse_kept
    from commprof.report.write import refuse_clashes

    refuse_kept(paths)
    refuse_clashes([None if json == "-" else json], paths)
    found = _examine(paths, only)
    fitness = judge(found)
    _write(build_doctor_view(found, fitness), json)
    refusal = found.refusal()
    if refusal is not None:
        raise refusal
    return 0 if fitness.fit else 1


def _examine(paths: list[str], only: str | None) -> Examination:
    from commprof.diagnosis.examination import examine

    # A bar on a terminal, nothing when piped.
    if not sys.stderr.isatty():
        return examine(paths, only=only)
    from commprof.cli.progress import byte_bar

    with byte_bar("Reading") as (on_total, on_bytes):
        return examine(paths, only=only, on_total=on_total, progress=on_bytes)


def _write(view: dict[str, Any], json: str | None) -> None:
    from commprof.cli.output import Output
    from commprof.cli.streams import print_json
    from commprof.report.doctor_view import print_doctor
    from commprof.report.write import json_text, write_bytes

    # With the JSON on standard output, people read standard error.
    print_doctor(view, Output(stderr=json == "-", highlight=False))
    if json == "-":
        print_json(json_text(view))
    elif json is not None:
        write_bytes(json_text(view), json)
