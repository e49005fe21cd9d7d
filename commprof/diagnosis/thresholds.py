"""Every limit that a judgement rests on, with where its default comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defaults of the verdict, all shares of step time unless said otherwise.

    They are this project's own choice: 10 % is what a change must give back to be worth an engineer's day, and about
    the spread of step times that large clusters show without any fault (GPU time varies by 9 % at 64k GPUs: PRISM,
    Meta); 2 % is the resolution at which two parts of a step are told apart.
    """

    communication: float = 0.10
    """Exposed communication from which on it can be the bottleneck."""
    share_of_idle: float = 0.5
    """... and it must be at least this part of idle time."""
    quiet: float = 0.10
    """Below this sum of exposed communication, exposed copies and idle the device computes: the bottleneck is that."""
    balanced: float = 0.02
    """Two causes closer than this are not ranked."""
    profiler_cost: float = 0.10
    """Profiled steps longer than unprofiled ones by more than this make a verdict on the host doubtful."""
    little: float = 0.02
    """Below this, a share is not worth a sentence."""


DEFAULTS = Thresholds()
