"""What a call moves: gradients, parameters, activations, buffers, or numbers that control the run.

A single rank tells much of it by where calls are launched:

* FSDP's own ranges decide first: what it gathers are parameters, what it reduces are gradients.
* Reductions in the backward pass are of gradients, unless another node of the autograd graph than ``AccumulateGrad``
  launched them or their group reduces activations in the forward pass as well.
* Gathers are of parameters where their group also reduces gradients by scattering them, or after the optimizer.
* All-to-alls and the other collectives of the forward pass are of activations; a broadcast there is of buffers.
* Whatever is smaller than :data:`SMALL_BYTES`, of whole numbers or a barrier controls the run (a loss to print, the
  parameters that went unused, a norm), unless ``AccumulateGrad`` launched it; scalars always do where there is more.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.modules import Modules
from commprof.analysis.phases import BACKWARD, FORWARD, OPTIMIZER
from commprof.analysis.places import NOWHERE, PURPOSES
from commprof.analysis.ranges import contained, find_ranges
from commprof.analysis.scene import Scene
from commprof.intervals import Int64Array
from commprof.trace.model import Calls
from commprof.trace.operations import OPERATIONS

GRADIENTS, PARAMETERS, ACTIVATIONS, BUFFERS, CONTROL, POINT_TO_POINT = range(len(PURPOSES))

SMALL_BYTES = 1024
"""A message below this carries no layer: gradients and activations of one are kilobytes and more."""

_SCALAR_BYTES = 64
"""No bucket is as small as a few numbers unless the whole model is."""

_ENGINE = re.compile(r"^autograd::engine::evaluate_function")
_ACCUMULATE = re.compile(r"^autograd::engine::evaluate_function: .*AccumulateGrad")
_WHOLE = ("int16", "int32", "int64", "bool")
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")

Bools = NDArray[np.bool_]


def purposes_of(scene: Scene, phase: NDArray[np.int8], modules: Modules) -> NDArray[np.int8]:
    """Purpose of every call, shape ``(calls,)``; :data:`NOWHERE` where nothing tells."""
    calls = scene.calls
    out = np.full(len(calls), NOWHERE, np.int8)
    if not len(calls):
        return out
    is_a = {name: calls.operation == code for code, name in enumerate(OPERATIONS)}
    reduction = np.logical_or.reduce([is_a[name] for name in _REDUCTIONS])
    gather = is_a["all_gather"]
    group = communicators(calls)
    by_gradient, by_other = _launching_nodes(scene)
    scalar = (calls.size_bytes >= 0) & (calls.size_bytes < _SCALAR_BYTES)
    by_gradient &= ~(scalar & _of_groups(group, by_gradient & ~scalar))
    small = _small(scene) & ~by_gradient
    known = phase != NOWHERE
    forward, backward = phase == FORWARD, phase == BACKWARD
    # A group whose collectives in the forward pass are more than gathers moves activations.
    mixes = forward & ~small & (is_a["all_reduce"] | is_a["reduce_scatter"]) & ~modules.sharded
    activates = _of_groups(group, mixes)
    scatters = _of_groups(group, is_a["reduce_scatter"] & backward & ~by_other)
    reduces = reduction & ~small & (backward | ~known | (phase == OPTIMIZER))
    out[reduces & ~activates & ~by_other] = GRADIENTS
    out[reduces & (activates | by_other)] = ACTIVATIONS
    out[reduction & forward & ~small] = ACTIVATIONS
    out[gather & (forward | backward)] = ACTIVATIONS
    out[gather & (scatters & ~activates | (phase == OPTIMIZER))] = PARAMETERS
    out[is_a["all_to_all"]] = ACTIVATIONS
    out[is_a["broadcast"] & (forward | backward)] = BUFFERS
    out[is_a["broadcast"] & (phase == OPTIMIZER)] = PARAMETERS
    out[is_a["send"] | is_a["recv"] | is_a["send_recv"]] = POINT_TO_POINT
    out[(reduction & small) | is_a["barrier"] | calls.sync] = CONTROL
    out[reduction & by_gradient & ~activates] = GRADIENTS
    out[modules.sharded & gather] = PARAMETERS
    out[modules.sharded & reduction] = GRADIENTS
    return out


def _launching_nodes(scene: Scene) -> tuple[Bools, Bools]:
    """Calls launched from inside ``AccumulateGrad``, and from inside another node of the autograd graph."""
    calls = scene.calls
    if scene.by_time:
        nothing = np.zeros(len(calls), np.bool_)
        return nothing, nothing.copy()
    ranges = find_ranges(scene.rank, _ENGINE)
    names = [bool(_ACCUMULATE.match(scene.rank.names[code])) for code in ranges.name.tolist()]
    gradient = np.array(names, np.bool_)
    by_gradient = contained(ranges.spans(gradient), calls.thread, calls.issued)
    return by_gradient, contained(ranges.spans(~gradient), calls.thread, calls.issued) & ~by_gradient


def _small(scene: Scene) -> Bools:
    calls = scene.calls
    whole = [index for index, name in enumerate(calls.dtypes) if name in _WHOLE]
    return ((calls.size_bytes >= 0) & (calls.size_bytes < SMALL_BYTES)) | np.isin(calls.dtype, whole)


def _of_groups(group: Int64Array, evidence: Bools) -> Bools:
    """All calls of the groups that have a call with the evidence."""
    found: Bools = np.isin(group, np.unique(group[evidence]))
    return found


def communicators(calls: Calls) -> Int64Array:
    """A number per call, equal for calls of one group; where no group is named, each stream stands for one: until
    PyTorch 2.8 every communicator had a stream of its own."""
    named = np.array([*(facts.name is not None for facts in calls.groups), False])
    if not len(calls):
        return np.empty(0, np.int64)
    stream = np.where(named[calls.group], np.int64(-1), calls.stream)
    low = int(stream.min())
    number: Int64Array = (calls.group.astype(np.int64) + 1) * (int(stream.max()) - low + 1) + (stream - low)
    return number
