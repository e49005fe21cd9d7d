"""Process groups: what each is for, who is in it, what it costs and how fast it is."""

from __future__ import annotations

from collections import defaultdict

from commprof.report.causes import ROLES, role_name
from commprof.report.charts.wording import COMM, Json, clean, count, rank_ranges, ratio, share_of
from commprof.units import format_bytes, format_gbps, format_ns

MOST_ROWS = 60
MOST_MEMBERS = 6
APART_UP_TO = 8
"""With more rows than this, groups of one kind share a row."""


def groups(report: Json) -> Json | None:
    """Total, hidden and exposed time, calls, bytes and bandwidth of every process group and operation (C212)."""
    rows = report["groups"] or []
    if not rows:
        return None
    at_least = _at_least(report)
    kinds = _kinds(rows)
    shown = [_row(kind, at_least) for kind in kinds[:MOST_ROWS]]
    anchors: dict[int, str] = {}
    told: set[tuple[str, ...]] = set()
    for i, row in enumerate(shown):
        row["anchor"] = f"group-{i}"
        # The operations of one group share their evidence: once is enough.
        if tuple(row["evidence"]) in told:
            row["evidence"] = []
        told.add(tuple(row["evidence"]))
        for group in row.pop("ids"):
            anchors.setdefault(group, row["anchor"])
    return {
        "rows": shown,
        "anchors": anchors,
        "total": len(kinds),
        "joined": len(kinds) < len(rows),
        "bandwidth": any(row["busbw"] or row["at_least"] for row in shown),
        "waits": any(row.get("wait_ns") is not None for row in rows),
        "hosts": any(row.get("crosses_hosts") is not None for row in rows),
        "peaks": any(row["peak"] for row in shown),
        "peak_source": next((clean(row["peak_source"], 200) for row in rows if row.get("peak_source")), None),
        "contended": any(row.get("contended") for row in rows),
        "roles": any(row["role"] for row in shown),
        "fits": any(row["fit"] for row in shown),
    }


def _kinds(rows: list[Json]) -> list[list[Json]]:
    """Rows that share a line: each its own, or, of many, all groups of one role, name, operation and size."""
    kinds: dict[object, list[Json]] = defaultdict(list)
    for i, row in enumerate(rows):
        purpose = row["description"] or (None if row["role"] != "unknown" else row["group"])
        key = i if len(rows) <= APART_UP_TO else (row["role"], purpose, row["op"], row["group_size"])
        kinds[key].append(row)
    return sorted(kinds.values(), key=lambda kind: (-_sum(kind, "exposed_ns"), str(kind[0]["group"]), kind[0]["op"]))


def _sum(rows: list[Json], key: str) -> int:
    return sum(row[key] or 0 for row in rows)


def _known(rows: list[Json], key: str) -> int | None:
    known = [row[key] for row in rows if row.get(key) is not None]
    return sum(known) if known else None


def _at_least(report: Json) -> dict[tuple[int | None, str], float]:
    """The best bandwidth that any call of a group and operation must have had, waiting included."""
    best: dict[tuple[int | None, str], float] = {}
    for call in report.get("collectives") or []:
        value = call.get("busbw_at_least_gbps")
        if value is not None:
            key = (call["group_id"], call["op"])
            best[key] = max(best.get(key, 0.0), value)
    return best


