"""Which parallel strategy the trace shows, part by part, with its bytes per step beside the formula.

A strategy is read from what the groups of each role are used for. Where two strategies move the same bytes at the same
places (ZeRO-1 and ZeRO-2 without gradient accumulation, FSDP and ZeRO-3), the likelier is named and ``alternatives``
holds both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from commprof.analysis import volumes
from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.group_use import GroupUse
from commprof.analysis.places import PHASES
from commprof.analysis.role_evidence import counted, operations_text, sizes_text
from commprof.analysis.roles import Role
from commprof.analysis.traffic import Traffic
from commprof.analysis.volumes import Moves, Volume
from commprof.manifest import Manifest
from commprof.trace.model import GroupFacts
from commprof.trace.operations import OPERATIONS

_BACKWARD, _OPTIMIZER = PHASES.index("backward"), PHASES.index("optimizer")
_DATA_ROLES = ("dp", "shard", "replicate")
_ONE_PER_GRADIENT = 0.9
"""So many reductions per gradient are no buckets; not all of them, since small ones may be joined or unused."""


@dataclass(frozen=True, slots=True)
class Part:
    """One dimension of the strategy. ``kind`` is the role of its groups, ``name`` the strategy there (``None``: not
    one that has a name), ``degree`` the ranks of a group (for HSDP shards times replicas)."""

    kind: str
    name: str | None
    degree: int | None
    groups: tuple[int, ...]
    volume: Volume
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Strategy:
    """``name`` joins the names of the parts with ``+``; ``none`` without communication, ``unknown`` if no part has a
    name. ``per_step`` is false where the trace has no step marks: bytes are then of the whole window."""

    name: str
    evidence: tuple[str, ...]
    expected: int | None
    measured: int | None
    parts: tuple[Part, ...]
    per_step: bool = True
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Case:
    """Everything that the parts are read from."""

    traffic: Traffic
    groups: Sequence[GroupFacts]
    roles: Sequence[Role]
    uses: Mapping[int, GroupUse]
    marks: FrameworkMarks
    manifests: Sequence[Manifest]
    alternatives: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def with_role(self, *names: str) -> list[int]:
        """Groups of these roles that are used; calls that name no group (-1) stand by their purpose alone."""
        return [group for group in self.uses if self.role(group) in names]

    def role(self, group: int) -> str:
        """Role of a group, for calls without group what their purpose would be."""
        return self.roles[group].name if group >= 0 else _ROLE_OF.get(self.uses[group].purposes[0], "control")

    def moves(self, groups: Sequence[int], operations: Callable[[str], bool] = lambda name: True) -> Moves:
        """The calls of these groups; only of the ``operations`` asked for."""
        codes = [code for code, name in enumerate(OPERATIONS) if operations(name)]
        rows = np.flatnonzero(np.isin(self.traffic.group, groups) & np.isin(self.traffic.operation, codes))
        sizes = Counter(self.groups[group].size for group in groups if group >= 0)
        return Moves(self.traffic, rows, (sizes.most_common(1)[0][0] if sizes else None) or 0)

    def passes(self, use: GroupUse, operation: str) -> int:
        """Backward passes in a step that communicate: as many as forward passes are marked, if the calls repeat so."""
        marked = self.marks.per_step.get("ddp") or self.marks.per_step.get("fsdp-forward") or 1
        sizes = use.size[use.of(operation) & (use.unit == use.unit.min())]
        one = len(sizes) // marked
        repeats = len(sizes) == one * marked and bool((sizes.reshape(marked, one) == sizes[:one]).all())
        return marked if one and repeats else 1


_ROLE_OF = {
    "pipeline": "pp", "ring": "cp", "exchange": "ep", "tensor": "tp", "sequence": "tp", "sharded": "dp",
    "partitioned": "dp", "gradients": "dp",
}  # fmt: skip


def find_strategy(
    traffic: Traffic,
    groups: Sequence[GroupFacts],
    roles: Sequence[Role],
    uses: Sequence[GroupUse],
    marks: FrameworkMarks,
    manifests: Sequence[Manifest] = (),
    *,
    per_step: bool = True,
) -> Strategy:
    """The strategy of a run; ``uses`` and ``roles`` as found before."""
    case = _Case(traffic, groups, roles, {use.group: use for use in uses}, marks, manifests)
    parts = [*_model_parts(case), *_data_parts(case), *_rest(case)]
    names = list(dict.fromkeys(part.name for part in parts if part.name))
    if names:
        name = "+".join(names)
    else:
        name = "unknown" if any(role.name != "control" for role in roles) or any(u.group < 0 for u in uses) else "none"
    unsized = bool(len(traffic)) and not (traffic.size >= 0).any()
    measured = None if unsized else round(float((traffic.moved * traffic.share).sum()))
    weighty = [part for part in parts if (part.volume.measured or 0) > 0.01 * (measured or 0)]
    expected = None
    if weighty and all(part.volume.expected is not None for part in weighty):
        expected = sum(part.volume.expected or 0 for part in parts)
    evidence = tuple(sentence for part in parts for sentence in part.evidence)
    if not uses:
        evidence = ("no communication",)
    return Strategy(name, evidence, expected, measured, tuple(parts), per_step, case.alternatives)


def _model_parts(case: _Case) -> list[Part]:
    """Tensor, pipeline, expert and context parallelism, in this order."""
    parts = []
    tensors = case.with_role("tp")
    if tensors:
        sequential = any("sequence" in case.uses[group].purposes for group in tensors)
        moves = case.moves(tensors)
        parts.append(
            _part(
                case, "tp", "sp" if sequential else "tp", tensors,
                volumes.sequence(moves) if sequential else volumes.tensor(moves),
            )
        )  # fmt: skip
    stages = case.with_role("pp")
    if stages:
        formula = "b s h each way per microbatch, boundary and model chunk, at both ends"
        parts.append(
            _part(
                case,
                "pp",
                "pp",
                stages,
                volumes.messages(case.moves(stages), formula, volumes.pipeline_messages(case.manifests)),
            )
        )
    experts = case.with_role("ep")
    if experts:
        moves = case.moves(experts, lambda name: _serves(case, experts, name, "ep"))
        formula = "4 k b s h (e-1)/e per expert layer and microbatch"
        parts.append(_part(case, "ep", "ep", experts, volumes.exchange(moves, formula)))
    tables = [group for group in case.uses if group >= 0 and "embedding" in case.roles[group].by_operation.values()]
    if tables:
        moves = case.moves(tables, lambda name: name == "all_to_all")
        number = counted(moves.calls(moves.of("all_to_all")), "all_to_all")
        why = f"{number} {case.uses[tables[0]].per} of model-parallel embeddings: the device runs embedding bags"
        parts.append(Part("embedding", None, moves.members, tuple(tables), volumes.exchange(moves, None), (why,)))
    context = case.with_role("cp")
    if context:
        formula = "6 (c-1)/c b s g per layer and microbatch, at both ends"
        ring = any("ring" in case.uses[group].purposes for group in context)
        moves = case.moves(context)
        parts.append(_part(case, "cp", "cp", context, volumes.messages(moves, formula) if ring else moves.volume()))
    return parts


def _serves(case: _Case, groups: Sequence[int], operation: str, role: str) -> bool:
    """Whether an operation of these groups serves the role, and not another one in the same group."""
    return all(group < 0 or case.roles[group].of(operation) == role for group in groups)


def _part(case: _Case, kind: str, name: str, groups: list[int], volume: Volume) -> Part:
    use = case.uses[groups[0]]
    number = f"{len(groups)} groups" if len(groups) > 1 else "one group"
    size = use.facts.size
    why = f"{name}: {operations_text(use)}" + (f" in {number} of {size} ranks" if size else "")
    return Part(kind, name, size, tuple(group for group in groups if group >= 0), volume, (why,))


def _data_parts(case: _Case) -> list[Part]:
    """Data parallelism, of experts too."""
    parts = []
    shared = [g for g in case.with_role("ep") if len(case.uses[g].purposes) > 1]
    for kind, groups in (("dp", [*case.with_role(*_DATA_ROLES), *shared]), ("edp", case.with_role("edp"))):
        if groups:
            found = _data_part(case, kind, groups)
            parts += [found] if found is not None else []
    return parts


def _data_part(case: _Case, kind: str, groups: list[int]) -> Part | None:
    def mine(operation: str) -> bool:
        return operation != "all_to_all" and all(
            g < 0 or case.roles[g].of(operation) in (*_DATA_ROLES, "edp") for g in groups
        )

    moves = case.moves(groups, mine)
    by_purpose = {
        purpose: [g for g in groups if purpose in case.uses[g].purposes]
        for purpose in ("sharded", "partitioned", "gradients")
    }
    if by_purpose["sharded"]:
        return _sharded(case, kind, groups, by_purpose, moves)
    if by_purpose["partitioned"]:
        return _partitioned(case, kind, groups, by_purpose["partitioned"], moves)
    if not by_purpose["gradients"]:
        return None
    use = case.uses[by_purpose["gradients"][0]]
    volume = volumes.data_parallel(moves, case.passes(use, "all_reduce"), case.manifests)
    return Part(kind, "ddp", use.facts.size, _known(groups), volume, tuple(_ddp_evidence(case, use)))


def _ddp_evidence(case: _Case, use: GroupUse) -> list[str]:
    gradients = use.of("all_reduce")
    calls, produced = use.per_unit(gradients), case.marks.per_step.get("gradients", 0)
    number = counted(calls, "all_reduce")
    sizes = use.size[gradients & (use.size > 0)]
    spread = f" of {sizes_text(int(sizes.min()), int(sizes.max()))}" if len(sizes) else ""
    known = use.part(gradients, _BACKWARD)
    where = " in the backward pass" if known is not None and known >= 0.5 else ""
    lines = [f"ddp: {number} {use.per}{where}{spread}: {'gradients' if calls < 2 else 'buckets of gradients'}"]
    if calls >= 2 and produced and calls >= _ONE_PER_GRADIENT * produced:
        lines = [f"ddp: {number} {use.per}{where}{spread} for {produced} gradients: one per parameter, not in buckets"]
    broadcasts = use.of("broadcast")
    if broadcasts.any():
        lines.append(f"{counted(use.per_unit(broadcasts), 'broadcast')} {use.per}: buffers")
    if case.marks.has("ddp"):
        lines.append("the program marks DistributedDataParallel.forward")
    return lines


def _partitioned(case: _Case, kind: str, groups: list[int], chosen: list[int], moves: Moves) -> Part:
    use = case.uses[chosen[0]]
    volume = volumes.partitioned(moves, case.manifests)
    name, why, alike = _zero_stage(case, use, moves)
    if alike:
        case.alternatives[name] = ("zero1", "zero2")
    return Part(kind, name, use.facts.size, _known(groups), volume, (f"{name}: {operations_text(use)}", why))


def _zero_stage(case: _Case, use: GroupUse, moves: Moves) -> tuple[str, str, bool]:
    """Stage 1 or 2, why, and whether the trace could be of the other one as well.

    Stage 2 reduces in every backward pass, since it keeps only a part of the gradients; without accumulation that does
    not show. ``ZeroRedundancyOptimizer`` broadcasts. DeepSpeed's stage 1 reduces after the backward pass.
    """
    casts, gathers = moves.of("broadcast") & moves.phase(_OPTIMIZER), moves.of("all_gather")
    if moves.size(casts) > moves.size(gathers):
        named = " (ZeroRedundancyOptimizer)" if case.marks.has("zero-optimizer") else ""
        return "zero1", f"updated parameters are broadcast by their owners{named}", False
    reduced = moves.of("all_reduce", "reduce_scatter", "reduce") & moves.floating() & ~moves.scalars()
    bg, bp = moves.width(reduced) or 1, moves.width(gathers) or 1
    once = moves.size(gathers) / bp
    passes = moves.size(reduced) / bg / once if once else 1.0
    if passes >= 1.5:
        return "zero2", f"gradients are reduced {passes:.1f} times for each time that parameters are gathered", False
    inside = use.part(use.of("all_reduce", "reduce"), _BACKWARD)
    alike = "without gradient accumulation ZeRO-1 and ZeRO-2 look alike"
    if moves.size(reduced & moves.of("reduce_scatter")) == 0 and inside is not None:
        if inside >= 0.5:
            return (
                "zero2",
                f"gradients are all-reduced in the backward pass, as DeepSpeed's stage 2 does; {alike}",
                True,
            )
        return "zero1", f"gradients are all-reduced after the backward pass, as DeepSpeed's stage 1 does; {alike}", True
    several = len(np.unique(use.unit)) and _accumulates(case)
    return "zero1", "gradients are reduced once per optimizer step" if several else alike, not several


def _accumulates(case: _Case) -> bool:
    """Whether a step has several backward passes: its gradients are produced more often than reduced."""
    pipeline = any(manifest.pipeline is not None for manifest in case.manifests)
    return case.marks.per_step.get("ddp", 1) > 1 or pipeline


def _sharded(case: _Case, kind: str, groups: list[int], by_purpose: Mapping[str, list[int]], moves: Moves) -> Part:
    shards = by_purpose["sharded"]
    use = case.uses[shards[0]]
    replicas = [g for g in groups if case.role(g) == "replicate"]
    own = case.moves(shards)
    moves = Moves(moves.traffic, moves.rows, own.members)
    passes = case.passes(use, "reduce_scatter")
    size = use.facts.size
    if replicas:
        other = case.uses[replicas[0]]
        volume = volumes.sharded(moves, case.moves(replicas), passes, case.manifests)
        why = (
            f"hsdp: {operations_text(use)} within {size} shards",
            f"{operations_text(other)} over {other.facts.size} replicas",
        )
        degree = size * other.facts.size if size and other.facts.size else None
        return Part(kind, "hsdp", degree, _known(groups), volume, why)
    name, why_name, kept = _sharded_name(case, use, own)
    volume = volumes.sharded(moves, None, passes, case.manifests, kept=kept)
    return Part(kind, name, size, _known(groups), volume, (f"{name}: {operations_text(use)}", why_name))


def _sharded_name(case: _Case, use: GroupUse, moves: Moves) -> tuple[str, str, bool]:
    """Name, why, and whether parameters stay gathered between the passes by intent."""
    gathers = moves.of("all_gather")
    backward = moves.size(gathers & moves.phase(_BACKWARD))
    kept = backward < 0.1 * moves.size(gathers)
    if not case.marks.has("fsdp") and kept and _same_buckets(use):
        case.alternatives["zero1"] = ("fsdp", "zero1", "zero2")
        why = "parameters are gathered once, in the buckets in which gradients are scattered: a sharded optimizer whose"
        return "zero1", f"{why} gathers overlap the forward pass; so does FSDP that keeps its parameters", True
    if not case.marks.has("fsdp"):
        case.alternatives["zero3"] = ("fsdp", "zero3")
        return "zero3", "no range of FSDP is in the trace; FSDP moves the same bytes", False
    if kept:
        case.alternatives["fsdp"] = ("fsdp", "zero2")
        return "fsdp", "parameters are not gathered again in the backward pass: the bytes of ZeRO-2", True
    case.alternatives["fsdp"] = ("fsdp", "zero3")
    return "fsdp", "the program marks ranges of FSDP; ZeRO-3 moves the same bytes", False


def _same_buckets(use: GroupUse) -> bool:
    """Whether what is gathered is cut as what is scattered: Megatron's buckets, not the modules of ZeRO-3."""
    gathered, scattered = Counter(use.elements(use.of("all_gather"))), Counter(use.elements(use.of("reduce_scatter")))
    return sum((gathered & scattered).values()) >= 0.9 * max(gathered.total(), scattered.total(), 1)


def _rest(case: _Case) -> list[Part]:
    """What belongs to no dimension: control traffic, tied embeddings, calls that nobody understands."""
    parts = []
    for kind in ("embedding", "control", "unknown"):
        groups = case.with_role(kind)
        if groups:
            use = case.uses[groups[0]]
            moves = case.moves(groups)
            why = f"{kind}: {operations_text(use)}"
            parts.append(Part(kind, None, use.facts.size, _known(groups), moves.volume(), (why,)))
    return parts


def _known(groups: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(group for group in groups if group >= 0))
