"""Two reports side by side: what changed, and whether more than by noise (``spec``: section 11, last sentence)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from commprof.report.charts.buckets import lasting
from commprof.report.charts.wording import clean, rank_ranges
from commprof.report.compare_findings import finding_rows
from commprof.report.same_job import other_job, warning
from commprof.report.summary import of_what
from commprof.units import format_ns, format_share
from commprof.version import __version__

Json = dict[str, Any]

SCHEMA = "commprof.comparison/1"

_SPLIT = (
    ("duration", "step"), ("compute", "compute"), ("comm", "communication"), ("overlap", "hidden communication"),
    ("exposed_comm", "exposed communication"), ("exposed_copy", "exposed copies"), ("idle", "idle"),
)  # fmt: skip
_AMOUNTS = ("overlap", "exposed_copy", "idle")
"""Lengths of which there is more or less; the others are slower or faster."""


def compare(base: Json, new: Json) -> Json:
    """The comparison of two reports, as strict JSON; ``comparable`` is false, with the ``reason``, where it means
    nothing. ``same_job`` is false, with a ``warning``, where the two are different jobs. A difference is
    ``significant`` if it exceeds noise, ``None`` if a single step leaves noise unknown."""
    reason = _reason(base, new)
    differences = [] if reason else other_job(base, new)
    split = [] if reason else _split_rows(base, new)
    return {
        "schema": SCHEMA,
        "commprof_version": __version__,
        "base": _about(base),
        "new": _about(new),
        "comparable": reason is None,
        "reason": reason,
        "same_job": None if reason else not differences,
        "warning": warning(differences),
        "of": of_what(base),
        "summary": f"Not comparable: {reason}." if reason else _summary(split, of_what(base)),
        "split": split,
        "shares": [] if reason else _share_rows(base, new),
        "operations": [] if reason else _exposure_rows(base, new, "op"),
        "groups": [] if reason else _exposure_rows(base, new, "group"),
        "buckets": [] if reason else _bucket_rows(base, new),
        "findings": [] if reason else finding_rows(base, new),
        "verdicts": {"base": base["verdict"], "new": new["verdict"]},
        "checks": [],
    }


def compared_paths(comparison: Json) -> str:
    """Which two runs a comparison is about."""
    return f"{comparison['new']['path']} against {comparison['base']['path']}"


def compared_name(row: Json, most: int) -> str:
    """An operation, or a group with its ranks, as people read it; any other row by its own name."""
    if row.get("by") == "op" and row["name"] is not None:
        return clean(row["name"], most).replace("_", "-")
    name = clean(row["name"] if row["name"] is not None else "unknown", most)
    return f"{name}, ranks {rank_ranges(row['ranks'])}" if row.get("ranks") else name


def _about(report: Json) -> Json:
    given = report["input"]
    return {
        "path": given["path"], "world_size": given["world_size"], "ranks": given["ranks"], "devices": given["devices"],
        "backend": given["backend"], "steps": len(report["per_step"]),
    }  # fmt: skip


def _reason(base: Json, new: Json) -> str | None:
    """Why the two runs cannot be compared; ``None`` if they can."""
    one, other = base["input"], new["input"]
    if one["world_size"] != other["world_size"]:
        return f"the base ran on {_ranks(one)}, the new one on {_ranks(other)}"
    if one["ranks"] != other["ranks"]:
        have = [
            ", ".join(map(str, run["ranks"][:8])) + (", ..." if len(run["ranks"]) > 8 else "") for run in (one, other)
        ]
        return f"the traces are of other ranks (base: {have[0]}; new: {have[1]})"
    if not base["per_step"] or not new["per_step"]:
        return f"the {'new run' if base['per_step'] else 'base'} has no step"
    if of_what(base) != of_what(new):
        return f"only the {'base' if of_what(new) == 'window' else 'new run'} marks its steps"
    if bool(base["coverage"]["device_events"]) != bool(new["coverage"]["device_events"]):
        return "one ran on accelerators, the other on CPUs"
    return None


def _ranks(given: Json) -> str:
    return "an unknown number of ranks" if given["world_size"] is None else f"{given['world_size']} ranks"


def changed(base: Sequence[float | None], new: Sequence[float | None]) -> Json:
    """Means of two runs, one value per step, and whether they differ by more than ``2 sqrt(s1^2/n1 + s2^2/n2)``.

    Values are nanoseconds; all results ``None`` where a step has none.
    """
    if None in base or None in new or not base or not new:
        return dict.fromkeys(("base_ns", "new_ns", "change_ns", "change_share", "noise_ns", "significant"))
    one, other = [v for v in base if v is not None], [v for v in new if v is not None]
    first, second = statistics.fmean(one), statistics.fmean(other)
    noise = None
    if len(one) > 1 and len(other) > 1:
        noise = 2 * math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    change = second - first
    return {
        "base_ns": round(first),
        "new_ns": round(second),
        "change_ns": round(change),
        "change_share": change / first if first else None,
        "noise_ns": None if noise is None else round(noise),
        "significant": None if noise is None else abs(change) > noise,
    }


def words(row: Json, *, amount: bool = False) -> str:
    """``slower by 1.00 ms (20.0 %)``, of an ``amount`` ``more by ...``, ``within noise``."""
    change = row["change_ns"]
    if change is None:
        return "n/a"
    if not change:
        return "no change"
    if row["significant"] is False:
        return "within noise"
    share = "" if row["change_share"] is None else f" ({format_share(abs(row['change_share']))})"
    more, less = ("more", "less") if amount else ("slower", "faster")
    unsure = ", one step only" if row["significant"] is None else ""
    return f"{more if change > 0 else less} by {format_ns(abs(change))}{share}{unsure}"


def _split_rows(base: Json, new: Json) -> list[Json]:
    rows = []
    for key, label in _SPLIT:
        row = changed([s[f"{key}_ns"] for s in base["per_step"]], [s[f"{key}_ns"] for s in new["per_step"]])
        name = "window" if key == "duration" and of_what(base) == "window" else label
        rows.append({"key": key, "name": name, **row, "words": words(row, amount=key in _AMOUNTS)})
    return rows


def _share_rows(base: Json, new: Json) -> list[Json]:
    """Overlap of communication time and exposed communication of step time."""
    whole = of_what(base)
    return [
        {"key": key, "name": name, "of": of, "base": base["overall"][key], "new": new["overall"][key]}
        for key, name, of in (
            ("comm_share", "exposed communication", whole),
            ("overlap_ratio", "hidden communication", "communication time"),
        )
    ]


def _summary(split: list[Json], whole: str) -> str:
    step = split[0]
    what = "A window" if whole == "window" else "A step"
    if step["significant"] is False or not step["change_ns"]:
        said = f"{what} takes as long as before{', within noise' if step['noise_ns'] is not None else ''}"
    else:
        said = f"{what} is {step['words']}"
    said += f": {format_ns(step['base_ns'])}, now {format_ns(step['new_ns'])}."
    parts = [row for row in split[1:] if row["key"] in ("compute", "exposed_comm", "exposed_copy", "idle")]
    moved = [row for row in parts if row["significant"] is not False and row["change_ns"]]
    if moved:
        most = max(moved, key=lambda row: abs(row["change_ns"]))
        direction = "more" if most["change_ns"] > 0 else "less"
        said += f" The largest difference: {format_ns(abs(most['change_ns']))} {direction} {most['name']}."
    return said


def _exposure_rows(base: Json, new: Json, by: str) -> list[Json]:
    """Exposed time per step of every operation or group of either run, the largest change first."""
    sides = [_exposed_by(report, by) for report in (base, new)]
    rows = []
    for key in sorted(set(sides[0]) | set(sides[1]), key=str):
        found = [side.get(key) for side in sides]
        series = [
            entry["exposed"] if entry else [0.0] * len(report["per_step"])
            for entry, report in zip(found, (base, new), strict=True)
        ]
        row = changed(*series)
        rows.append(
            {
                "by": by, "name": key[0], "ranks": next(entry["ranks"] for entry in found if entry),
                **row, "words": words(row),
                **{
                    f"{side}_{what}": entry[what] if entry else 0
                    for side, entry in zip(("base", "new"), found, strict=True)
                    for what in ("calls", "comm_ns")
                },
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: -abs(row["change_ns"] or 0))


def _exposed_by(report: Json, by: str) -> dict[tuple[Any, ...], Json]:
    """Per operation or group: exposed time of every step, and calls and time in them per step; means over ranks."""
    place = {name: index for index, row in enumerate(report["per_step"]) for name in row["steps"]}
    parts = [row["rows"] for row in report["per_step"]]
    members = {row["group_id"]: row for row in report["groups"]}
    found: dict[tuple[Any, ...], Json] = {}
    for row in report["exposure"]:
        if row["by"] != by or row["step"] not in place:
            continue
        group = members.get(row.get("group_id")) if by == "group" else None
        name = (group["description"] or group["group"]) if group else row["name"]
        ranks = group["ranks"] if group else None
        key = (name, None if ranks is None else tuple(ranks))
        entry = found.setdefault(key, {"exposed": [0.0] * len(parts), "calls": 0.0, "comm_ns": 0.0, "ranks": ranks})
        index = place[row["step"]]
        entry["exposed"][index] += row["exposed_ns"] / parts[index]
        for what in ("calls", "comm_ns"):
            entry[what] += row[what] / sum(parts)
    for entry in found.values():
        entry["comm_ns"] = round(entry["comm_ns"])
    return found


def _bucket_rows(base: Json, new: Json) -> list[Json]:
    """Gradient buckets by number: size, and exposed time per step as a mean over ranks and steps."""
    sides = [_buckets(report) for report in (base, new)]
    return [
        {
            "index": index,
            **{
                f"{side}_{what}": known.get(index, {}).get(what)
                for side, known in zip(("base", "new"), sides, strict=True)
                for what in ("size_bytes", "exposed_ns")
            },
        }
        for index in sorted(set(sides[0]) | set(sides[1]))
    ]


def _buckets(report: Json) -> dict[int, Json]:
    rows: dict[int, list[Json]] = {}
    for row in lasting(report):
        rows.setdefault(row["index"], []).append(row)
    return {
        index: {
            "size_bytes": statistics.mode(row["size_bytes"] for row in found),
            "exposed_ns": round(statistics.fmean(row["exposed_ns"] for row in found)),
        }
        for index, found in rows.items()
    }
