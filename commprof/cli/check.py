"""``commprof check``: hold a run to limits, for continuous integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from commprof.cli import options
from commprof.errors import CannotAnswer, UsageError

if TYPE_CHECKING:
    from commprof.report.limits import Limit
    from commprof.settings import Settings


def check(
    paths: options.Paths,
    max_exposed: Annotated[
        str | None, typer.Option("--max-exposed", help="Most exposed communication, as a share of step time.")
    ] = None,
    max_straggler_wait: Annotated[
        str | None, typer.Option("--max-straggler-wait", help="Most exposed waiting for late ranks, of step time.")
    ] = None,
    min_overlap: Annotated[
        str | None, typer.Option("--min-overlap", help="Least communication hidden, of communication time.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="'KEY<=VALUE' on any number of the JSON report; may be repeated."),
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")] = False,
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
    jobs: options.Jobs = None,
    debug: options.Debug = False,
) -> int:
    """Fail when a run communicates more than it may: exit code 1, and one line per limit that is exceeded.

    Shares are given as 0.15 or 15%; exactly at the limit passes. Limits also come from [tool.commprof] in
    pyproject.toml, under the names of the options.

    Example: commprof check runs/ddp --max-exposed 15% --min-overlap 60%
    """
    from commprof.cli.analyze import report_on
    from commprof.settings import load_settings

    options.refuse_contradiction(html, no_html)
    settings = load_settings()
    given = {"max-exposed": max_exposed, "max-straggler-wait": max_straggler_wait, "min-overlap": min_overlap}
    limits = wanted_limits({name: value for name, value in given.items() if value is not None}, limit or [], settings)
    report = report_on(
        paths,
        html=html,
        no_html=no_html,
        json=json,
        markdown=markdown,
        calls=not no_calls,
        steps=steps,
        comm_patterns=[*settings.comm_patterns, *(comm_pattern or [])],
        only=only,
        jobs=jobs,
        hardware=hardware,
        hosts=hosts,
        limits=limits,
    )
    return _outcome(report, github)


def wanted_limits(named: dict[str, str], texts: list[str], settings: Settings) -> list[Limit]:
    """Limits of the command line and of the project; the command line's replaces the project's on the same number.

    Raises ``UsageError`` for one that makes no sense, and where there is none.
    """
    from commprof.report.limits import named_limit, parse_limit

    chosen: dict[tuple[str, str], Limit] = {}
    try:
        listed = [named_limit(*pair) for pair in settings.named_limits] + [parse_limit(t) for t in settings.limits]
    except UsageError as error:
        raise UsageError(f"{settings.source}: {error.message}", hint=error.hint) from None
    listed += [named_limit(*pair) for pair in named.items()] + [parse_limit(text) for text in texts]
    for entry in listed:
        chosen[entry.key, entry.sign[0]] = entry
    if not chosen:
        raise UsageError("no limit to check", hint="give --max-exposed 15% or [tool.commprof] in pyproject.toml")
    return list(chosen.values())


def _outcome(report: dict[str, Any], github: bool) -> int:
    """Exit code 1 where a limit is exceeded, else 0; raises ``CannotAnswer`` where the trace cannot tell."""
    from commprof.cli.streams import print_error
    from commprof.report.limits import check_line
    from commprof.report.summary import of_what

    rows = report["checks"]
    failed = [check_line(row, of_what(report)) for row in rows if row["ok"] is False]
    unanswered = [check_line(row, of_what(report)) for row in rows if row["ok"] is None]
    for line in failed:
        print_error(f"commprof: {line}")
    if github:
        for kind, lines in (("error", failed), ("warning", unanswered)):
            for line in lines:
                print_error(f"::{kind} title=commprof check::{_escaped(line)}")
    if failed:
        for line in unanswered:
            print_error(f"commprof: {line}")
        return 1
    if unanswered:
        raise CannotAnswer(f"{report['input']['path']}: {'; '.join(unanswered)}", hint=_why(report))
    return 0


def _why(report: dict[str, Any]) -> str:
    if not report["groups"]:
        return "no communication was found"
    return "give the traces of all ranks" if len(report["input"]["ranks"]) == 1 else "the report says null there"


def _escaped(line: str) -> str:
    """A line as GitHub's workflow commands want it."""
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
