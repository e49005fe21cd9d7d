"""The report's ``strategy``: name, evidence, and bytes per step beside the formula of each part."""

from __future__ import annotations

from typing import Any

from commprof.analysis.model import Analysis
from commprof.analysis.strategy import Part


def strategy_row(analysis: Analysis) -> dict[str, Any] | None:
    """The strategy of the run; no figure is called per step where the trace has no step marks."""
    found = analysis.strategy
    if found is None:
        return None
    return {
        "name": found.name,
        "evidence": list(found.evidence),
        "expected_bytes_per_step": found.expected if found.per_step else None,
        "measured_bytes_per_step": found.measured if found.per_step else None,
        "alternatives": {name: list(names) for name, names in found.alternatives.items()},
        "per": "step" if found.per_step else "window",
        "parts": [_part(part) for part in found.parts],
    }


def _part(part: Part) -> dict[str, Any]:
    volume = part.volume
    return {
        "kind": part.kind,
        "name": part.name,
        "degree": part.degree,
        "group_ids": list(part.groups),
        "formula": volume.formula,
        "expected_bytes": volume.expected,
        "measured_bytes": volume.measured,
        "assumed": volume.assumed,
        "differences": [{"what": row.what, "bytes": row.bytes} for row in volume.differences],
    }
