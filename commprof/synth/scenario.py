"""A scenario: everything that decides a simulated run, as one frozen value that goes to JSON and back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path as FilePath
from typing import Any

from commprof.errors import InputRefused, UsageError
from commprof.synth.cluster import Cluster, Link
from commprof.synth.mesh import Mesh

STRATEGIES = ("ddp", "zero1", "zero1-torch", "zero2", "zero3", "fsdp", "hsdp", "none")
SCHEDULES = ("gpipe", "1f1b", "interleaved")
ERAS = ("2.13", "2.4", "2.1")
FAULTS = (
    "slow-gpu", "slow-host", "loader-stall", "gc-pause", "host-pause", "slow-link", "flapping-link",
    "misplaced-group", "late-launch", "blocking-wait", "tiny-buckets", "huge-bucket", "no-overlap",
    "profiler-start",
)  # fmt: skip
_USUAL_SIZE = {
    "slow-gpu": 200, "slow-host": 1_000, "slow-link": 100, "flapping-link": 100, "tiny-buckets": 4_096,
    "huge-bucket": 0, "misplaced-group": 0, "blocking-wait": 0, "no-overlap": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the run.

    ``size`` is nanoseconds for pauses and stalls, thousandths of extra time for slow machines, thousandths of
    bandwidth left for links, bytes for buckets. ``rank`` is who is hit (its host for ``slow-host``); ``None``
    means all ranks, or a turn for each with ``gc-pause``.
    """

    kind: str
    rank: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated training run. Times in nanoseconds, sizes in bytes, shares in thousandths (``*_permille``).

    The data-parallel degree is ``inner * outer``: for HSDP ``inner`` shards and ``outer`` replicates, with
    ``experts`` the inner part is the expert-parallel group; other strategies use ``inner`` alone.
    """

    name: str = "ddp"
    strategy: str = "ddp"
    tp: int = 1
    inner: int = 2
    outer: int = 1
    pp: int = 1
    experts: bool = False
    layers: int = 8
    hidden: int = 2048
    sequence: int = 1024
    batch: int = 4
    coarse: bool = True
    layer_forward_ns: int = 0
    steps: int = 3
    first_step: int = 3
    microbatches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    early_receives: bool = False
    last_stage_extra_permille: int = 0
    bucket_cap: int = 25 << 20
    first_bucket: int = 1 << 20
    bucket_order: str = "backward"
    accumulate: bool = True
    find_unused: bool = False
    overlap: bool = True
    prefetch: str = "implicit"
    sequence_parallel: bool = False
    async_tp: bool = False
    imbalance_permille: int = 0
    optimizer_ns: int = 0
    loader_ns: int = 200_000
    sync_each_step: bool = False
    block_after_comm: bool = False
    launch_ns: int = 6_000
    comm_launch_ns: int = 25_000
    launch_latency_ns: int = 3_000
    launch_queue: int = 1000
    noise_permille: int = 0
    contention_permille: int = 0
    comm_base_ns: int = 5_000
    real: bool = False
    clock_offset_ns: int = 0
    clock_drift_ppb: int = 0
    whole_us: bool = False
    era: str = "2.13"
    described_groups: bool = True
    cluster: Cluster = field(default_factory=Cluster)
    faults: tuple[Fault, ...] = ()

    @property
    def ranks(self) -> int:
        """World size."""
        return self.tp * self.inner * self.outer * self.pp

    def mesh(self) -> Mesh:
        """The process groups of this job, with their roles."""
        if self.experts:
            roles = {"inner": "ep", "outer": "edp"}
        elif self.strategy == "hsdp":
            roles = {"inner": "shard", "outer": "replicate"}
        else:
            roles = {"inner": "dp", "outer": "dp"}
        return Mesh(tp=self.tp, inner=self.inner, outer=self.outer, pp=self.pp, roles=roles)

    def parts(self) -> list[str]:
        """The strategy as its parts, in the words of the report."""
        names = []
        if self.tp > 1:
            names.append("sp" if self.sequence_parallel else "tp")
        if self.pp > 1:
            names.append("pp")
        if self.experts and self.inner > 1:
            names.append("ep")
        if self.inner * self.outer > 1 and self.strategy != "none":
            names.append("zero1" if self.strategy == "zero1-torch" else self.strategy)
        return names or ["none"]

    def with_ranks(self, ranks: int) -> Scenario:
        """The same job on another number of ranks: the inner data-parallel degree takes up the difference."""
        rest = self.tp * self.outer * self.pp
        if ranks < 1 or ranks % rest:
            degrees = ", ".join(f"{name} {n}" for name in ("tp", "outer", "pp") if (n := getattr(self, name)) > 1)
            hint = f"give a multiple of {rest} ({degrees})" if degrees else "give 1 or more"
            raise UsageError(f"{ranks} ranks do not fit scenario {self.name}", hint=hint)
        return replace(self, inner=ranks // rest)

    def without(self, *kinds: str) -> Scenario:
        """The same run without the faults of these kinds."""
        return replace(self, faults=tuple(f for f in self.faults if f.kind not in kinds))

    def check(self) -> None:
        """Refuse values that make no sense; raises ``UsageError``."""
        problems = [
            (self.strategy in STRATEGIES, f"strategy {self.strategy!r} is not one of {', '.join(STRATEGIES)}"),
            (self.schedule in SCHEDULES, f"schedule {self.schedule!r} is not one of {', '.join(SCHEDULES)}"),
            (self.era in ERAS, f"era {self.era!r} is not one of {', '.join(ERAS)}"),
            (min(self.tp, self.inner, self.outer, self.pp) >= 1, "a parallel degree below 1"),
            (self.steps >= 1 and self.microbatches >= 1, "steps and microbatches start at 1"),
            (self.layers % (self.pp * self.chunks) == 0, "layers do not divide into pp x chunks"),
            (self.chunks == 1 or self.schedule == "interleaved", "chunks need schedule 'interleaved'"),
            (self.pp == 1 or self.microbatches >= self.pp, "a pipeline needs at least pp microbatches"),
            (
                self.schedule != "interleaved" or self.microbatches % self.pp == 0,
                "an interleaved pipeline needs microbatches in multiples of pp",
            ),
            (
                self.strategy not in ("fsdp", "hsdp", "zero3") or self.pp == 1,
                "full sharding is simulated without a pipeline",
            ),
            (
                self.outer == 1 or self.experts or self.strategy == "hsdp",
                "the outer part of data parallel is for hsdp and experts",
            ),
            (not self.experts or self.strategy == "ddp", "experts are simulated with strategy ddp"),
            (self.prefetch in ("implicit", "explicit", "none"), f"prefetch {self.prefetch!r} is unknown"),
            (self.bucket_order in ("backward", "forward"), f"bucket order {self.bucket_order!r} is unknown"),
            (self.launch_queue >= 8, "a launch queue below 8"),
        ]  # fmt: skip
        for fault in self.faults:
            problems.append((fault.kind in FAULTS, f"fault {fault.kind!r} is not one of {', '.join(FAULTS)}"))
            links = fault.kind in ("slow-link", "flapping-link", "slow-host")
            problems.append((fault.rank is not None or not links, f"fault {fault.kind} needs a rank"))
            problems.append(
                (fault.rank is None or 0 <= fault.rank < self.ranks, f"fault on rank {fault.rank} of {self.ranks}")
            )
        for good, message in problems:
            if not good:
                raise UsageError(f"scenario {self.name}: {message}")

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``truth.json`` or a scenario file."""
        return asdict(self)


