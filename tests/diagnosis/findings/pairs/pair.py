"""What a pair of traces consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.builders.kineto import Trace


@dataclass(frozen=True)
class Setting:
    """The traces of all ranks, the peak that the user states (GB/s), and the environment that the capture saw."""

    traces: list[Trace]
    hardware: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """``build(True)`` fires and ``build(False)`` does not. ``charged`` and ``back`` (recoverable) are in µs per step,
    ``None`` where none can be stated; ``within`` is by how much launch latencies of the trace may add to them."""

    build: Callable[[bool], Setting]
    charged: float | None
    back: float | None
    within: float = 0.0


def one(trace: Trace) -> Setting:
    """A single rank."""
    return Setting([trace])
