"""What a process group is used for, from the calls of one member: operations, place in the step, sizes.

A purpose is a pattern of communication, whoever made the group:

* ``pipeline``: messages to the stages before and after; ``ring``: messages passed around in a circle;
* ``exchange``: all-to-all;
* ``tensor``: all-reduces of activations in the forward and in the backward pass; ``sequence``: the same with
  all-gather and reduce-scatter, recognised by reduce-scatters in the forward pass;
* ``sharded``: parameters gathered for the passes, gradients reduce-scattered (FSDP, ZeRO-3);
* ``partitioned``: gradients reduced, updated parameters gathered or broadcast after the optimizer (ZeRO-1, ZeRO-2);
* ``gradients``: all-reduces in the backward pass alone (DDP);
* ``broadcast``: only broadcasts; ``control``: barriers and a few bytes; ``unknown``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.codes import operation_is
from commprof.analysis.places import PHASES
from commprof.analysis.traffic import Floats, Traffic
from commprof.intervals import Int64Array
from commprof.trace.model import GroupFacts

_FORWARD, _BACKWARD, _OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))
_MESSAGES = ("send", "recv", "send_recv")
_PART = 0.1
"""An operation with less than this share of the bytes of its kind is a side effect, not the purpose."""
_EARLY = 0.12
"""Activations are first summed after one block of one of many layers, gradients only after the whole forward pass,
which is a quarter of a step or more."""
_FEW_BYTES = 4096
"""Norms, flags, losses and counters are smaller, parameters and activations of any model larger."""
_FEW_CALLS = 4
"""Two calls are in some order by chance; two steps of them are not."""
_LEAST_GRADIENTS = 0.25
"""Gradients have at least this share of the bytes of the parameters that they update."""
_LEAST_PASSES = 4
"""A ring of two passes keys and values in each of several layers; fewer calls may be a pipeline of one microbatch."""


@dataclass(slots=True, eq=False)
class GroupUse:
    """The calls of ``member`` (a global rank) in one group, in the order of its program; columns of shape ``(calls,)``.

    ``group`` is an index into ``Analysis.groups`` or -1 for calls that name no group. ``units`` is over how many steps
    they were recorded; where no step is complete, ``unit`` is 0 for all calls and ``units`` is 1. ``width`` is bytes
    per element (0 unknown). ``messages_of`` counts the messages of every member that is in the input.
    """

    group: int
    facts: GroupFacts
    member: int
    operation: NDArray[np.int8]
    size: Int64Array
    width: Int64Array
    phase: NDArray[np.int8]
    unit: Int64Array
    units: int
    place: Floats
    peer: Int64Array
    messages_of: tuple[int, ...] = ()
    purposes: tuple[str, ...] = field(default=())
    by_phase: bool = True
    """Whether the purpose follows from phases, and not from order and sizes alone."""
    behind: NDArray[np.bool_] | None = None
    """Calls that start as soon as the one before them has ended; ``None``: not known."""
    per: str = "per step"
    """How figures of one unit are called; without step marks there is one window."""

    def __len__(self) -> int:
        return len(self.operation)

    def of(self, *names: str) -> NDArray[np.bool_]:
        """Which calls are of these operations."""
        return operation_is(self.operation, *names)

    def elements(self, chosen: NDArray[np.bool_]) -> list[int]:
        """Elements of each of the chosen calls whose size is known; bytes where the type is not."""
        sized = chosen & (self.size > 0)
        found: list[int] = (self.size[sized] // np.maximum(self.width[sized], 1)).tolist()
        return found

    def per_unit(self, chosen: NDArray[np.bool_]) -> float:
        """How many of the chosen calls there are per step."""
        return float(chosen.sum()) / self.units

    def weight(self, chosen: NDArray[np.bool_]) -> float:
        """Bytes of the chosen calls per step; their number where the sizes of some operation are not known."""
        sized = np.unique(self.operation[self.size >= 0])
        if len(sized) < len(np.unique(self.operation)):
            return self.per_unit(chosen)
        return float(np.maximum(self.size[chosen], 0).sum()) / self.units

    def part(self, chosen: NDArray[np.bool_], phase: int) -> float | None:
        """Share of the weight of the chosen calls that lies in a phase; ``None`` where most phases are unknown."""
        known = chosen & (self.phase >= 0)
        total = self.weight(known)
        if not total or total < self.weight(chosen) / 2:
            return None
        return self.weight(known & (self.phase == phase)) / total


def find_uses(
    traffic: Traffic, groups: list[GroupFacts], numbers: Int64Array, *, per_step: bool = True
) -> list[GroupUse]:
    """Use of every group in order of its index, each from the member with the most calls; calls without group last.

    ``numbers`` are the global ranks of the input; without ``per_step`` there is one window and no step.
    """
    if not len(traffic):
        return []
    complete = traffic.unit >= 0
    counted = np.flatnonzero(complete) if complete.any() else np.arange(len(traffic))
    order = counted[np.lexsort((counted, traffic.rank[counted], traffic.group[counted]))]
    group, rank = traffic.group[order], traffic.rank[order]
    changes = np.flatnonzero((np.diff(group) != 0) | (np.diff(rank) != 0)) + 1
    best: dict[int, Int64Array] = {}
    sent: dict[int, list[int]] = defaultdict(list)
    passes = operation_is(traffic.operation, *_MESSAGES)
    for rows in np.split(order, changes):
        key = int(traffic.group[rows[0]])
        sent[key].append(int(passes[rows].sum()))
        if key not in best or len(rows) > len(best[key]):
            best[key] = rows
    uses = [_use(traffic, key, rows, groups, numbers, sent[key]) for key, rows in best.items()]
    for use in uses:
        use.per = "per step" if per_step else "in the window"
    return sorted(uses, key=lambda use: (use.group < 0, use.group))


def _use(
    traffic: Traffic, group: int, rows: Int64Array, groups: list[GroupFacts], numbers: Int64Array, sent: list[int]
) -> GroupUse:
    facts = groups[group] if group >= 0 else GroupFacts(None, None, None, None, "unknown")
    unit = np.maximum(traffic.unit[rows], 0)
    rank = int(traffic.rank[rows[0]])
    use = GroupUse(
        group=group,
        facts=facts,
        member=int(numbers[rank]),
        operation=traffic.operation[rows],
        size=traffic.size[rows],
        width=traffic.width[rows],
        phase=traffic.phase[rows],
        unit=unit,
        units=max(1, int(traffic.units[rank])),
        place=traffic.place[rows],
        peer=traffic.peer[rows],
        messages_of=tuple(sent),
        behind=None if traffic.behind is None else traffic.behind[rows],
    )
    decide(use)
    return use


def decide(use: GroupUse) -> None:
    """Fill in the purposes of a group: usually one, more where one group serves several (experts and data)."""
    purposes: list[str] = []
    messages, exchanges = use.of(*_MESSAGES), use.of("all_to_all")
    if messages.any() and use.weight(messages) >= _PART * use.weight(np.ones(len(use), np.bool_)):
        purposes.append("ring" if _in_a_circle(use, messages) else "pipeline")
    if exchanges.any() and (use.per_unit(exchanges) >= 2 or use.weight(exchanges) >= use.weight(~exchanges)):
        purposes.append("exchange")
    collective = _collective(use)
    if collective is not None and (not purposes or collective not in ("control", "broadcast")):
        purposes.append(collective)
    use.purposes = tuple(purposes) or ("control",)


def _in_a_circle(use: GroupUse, messages: NDArray[np.bool_]) -> bool:
    """Whether a member always sends to one neighbour and receives from another, as ring attention does.

    In a pipeline a stage receives from the side it sent to once gradients come back. Between two ranks the sides do
    not tell: then a member of a ring sends whenever it receives, while the first stage sends ahead and the last one
    receives first. Where several messages are one kernel, nobody names a peer: then the members of a ring have equally
    many, and the ends of a pipeline half of the others'.
    """
    grouped = messages & use.of("send_recv") & (use.peer < 0)
    if use.weight(grouped) > use.weight(messages & ~grouped):
        counts = use.messages_of
        return len(counts) > 2 and len(counts) == use.facts.size and len(set(counts)) == 1
    sends, receives = messages & use.of("send"), messages & use.of("recv")
    to, of = set(use.peer[sends].tolist()), set(use.peer[receives].tolist())
    if len(to) != 1 or len(of) != 1 or -1 in to | of:
        return False
    if to != of:
        return True
    if use.facts.size != 2:
        return False
    both = sends[sends | receives]
    if len(both) % 2 or len(both) < 2 * _LEAST_PASSES * use.units or not both[0]:
        return False
    return bool((both[::2] != both[1::2]).all())


def _collective(use: GroupUse) -> str | None:
    """The purpose of the collectives of a group other than all-to-all; ``None`` if there are none."""
    reduces, gathers, scatters = use.of("all_reduce"), use.of("all_gather"), use.of("reduce_scatter")
    broadcasts = use.of("broadcast")
    rest = use.of("barrier", "reduce", "gather", "scatter", "unknown")
    total = use.weight(reduces | gathers | scatters | broadcasts | use.of("reduce"))
    if not (reduces | gathers | scatters | broadcasts | rest).any():
        return None
    if not total:
        return "unknown" if use.of("unknown").any() else "control"
    known = use.size[(reduces | gathers | scatters | broadcasts) & (use.size > 0)]
    if len(known) and known.max() < _FEW_BYTES and len(known) <= 8 * use.units:
        return "control"
    if use.weight(gathers) >= _PART * total and use.weight(scatters) >= _PART * total:
        return _gathering(use, gathers, scatters)
    if use.weight(reduces | use.of("reduce")) >= _PART * total:
        return _reducing(use, reduces | use.of("reduce"), gathers, broadcasts)
    if use.weight(gathers) or use.weight(scatters):
        return "sharded" if use.weight(scatters) >= _PART * total else "unknown"
    return "broadcast"


def _gathering(use: GroupUse, gathers: NDArray[np.bool_], scatters: NDArray[np.bool_]) -> str:
    scattered_forward = use.part(scatters, _FORWARD)
    gathered_forward, gathered_backward = use.part(gathers, _FORWARD), use.part(gathers, _BACKWARD)
    if scattered_forward is not None and gathered_forward is not None and gathered_backward is not None:
        if scattered_forward >= _PART:
            return "sequence"
        return "sharded" if gathered_forward + gathered_backward >= 0.5 else "partitioned"
    use.by_phase = False
    return Counter(_gathering_by_order(gathers[rows], scatters[rows]) for rows in _steps(use)).most_common(1)[0][0]


def _gathering_by_order(gathers: NDArray[np.bool_], scatters: NDArray[np.bool_]) -> str:
    """One step in order: parameters updated come last, parameters sharded come first, activations alternate."""
    first, last = np.flatnonzero(gathers), np.flatnonzero(scatters)
    if not len(first) or not len(last):
        return "sharded"
    if first[0] > last[-1]:
        return "partitioned"
    before = int((first < last[0]).sum())
    return "sequence" if before <= 2 and len(last) > 2 and before * 4 <= len(first) else "sharded"


def _reducing(
    use: GroupUse, reduces: NDArray[np.bool_], gathers: NDArray[np.bool_], broadcasts: NDArray[np.bool_]
) -> str:
    forward = use.part(reduces, _FORWARD)
    if forward is not None:
        purpose = "tensor" if forward >= _PART else "gradients"
    else:
        use.by_phase = False
        purpose = "tensor" if _looks_like_activations(use, reduces) else "gradients"
    if purpose == "gradients" and any(_returns(use, reduces, after) for after in (gathers, broadcasts)):
        return "partitioned"
    return purpose


def _returns(use: GroupUse, reduces: NDArray[np.bool_], after: NDArray[np.bool_]) -> bool:
    """Whether these calls send updated parameters after the optimizer: about as many bytes as gradients came in, in
    the optimizer's part of the step, or without phases last in it, step by step."""
    given, taken = use.weight(after), use.weight(reduces)
    if not given or not _PART * taken <= given <= taken / _LEAST_GRADIENTS:
        return False
    late = use.part(after, _OPTIMIZER)
    if late is not None:
        return late >= 0.5
    steps = [rows for rows in _steps(use) if after[rows].any() and reduces[rows].any()]
    last = [np.flatnonzero(reduces[rows])[-1] < np.flatnonzero(after[rows])[0] for rows in steps]
    return int((reduces | after).sum()) >= _FEW_CALLS and bool(last) and all(last)


def _looks_like_activations(use: GroupUse, reduces: NDArray[np.bool_]) -> bool:
    """Without phases: many all-reduces of one size that begin at once with the step, and between which something
    computes. Gradients come after a whole forward pass, in buckets of several sizes, and queue."""
    if use.per_unit(reduces) < 4 or (use.behind is not None and use.behind[reduces].mean() > 0.5):
        return False
    sizes = Counter(use.size[reduces & (use.size > 0)].tolist())
    alike = bool(sizes) and sizes.most_common(1)[0][1] >= 0.6 * sum(sizes.values())
    first = [float(use.place[rows][reduces[rows]].min()) for rows in _steps(use) if reduces[rows].any()]
    early = np.nanmedian(first) if first and not np.isnan(first).all() else None
    return alike if early is None else alike and bool(early < _EARLY)


def _steps(use: GroupUse) -> list[Int64Array]:
    """Rows of each step, in order."""
    return [np.flatnonzero(use.unit == unit) for unit in np.unique(use.unit)]
