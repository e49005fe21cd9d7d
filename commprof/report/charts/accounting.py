"""One step as one bar: compute, what each finding costs, and what nothing explains; the parts add up to the step."""

from __future__ import annotations

from commprof.report.charts.wording import Json, base_of_findings, clean, losing, share_of, share_shown
from commprof.units import format_ns

_KINDS = ("compute", "exposed", "copy", "idle")
_NAMES = {
    "compute": "Compute", "exposed": "Exposed communication", "copy": "Exposed copies", "idle": "Idle",
}  # fmt: skip
_UNEXPLAINED = {
    "exposed": "exposed communication that no finding explains",
    "idle": "idle time that no finding explains",
}
_LEFT = {"exposed": "of exposed communication", "idle": "of idle time"}
_BRIEF = 140
_WORTH_A_WORD = 2000
# A bound that leaves less than one part in this many of exposed communication does not look wrong beside the bar.
_CONTRADICTS = 100
"""A smaller part of the step than one of so many is 0.0 % in print: what rounding left, and no time to look for."""
MOST_TOP = 3


def segments(report: Json, base: str) -> Json | None:
    """``{"segments", "totals", "step_ns", "overlap_ns"}`` of an average step; ``None`` without an accounting.

    A segment has its colour role, width in percent, and the number of its finding.
    """
    found = report.get("accounting")
    if not found or not found["duration_ns"]:
        return None
    steps, whole, base = found["steps"], found["duration_ns"], base_of_findings(report, base)
    parts = sorted(
        (
            {"kind": kind, "ns": ns, "finding": part["finding"]}
            for part in found["parts"]
            for kind, ns in _kinds(part)
            if ns
        ),
        key=lambda part: (_KINDS.index(part["kind"]), part["finding"] is None, part["finding"] or 0),
    )
    drawn = []
    for part in parts:
        number = None if part["finding"] is None else part["finding"] + 1
        text = f"finding {number}" if number else _UNEXPLAINED.get(part["kind"], _NAMES[part["kind"]].lower())
        time = format_ns(round(part["ns"] / steps))
        drawn.append(
            {
                "kind": part["kind"],
                "explained": number is not None or part["kind"] in ("compute", "copy"),
                "number": number,
                "width": part["ns"] / whole * 100,
                "time": time,
                "text": f"{time}, {share_of(part['ns'] / whole, base)}: {text}",
            }
        )
    return {
        "segments": drawn,
        "totals": {kind: sum(part["ns"] for part in parts if part["kind"] == kind) / steps for kind in _KINDS},
        "step_ns": whole / steps,
        "overlap_ns": None if found.get("overlap_ns") is None else found["overlap_ns"] / steps,
    }


def _kinds(part: Json) -> list[tuple[str, int]]:
    """One part of the step by kind of time: a finding may be charged with exposed and idle time."""
    if part["name"] == "compute":
        return [("compute", part["ns"])]
    return [("exposed", part["exposed_ns"]), ("copy", part["copy_ns"]), ("idle", part["idle_ns"])]


def top(report: Json, base: str) -> list[Json]:
    """The three findings that cost the most time, with what to change."""
    rows = [
        (number, row) for number, row in enumerate(report["findings"] or [], 1)
        if costs_time(row)
    ]  # fmt: skip
    return [_top(number, row, base_of_findings(report, base)) for number, row in rows[:MOST_TOP]]


def costs_time(row: Json) -> bool:
    """Whether a finding belongs on the first screen: remarks and those from which nothing would come back do not."""
    return bool(row["severity"] != "info" and stated_ns(row))


def stated_ns(row: Json) -> int:
    """The time that a headline states: what could come back where that is known, else the charge."""
    return int((row["charged_ns"] if row["recoverable_ns"] is None else row["recoverable_ns"]) or 0)