def _row(rows: list[Json], at_least: dict[tuple[int | None, str], float]) -> Json:
    first = rows[0]
    size, role = first["group_size"], role_name(first.get("role"))
    name = first["description"] or first["group"]
    if len(rows) > 1:
        members = f"{len(rows):,} groups of {count(size, 'rank')}"
        some = [rank_ranges(row["ranks"]) for row in rows[:MOST_MEMBERS] if row["ranks"]]
        note = (
            "; ".join(some) + (f" and {len(rows) - len(some):,} more" if len(rows) > len(some) else "")
            if some
            else None
        )
    else:
        members, note = count(size, "rank"), None
        if first["ranks"]:
            members = (
                f"{members}: {rank_ranges(first['ranks'])}"
                if len(first["ranks"]) == size
                else f"{members}, partly known"
            )
    unsized, calls = _sum(rows, "calls_without_size"), _sum(rows, "calls")
    crosses = {row.get("crosses_hosts") for row in rows}
    bound = [v for row in rows if (v := at_least.get((row["group_id"], row["op"]))) is not None]
    meaning = ROLES.get(first.get("role") or "")
    return {
        "ids": [row["group_id"] for row in rows if row["group_id"] is not None],
        "name": clean(name if name is not None else "unknown", 60),
        "role": clean(role, 60) if role else None,
        "meaning": meaning.meaning if meaning else None,
        "role_code": first.get("role") if meaning else None,
        "evidence": [clean(line, 240) for line in (first.get("role_evidence") or [])[:4]],
        "members": clean(members, 60),
        "members_note": clean(note, 160) if note else None,
        "each": _each([row["exposed_ns"] for row in rows]),
        "exposed_of": [
            f"of it {name} {format_ns(ns)}"
            for name, key in (("waiting", "exposed_wait_ns"), ("host late", "exposed_host_ns"))
            if (ns := _known(rows, key))
        ],
        "hosts": "n/a"
        if None in crosses
        else "crosses hosts"
        if crosses == {True}
        else "inside a host"
        if crosses == {False}
        else "some cross hosts",
        "op": clean(first["op"], 40),
        "calls": f"{calls:,}",
        "bytes": format_bytes(None if unsized == calls else _sum(rows, "bytes")),
        "bytes_note": f"{unsized:,} without size" if 0 < unsized < calls else None,
        "comm": format_ns(_sum(rows, "comm_ns")),
        "hidden": format_ns(_sum(rows, "overlap_ns")),
        "exposed": format_ns(_sum(rows, "exposed_ns")),
        "hidden_share": share_of(ratio(_sum(rows, "overlap_ns"), _sum(rows, "comm_ns")), COMM),
        "wait": format_ns(_known(rows, "wait_ns")),
        "hidden_wait": _hidden_wait(rows),
        "transfer": format_ns(_known(rows, "transfer_ns")),
        "busbw": _range([row.get("busbw_gbps_median") for row in rows]),
        "best": _range([row.get("busbw_gbps_best") for row in rows]),
        "at_least": format_gbps(max(bound)) if bound else None,
        "contended": any(row.get("contended") for row in rows),
        "clean": sum(row.get("clean_calls") or 0 for row in rows),
        "peak": _peak(rows),
        "efficiency": _efficiency(rows),
        "fit": _fit(first) if len(rows) == 1 else [],
    }


def _hidden_wait(rows: list[Json]) -> str | None:
    """Waiting that compute hid, which costs nothing; ``None`` where it is not known or there is none."""
    wait, exposed = _known(rows, "wait_ns"), _known(rows, "exposed_wait_ns")
    return format_ns(wait - exposed) if wait is not None and exposed is not None and wait > exposed else None


def _each(values: list[int]) -> str | None:
    """The least and the most exposed of several groups, where they differ: an equal among equals should not."""
    low, high = min(values), max(values)
    return f"each {format_ns(low)} to {format_ns(high)}" if format_ns(low) != format_ns(high) else None


def _range(values: list[float | None]) -> str | None:
    """``12.0 GB/s``, or ``10.1 to 12.0 GB/s`` over the groups of a row."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = format_gbps(min(known)), format_gbps(max(known))
    return low if low == high else f"{low.removesuffix(' GB/s')} to {high}"


def _peak(rows: list[Json]) -> str | None:
    """The ceiling of the group's shape: one rate, or the range from ring to hierarchical."""
    ends = [row.get(key) for row in rows for key in ("peak_gbps", "peak_low_gbps", "peak_high_gbps")]
    return _range(ends)


def _efficiency(rows: list[Json]) -> str | None:
    known = [value for row in rows for value in _ends(row.get("efficiency")) if value is not None]
    if not known:
        return None
    low, high = f"{min(known):.2f}", f"{max(known):.2f}"
    return low if low == high else f"{low} to {high}"


def _ends(value: object) -> list[float | None]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    return [value] if isinstance(value, int | float) else []


def _fit(row: Json) -> list[str]:
    if row.get("alpha_ns") is None or row.get("beta_gbps") is None:
        return []
    return [f"latency {format_ns(round(row['alpha_ns']))}", f"then {format_gbps(row['beta_gbps'])}"]
