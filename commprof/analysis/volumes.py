"""Bytes per step by the formula of a strategy beside what was measured, and what the difference consists of
(``spec``: section 8).

Bytes are ``S * f`` of the calls of a rank in a step, the mean over ranks and steps. What a formula needs and nothing
states (the parameters, the size of an activation) is inferred from the calls that show it best; ``assumed`` says so.
Differences are rows of their own and add up, with the formula, to what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.codes import operation_is
from commprof.analysis.places import PHASES
from commprof.analysis.traffic import Traffic
from commprof.manifest import Manifest
from commprof.trace.operations import OPERATIONS, bus_factor

Mask = NDArray[np.bool_]

_FORWARD, _BACKWARD, _OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))
_SCALAR_ELEMENTS = 64
"""Losses and norms are one element, statistics of a few metrics or experts some dozens; parameters are more."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes per rank and step that the formula does not hold; negative for what the formula has and the run has not."""

    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes per rank and step of one part of a strategy; ``expected`` is ``None`` where no formula can be filled in."""

    measured: int | None
    formula: str | None = None
    expected: int | None = None
    assumed: str | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(slots=True, eq=False)
class Moves:
    """The calls of one part; ``rows`` are its rows of the traffic, ``members`` the usual size of its groups."""

    traffic: Traffic
    rows: NDArray[np.int64]
    members: int
    _share: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._share = self.traffic.share[self.rows]

    def of(self, *operations: str) -> Mask:
        """Which rows are of these operations."""
        return operation_is(self.traffic.operation[self.rows], *operations)

    def phase(self, *phases: int) -> Mask:
        """Which rows lie in these phases."""
        return np.isin(self.traffic.phase[self.rows], phases)

    def scalars(self) -> Mask:
        """Rows of so few elements that they are norms, flags or losses; not gradients, whose place is the backward."""
        elements = self.traffic.size[self.rows] / np.maximum(self.traffic.width[self.rows], 1)
        return (elements <= _SCALAR_ELEMENTS) & ~self.phase(_BACKWARD)

    def floating(self) -> Mask:
        """Rows of floating-point elements."""
        return self.traffic.floating[self.rows]

    def moved(self, chosen: Mask) -> float:
        """``S * f`` of the chosen rows, mean over ranks and steps."""
        return float((self.traffic.moved[self.rows] * self._share)[chosen].sum())

    def size(self, chosen: Mask) -> float:
        """``S`` of the chosen rows, mean over ranks and steps."""
        return float((np.maximum(self.traffic.size[self.rows], 0) * self._share)[chosen].sum())

    def calls(self, chosen: Mask) -> float:
        """Number of the chosen rows, mean over ranks and steps."""
        return float(self._share[chosen].sum())

    def width(self, chosen: Mask) -> int:
        """Usual bytes per element of the chosen rows, weighted by size; 0 unknown."""
        widths = Counter[int]()
        for value in np.unique(self.traffic.width[self.rows][chosen]).tolist():
            widths[value] = int(self.size(chosen & (self.traffic.width[self.rows] == value)))
        return widths.most_common(1)[0][0] if widths else 0

    def usual_size(self, chosen: Mask) -> int:
        """The size that most bytes of the chosen rows have."""
        sizes, inverse = np.unique(self.traffic.size[self.rows][chosen], return_inverse=True)
        if not len(sizes) or sizes[-1] <= 0:
            return 0
        weights = np.bincount(inverse, weights=np.maximum(sizes, 0)[inverse] * self._share[chosen])
        return int(sizes[int(weights.argmax())])

    def sized(self, size: int) -> Mask:
        """Which rows have this size."""
        chosen: Mask = self.traffic.size[self.rows] == size
        return chosen

    def volume(
        self,
        formula: str | None = None,
        expected: float | None = None,
        assumed: str | None = None,
        differences: Sequence[tuple[str, float]] = (),
    ) -> Volume:
        """The result; what the differences leave open is booked as not explained."""
        if not (self.traffic.size[self.rows] >= 0).any():
            return Volume(None, formula)
        total = round(self.moved(np.ones(len(self.rows), np.bool_)))
        if expected is None or self.members < 2:
            return Volume(total, formula, None, None if self.members < 2 else assumed)
        rows = [Difference(what, round(value)) for what, value in differences if round(value)]
        rest = total - round(expected) - sum(row.bytes for row in rows)
        if abs(rest) > len(rows) + 1:
            rows.append(Difference("not explained", rest))
        return Volume(total, formula, round(expected), assumed, tuple(rows))

    def others(self, booked: Mask) -> list[tuple[str, float]]:
        """Rows of differences for every call that is not booked yet, by what it is."""
        out = []
        for name in OPERATIONS:
            mine = self.of(name) & ~booked
            scalar = mine & self.scalars() & ~self.of("broadcast")
            for what, chosen in ((_other_name(name), mine & ~scalar), (f"scalars ({_plain(name)})", scalar)):
                if chosen.any():
                    out.append((what, self.moved(chosen)))
        return out


def _plain(operation: str) -> str:
    return operation.replace("_", "-")


def _other_name(operation: str) -> str:
    return "buffer broadcasts" if operation == "broadcast" else f"other {_plain(operation)} calls"


def data_parallel(moves: Moves, repeated: int, manifests: Sequence[Manifest]) -> Volume:
    """DDP: all gradients are summed over all ranks, once per backward pass that synchronises.

    ``repeated`` is how many such passes the calls of a step show; a known number of bytes stands over it.
    """
    factor = bus_factor("all_reduce", moves.members) or 0.0
    gradients = moves.of("all_reduce") & moves.floating() & ~moves.phase(_FORWARD) & ~moves.scalars()
    unused = moves.of("all_reduce") & ~moves.floating()
    found = moves.size(gradients)
    if not found:
        return moves.volume("2(N-1)/N P bg")
    known = _ddp_bytes(manifests)
    passes = max(1, round(found / known)) if known else repeated
    size = found if known is None else passes * known
    assumed = None if known else f"P bg = {found / passes:.0f} B, the sum of the all-reduces of one backward pass"
    differences = [("map of used parameters", moves.moved(unused))]
    if known:
        differences.append(("padding or parameters without gradient", factor * (found - size)))
    booked = gradients | unused
    formula = "2(N-1)/N P bg" if passes == 1 else f"m 2(N-1)/N P bg, m = {passes}"
    return moves.volume(formula, factor * size, assumed, [*differences, *moves.others(booked)])


def partitioned(moves: Moves, manifests: Sequence[Manifest]) -> Volume:
    """ZeRO-1 and ZeRO-2 in their three forms: how gradients are reduced, how parameters come back."""
    ring, both = bus_factor("all_gather", moves.members) or 0.0, bus_factor("all_reduce", moves.members) or 0.0
    reduced = moves.of("all_reduce", "reduce_scatter", "reduce") & moves.floating() & ~moves.scalars()
    reduced &= ~moves.phase(_FORWARD)
    gathers, casts = moves.of("all_gather") & ~moves.phase(_FORWARD), moves.of("broadcast") & moves.phase(_OPTIMIZER)
    spread = gathers if moves.size(gathers) >= moves.size(casts) else casts
    ways = {"reduce_scatter": ring, "all_reduce": both, "reduce": 1.0}
    way = max(ways, key=lambda name: moves.size(reduced & moves.of(name)))
    per_gradient, per_parameter = ways[way], ring if spread is gathers else 1.0
    bg, bp = moves.width(reduced), moves.width(spread)
    if not bg or not bp:
        return moves.volume()
    known = _parameters(manifests)
    parameters = known if known is not None else moves.size(spread) / bp
    passes = max(1, round(moves.size(reduced) / bg / parameters)) if parameters else 1
    expected = per_gradient * passes * parameters * bg + per_parameter * parameters * bp
    assumed = None if known else f"P = {parameters:.0f}, the elements of the parameters sent after the optimizer"
    differences = [
        ("padding of gradients", moves.moved(reduced) - per_gradient * passes * parameters * bg),
        ("padding of parameters", moves.moved(spread) - per_parameter * parameters * bp),
    ]
    formula = {
        ("reduce_scatter", True): "(N-1)/N P (bg + bp)",
        ("reduce_scatter", False): "(N-1)/N P bg + P bp",
        ("all_reduce", True): "(N-1)/N P (2 bg + bp)",
        ("all_reduce", False): "2(N-1)/N P bg + P bp",
        ("reduce", True): "P bg + (N-1)/N P bp",
        ("reduce", False): "P bg + P bp",
    }[way, spread is gathers]
    if passes > 1:
        formula = f"{formula}, gradients m = {passes} times"
    return moves.volume(formula, expected, assumed, [*differences, *moves.others(reduced | spread)])


def sharded(
    moves: Moves, replicas: Moves | None, repeated: int, manifests: Sequence[Manifest], *, kept: bool = False
) -> Volume:
    """FSDP, ZeRO-3 and, with ``replicas`` (the rows of all groups in ``moves``, too), HSDP.

    ``kept``: parameters stay gathered from the forward to the backward pass by intent.
    """
    ring = bus_factor("all_gather", moves.members) or 0.0
    gathers, scatters = moves.of("all_gather"), moves.of("reduce_scatter")
    backward = gathers & moves.phase(_BACKWARD)
    forward = gathers & ~backward  # small ones that are never let go are gathered once after the optimizer
    bp, bg = moves.width(gathers), moves.width(scatters)
    if not bp or not bg or not moves.size(forward):
        return moves.volume("(N-1)/N P (2 bp + bg)")
    known = _fsdp_elements(manifests)
    once = moves.size(forward) / bp  # m P, as the forward passes show it
    passes = max(1, round(once / known)) if known else repeated
    parameters = once / passes if known is None else known
    times = 1 if kept else 2
    total = passes * parameters
    expected = ring * total * (times * bp + bg)
    whole, scattered = ring * total * bp, moves.size(scatters) / bg
    more = moves.moved(forward) - whole
    padding = max(0.0, min(more, whole * _rounding(scattered, parameters, manifests)))
    again = moves.moved(backward) - (times - 1) * (whole + padding)
    before = "gathered again before" if more > 0 else "not gathered before"
    differences = [
        ("padding of shards", padding),
        (f"parameters {before} the backward pass", more - padding),
        (f"parameters {'still held' if again < 0 else 'gathered again'} in the backward pass", again),
        ("padding of shards (backward)", (times - 1) * padding),
        ("gradients padded or not reduced", moves.moved(scatters) - ring * total * bg),
    ]
    formula = f"(N-1)/N P ({'bp' if kept else '2 bp'} + bg)"
    booked = forward | backward | scatters
    if replicas is not None:
        reduced = moves.of("all_reduce") & moves.floating() & moves.phase(_BACKWARD, -1)
        both, width = bus_factor("all_reduce", replicas.members) or 0.0, moves.width(reduced)
        share = both * total / moves.members * width
        expected += share
        differences.append(("padding of replicated shards", moves.moved(reduced) - share))
        formula = f"(S-1)/S P ({'bp' if kept else '2 bp'} + bg) + 2 (R-1)/R P/S bg"
        booked |= reduced
    if passes > 1:
        formula = f"m times {formula}, m = {passes}"
    assumed = None if known else f"P = {parameters:.0f} with padding, the elements gathered in one forward pass"
    return moves.volume(formula, expected, assumed, [*differences, *moves.others(booked)])


def _rounding(scattered: float, parameters: float, manifests: Sequence[Manifest]) -> float:
    """What rounding to equal shards may add to the parameters, as a share of them.

    A gradient is cut as its parameter is, so that its padding shows what is scattered beyond the trainable elements;
    more than that is no padding but a gather of its own.
    """
    trainable = _parameters(manifests) or parameters
    reductions = max(1, round(scattered / trainable))
    return max(0.0, scattered / reductions / trainable - 1)


def tensor(moves: Moves) -> Volume:
    """Megatron's tensor parallelism: four all-reduces of the activation per layer and microbatch."""
    reduces = moves.of("all_reduce")
    usual = moves.usual_size(reduces)
    activations = reduces & moves.sized(usual)
    forward = moves.calls(activations & moves.phase(_FORWARD))
    if not usual or not forward:
        return moves.volume("8 b s h (t-1)/t per layer and microbatch")
    one = (bus_factor("all_reduce", moves.members) or 0.0) * usual
    layers = forward / 2 if forward % 1 > 1e-6 else forward // 2
    backward = moves.calls(activations & ~moves.phase(_FORWARD))
    if not backward:
        # Inference: half of the formula, for there is no backward pass.
        differences = [("all-reduces of that size outside the layers", (forward - 2 * layers) * one)]
        assumed = f"b s h of {usual} B, the usual all-reduce; {layers:g} layers, two in each; no backward pass"
        return moves.volume(
            "4 b s h (t-1)/t per layer, forward alone", 2 * layers * one, assumed,
            [*differences, *moves.others(activations)],
        )  # fmt: skip
    again = 2 * layers if backward >= 2 * forward - 1 else 0.0
    differences = [
        ("activation recomputation", again * one),
        ("all-reduces of that size outside the layers", (forward + backward - 4 * layers - again) * one),
    ]
    assumed = f"b s h of {usual} B, the usual all-reduce; {layers:g} layers x microbatches, half of those in forward"
    return moves.volume(
        "8 b s h (t-1)/t per layer and microbatch", 4 * layers * one, assumed,
        [*differences, *moves.others(activations)],
    )  # fmt: skip


