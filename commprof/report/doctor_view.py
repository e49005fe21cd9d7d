"""What ``commprof doctor`` found, as one dict, and that dict in a terminal."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

from commprof.analysis.combine import ranks_text
from commprof.diagnosis.doctor import Fitness
from commprof.diagnosis.examination import Examination
from commprof.version import __version__

SCHEMA = "commprof.doctor/1"

_ORDER = ("FAIL", "WARN", "PASS")
_STYLE = {"FAIL": "bold red", "WARN": "yellow", "PASS": "green"}
_WIDEST = 100
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|µs|ns|B|kB|MB|GB)(?!\w))")


def build_doctor_view(found: Examination, fitness: Fitness) -> dict[str, Any]:
    """The machine-readable answer, strict JSON when encoded: nothing but dicts, lists, strings, integers, booleans."""
    again = fitness.recapture
    counts = {status: sum(check.status == status for check in fitness.checks) for status in _ORDER}
    return {
        "schema": SCHEMA,
        "commprof_version": __version__,
        "input": {
            "path": _plain(found.path),
            "files": [{"path": _plain(file.facts.path), "rank": file.rank} for file in found.files],
            "broken": [{"path": _plain(broken.path), "reason": _plain(broken.reason)} for broken in found.broken],
            "ignored": [{"path": _plain(path), "reason": _plain(reason)} for path, reason in found.passed_over],
            "ranks": sorted({file.rank for file in found.files}),
            "world_size": found.world_size,
        },
        "fit": bool(found.files) and fitness.fit,
        "counts": counts,
        "checks": [
            {
                "name": check.name,
                "status": check.status,
                "message": _plain(check.message),
                "advice": None if check.advice is None else _plain(check.advice),
            }
            for check in fitness.checks
        ],
        "capture": {
            "call": again.call,
            "skip": again.skip,
            "warmup": again.warmup,
            "steps": again.steps,
            "reasons": list(again.reasons),
            "torch_profiler": again.torch_profiler,
        },
    }


def print_doctor(view: dict[str, Any], console: Console) -> None:
    """Print the answer: a sentence, the checks with the worst first, and the capture to make next."""
    width = min(console.width, _WIDEST)
    _line(console, Text(_headline(view), style="bold"), width)
    _line(console, Text(f"{view['input']['path']}: {_ranks(view)}", style="dim"), width)
    names = max(len(check["name"]) for check in view["checks"])
    for status in _ORDER:
        chosen = [check for check in view["checks"] if check["status"] == status]
        if chosen:
            console.print()
        for check in chosen:
            _print_check(check, names, width, console)
    _print_capture(view["capture"], width, console)


def _headline(view: dict[str, Any]) -> str:
    fails, doubts = view["counts"]["FAIL"], view["counts"]["WARN"]
    if not view["input"]["files"]:
        return "No trace could be read."
    if fails:
        return f"Not fit for analysis as it is: {fails} {'problem' if fails == 1 else 'problems'} to solve first."
    if doubts:
        return f"Fit for analysis, with {doubts} {'reservation' if doubts == 1 else 'reservations'}."
    return "Fit for analysis."


def _ranks(view: dict[str, Any]) -> str:
    ranks, files = view["input"]["ranks"], len(view["input"]["files"])
    if not files:
        return "no readable file"
    text = f"{files} file{'' if files == 1 else 's'}, {'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"
    world = view["input"]["world_size"]
    return text if world is None else f"{text} of {world}"


def _print_check(check: dict[str, Any], names: int, width: int, console: Console) -> None:
    """``WARN  steps    what was measured``, and below it ``-> what to do``, both with a hanging indent."""
    indent = 4 + 2 + names + 2
    for index, line in enumerate(_wrapped(check["message"], width - indent)):
        text = Text(" " * indent if index else "")
        if index == 0:
            text.append(check["status"], style=_STYLE[check["status"]])
            text.append(f"  {check['name']:<{names}}  ")
        console.print(text.append(line), soft_wrap=True)
    if check["advice"]:
        for index, line in enumerate(_wrapped(check["advice"], width - indent - 3)):
            console.print(Text(" " * indent + ("   " if index else "-> ") + line, style="dim"), soft_wrap=True)


def _print_capture(capture: dict[str, Any], width: int, console: Console) -> None:
    console.print()
    title = "A capture that gives a better trace:" if capture["reasons"] else "To capture the same again:"
    console.print(Text(title, style="bold"))
    for line in ["", *capture["call"].splitlines(), ""]:
        console.print(Text(f"    {line}" if line else ""), soft_wrap=True)
    for reason in capture["reasons"]:
        for index, line in enumerate(_wrapped(reason, width - 2)):
            console.print(Text(("- " if index == 0 else "  ") + line), soft_wrap=True)
    if capture["reasons"]:
        console.print()
    _line(console, Text("With torch.profiler alone, pass to torch.profiler.profile on every rank:"), width)
    console.print(Text(f"    {capture['torch_profiler']}"), soft_wrap=True)


def _line(console: Console, text: Text, width: int) -> None:
    for line in _wrapped(text.plain, width):
        console.print(Text(line, style=text.style), soft_wrap=True)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a figure stays with its unit."""
    glued = _UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(glued, max(width, 20), break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def _plain(text: str) -> str:
    """Names come from traces: what is not printable would steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
