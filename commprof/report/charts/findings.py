"""The ranked findings: what costs time, the evidence, what to change, and where in the report it shows."""

from __future__ import annotations

from typing import Any

from commprof.report.causes import EXPOSED, IDLE, OF_FINDINGS, Word, late_word
from commprof.report.charts.wording import (
    STEP,
    Json,
    base_of_findings,
    clean,
    losing,
    rank_ranges,
    share_of,
    share_shown,
)
from commprof.units import format_bytes, format_gbps, format_ns

MOST_FINDINGS = 20
MOST_EVIDENCE = 12
MOST_INFO = 12
_MINOR = 0.001

CONFIDENCE = {"measured": "measured", "bound": "an upper bound", "estimate": "an estimate, from few steps"}

_SECTIONS = (
    ("ddp-", "buckets", "Gradient buckets"),
    ("bucket", "buckets", "Gradient buckets"),
    ("fsdp-", "units", "Sharded layers"),
    ("gather-after", "units", "Sharded layers"),
    ("pipeline", "pipeline", "Pipeline"),
    ("all-to-all", "imbalance", "All-to-all imbalance"),
    ("straggler", "stragglers", "Late ranks"),
    ("overlap-contention", "contention", "What overlap costs"),
    ("host-bound", "idle", "Idle by cause"),
    ("input-bound", "idle", "Idle by cause"),
    ("low-bandwidth", "groups", "Process groups"),
    ("slow-link", "groups", "Process groups"),
    ("network", "groups", "Process groups"),
    ("tp-", "tensor", "Tensor parallel"),
    ("tp-", "groups", "Process groups"),
)


def findings(report: Json, base: str, present: set[str], groups: dict[int, str]) -> Json | None:
    """Findings in the order of the report; ``None`` without any.

    ``present`` are the sections that the page has, ``groups`` the anchors of group rows by id: links lead there.
    """
    rows = report["findings"] or []
    if not rows:
        return None
    numbered = list(enumerate(rows, 1))
    own = base_of_findings(report, base)
    main = [pair for pair in numbered if pair[1]["severity"] != "info"]
    info = [pair for pair in numbered if pair[1]["severity"] == "info" and not _is_minor(pair[1])]
    minor = [pair for pair in numbered if pair[1]["severity"] == "info" and _is_minor(pair[1])]
    return {
        "whose": losing(report),
        "beyond": any((row["recoverable_ns"] or 0) > (row["charged_ns"] or 0) for _, row in main),
        "rows": [_finding(row, number, (base, own), present, groups) for number, row in main[:MOST_FINDINGS]],
        "total": len(main),
        "info": [_finding(row, number, (base, own), present, groups) for number, row in info[:MOST_INFO]],
        "info_total": len(info),
        "minor": [
            {
                "number": number,
                "title": clean(row["title"], 300),
                "charged": format_ns(row["charged_ns"]),
            }
            for number, row in minor
        ],
        "below": share_of(_MINOR, base),
    }


def _is_minor(row: Json) -> bool:
    """Whether a remark is about so little time that its advice is not worth reading."""
    return bool(row["charged_ns"]) and (row["share_of_step"] or 0) < _MINOR


def _finding(row: Json, number: int, bases: tuple[str, str], present: set[str], groups: dict[int, str]) -> Json:
    """``bases``: what shares of the step are of, in general and on the rank that findings are of."""
    base, own = bases
    return {
        "id": clean(row["id"], 40),
        "number": number,
        "severity": clean(row["severity"], 10),
        "title": clean(row["title"], 300),
        "charged": format_ns(row["charged_ns"]),
        "recoverable": None if row["recoverable_ns"] is None else format_ns(row["recoverable_ns"]),
        "share": share_of(share_shown(row), own),
        "where": _where(row, base),
        "cause": _cause(row.get("cause"), row.get("or_cause"), row["id"]),
        "evidence": [
            {"what": clean(item["what"], 200), "value": with_unit(item["value"], item.get("unit"), own)}
            for item in row["evidence"][:MOST_EVIDENCE]
            if item["value"] != 0
        ],
        "threshold": _threshold(row.get("threshold"), base),
        "source": clean((row.get("threshold") or {}).get("source") or "", 240),
        "advice": [clean(line, 600) for line in row["advice"][:8]],
        "confidence": CONFIDENCE.get(row["confidence"], clean(row["confidence"], 20)),
        "links": _links(row, present, groups),
    }


def _where(row: Json, base: str) -> str:
    where = [f"{'rank' if len(row['ranks']) == 1 else 'ranks'} {rank_ranges(row['ranks'])}"] if row["ranks"] else []
    if row["steps"]:
        where.append(step_ranges(row["steps"]))
    if row.get("calls"):
        per = " per step" if base == STEP else ""
        where.append(f"{row['calls']:,} {'call' if row['calls'] == 1 else 'calls'}{per}")
    return clean("; ".join(where), 400)


def step_ranges(names: list[str]) -> str:
    """``ProfilerStep#3–7, ProfilerStep#9``: numbered names in a row together."""
    runs: list[list[Any]] = []
    for name in names:
        stem, number = _split_number(name)
        if runs and number is not None and runs[-1][0] == stem and runs[-1][2] == number - 1:
            runs[-1][2] = number
        else:
            runs.append([stem, number, number])
    texts = [
        clean(stem if first is None else f"{stem}{first}" if first == last else f"{stem}{first}–{last}", 60)
        for stem, first, last in runs
    ]
    return ", ".join(texts[:6]) + (f" and {len(texts) - 6} more" if len(texts) > 6 else "")


def _split_number(name: str) -> tuple[str, int | None]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    numbered = digits.isascii() and 0 < len(digits) < 10 and str(int(digits)) == digits
    return (stem, int(digits)) if numbered else (name, None)


def _cause(code: str | None, or_else: str | None, finding: str) -> Json | None:
    """The cause in words, from whichever of the lists knows it; that of a late rank from the list of those."""
    if not code:
        return None
    known: Word | None = next((words[code] for words in (EXPOSED, IDLE, OF_FINDINGS) if code in words), None)
    if finding == "straggler" or known is None:
        known = late_word(code, or_else)
    return {"name": known.name if known else clean(code, 40), "meaning": known.meaning if known else None}


def _threshold(threshold: Json | None, base: str) -> str | None:
    if not threshold or threshold.get("value") is None:
        return None
    return with_unit(threshold["value"], threshold.get("unit"), base)


def _links(row: Json, present: set[str], groups: dict[int, str]) -> list[Json]:
    links = [
        {"href": place, "text": text}
        for start, place, text in _SECTIONS
        if row["id"].startswith(start) and place in present
    ]
    anchor = groups.get(row["group_id"]) if row.get("group_id") is not None else None
    if anchor:
        links.append({"href": anchor, "text": "Its process group"})
    if not links and row.get("cause") and "exposure" in present:
        links.append({"href": "exposure", "text": "Where communication is exposed"})
    return links[:3]


def with_unit(value: Any, unit: str | None, base: str) -> str:
    """A piece of evidence as text: known units through ``commprof.units``, others as they are."""
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value, 120)
    if unit == "ns":
        return format_ns(round(value))
    if unit in ("bytes", "B"):
        return format_bytes(round(value))
    if unit in ("GB/s", "gbps"):
        return format_gbps(value)
    if unit == "share":
        return f"{value:.2f}"
    if unit and unit.startswith("share of "):
        whole = unit.removeprefix("share of ")
        return share_of(value, base if whole in ("step", "step time") else clean(whole, 40))
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    return f"{shown} {clean(unit, 40)}" if unit else shown