def sequence(moves: Moves) -> Volume:
    """Tensor parallelism with sequence parallelism: six all-gathers and four reduce-scatters per layer."""
    formula = "10 b s h (t-1)/t per layer and microbatch"
    both = moves.of("all_gather", "reduce_scatter")
    usual = moves.usual_size(both)
    activations = both & moves.sized(usual)
    gathers, scatters = activations & moves.of("all_gather"), activations & moves.of("reduce_scatter")
    forward = moves.calls(scatters & moves.phase(_FORWARD))
    if not usual or not forward:
        return moves.volume(formula)
    one = (bus_factor("all_gather", moves.members) or 0.0) * usual
    layers = forward / 2 if forward % 1 > 1e-6 else forward // 2
    again = moves.calls(gathers & ~moves.phase(_FORWARD))
    recomputed = 4 * layers if moves.calls(scatters & ~moves.phase(_FORWARD)) >= 2 * forward - 1 else 0.0
    kept = -2 * layers if again < 3 * layers else 0.0
    rest = moves.calls(activations) - 10 * layers - recomputed - kept
    differences = [
        ("activation recomputation", recomputed * one),
        ("inputs not gathered again in the backward pass", kept * one),
        ("calls of that size outside the layers", rest * one),
    ]
    assumed = f"b s h of {usual} B, the usual size; {layers:g} layers x microbatches, half of the forward scatters"
    return moves.volume(formula, 10 * layers * one, assumed, [*differences, *moves.others(activations)])