def _top(number: int, row: Json, base: str) -> Json:
    time, charged = format_ns(stated_ns(row)), format_ns(row["charged_ns"])
    return {
        "number": number,
        "id": clean(row["id"], 40),
        "title": clean(row["title"], 240),
        "time": time,
        "charged": None if charged == time else charged,
        "what": "could come back" if row["recoverable_ns"] is not None else "lost",
        "share": share_of(share_shown(row), base),
        "advice": brief(row["advice"][0]) if row["advice"] else None,
        "severity": clean(row["severity"], 10),
    }


def left_out(report: Json, shown: int, where: str) -> str | None:
    """What the findings shown leave out: how many more there are, and the time that none of them explains."""
    rows = report["findings"] or []
    larger = sum(costs_time(row) for row in rows) - shown
    small = sum(not costs_time(row) and bool(row["charged_ns"]) for row in rows)
    parts = []
    if larger > 0:
        parts.append(f"{larger} more {where}")
    if small:
        parts.append(f"{small} small or uncertain {'finding' if small == 1 else 'findings'}")
    bar = report.get("accounting")
    if bar and rows:
        step = bar["duration_ns"] // bar["steps"]
        kinds = {
            kind: sum(part["ns"] for part in bar["parts"] if part["name"] == f"unexplained-{kind}") // bar["steps"]
            for kind in _LEFT
        }
        told = [f"{format_ns(ns)} {_LEFT[kind]}" for kind, ns in kinds.items() if ns and ns * _WORTH_A_WORD >= step]
        if told:
            parts.append(f"{' and '.join(told)} that no finding explains")
    return f"and {', '.join(parts)}" if parts else None


def brief(advice: str) -> str:
    """The first clause of a long piece of advice; the whole of it stands with the finding."""
    text = clean(advice, 400)
    if len(text) <= _BRIEF:
        return text
    depth = 0
    for at, letter in enumerate(text[: 2 * _BRIEF]):
        depth += (letter == "(") - (letter == ")")
        if not depth and text[at : at + 2] in ("; ", ". "):
            return f"{text[:at]}."
    return text


def bounds(report: Json, base: str) -> Json | None:
    """The step as it is and as short as it could be without one cause; ``None`` if nothing can be stated."""
    found = report.get("bounds")
    if not found or not found.get("step_ns"):
        return None
    step = found["step_ns"]
    who = losing(report)
    rows = [{"name": "today" if who is None else f"today, {who[0]}", "ns": step}]
    for key, name in (
        ("without_top_finding_ns", "without the first finding"),
        ("no_waiting_ns", "if no rank waited for another"),
        ("all_hidden_ns", "if all communication were hidden"),
    ):
        if found.get(key) is not None:
            rows.append({"name": name, "ns": found[key]})
    if len(rows) == 1:
        return None
    own = base_of_findings(report, base)
    return {
        "not_back": _not_back(report, step),
        "rows": [
            {
                "name": row["name"],
                "time": format_ns(row["ns"]),
                "gain": share_of((step - row["ns"]) / step, own)
                if (step - row["ns"]) * _WORTH_A_WORD >= step
                else None,
                "width": row["ns"] / step * 100,
            }
            for row in rows
        ],
    }


def _not_back(report: Json, step: int) -> str | None:
    """Why the bound of hidden communication is above the bar's step less its exposed communication, where it is by
    enough to look like a contradiction; the two reasons are those of the bound itself."""
    hidden, bar = report["bounds"].get("all_hidden_ns"), report.get("accounting")
    if hidden is None or not bar:
        return None
    exposed = sum(part["exposed_ns"] for part in bar["parts"]) // max(bar["steps"], 1)
    kept = exposed - (step - hidden)
    if kept * _CONTRADICTS < step:
        return None
    return (
        f"{format_ns(kept)} of exposed communication would not come back if it were hidden: the host had launched "
        "nothing else meanwhile, or it lies off the critical path, as waiting for late ranks does."
    )
