"""How far the numbers can be trusted: notes, files, what was repaired, skipped or not recognised."""

from __future__ import annotations

from commprof.report.charts.wording import Json, clean, count
from commprof.report.note_words import NOTES
from commprof.units import format_bytes, format_ns, format_share

MOST_FILES = 100
FILES_SHOWN_AT_ONCE = 12
MOST_NOTES = 60
MOST_ALIKE = 4
MOST_NAMES = 20

_RANK_SOURCES = {
    "distributedInfo": "the trace itself",
    "manifest": "the capture's manifest",
    "filename": "the file name",
    "default": "assumed",
}


def quality(report: Json) -> Json:
    """Everything of the section "Notes and data quality"."""
    run = report["input"]
    files = run["files"]
    notes = _notes(report["notes"])
    return {
        "notes": notes[:MOST_NOTES],
        "notes_total": len(notes),
        "files": [_file(file) for file in sorted(files, key=_is_sound)[:MOST_FILES]],
        "files_total": len(files),
        "files_summary": _summary(files),
        "files_open": len(files) <= FILES_SHOWN_AT_ONCE,
        "ignored": [f"{clean(i['path'], 160)}: {clean(i['reason'], 160)}" for i in run["ignored"][:MOST_FILES]],
        "ignored_total": len(run["ignored"]),
        "coverage": [*_capture(run), *_coverage(report["coverage"])],
        "unclassified": _unclassified(report["coverage"]),
    }


def _is_sound(file: Json) -> bool:
    """Files with faults come first."""
    return not (file["truncated"] or any(file["repaired"].values()) or any(file["skipped"].values()))


def _summary(files: list[Json]) -> str:
    parts = [
        count(len(files), "file"),
        format_bytes(sum(file["bytes"] for file in files)),
        f"{sum(file['events'] for file in files):,} events",
    ]
    parts += [f"{sum(sum(file[what].values()) for file in files):,} {what}" for what in ("repaired", "skipped")]
    cut = sum(bool(file["truncated"]) for file in files)
    return ", ".join(parts) + (f", {cut:,} truncated" if cut else "")


def _notes(notes: list[Json]) -> list[Json]:
    """Notes in their order; of many of one kind, such as one per rank, the first few and how many more."""
    count_of: dict[str, int] = {}
    for note in notes:
        count_of[note["code"]] = count_of.get(note["code"], 0) + 1
    shown: dict[str, int] = {}
    out = []
    for note in notes:
        code = note["code"]
        shown[code] = shown.get(code, 0) + 1
        if shown[code] > MOST_ALIKE:
            continue
        last = shown[code] == MOST_ALIKE and count_of[code] > MOST_ALIKE
        more = f" And {count_of[code] - MOST_ALIKE:,} more notes of this kind; all of them in the JSON." if last else ""
        out.append({"code": clean(code, 40), "known": code in NOTES, "message": clean(note["message"], 600) + more})
    return out


def _file(file: Json) -> Json:
    return {
        "path": clean(file["path"], 160),
        "rank": "n/a" if file["rank"] is None else str(file["rank"]),
        "source": _RANK_SOURCES.get(file["rank_source"], clean(file["rank_source"], 40)),
        "bytes": format_bytes(file["bytes"]),
        "events": f"{file['events']:,}",
        "device_events": f"{file['device_events']:,}",
        "repaired": counted(file["repaired"]),
        "skipped": counted(file["skipped"]),
        "truncated": bool(file["truncated"]),
    }


def counted(kinds: Json) -> str:
    """``3 raw quote, 1 clipped``; ``none`` if every count is 0."""
    return ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in kinds.items() if n) or "none"


def _capture(run: Json) -> list[tuple[str, str]]:
    """What the capture and the hardware are, as far as they are told."""
    capture, machine = run.get("capture") or {}, run.get("hardware") or {}
    lines = []
    if machine.get("name"):
        lines.append(("Hardware", clean(machine["name"], 80)))
    for key, text in (
        ("profiled_step_ns", "A step while it was recorded"),
        ("unprofiled_step_ns", "A step before that, without the profiler"),
        ("export_ns", "Writing the trace, after the steps"),
    ):
        if capture.get(key) is not None:
            lines.append((text, format_ns(capture[key])))
    cores = sorted({number for number in (capture.get("cores") or {}).values() if number})
    if cores:
        lines.append(("CPU cores of a rank", " to ".join(dict.fromkeys((f"{cores[0]:,}", f"{cores[-1]:,}")))))
    waits = [share for share in (capture.get("core_wait") or {}).values() if share is not None]
    if waits:
        lines.append(
            ("Ready to run, without a core", " to ".join(dict.fromkeys(map(format_share, (min(waits), max(waits))))))
        )
    settings = [f"{clean(name, 60)}={clean(value, 60)}" for name, value in (capture.get("environment") or {}).items()]
    if settings:
        lines.append(("Settings of the process", ", ".join(settings[:MOST_NAMES])))
    return lines


def _coverage(coverage: Json) -> list[tuple[str, str]]:
    """Counts worth a line; what is zero and harmless stays out."""
    lines: list[tuple[str, str]] = []
    events, linked = coverage.get("device_events"), coverage.get("linked_device_events")
    if events:
        lines.append(("Device events", f"{events:,}"))
        lines.append(("of them linked to their launch", "n/a" if linked is None else f"{linked:,}"))
    unknown = coverage.get("unrecognised_kernel_share")
    # Written as a ratio: percentages in this report are of communication, step or window time only.
    if unknown is not None and (events or unknown):
        lines.append(("Kernel time that no rule names", f"{unknown:.3f} of all kernel time" if unknown else "none"))
    for key, text in (
        ("comm_without_metadata", "Communication kernels without metadata"),
        ("unknown_collective", "Communication kernels of unknown operation"),
        ("unknown_dtype", "Calls of unknown data type"),
        ("group_unknown", "Calls of unknown process group"),
        ("fused_calls", "Kernels that fuse compute and communication"),
        ("clamped_launches", "Launches with impossible times"),
        ("graph_kernels", "Kernels launched by CUDA graphs"),
    ):
        if coverage.get(key):
            lines.append((text, f"{coverage[key]:,}"))
    possible = coverage.get("possible_comm") or {}
    if possible.get("calls"):
        what = f"{count(possible['calls'], 'copy', 'copies')}, {format_ns(possible['duration_ns'])}"
        lines.append(("Peer copies that may be communication", what))
    return lines


def _unclassified(coverage: Json) -> list[Json]:
    rows = (coverage.get("unclassified") or [])[:MOST_NAMES]
    return [{"name": clean(row["name"], 160), "share": f"{row['share']:.3f}"} for row in rows]