def messages(moves: Moves, formula: str, known: float | None = None) -> Volume:
    """Pipelines and rings: equal messages, counted at both ends; ``known`` is how many a rank has per step."""
    sent = moves.of("send", "recv", "send_recv")
    usual = moves.usual_size(sent)
    if not usual:
        return moves.volume(formula)
    equal = sent & moves.sized(usual)
    calls = moves.calls(equal) if known is None else known
    counted = "" if known is None else " by the stages and microbatches of the capture"
    assumed = f"messages of {usual} B, {calls:g} per rank and step{counted}, each where it is sent and where it arrives"
    differences = [("messages beyond the schedule", (moves.calls(equal) - calls) * usual), *moves.others(equal)]
    return moves.volume(formula, calls * usual, assumed, differences)


def exchange(moves: Moves, formula: str | None) -> Volume:
    """All-to-alls of experts: four per layer and microbatch that move tokens, others that only count them."""
    calls = moves.of("all_to_all")
    tokens = calls & moves.floating()
    if not moves.size(tokens) or formula is None:
        return moves.volume()
    expected = (bus_factor("all_to_all", moves.members) or 0.0) * moves.size(tokens)
    count = moves.calls(tokens)
    assumed = (
        f"k b s h of {moves.size(tokens) / count:.0f} B, the mean send buffer; "
        f"{count / 4:g} expert layers x microbatches, a quarter of the calls"
    )
    counts = calls & ~tokens
    differences = [("numbers of tokens", moves.moved(counts)), *moves.others(calls)]
    return moves.volume(formula, expected, assumed, differences)


