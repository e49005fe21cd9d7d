"""Names and metadata of the NCCL and PyTorch generations that traces can be written for.

``2.13`` (NCCL >= 2.19, ``Seq`` and ``Comms Id``), ``2.4`` (group metadata, times relative to a base), ``2.1`` (NCCL
before 2.19, whole microseconds, no metadata on kernels). Source: kineto's ``output_json.cpp`` and PyTorch's
``ParamCommsUtils``; the key spellings are theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from commprof.synth.mesh import Group
from commprof.synth.program import Comm
from commprof.synth.traffic import Matrix, received, sent

_LIST_LIMIT = 30


@dataclass(frozen=True, slots=True)
class OpNames:
    """How one operation is called in metadata, as an operator, as an annotation, and in kernel names."""

    collective: str
    operator: str
    annotation: str
    kernel: str


OPS = {
    "all_reduce": OpNames("allreduce", "c10d::allreduce_", "nccl:all_reduce", "AllReduce"),
    "all_gather": OpNames("_allgather_base", "c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather"),
    "reduce_scatter": OpNames(
        "_reduce_scatter_base", "c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter"
    ),
    "all_to_all": OpNames("all_to_all", "c10d::alltoall_base_", "nccl:all_to_all", "SendRecv"),
    "broadcast": OpNames("broadcast", "c10d::broadcast_", "nccl:broadcast", "Broadcast"),
    "send": OpNames("send", "c10d::send", "nccl:send", "SendRecv"),
    "recv": OpNames("recv", "c10d::recv_", "nccl:recv", "SendRecv"),
}
_NEW_TYPES = {"Float": "f32", "BFloat16": "bf16", "Int": "u32", "Half": "f16"}
_OLD_TYPES = {"Float": "float", "BFloat16": "__nv_bfloat16", "Int": "uint32_t", "Half": "half"}
_INPUT_TYPES = {"Float": "float", "BFloat16": "c10::BFloat16", "Int": "int", "Half": "c10::Half"}


def kernel_name(comm: Comm, era: str) -> str:
    """The name of the NCCL kernel; its protocol and data type are stubs, as they are in real traces."""
    kernel = OPS[comm.op].kernel
    reduces = kernel in ("AllReduce", "ReduceScatter")
    if era == "2.1":
        dtype = _OLD_TYPES[comm.dtype] if reduces else "int8_t"
        protocol = "RING_SIMPLE" if kernel == "SendRecv" else "RING_LL"
        return f"ncclKernel_{kernel}_{protocol}_Sum_{dtype}(ncclDevComm*, unsigned long, ncclWork*)"
    if kernel == "SendRecv":
        stem = "SendRecv"
    elif reduces:
        stem = f"{kernel}_Sum_{_NEW_TYPES[comm.dtype]}_RING_LL"
    else:
        stem = f"{kernel}_RING_LL"
    return f"ncclDevKernel_{stem}(ncclDevKernelArgsStorage<4096ul>)"


def annotation(comm: Comm, group: Group, rank: int) -> str:
    """The ``nccl:*`` range around the call; point-to-point ones name both ends by their place in the group."""
    name = OPS[comm.op].annotation
    if comm.peer is None:
        return name
    return f"{name} {group.ranks.index(rank)}{'->' if comm.op == 'send' else '<-'}{comm.peer}"


def rank_list(values: Sequence[int]) -> str:
    """A list as the profiler writes it: above 30 values the first 29, dots and the last."""
    if len(values) <= _LIST_LIMIT:
        return str(list(values))
    return "[" + ", ".join(map(str, values[: _LIST_LIMIT - 1])) + f", ..., {values[-1]}]"


class CommArgs:
    """The ``args`` of the events of one communication call on one rank, without braces, ready to be joined."""

    def __init__(self, comm: Comm, group: Group, rank: int, era: str, described: bool, matrix: Matrix | None) -> None:
        self.era = era
        place = group.ranks.index(rank)
        nelems_in, nelems_out, split_in, split_out = comm.nelems_in, comm.nelems_out, "[]", "[]"
        name = OPS[comm.op].collective
        if matrix is not None:
            out = sent(matrix, place, comm.transposed)
            into = received(matrix, place, comm.transposed)
            nelems_in, nelems_out, name = sum(out), sum(into), "all_to_allv"
            split_in, split_out = rank_list(out), rank_list(into)
        description = group.description if described else "undefined"
        fields: dict[str, object] = {
            "Collective name": name,
            "In msg nelems": nelems_in,
            "Out msg nelems": nelems_out,
            "Group size": len(group.ranks),
            "dtype": comm.dtype,
            "In split size": split_in,
            "Out split size": split_out,
            "Process Group Name": str(group.id),
            "Process Group Description": description,
            "Process Group Ranks": rank_list(group.ranks),
        }
        if comm.peer is not None:
            fields["Dst Rank" if comm.op == "send" else "Src Rank"] = group.ranks[comm.peer]
        shown = place
        if comm.peer is not None:
            shown = comm.peer
        elif comm.root is not None:
            shown = comm.root
        self.kernel = "" if era == "2.1" else ", " + json.dumps(fields)[1:-1]
        first, stride = group.ranks[0], group.ranks[1] - group.ranks[0]
        only_cpu = {"Rank": shown, "Global rank start": first, "Global rank stride": stride}
        self.operator = ", " + json.dumps({**fields, **only_cpu})[1:-1]
        if era == "2.1":
            shapes = {"Input Dims": [[nelems_in], []], "Input type": [_INPUT_TYPES[comm.dtype], ""]}
            self.operator = ", " + json.dumps(shapes)[1:-1]
        kind = _INPUT_TYPES[comm.dtype]
        self.shapes = f', "Input Dims": [[{nelems_in}]], "Input type": ["{kind}"]'
        # Operators with an output of their own take it as their first argument.
        own = comm.op in ("all_gather", "reduce_scatter", "all_to_all")
        self.arguments = f', "Input Dims": [[{nelems_out}], [{nelems_in}]], "Input type": ["{kind}", "{kind}"]'
        self.arguments = self.arguments if own else self.shapes

    def sequence(self, number: int, group: int, point_to_point: bool) -> str:
        """``Seq`` and ``Comms Id``, from PyTorch 2.12 on."""
        if self.era != "2.13":
            return ""
        comms_id = (number * 0x9E3779B97F4A7C15 + group * 0xC2B2AE3D27D4EB4F + point_to_point) % (1 << 64)
        return f', "Seq": {number}, "Comms Id": {comms_id}'
