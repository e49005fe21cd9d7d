"""Faults of real runs, each with what a report should say about it; imports no torch."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    ``cause``: why one rank is late (null: no rank is). ``findings``: the top finding that is no structural one
    may be any of these. ``slow_network``: shows only where transfers take time rather than processor time.
    """

    cause: str | None = None
    findings: tuple[str, ...] = ()
    slow_network: bool = False


KINDS = {
    "none": Kind(),
    "slow-rank": Kind("more-work", ("straggler",)),
    "slow-loader": Kind("input", ("straggler", "input-bound")),
    "host-pause": Kind("host", ("straggler", "host-bound")),
    "busy-core": Kind("slow-device", ("straggler",)),
    "tiny-buckets": Kind(None, ("buckets-too-small", "tiny-messages"), True),
    "huge-bucket": Kind(None, ("bucket-too-large", "ddp-no-overlap"), True),
    "no-sync": Kind(None, ("repeated-reduction",), True),
    "blocking-wait": Kind(None, ("blocking-wait",), True),
}


@dataclass(frozen=True)
class Plan:
    """One run, decided by kind and seed alone.

    ``share`` of a sound step is what the fault adds on rank ``late_rank``; ``place`` is where in the step a pause
    falls, ``manner`` how the time goes. ``injected`` is false for the sound twin: the same run without the fault, or
    with the advised change.
    """

    kind: str
    seed: int
    injected: bool
    late_rank: int
    share: float
    place: str
    manner: str
    layers: int
    width: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}" + ("" if self.injected or self.kind == "none" else "-sound")


def plan(kind: str, seed: int, injected: bool = True) -> Plan:
    """The run of this kind and seed; sizes, rank and extent vary with the seed."""
    draw = random.Random(f"{kind} {seed}")
    # Small buckets cost latency, which shows with many small parameters; three microbatches make a long step.
    many, short = kind == "tiny-buckets", kind == "no-sync"
    return Plan(
        kind=kind,
        seed=seed,
        injected=injected and kind != "none",
        late_rank=draw.randrange(2),
        share=draw.uniform(0.15, 0.4),
        place=draw.choice(["before forward", "before backward", "before optimizer"]),
        manner=draw.choice(["sleep", "work"]),
        layers=draw.randint(7, 9) if many else draw.randint(3, 5),
        width=128 if many else draw.choice([192, 256]),
        batch=1 if short else draw.randint(2, 3),
    )