def pipeline_messages(manifests: Sequence[Manifest]) -> float | None:
    """Messages per rank and step of a pipeline, mean over ranks: each boundary carries every microbatch both ways."""
    found = {
        (stage.stages, manifest.pipeline.microbatches)
        for manifest in manifests
        if manifest.pipeline is not None and manifest.pipeline.microbatches
        for stage in manifest.pipeline.stages
    }
    if len(found) != 1:
        return None
    stages, microbatches = found.pop()
    chunks = sum(len(manifest.pipeline.stages) for manifest in manifests if manifest.pipeline) / len(manifests)
    return 4 * (microbatches or 0) * (stages - 1) * chunks / stages


def _ddp_bytes(manifests: Sequence[Manifest]) -> float | None:
    """Bytes of the gradients that DDP reduces, mean over ranks, as the captures state them."""
    found = []
    for manifest in manifests:
        buckets = [bucket.size_bytes for module in manifest.ddp for bucket in module.buckets]
        if not buckets:
            return None
        found.append(sum(buckets))
    return sum(found) / len(found) if found else None


def _parameters(manifests: Sequence[Manifest]) -> float | None:
    """Trainable parameters where the model is on each rank whole."""
    counts = {
        manifest.parameters.trainable_count
        for manifest in manifests
        if manifest.parameters is not None and manifest.pipeline is None and not manifest.placements
    }
    return float(counts.pop()) if len(counts) == 1 and counts != {0} else None


def _fsdp_elements(manifests: Sequence[Manifest]) -> float | None:
    """Elements of all units that FSDP gathers, else those of the model."""
    sums = {sum(unit.count for unit in manifest.fsdp) for manifest in manifests if manifest.fsdp}
    return float(sums.pop()) if len(sums) == 1 else _parameters(manifests)
