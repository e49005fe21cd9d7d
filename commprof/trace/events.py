"""One trace event as a typed record.

Only what some analysis reads is decoded; everything else is skipped by the JSON decoder, which is what makes
reading fast. Types are ``Any`` on purpose: a file with a string where a number belongs must not be refused.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Union

import msgspec
from msgspec import Raw, Struct, UnsetType, field

from commprof.trace.categories import COMPLETE_CATEGORIES, FLOW_CATEGORIES, FLOW_NAMES

ABSENT = Raw()


class Args(Struct, gc=False, frozen=True):
    """The ``args`` of a complete event, in the spellings of 2021 to 2026."""

    stream: Any = None
    device: Any = None
    correlation: Any = -1
    external_id: Any = field(default=-1, name="External id")
    external_id_2021: Any = field(default=-1, name="external id")
    grid: Any = None
    graph_node: Any = field(default=None, name="graph node id")
    collective: Any = field(default=None, name="Collective name")
    in_nelems: Any = field(default=None, name="In msg nelems")
    out_nelems: Any = field(default=None, name="Out msg nelems")
    in_nelems_2023: Any = field(default=None, name="In msg size")
    out_nelems_2023: Any = field(default=None, name="Out msg size")
    in_split: Any = field(default=None, name="In split size")
    out_split: Any = field(default=None, name="Out split size")
    dtype: Any = None
    group_size: Any = field(default=None, name="Group size")
    group_name: Any = field(default=None, name="Process Group Name")
    group_number: Any = field(default=None, name="Process Group ID")
    group_description: Any = field(default=None, name="Process Group Description")
    group_ranks: Any = field(default=None, name="Process Group Ranks")
    rank: Any = field(default=None, name="Rank")
    source_rank: Any = field(default=None, name="Src Rank")
    destination_rank: Any = field(default=None, name="Dst Rank")
    sequence: Any = field(default=None, name="Seq")
    comms_id: Any = field(default=None, name="Comms Id")
    dims: Raw = field(default=ABSENT, name="Input Dims")
    types: Raw = field(default=ABSENT, name="Input type")
    concrete: Raw = field(default=ABSENT, name="Concrete Inputs")
    # Read so that a value out of range (1e400) in the figures that profilers print is noticed, not skipped.
    bandwidth: Any = field(default=None, name="memory bandwidth (GB/s)")
    occupancy: Any = field(default=None, name="est. achieved occupancy %")


NO_ARGS = Args()


class Complete(Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event (``ph`` X): something with a start and a duration, both in microseconds."""

    ts: Any = None
    dur: Any = None
    name: Any = None
    cat: Any = None
    pid: Any = None
    tid: Any = None
    args: Args | None = None


class FullComplete(Struct, gc=False, tag_field="ph", tag="X"):
    """The same with every key there, as profilers write it: then no key has to be looked for."""

    ts: Any
    dur: Any
    name: Any
    cat: Any
    pid: Any
    tid: Any
    args: Args | None


class SlimArgs(Struct, gc=False, frozen=True):
    """What the great majority of events needs of its ``args``, and what tells the others: few keys decode fast.

    The keys stand in the order in which profilers write them: then the next one is found at once.
    """

    external_id: Any = field(default=-1, name="External id")
    device: Any = None
    stream: Any = None
    correlation: Any = -1
    grid: tuple[int, int, int] | None = None
    collective: Any = field(default=None, name="Collective name")
    in_nelems: Any = field(default=None, name="In msg nelems")
    in_nelems_2023: Any = field(default=None, name="In msg size")
    group_name: Any = field(default=None, name="Process Group Name")
    graph_node: Any = field(default=None, name="graph node id")
    external_id_2021: Any = field(default=-1, name="external id")


