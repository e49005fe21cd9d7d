"""What the clocks of a rank showed: true times of the simulator to the times that stand in its trace.

The ranks of a host share a CPU clock with an offset and a drift; in the real model each rank's device clock is
1 to 5 us off against it. All of it is drawn from the seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from commprof.synth.plan import Plan
from commprof.synth.timeline import RankTimeline

BASE_NS = 1_790_000_000_000_000_000
"""Unix time that the traces' time stamps are relative to (``baseTimeNanoseconds``)."""
START_NS = 4_000_000_000_000_000
"""Where the run starts, relative to the base."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Offset and drift (1e-9) of a rank's host clock, the error of its device clock, the resolution of both."""

    offset_ns: int = 0
    drift_ppb: int = 0
    device_error_ns: int = 0
    tick_ns: int = 1

    def cpu(self, t: int) -> int:
        """What the host clock shows at true time ``t``."""
        shown = START_NS + self.offset_ns + t + t * self.drift_ppb // 1_000_000_000
        return shown // self.tick_ns * self.tick_ns

    def device(self, t: int) -> int:
        """What the device's time stamps show at true time ``t``."""
        shown = START_NS + self.offset_ns + self.device_error_ns + t + t * self.drift_ppb // 1_000_000_000
        return shown // self.tick_ns * self.tick_ns


def clocks(plan: Plan) -> list[Clock]:
    """One clock per rank."""
    scenario = plan.scenario
    result = []
    for rank in range(plan.mesh.world):
        host = np.random.default_rng([plan.seed, plan.placement.host(rank), 3])
        offset = int(host.integers(-scenario.clock_offset_ns, scenario.clock_offset_ns + 1))
        drift = int(host.integers(-scenario.clock_drift_ppb, scenario.clock_drift_ppb + 1))
        error = 0
        if scenario.real:
            device = np.random.default_rng([plan.seed, rank, 4])
            error = int(device.integers(1_000, 5_001)) * (1 if device.integers(2) else -1)
        result.append(Clock(offset, drift, error, plan.tick_ns))
    return result


def observe(timeline: RankTimeline, clock: Clock) -> RankTimeline:
    """The timeline of a rank as its trace shows it: nanoseconds relative to :data:`BASE_NS`."""

    def shown(times: Iterable[int], of: str) -> array[int]:
        read = clock.device if of == "device" else clock.cpu
        return array("q", [read(t) if t >= 0 else -1 for t in times])

    return RankTimeline(
        shown(timeline.cpu_start, "cpu"),
        shown(timeline.launch, "cpu"),
        shown(timeline.cpu_end, "cpu"),
        shown(timeline.dev_start, "device"),
        shown(timeline.dev_end, "device"),
        timeline.call_of,
    )
