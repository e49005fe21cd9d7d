"""Limits on numbers of the report: what ``commprof check`` holds a run to (``spec``: the keys of the report)."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commprof.diagnosis.catalogue import FINDING_IDS, NEEDS_PEERS
from commprof.errors import UsageError
from commprof.units import format_ns, format_share

NAMED = {
    "max-exposed": ("overall.comm_share", "<="),
    "max-straggler-wait": ("overall.wait_share", "<="),
    "min-overlap": ("overall.overlap_ratio", ">="),
    "max-slowdown": ("split.change_share", "<="),
}
"""The limits with an option of their own: which number, and on which side of the limit it may be."""

_WHAT = {"overall.wait_share": ": all exposed waiting for a peer, named as late or not, mean over ranks"}
"""What a number is where its name alone could be taken for another one of the report."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_TEXT = re.compile(r"^\s*((?:[^<>=\s\[]|\[[^\]]*\])+)\s*(<=|>=|<|>)\s*(\S.*?)\s*$")
_PART = re.compile(r"[^.\[\]]+|\[[^\[\]]+\]")
_KEY = re.compile(r"^[^.\[\]]+(?:\.[^.\[\]]+|\[[^\[\]]+\])*$")
_WORD = re.compile(r"^[a-z][a-z_]*$")
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_QUANTITY = re.compile(
    r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?))\s*(%|ns|us|µs|ms|s)?$", re.I
)
_SHARES = ("share", "share_of_step", "overlap_ratio")


@dataclass(frozen=True, slots=True)
class Limit:
    """``name`` is what the user calls it, ``key`` the path of a number in the report, ``sign`` one of <= >= < >."""

    name: str
    key: str
    sign: str
    threshold: float


def named_limit(name: str, value: str) -> Limit:
    """A limit such as ``max-exposed`` with a share (``0.15`` or ``15%``); raises ``UsageError``."""
    key, sign = NAMED[name]
    return Limit(name, key, sign, _threshold(name, key, value))


def parse_limit(text: str) -> Limit:
    """``KEY<=VALUE`` on any number of the report: ``overall.idle_ns<=5ms``, ``findings.straggler.share_of_step<2%``.

    Parts of a key are joined by dots. A list is followed by an index, by ``[*]`` (all of them: the worst counts), by
    ``[name=value]`` (those rows), and findings also by their id. Raises ``UsageError``.
    """
    match = _TEXT.match(text)
    if match is None:
        raise UsageError(f"limit {text!r} is not KEY<=VALUE", hint="such as 'overall.idle_ns<=5ms'")
    key, sign, value = match.groups()
    parts = key_parts(key)
    if parts[0] == "findings" and len(parts) > 1 and _plain(parts[1]) and parts[1] not in FINDING_IDS:
        raise UsageError(f"limit {text!r}: there is no finding {parts[1]!r}")
    return Limit(key, key, sign, _threshold(text, key, value))


def key_parts(key: str) -> list[str]:
    """The parts of a key, brackets taken off: ``ranks[0].mean.idle_ns`` gives ``ranks 0 mean idle_ns``."""
    if _KEY.match(key) is None:
        raise UsageError(f"limit on {key!r}: that is no key of the report", hint="such as ranks[0].mean.idle_ns")
    return [part.removeprefix("[").removesuffix("]") for part in _PART.findall(key)]


def _plain(part: str) -> bool:
    return part != "*" and not part.isdigit() and "=" not in part


def _is_share(key: str) -> bool:
    last = key_parts(key)[-1]
    return last in _SHARES or last.endswith("_share")


def _threshold(name: str, key: str, value: str) -> float:
    match = _QUANTITY.match(value.strip())
    if match is None:
        raise UsageError(f"limit {name}: {value!r} is not a number", hint="such as 0.15, 15% or 5ms")
    unit = (match[2] or "").lower()
    number = float(match[1])
    if not math.isfinite(number):
        raise UsageError(f"limit {name}: {value!r} is not a finite number")
    share = _is_share(key)
    if unit == "%":
        # Decimal point moved in the text: 0.3 and 30% are the same number to the last bit.
        number = float(f"{match[1]}e-2") if "e" not in match[1].lower() else number / 100
    elif unit:
        number *= _UNITS[unit]
    if (unit == "%" and not share) or (unit not in ("", "%") and not key.endswith("_ns")):
        raise UsageError(f"limit {name}: {key} is not measured in {unit}")
    if share and not 0 <= number <= 1:
        raise UsageError(f"limit {name}: {value!r} is not a share", hint="give it as 0.15 or 15%")
    return number


