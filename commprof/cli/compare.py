"""``commprof compare``: what changed between two runs, and whether it is more than noise."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from commprof.cli import options
from commprof.errors import CannotAnswer, InputRefused, UsageError

_ONLY = re.compile(r"""--only ((?:'[^']*'|"[^"]*"|[^\s;,'"])+)""")
"""The option with its pattern in a message, one word for a shell."""


def compare(
    base: Annotated[str, typer.Argument(help="The run to compare with: a trace, a capture folder, or a JSON report.")],
    new: Annotated[str, typer.Argument(help="The run that may be better or worse: alike.")],
    html: Annotated[
        Path | None, typer.Option("-o", "--html", help="Where to write the HTML [reports/NEW-against-BASE.html].")
    ] = None,
    no_html: options.NoHtml = False,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the comparison as JSON; - is standard output.")
    ] = None,
    max_slowdown: Annotated[
        str | None,
        typer.Option("--max-slowdown", help="Exit 1 if a step is slower by more than this share, and noise."),
    ] = None,
    comm_pattern: options.CommPattern = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only files that match this glob; given twice: the first for BASE, then for NEW."),
    ] = None,
    jobs: options.Jobs = None,
    debug: options.Debug = False,
) -> int:
    """Say what changed between two runs: step time, split, groups, buckets, findings; differences against noise.

    Example: commprof compare runs/before runs/after --max-slowdown 5%
    """
    from commprof.cli.analyze import report_name
    from commprof.cli.streams import print_error, print_json, print_out
    from commprof.report.compare_view import compare as compared
    from commprof.report.compare_view import compared_paths
    from commprof.report.limits import named_limit
    from commprof.report.write import free_place, json_text, refuse_clashes, write_bytes
    from commprof.settings import load_settings

    options.refuse_contradiction(html, no_html)
    chosen = _chosen(only or [])
    gate = None if max_slowdown is None else named_limit("max-slowdown", max_slowdown).threshold
    patterns = [*load_settings().comm_patterns, *(comm_pattern or [])]
    name = f"{report_name([new])}-against-{report_name([base])}"
    usual = None if no_html or html is not None else Path("reports") / f"{name}.html"
    refuse_clashes([html or usual, None if json == "-" else json], [base, new])
    comparison = compared(
        _report(base, patterns, chosen[0], jobs, f"--only \\1 --only {_quoted(chosen[1])}"),
        _report(new, patterns, chosen[1], jobs, f"--only {_quoted(chosen[0])} --only \\1"),
    )
    if gate is not None and comparison["comparable"] and comparison["same_job"]:
        comparison["checks"] = [_gate(comparison, gate)]
    _show(comparison, to_errors=json == "-")
    if json == "-":
        print_json(json_text(comparison))
    elif json is not None:
        write_bytes(json_text(comparison), json)
    if usual is not None:
        html = free_place(usual, compared_paths(comparison))
    if html is not None:
        from commprof.report.compare_html import write_comparison

        write_comparison(comparison, html)
        line = f"\nReport: {html}"
        print_error(line) if json == "-" else print_out(line + "\n")
    if usual is not None and html != usual:
        print(f"commprof: {usual} compares other runs and stays as it is", file=sys.stderr)
    if not comparison["comparable"]:
        raise CannotAnswer(f"{base} and {new}: not comparable: {comparison['reason']}")
    if gate is not None and not comparison["same_job"]:
        raise CannotAnswer("max-slowdown: the two runs are different jobs", hint="compare runs of one job")
    return _outcome(comparison)


def _chosen(only: list[str]) -> tuple[str | None, str | None]:
    """The pattern for each of the two runs."""
    if len(only) > 2:
        raise UsageError("--only is given more than twice", hint="once for both runs, or once for each")
    return (only[0], only[-1]) if only else (None, None)


def _report(path: str, patterns: list[str], only: str | None, jobs: int | None, for_one: str) -> dict[str, Any]:
    """The report of a run, or the one that an earlier ``--json`` wrote.

    ``for_one`` is how to choose a capture of this run alone, where a message names ``--only`` and its pattern.
    """
    from commprof.analysis.run import analyze
    from commprof.diagnosis.diagnose import diagnose
    from commprof.report.kept import kept_report
    from commprof.report.view import build_report

    kept = kept_report(path)
    if kept is not None:
        return kept
    try:
        analysis = analyze(path, comm_patterns=patterns, only=only, jobs=jobs)
    except InputRefused as error:
        hint = (error.hint or "").replace("hold them against each other with commprof compare, or ", "")
        error.hint = _of_one_run(hint, for_one) or None
        raise
    for warning in analysis.warnings:
        print(f"commprof: warning: {_of_one_run(warning, for_one)}", file=sys.stderr)
    return build_report(analysis, diagnose(analysis))


def _of_one_run(text: str, for_one: str) -> str:
    """A message in which ``--only`` is given for one of the two runs, and the other one is taken as it is."""
    return _ONLY.sub(for_one, text)


def _quoted(only: str | None) -> str:
    """The pattern for the other run, as a shell takes it."""
    return shlex.quote(only or "*").replace("\\", "\\\\")


def _gate(comparison: dict[str, Any], threshold: float) -> dict[str, Any]:
    step = comparison["split"][0]
    share = step["change_share"]
    ok = None if share is None else share <= threshold or step["significant"] is False
    return {"limit": "max-slowdown", "threshold": threshold, "value": share, "ok": ok}


def _show(comparison: dict[str, Any], *, to_errors: bool) -> None:
    from commprof.cli.output import Output
    from commprof.report.compare_text import print_comparison

    print_comparison(comparison, Output(stderr=to_errors, highlight=False))


def _outcome(comparison: dict[str, Any]) -> int:
    from commprof.cli.streams import print_error
    from commprof.units import format_share

    for row in comparison["checks"]:
        if row["ok"] is False:
            slower, allowed = format_share(row["value"]), format_share(row["threshold"])
            print_error(f"commprof: max-slowdown: {slower} of the base step is above the limit of {allowed}")
            return 1
        if row["ok"] is None:
            raise CannotAnswer("max-slowdown: the length of a step is not known")
    return 0
