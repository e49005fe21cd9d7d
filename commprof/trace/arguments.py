"""What the arguments of one event say about a collective: operation, elements, type, group, peers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from commprof.trace.events import Args
from commprof.trace.operations import element_bytes, message_bytes, operation_of
from commprof.trace.splits import Exchange, Shown, exchange, shown_splits

_LARGEST_GROUP = 1 << 24
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call as some event describes it; ``None`` is what that event does not say.

    ``peer`` is a global rank, ``peer_place`` and ``root_place`` are places in the group. ``parts`` are the calls
    that one kernel carries out together.
    """

    operation: str
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None
    group_name: str | None = None
    group_description: str | None = None
    group_ranks: str | None = None
    group_size: int | None = None
    sequence: int | None = None
    peer: int | None = None
    given: Shown | None = None
    got: Shown | None = None
    peer_place: int | None = None
    root_place: int | None = None
    parts: tuple[CallFacts, ...] = ()

    def exchange(self, group_size: int | None) -> Exchange:
        """What the rank gives and gets in an all-to-all over a group of that size."""
        return exchange(self.elements_in, self.elements_out, self.given, self.got, group_size)

    def size_bytes(self, group_size: int | None) -> int | None:
        """``S`` of this call (``spec``: section 7) in a group of the given size."""
        return message_bytes(self.operation, self.elements_in, self.elements_out, self.dtype, group_size)


def from_metadata(args: Args) -> CallFacts:
    """From the collective metadata of a kernel or of a ``record_param_comms`` operator (2023 and later)."""
    operation = operation_of(str(args.collective))
    name = args.group_name if args.group_name is not None else args.group_number
    # "Rank" is the root of a rooted call, the peer of a send or receive, else the rank itself: a place in the group.
    place, size = number(args.rank), number(args.group_size)
    return CallFacts(
        operation=operation,
        elements_in=number(args.in_nelems if args.in_nelems is not None else args.in_nelems_2023),
        elements_out=number(args.out_nelems if args.out_nelems is not None else args.out_nelems_2023),
        dtype=args.dtype if isinstance(args.dtype, str) else None,
        group_name=None if name is None else str(name),
        group_description=args.group_description if isinstance(args.group_description, str) else None,
        group_ranks=str(args.group_ranks) if isinstance(args.group_ranks, str | list) else None,
        group_size=size if size is not None and 0 < size <= _LARGEST_GROUP else None,
        sequence=number(args.sequence),
        # These two are global ranks already.
        peer=number(
            args.destination_rank if operation == "send" else args.source_rank if operation == "recv" else None
        ),
        peer_place=place if operation in ("send", "recv") else None,
        root_place=place if operation in _ROOTED else None,
        given=shown_splits(args.in_split) if operation == "all_to_all" else None,
        got=shown_splits(args.out_split) if operation == "all_to_all" else None,
    )


_OUTPUT_FIRST = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")
_NO_TENSOR = ("", "Scalar", "ScalarList", "GenericList")
_ENDS = re.compile(r"(?:send|recv) \d+(?:->|<-)(\d+)$")

# Places of arguments in the signatures of torch's ``c10d::*`` operators: the rank at the other end or at the root, and
# the split sizes of output and input.
_OTHER_RANK = {"send": 2, "recv_": 2, "broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3}
_OUTPUT_SPLITS, _INPUT_SPLITS = 3, 4


def from_dims(name: str, args: Args) -> CallFacts:
    """From the ``Input Dims`` of an annotation (``nccl:*``, ``gloo:*``) or of a ``c10d::*`` operator.

    An annotation shows what the rank gives. An operator shows its arguments: where it has an output of its own,
    that comes first. ``Concrete Inputs`` hold the ranks, as places in the group, and the split sizes.
    """
    operation = operation_of(name)
    dims = _decoded(args.dims)
    kinds = _decoded(args.types)
    kinds = kinds if isinstance(kinds, list) else []
    sizes: list[int | None] = [_elements(value) for value in dims] if isinstance(dims, list) else []
    for place, kind in enumerate(kinds[: len(sizes)]):
        if kind in _NO_TENSOR and sizes[place] == 1:  # no tensor is written like the shape of a scalar
            sizes[place] = None
    dtype = None
    for kind in kinds:
        if isinstance(kind, str) and element_bytes(kind) is not None:
            dtype = kind
            break
    if "::" not in name:
        # Annotations list the tensors of a coalesced call one by one.
        total = sum(size for size in sizes if size) or None
        ends = _ENDS.search(name)
        return CallFacts(operation, total, None, dtype, peer_place=int(ends[1]) if ends else None)
    short = name.rpartition("::")[2].lstrip("_")
    concrete = _decoded(args.concrete)
    other = None
    if short in _OTHER_RANK and isinstance(concrete, list) and len(concrete) > _OTHER_RANK[short]:
        other = number(concrete[_OTHER_RANK[short]])
    facts = CallFacts(
        operation,
        sizes[0] if sizes else None,
        None,
        dtype,
        peer_place=other if operation in ("send", "recv") else None,
        root_place=other if operation in _ROOTED else None,
    )
    if not short.startswith(_OUTPUT_FIRST):
        return facts
    out, given = [*sizes, None, None][:2]
    facts = replace(facts, elements_in=given, elements_out=out)
    return _with_splits(facts, short, dims, concrete) if operation == "all_to_all" else facts


def _with_splits(facts: CallFacts, short: str, dims: Any, concrete: Any) -> CallFacts:
    if short == "alltoall_" and isinstance(dims, list) and len(dims) > 1:
        # Lists of tensors, one per member: their sizes are the splits.
        got, given = (
            tuple(_elements(tensor) for tensor in side) if isinstance(side, list) else () for side in dims[:2]
        )
        return replace(facts, given=shown_splits(list(given)), got=shown_splits(list(got)))
    if isinstance(concrete, list) and len(concrete) > _INPUT_SPLITS:
        return replace(
            facts, given=shown_splits(concrete[_INPUT_SPLITS]), got=shown_splits(concrete[_OUTPUT_SPLITS])
        )  # fmt: skip
    return facts


def list_sizes(args: Args, place: int) -> tuple[int | None, ...]:
    """Elements of each tensor of an operator's argument that is a list of tensors; empty where it shows none."""
    dims = _decoded(args.dims)
    if not isinstance(dims, list) or len(dims) <= place or not isinstance(dims[place], list):
        return ()
    return tuple(_elements(tensor) for tensor in dims[place])


def number(value: Any) -> int | None:
    """A count or id from a number or its text; ``None`` for anything that is none."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.strip().isdigit():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        return None
    return value


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if len(bytes(raw)) else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _elements(dims: Any, depth: int = 0) -> int | None:
    """Elements of a tensor (list of sides) or of a list of tensors; a tensor without sides is a scalar."""
    if not isinstance(dims, list) or depth > 4:
        return None
    if all(isinstance(side, int) for side in dims):
        product = 1
        for side in dims:
            product *= side
        return product
    parts = [_elements(part, depth + 1) for part in dims]
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)
