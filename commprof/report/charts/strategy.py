"""The parallel strategy, the bytes that it sends beside what the formula expects, and what of it can hide."""

from __future__ import annotations

import re

from commprof.report.causes import ROLES, STRATEGIES, role_name, strategy_name
from commprof.report.charts.wording import Json, clean, count
from commprof.units import format_bytes

MOST_EVIDENCE = 10
MOST_DIFFERENCES = 12
FASTER = (1, 2, 4)

HIDES = {
    "ddp": "Gradients are reduced bucket by bucket while the backward pass still computes: all can hide but the last.",
    "zero1": "Gradients hide behind the backward pass; updated parameters are gathered after the optimizer.",
    "fsdp": "Each layer is gathered while the one before it computes: all can hide but the first and the last.",
    "tp": "The next kernel needs the result: it cannot hide fully, so the group belongs inside one NVLink domain.",
    "pp": "Only activations at the borders of stages travel. It sends little; its cost is the bubble.",
    "ep": "Tokens must arrive before their experts compute: it hides only behind other work, such as a second batch.",
    "cp": "Keys and values of the next block travel while attention of this one computes.",
    "embedding": "Embeddings travel before the layers above them compute: it hides only behind work without them.",
    "control": "Small messages, whose cost is their number.",
}
SYMBOLS = {
    "N": "ranks of the group", "P": "parameters", "bg": "bytes of a gradient element",
    "bp": "bytes of a parameter element", "m": "micro-batches per step", "S": "ranks that share one copy",
    "R": "copies", "b": "sequences of a micro-batch", "s": "sequence length", "h": "hidden size",
    "t": "tensor-parallel ranks", "k": "experts per token", "e": "expert-parallel ranks", "c": "context-parallel ranks",
    "g": "width of keys and values",
}  # fmt: skip
_BYTES = re.compile(r"\b(\d{4,}) B\b")
_LIKE = {
    "dp": "ddp", "zero2": "zero1", "zero3": "fsdp", "hsdp": "fsdp", "shard": "fsdp", "replicate": "ddp", "sp": "tp",
    "edp": "ddp",
}  # fmt: skip


def strategy(report: Json) -> Json | None:
    """``{"name", "evidence", "parts", "expected", "measured"}``; ``None`` where none was looked for."""
    found = report.get("strategy")
    if not found or (found["name"] in ("none", "unknown") and not found["parts"]):
        return None
    parts = [_part(part) for part in found["parts"]]
    longest = max((part["measured_bytes"] or 0 for part in parts), default=0)
    longest = max(longest, max((part["expected_bytes"] or 0 for part in parts), default=0), 1)
    for part in parts:
        for key in ("measured", "expected"):
            part[f"{key}_width"] = (part[f"{key}_bytes"] or 0) / longest * 100
    return {
        "name": clean(strategy_name(found["name"]), 120),
        "evidence": [_spelled(line) for line in found["evidence"][:MOST_EVIDENCE]] + _alternatives(found),
        "symbols": _symbols(" ".join(part["formula"] for part in parts)),
        "expected": format_bytes(found["expected_bytes_per_step"]),
        "measured": format_bytes(found["measured_bytes_per_step"]),
        "parts": parts,
        "ratios": ratios(report),
    }


def _spelled(line: str) -> str:
    """A line of evidence with the name of its part as people say it: ``DDP: 5 all-reduces``."""
    code, colon, rest = clean(line, 300).partition(": ")
    return f"{strategy_name(code)}: {rest}" if colon and code in STRATEGIES else f"{code}{colon}{rest}"


def _alternatives(found: Json) -> list[str]:
    """What else would look the same in a trace."""
    return [
        f"{strategy_name(code)} is the likelier; in a trace it looks like "
        + " or ".join(strategy_name(other) for other in others if other != code)
        for code, others in (found.get("alternatives") or {}).items()
        if any(other != code for other in others)
    ]


def _symbols(formulas: str) -> str:
    """``N ranks of the group, P parameters``: the letters of the formulas, in the order of the table above."""
    letters = set(re.findall(r"[A-Za-z]+", formulas))
    return ", ".join(f"{letter} {meaning}" for letter, meaning in SYMBOLS.items() if letter in letters)


def _part(part: Json) -> Json:
    expected, measured = part["expected_bytes"], part["measured_bytes"]
    rows = [
        {"what": clean(row["what"], 160), "bytes": _signed(row["bytes"])}
        for row in part["differences"][:MOST_DIFFERENCES]
    ]
    explained = sum(row["bytes"] or 0 for row in part["differences"])
    left = None if expected is None or measured is None else measured - expected - explained
    kind: str = part["kind"]
    does: str = part.get("name") or kind
    name = clean(ROLES[kind].name if kind in ROLES else strategy_name(kind), 60)
    return {
        "kind": clean(kind, 30),
        "name": name,
        "title": name[:1].upper() + name[1:],
        "degree": count(part["degree"], "rank"),
        "groups": len(part["group_ids"]),
        "group_ids": part["group_ids"][:8],
        "formula": clean(part["formula"] or "", 120),
        "assumed": _BYTES.sub(lambda found: format_bytes(int(found[1])), clean(part["assumed"], 200))
        if part.get("assumed")
        else None,
        "expected_bytes": expected,
        "measured_bytes": measured,
        "expected": format_bytes(expected),
        "measured": format_bytes(measured),
        "differences": rows,
        "left": None if left is None or left == 0 else _signed(left),
        "hides": HIDES.get(_LIKE.get(does, does)),
    }


def _signed(size: int | None) -> str:
    return "n/a" if size is None else f"{'+' if size > 0 else '−' if size < 0 else ''}{format_bytes(abs(size))}"


def ratios(report: Json) -> Json | None:
    """Compute time for each unit of communication time, now and with compute that is k times faster."""
    found: dict[tuple[str, int | None], float] = {}
    for row in report.get("groups") or []:
        value = row.get("compute_to_comm")
        if value is None:
            continue
        name = role_name(row["role"]) or row["description"] or row["group"] or "unknown"
        key = (name, row["group_size"])
        if key not in found or value < found[key]:
            found[key] = value
    if not found:
        return None
    rows = [
        {"name": clean(name, 60), "size": count(size, "rank"), "values": [_ratio(value / k) for k in FASTER]}
        for (name, size), value in sorted(found.items(), key=lambda item: (item[1], str(item[0])))
    ]
    return {"rows": rows[:20], "faster": [k for k in FASTER if k > 1]}


def _ratio(value: float) -> Json:
    return {"text": f"{value:.2f}" if value < 100 else f"{value:,.0f}", "short": value < 1}
