"""Is a trace fit for analysis: every check, in the order in which a person should read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from commprof.diagnosis.examination import Examination
from commprof.diagnosis.fitness import content, files, steps, surroundings
from commprof.diagnosis.fitness.check import Check, Limits
from commprof.diagnosis.recapture import Recapture, recapture

CHECKS: tuple[Callable[[Examination, Limits], list[Check]], ...] = (
    files.readable,
    files.one_file_per_rank,
    files.complete_files,
    files.clean_events,
    files.ranks_present,
    files.rank_known,
    content.device_work,
    content.communication,
    steps.steps_marked,
    steps.same_steps,
    surroundings.same_time,
    surroundings.clocks,
    content.launch_links,
    content.descriptions,
    content.sizes,
    steps.first_step,
    steps.first_collective,
    surroundings.profiler_cost,
    surroundings.cores,
    surroundings.environment,
    surroundings.options,
    files.trace_size,
    surroundings.manifest,
)
"""Each looks at one thing and says nothing (an empty list) where its question does not arise."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """The answer: all checks, and the capture that would leave fewer of them open."""

    checks: tuple[Check, ...]
    recapture: Recapture

    @property
    def fit(self) -> bool:
        """Whether figures from this input can be trusted as far as they go."""
        return all(check.status != "FAIL" for check in self.checks)


def judge(found: Examination, limits: Limits | None = None) -> Fitness:
    """Run every check; where no file could be read, only that of the files."""
    limits = limits or Limits()
    chosen = CHECKS if found.files else (files.readable,)
    checks = tuple(answer for check in chosen for answer in check(found, limits))
    return Fitness(checks, recapture(found, checks, limits))