def parse_fault(text: str) -> Fault:
    """``KIND``, ``KIND:RANK`` or ``KIND:RANK:SIZE`` as a fault; ``all`` as rank hits everybody.

    Raises ``UsageError``. Without a size a pause lasts 5 ms, a slow GPU takes a fifth longer, a slow host twice as
    long, and a link keeps a tenth.
    """
    kind, *rest = text.split(":")
    if kind not in FAULTS:
        raise UsageError(f"no fault {kind!r}", hint="there are: " + ", ".join(FAULTS))
    try:
        rank = int(rest[0]) if rest and rest[0] != "all" else None
        size = int(rest[1]) if len(rest) > 1 else _USUAL_SIZE.get(kind, 5_000_000)
    except ValueError:
        raise UsageError(f"fault {text!r} is not KIND, KIND:RANK or KIND:RANK:SIZE") from None
    if size < 0 or len(rest) > 2:
        raise UsageError(f"fault {text!r} is not KIND, KIND:RANK or KIND:RANK:SIZE")
    return Fault(kind, rank, size)


def scenario_from_json(data: dict[str, Any]) -> Scenario:
    """Inverse of :meth:`Scenario.to_json`; missing keys take their defaults; raises ``UsageError``."""
    known = {f.name for f in fields(Scenario)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise UsageError(f"unknown scenario key {unknown[0]!r}", hint="see commprof.synth.Scenario")
    values = dict(data)
    try:
        if "cluster" in values:
            cluster = dict(values["cluster"])
            for key in ("nvlink", "pcie", "nic"):
                if key in cluster:
                    cluster[key] = Link(**cluster[key])
            values["cluster"] = Cluster(**cluster)
        values["faults"] = tuple(Fault(**fault) for fault in values.get("faults", ()))
        scenario = Scenario(**values)
        scenario.check()
    except TypeError as error:
        raise UsageError(f"bad scenario: {error}") from None
    return scenario


def read_scenario(path: FilePath) -> Scenario:
    """Read a scenario file (a JSON object of :class:`Scenario` fields); raises ``InputRefused``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputRefused(f"{path}: not a scenario file: {error}") from None
    if not isinstance(data, dict):
        raise InputRefused(f"{path}: not a scenario file: the root is no object")
    return scenario_from_json(data)
