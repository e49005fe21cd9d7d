"""A scenario made ready to run: programs, groups, placement, and the durations each rank will need.

Noise is drawn per rank in program order, once for compute kernels and once for launches, so that a run with a
fault and the same run without it see the same noise.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from commprof.synth.build import build_programs
from commprof.synth.cluster import Placement
from commprof.synth.mesh import Group, Mesh
from commprof.synth.program import Instruction, Kind, Program
from commprof.synth.scenario import Fault, Scenario
from commprof.synth.traffic import received, traffic


@dataclass(slots=True)
class Plan:
    """What the engine runs. ``scenario`` is the one whose faults have been turned into changes of the program."""

    scenario: Scenario
    seed: int
    mesh: Mesh
    placement: Placement
    programs: list[Program]

    @property
    def tick_ns(self) -> int:
        """Resolution of the trace's times: whole microseconds in the oldest era or where the scenario wants it."""
        return 1_000 if self.scenario.whole_us or self.scenario.era == "2.1" else 1

    def program(self, rank: int) -> Program:
        """The program that ``rank`` runs."""
        return self.programs[self.mesh.stage(rank)]

    def group(self, rank: int, instruction: Instruction) -> Group | None:
        """The group of a communication instruction on ``rank``; ``None``: a group of one, nothing to do."""
        assert instruction.comm is not None
        return self.mesh.group(rank, instruction.comm.axis)


def make_plan(scenario: Scenario, seed: int) -> Plan:
    """Check a scenario and make it ready; raises ``UsageError`` for impossible values."""
    scenario.check()
    changed = _change_program(scenario)
    return Plan(changed, seed, changed.mesh(), _place(changed), build_programs(changed))


def durations(plan: Plan, rank: int) -> tuple[array[int], array[int]]:
    """For each instruction of ``rank``: nanoseconds of device or host work, and of CPU time for the launch."""
    scenario, program = plan.scenario, plan.program(rank)
    rng = np.random.default_rng([plan.seed, rank, 1])
    kinds = np.array([ins.kind for ins in program.instructions], dtype=np.int64)
    work = np.array([ins.work_ns for ins in program.instructions], dtype=np.int64)
    for i, ins in enumerate(program.instructions):
        if ins.load is not None:
            work[i] = _loaded(plan, rank, ins, int(work[i]))
    compute = kinds == Kind.COMPUTE
    launches = kinds <= Kind.RECV
    work[compute] = _noisy(work[compute], rng, scenario.noise_permille)
    cost = np.zeros(len(work), dtype=np.int64)
    launch = np.where(_is_comm(kinds[launches]), scenario.comm_launch_ns, scenario.launch_ns)
    cost[launches] = _noisy(launch, np.random.default_rng([plan.seed, rank, 2]), scenario.noise_permille)
    for fault in scenario.faults:
        _slow_down(plan, rank, fault, work, cost, compute)
    return array("q", work.tobytes()), array("q", cost.tobytes())


def host_gaps(plan: Plan, rank: int) -> int:
    """Nanoseconds that the CPU of ``rank`` idles before it launches each communication (fault ``late-launch``)."""
    return sum(f.size for f in plan.scenario.faults if f.kind == "late-launch" and f.rank in (None, rank))


def _is_comm(kinds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return (kinds >= Kind.COLLECTIVE) & (kinds <= Kind.RECV)


def _noisy(values: npt.NDArray[np.int64], rng: np.random.Generator, permille: int) -> npt.NDArray[np.int64]:
    if not permille or not len(values):
        return values
    factors = np.clip(1000 + permille * rng.standard_normal(len(values)), 500, 2000)
    return np.maximum(1, np.rint(values * factors / 1000)).astype(np.int64)


def _loaded(plan: Plan, rank: int, ins: Instruction, work: int) -> int:
    """Expert kernels take time in proportion to the rows that arrived."""
    group = plan.mesh.group(rank, "inner")
    if group is None or ins.load is None:
        return work
    total = 1_000_000
    matrix = traffic(plan.seed, group.id, ins.load, len(group.ranks), total, plan.scenario.imbalance_permille)
    return max(1, work * sum(received(matrix, group.ranks.index(rank), False)) // total)


def _slow_down(
    plan: Plan,
    rank: int,
    fault: Fault,
    work: npt.NDArray[np.int64],
    cost: npt.NDArray[np.int64],
    compute: npt.NDArray[np.bool_],
) -> None:
    """Lengthen what ``fault`` lengthens on ``rank``, in place."""
    hit = fault.rank is None or fault.rank == rank
    if fault.kind == "slow-gpu" and hit:
        work[compute] = work[compute] * (1000 + fault.size) // 1000
    elif fault.kind == "slow-host" and fault.rank is not None:
        if plan.placement.host(rank) == plan.placement.host(fault.rank):
            cost[:] = cost * (1000 + fault.size) // 1000
    elif fault.kind in ("loader-stall", "host-pause", "gc-pause", "profiler-start"):
        slot = {"loader-stall": "loader", "profiler-start": "start"}.get(fault.kind, "pause")
        for i, ins in enumerate(plan.program(rank).instructions):
            turn = fault.kind != "gc-pause" or ins.step % plan.mesh.world == rank
            if ins.slot == slot and turn and (hit or fault.kind == "gc-pause"):
                work[i] += fault.size


def _change_program(scenario: Scenario) -> Scenario:
    """Faults that change what the program does, as changed fields."""
    for fault in scenario.faults:
        if fault.kind == "tiny-buckets":
            scenario = replace(scenario, bucket_cap=fault.size, first_bucket=fault.size)
        elif fault.kind == "huge-bucket":
            scenario = replace(scenario, bucket_cap=fault.size or 1 << 50, first_bucket=fault.size or 1 << 50)
        elif fault.kind == "no-overlap":
            scenario = replace(scenario, overlap=False, prefetch="none")
        elif fault.kind == "blocking-wait":
            scenario = replace(scenario, block_after_comm=True)
    return scenario


def _place(scenario: Scenario) -> Placement:
    placement = Placement.in_order(scenario.cluster, scenario.ranks)
    for fault in scenario.faults:
        if fault.kind == "misplaced-group":
            placement = Placement(scenario.cluster, _strided(scenario))
    for fault in scenario.faults:
        if fault.kind == "slow-link" and fault.rank is not None:
            ports = (placement.gpu_port(fault.rank), placement.nic(fault.rank))
            placement.slow_links.update(dict.fromkeys(ports, max(1, fault.size)))
    return placement


def _strided(scenario: Scenario) -> tuple[int, ...]:
    """Slots such that neighbouring ranks (a tensor-parallel group) sit on different hosts where there are several."""
    hosts = -(-scenario.ranks // scenario.cluster.gpus_per_host)
    free = {host: iter(range(scenario.cluster.gpus_per_host)) for host in range(hosts)}
    return tuple(
        (rank % hosts) * scenario.cluster.gpus_per_host + next(free[rank % hosts]) for rank in range(scenario.ranks)
    )
