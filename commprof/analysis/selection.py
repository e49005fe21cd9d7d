"""Which steps are asked for: ``--steps 4-6,9``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from commprof.analysis.windows import Windows
from commprof.errors import CannotAnswer, UsageError


@dataclass(frozen=True, slots=True)
class StepSelection:
    """Inclusive ranges of step numbers."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, name: object) -> bool:
        number = re.search(r"(\d+)$", str(name))
        return number is not None and any(low <= int(number[1]) <= high for low, high in self.ranges)

    def apply(self, windows: Windows, path: str) -> Windows:
        """Only the chosen windows; raises :class:`CannotAnswer` if there is none."""
        chosen = [window for window in windows.windows if window.name in self]
        if not chosen:
            names = ", ".join(window.name for window in windows.windows)
            raise CannotAnswer(f"{path}: no step {self.text}", hint=f"it holds {names}")
        return replace(windows, windows=chosen, without=[entry for entry in windows.without if entry[0] in self])


def parse_steps(text: str) -> StepSelection:
    """Read ``4``, ``4-6`` or ``4-6,9``; raises :class:`UsageError` for anything else."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        low = int(match[1]) if match else 0
        high = int(match[2] or low) if match else -1
        if high < low:
            raise UsageError(f"--steps {text}: not a list of step numbers", hint="for example --steps 4-6")
        ranges.append((low, high))
    return StepSelection(text, tuple(ranges))