def check_rows(report: dict[str, Any], limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """``checks`` of the report; ``ok`` and ``value`` are ``None`` where this trace cannot answer.

    Where a key stands for several numbers the worst one counts. Raises ``UsageError`` for a key that the report does
    not have.
    """
    return [_check(report, limit) for limit in limits]


def _check(report: dict[str, Any], limit: Limit) -> dict[str, Any]:
    value = _worst(report, limit)
    ok = None if value is None else _OPERATORS[limit.sign](value, limit.threshold)
    return {
        "limit": limit.name, "key": limit.key, "sign": limit.sign, "threshold": limit.threshold, "value": value,
        "ok": ok,
    }  # fmt: skip


def _worst(report: dict[str, Any], limit: Limit) -> float | None:
    parts = key_parts(limit.key)
    if parts[0] not in report:
        raise UsageError(f"limit on {limit.key}: the report has no {parts[0]!r}")
    try:
        found = list(_numbers(report, parts))
    except UsageError as error:
        raise UsageError(f"limit on {limit.key}: {error.message}", hint=error.hint) from error
    if not found and parts[0] == "findings":
        # A finding that is not there costs nothing, unless nobody could have seen it.
        unseen = parts[1] in NEEDS_PEERS and not report["waits"]
        return None if unseen else 0
    known = [value for value in found if value is not None]
    if not known:
        return None
    return max(known) if limit.sign in ("<=", "<") else min(known)


def _numbers(value: Any, parts: Sequence[str]) -> Iterator[float | None]:
    """Every number that a key stands for; ``None`` for one that could not be measured."""
    if not parts:
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise UsageError("a limit can be set on a number only", hint="the key ends before it reaches one")
        yield value
        return
    part, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        if part == "*":
            for entry in value.values():
                yield from _numbers(entry, rest)
        elif part in value:
            yield from _numbers(value[part], rest)
        elif all(_WORD.match(key) for key in (part, *value)):
            raise UsageError(f"the report has no {part!r} there", hint=f"it has {', '.join(sorted(value)[:40])}")
        else:  # a table by rank or step, of which this one is not in the trace
            yield None
    elif isinstance(value, list):
        for entry in _chosen(value, part):
            yield from _numbers(entry, rest)
    elif value is None:
        yield None


def _chosen(rows: list[Any], part: str) -> list[Any]:
    if part == "*":
        return rows
    if part.isdigit():
        return rows[int(part) : int(part) + 1]
    key, sign, wanted = part.partition("=")
    if not sign:
        key, wanted = "id", part
    return [row for row in rows if isinstance(row, dict) and str(row.get(key)) == wanted]


def check_line(row: dict[str, Any], whole: str) -> str:
    """One line on the outcome of a limit, for people; ``whole`` is what shares of the step are of."""
    name = row["limit"] if row["limit"] in NAMED else row["key"]
    if row["ok"] is None:
        return f"{name}: this trace cannot answer it"
    shown, allowed = _shown(row["key"], row["value"]), _shown(row["key"], row["threshold"])
    if shown == allowed and not row["ok"]:
        shown, allowed = repr(row["value"]), repr(row["threshold"])
    of = (
        f" of {'communication time' if row['key'].endswith('overlap_ratio') else whole}"
        if _is_share(row["key"])
        else ""
    )
    what = _WHAT.get(row["key"], "")
    if row["ok"]:
        return f"{name}: {shown}{of} keeps the limit ({row['sign']} {allowed}){what}"
    return f"{name}: {shown}{of} is {'above' if row['sign'] in ('<=', '<') else 'below'} the limit of {allowed}{what}"


def _shown(key: str, value: float) -> str:
    if _is_share(key):
        return format_share(value)
    return format_ns(round(value)) if key.endswith("_ns") else f"{value:,.6g}"
