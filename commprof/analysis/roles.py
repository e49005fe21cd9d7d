"""The role of every process group: what its members share between them.

Decided from what the group is used for (:mod:`commprof.analysis.group_use`), from its place among the other groups
of a member (who shards, who replicates), from its description where that names a role that fits the use, and from the
shape of its ranks where nothing else tells. Descriptions are not needed; a description that contradicts the calls is
mentioned and not followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from commprof.analysis.descriptions import Described, described_role
from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.group_use import GroupUse
from commprof.analysis.hosts import crosses_hosts
from commprof.analysis.role_evidence import meaning, operations_text, phases_text
from commprof.analysis.shapes import shape_of, shape_text, tiling
from commprof.trace.model import GroupFacts

ROLES = ("dp", "tp", "pp", "ep", "edp", "cp", "shard", "replicate", "embedding", "control", "unknown")

_BY_PURPOSE = {
    "pipeline": "pp", "ring": "cp", "exchange": "ep", "tensor": "tp", "sequence": "tp", "sharded": "dp",
    "partitioned": "dp", "gradients": "dp", "broadcast": "control", "control": "control",
}  # fmt: skip
_MORE_SUMS = 1.25
"""Replicas sum each scattered shard once; much more than that are other tensors of the same size."""

_DATA = ("gradients", "partitioned", "sharded")
_ALLOWED: dict[str, tuple[str, ...]] = {
    "dp": (*_DATA, "broadcast", "control", "unknown"),
    "shard": ("sharded", "partitioned", "unknown"),
    "replicate": ("gradients", "unknown"),
    "edp": (*_DATA, "unknown"),
    "tp": ("tensor", "sequence", "unknown"),
    "pp": ("pipeline",),
    "cp": ("ring", "exchange", "sequence", "sharded", "unknown"),
    "ep": ("exchange", "sequence", "sharded", "unknown"),
    "embedding": ("gradients", "broadcast", "control", "unknown"),
    "control": ("control", "broadcast", "gradients", "unknown"),
}
"""Purposes that a description may be believed for."""


@dataclass(frozen=True, slots=True)
class Role:
    """Role of one group. ``by_operation`` holds the operations that serve another one in the same group."""

    name: str
    evidence: tuple[str, ...] = ()
    crosses_hosts: bool | None = None
    purposes: tuple[str, ...] = ()
    by_operation: Mapping[str, str] = field(default_factory=dict)

    def of(self, operation: str) -> str:
        """Role of the calls of one operation."""
        return self.by_operation.get(operation, self.name)


class _Neighbours:
    """Which groups share members."""

    def __init__(self, uses: Sequence[GroupUse]) -> None:
        self.uses = {use.group: use for use in uses if use.group >= 0}
        self._of_rank: dict[int, list[int]] = defaultdict(list)
        for use in self.uses.values():
            for rank in use.facts.ranks or ():
                self._of_rank[rank].append(use.group)

    def of(self, use: GroupUse) -> list[GroupUse]:
        """Other groups of the member that the use was read from."""
        others = self._of_rank.get(use.member, [])
        return [self.uses[group] for group in others if group != use.group]


def find_roles(
    groups: Sequence[GroupFacts],
    uses: Sequence[GroupUse],
    world: int | None,
    hosts: Mapping[int, str],
    marks: FrameworkMarks,
) -> list[Role]:
    """One role per group, in the order of ``groups``; a group without calls in a complete step is ``unknown``."""
    neighbours = _Neighbours(uses)
    for use in uses:
        _settle_by_shape(use, neighbours)
    names = {use.group: _name(use, neighbours, marks) for use in neighbours.uses.values()}
    for use in neighbours.uses.values():
        # Where phases are missing, a description may say what gathers and scatters are of.
        if not use.by_phase and names[use.group][0] == "tp" and use.purposes[0] == "sharded":
            use.purposes = ("sequence",)
    same = defaultdict(list)
    for use in neighbours.uses.values():
        if use.facts.ranks:
            same[names[use.group][0], use.facts.size].append(use.facts.ranks)
    tiles = {key: tiling(sets, world) for key, sets in same.items()}
    roles = []
    for index, facts in enumerate(groups):
        crosses = crosses_hosts(facts.ranks, hosts)
        if index not in names:
            roles.append(Role("unknown", ("no call of it in a complete step",), crosses))
            continue
        use, (name, why) = neighbours.uses[index], names[index]
        evidence = [
            f"{operations_text(use)}: {meaning(use.purposes)}" if meaning(use.purposes) else operations_text(use)
        ]
        where = phases_text(use)
        evidence += [where] if where and use.by_phase else []
        evidence += [] if use.by_phase else ["no phase of the step is known: by the order of calls and their sizes"]
        if facts.ranks:
            evidence.append(shape_text(facts.ranks, tiles.get((name, facts.size), 0), world))
        roles.append(Role(name, (*evidence, *why), crosses, use.purposes, _by_operation(use, name)))
    return roles


def _settle_by_shape(use: GroupUse, neighbours: _Neighbours) -> None:
    """Where no phase tells activations from gradients: of two groups that all-reduce, the neighbours share tensors;
    and where another group reduces the gradients, what is summed beside it are tensors."""
    if use.by_phase or not use.facts.ranks or use.group < 0 or not {"tensor", "gradients"} & set(use.purposes):
        return
    others = neighbours.of(use)
    if any(other.purposes[0] in ("sharded", "partitioned") and _cross(use, other) for other in others):
        settled = (_replicates(use, others), _holds_experts(use, others), _ties_embeddings(use, others))
        use.purposes = ("gradients",) if any(found is not None for found in settled) else ("tensor",)
        return
    for other in others:
        if other.by_phase or not other.facts.ranks or not {"tensor", "gradients"} & set(other.purposes):
            continue
        mine, its = shape_of(use.facts.ranks), shape_of(other.facts.ranks)
        if mine.kind == "contiguous" and its.kind == "strided" and its.stride >= len(use.facts.ranks):
            use.purposes, other.purposes = ("tensor",), ("gradients",)


def _name(use: GroupUse, neighbours: _Neighbours, marks: FrameworkMarks) -> tuple[str, list[str]]:
    """Role of a group and the sentences that go with it beside those on its calls and shape."""
    own, why = _from_use(use, neighbours, marks)
    described = described_role(use.facts.description)
    if described is None:
        return own, why
    text = f"described as {use.facts.description}" + (f", the product {described.product}" if described.product else "")
    chosen = _agreed(own, described, use)
    if chosen is None:
        return own, [*why, f"{text}, which does not fit what it does"]
    return chosen, [*why, text]


def _agreed(own: str, described: Described, use: GroupUse) -> str | None:
    """The role on which description and use agree, the finer of both; ``None`` if they do not."""
    for role in (described.role, described.otherwise):
        if role is None:
            continue
        if role == own or (role == "dp" and own in ("shard", "replicate", "edp")):
            return own
        weak = not use.by_phase and own in ("tp", "dp") and role in ("tp", "dp")
        if weak or any(purpose in _ALLOWED[role] for purpose in use.purposes):
            return role
    return None


def _from_use(use: GroupUse, neighbours: _Neighbours, marks: FrameworkMarks) -> tuple[str, list[str]]:
    purpose = use.purposes[0]
    if purpose == "exchange":
        if marks.embedding_bags and "gradients" in use.purposes:
            return "dp", ["the all-to-alls exchange model-parallel embeddings: the device runs embedding bags"]
        return "ep", []
    if purpose not in _DATA:
        return _BY_PURPOSE.get(purpose, "unknown"), []
    others = neighbours.of(use)
    if purpose == "gradients":
        for found in (_replicates(use, others), _ties_embeddings(use, others)):
            if found is not None:
                return found
    expert = _holds_experts(use, others)
    if expert is not None:
        return "edp", [expert]
    if purpose == "sharded":
        for other in others:
            found = _replicates(other, [use]) if other.purposes[0] == "gradients" else None
            if found is not None:
                return "shard", [f"each shard is summed over another group ({_called(other)})"]
    inner = [o for o in others if _inside(o, use) and o.purposes[0] in ("exchange", "ring", "sequence", "tensor")]
    return "dp", [f"it holds {_called(other)}, so it is a product with that dimension" for other in inner[:2]]


def _replicates(use: GroupUse, others: Sequence[GroupUse]) -> tuple[str, list[str]] | None:
    """All-reduces of what another group of the member reduce-scattered: the replicas of a hybrid shard."""
    for other in others:
        if other.purposes[0] != "sharded" or not _cross(use, other):
            continue
        size = other.facts.size or 0
        scattered = other.of("reduce_scatter") & (other.size > 0)
        shards = {round(value / size) for value in other.elements(scattered)} if size else set()
        reduced = use.elements(use.of("all_reduce"))
        if len(reduced) / use.units > _MORE_SUMS * other.per_unit(scattered):
            continue
        fitting = sum(any(abs(value - shard) <= shard // 100 for shard in shards) for value in reduced)
        if reduced and fitting >= len(reduced) / 2:
            return "replicate", [f"its messages are the shards of {_called(other)}"]
    return None


def _ties_embeddings(use: GroupUse, others: Sequence[GroupUse]) -> tuple[str, list[str]] | None:
    """First and last stage of a pipeline that sum one tensor: tied embeddings."""
    calls = use.per_unit(use.of("all_reduce"))
    for other in others:
        stages = other.facts.ranks or ()
        ends = {stages[0], stages[-1]} if len(stages) > 2 else set()
        if other.purposes[0] == "pipeline" and calls <= 2 and ends and set(use.facts.ranks or ()) == ends:
            return "embedding", [f"first and last stage of {_called(other)} sum one tensor"]
    return None


def _holds_experts(use: GroupUse, others: Sequence[GroupUse]) -> str | None:
    """Data parallel across an expert-parallel group, with a larger group for the parameters that are no experts."""
    for expert in others:
        if expert.purposes[0] != "exchange" or not _cross(use, expert):
            continue
        for larger in others:
            if set(larger.purposes) & set(_DATA) and larger is not expert and _inside(use, larger):
                return f"copies of the experts of {_called(expert)}; {_called(larger)} holds the other parameters"
    return None


def _cross(one: GroupUse, other: GroupUse) -> bool:
    """Whether two groups meet in one rank only, as the dimensions of a mesh do."""
    if not one.facts.ranks or not other.facts.ranks:
        return False
    return len(set(one.facts.ranks) & set(other.facts.ranks)) == 1


def _inside(one: GroupUse, other: GroupUse) -> bool:
    if not one.facts.ranks or not other.facts.ranks:
        return False
    return set(one.facts.ranks) < set(other.facts.ranks)


def _by_operation(use: GroupUse, name: str) -> dict[str, str]:
    """Operations of a group that serve another purpose than the one that names it."""
    if "exchange" not in use.purposes or len(use.purposes) < 2:
        return {}
    if name == "dp":
        return {"all_to_all": "embedding"}
    second = _BY_PURPOSE.get(use.purposes[1], "unknown")
    return dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "broadcast"), second)


def _called(use: GroupUse) -> str:
    facts = use.facts
    named = facts.description if described_role(facts.description) else None
    return f"group {facts.name} ({named or f'{facts.size} ranks'})"