class SlimComplete(Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event as nearly every profiler writes it; what else its ``args`` hold stays in the text."""

    cat: Literal[COMPLETE_CATEGORIES]  # type: ignore[valid-type]
    name: str
    pid: Any
    tid: Any
    ts: float
    dur: float
    args: SlimArgs


class _SlimFlow(Struct, gc=False):
    """One end of an arrow between two events: every watched key is there, and nothing of it is kept."""

    pid: Any
    tid: Any
    ts: float
    cat: Literal[FLOW_CATEGORIES]  # type: ignore[valid-type]
    name: Literal[FLOW_NAMES]  # type: ignore[valid-type]


class SlimFlowStart(_SlimFlow, gc=False, tag_field="ph", tag="s"):
    """The start of such an arrow."""


class SlimFlowEnd(_SlimFlow, gc=False, tag_field="ph", tag="f"):
    """The end of such an arrow."""


FLOW_KEYS = frozenset({"ph", "ts", "cat", "pid", "tid", "name"})
"""Watched keys of the start and end of a flow; nothing of a flow is kept."""


class FlowStart(Struct, gc=False, tag_field="ph", tag="s"):
    """The start of an arrow between two events."""

    ts: Raw
    cat: Raw
    pid: Raw
    tid: Raw
    name: Raw


class FlowEnd(Struct, gc=False, tag_field="ph", tag="f"):
    """The end of an arrow between two events."""

    ts: Raw
    cat: Raw
    pid: Raw
    tid: Raw
    name: Raw


class ExactComplete(Struct, gc=False, tag_field="ph", tag="X"):
    """Only the times of a complete event, as written: for times that a double cannot hold."""

    ts: Raw | UnsetType = msgspec.UNSET
    dur: Raw | UnsetType = msgspec.UNSET


# Every other phase of the trace event format. They hold nothing that is measured; which keys they have is known only
# so that a repeated one is noticed.
_OTHER_PHASES = [
    "B",
    "E",
    "I",
    "i",
    "C",
    "b",
    "n",
    "e",
    "S",
    "T",
    "p",
    "F",
    "s",
    "t",
    "f",
    "P",
    "N",
    "O",
    "D",
    "V",
    "v",
    "R",
    "c",
    ",",
]
_KEYS = [(key, Raw, None) for key in ("ts", "dur", "cat", "pid", "tid", "name", "args")]
_OTHERS = tuple(
    msgspec.defstruct(f"Phase{index}", _KEYS, tag_field="ph", tag=phase, gc=False)
    for index, phase in enumerate(_OTHER_PHASES)
)


# Of the slim decoder's events the attribute ``cat`` says what they are: of these nothing.
_SLIM_OTHERS = tuple(
    msgspec.defstruct(
        f"SlimPhase{index}",
        [*(key for key in _KEYS if key[0] != "cat"), ("category", Raw, field(default=None, name="cat"))],
        namespace={"cat": None},
        tag_field="ph",
        tag=phase,
        gc=False,
    )
    for index, phase in enumerate(_OTHER_PHASES)
    if phase not in "sf"
)


class _MetadataArgs(Struct, gc=False, frozen=True):
    name: Any = None


class Metadata(Struct, gc=False, tag_field="ph", tag="M"):
    """A metadata event (``ph`` M), the only kind whose arguments repeat a word of events: the name of a thread."""

    ts: Any = None
    dur: Any = None
    name: Any = None
    cat: Any = None
    pid: Any = None
    tid: Any = None
    args: _MetadataArgs | None = None


class SlimMetadata(Struct, gc=False, tag_field="ph", tag="M"):
    """The same for the slim decoder."""

    cat: ClassVar[None] = None
    ts: Any = None
    dur: Any = None
    name: Any = None
    category: Any = field(default=None, name="cat")
    pid: Any = None
    tid: Any = None
    args: _MetadataArgs | None = None


_OTHER = (Metadata, *_OTHERS)


def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


# Unions of classes made at run time, which a type checker cannot follow.
_NO_FLOWS = [Metadata, *(kind for phase, kind in zip(_OTHER_PHASES, _OTHERS, strict=True) if phase not in "sf")]
slim_decoder = _decoder_of(
    list.__class_getitem__(Union.__getitem__((SlimComplete, SlimFlowStart, SlimFlowEnd, SlimMetadata, *_SLIM_OTHERS)))
)
full_event_decoder = _decoder_of(Union.__getitem__((FullComplete, *_OTHER)))
full_decoder = _decoder_of(list.__class_getitem__(Union.__getitem__((FullComplete, FlowStart, FlowEnd, *_NO_FLOWS))))
event_decoder = _decoder_of(Union.__getitem__((Complete, *_OTHER)))
events_decoder = _decoder_of(list.__class_getitem__(Union.__getitem__((Complete, *_OTHER))))
exact_decoder = _decoder_of(list.__class_getitem__(Union.__getitem__((ExactComplete, *_OTHER))))
