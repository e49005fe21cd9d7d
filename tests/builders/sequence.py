"""A Kineto trace from a bare sequence of calls: what a rank calls is given, when and how long is made up.

Every step is alike: compute of 40 µs before each call, which is launched behind it and runs on the stream of its
group; calls of the backward pass are launched by the engine's thread, those of the optimizer inside its range.
"""

from __future__ import annotations

from typing import Any

from tests.builders.kineto import BACKWARD_THREAD, COMM_STREAM, MAIN_THREAD, Trace, distributed_info

SLOT_US = 100
SHOWN = 30  # the profiler shortens longer lists of ranks on the rows of calls
SIZES = {"float32": ("Float", 4), "int64": ("Long", 8), "bfloat16": ("BFloat16", 2)}
NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv",
    "broadcast": "broadcast",
    "send": "send",
    "recv": "recv",
}


def sequence_trace(sequence: dict[str, Any], *, described: bool = True, steps: int = 3) -> Trace:
    """``steps`` equal steps of ``{rank, ranks, groups, calls}``; without ``described`` no group says what it is for."""
    trace = Trace(rank=sequence["rank"], world_size=sequence["ranks"])
    groups = {group["name"]: dict(group) for group in sequence["groups"]}
    for group in groups.values():
        if not described:
            group["description"] = "default_pg" if group["description"] == "default_pg" else "undefined"
    trace.top["distributedInfo"] = _distributed_info(sequence, groups)
    streams = {name: COMM_STREAM + number for number, name in enumerate(groups)}
    counters = dict.fromkeys(groups, 0)
    length = (len(sequence["calls"]) + 3) * SLOT_US
    for step in range(steps):
        begin = step * length
        trace.step(step + 5, begin, begin + length - 5)
        at = begin
        phase = "forward"
        for call in sequence["calls"]:
            if "optimizer" in (phase, call["phase"]) and phase != call["phase"]:
                at = _optimizer(trace, at)
            phase = call["phase"]
            counters[call["group"]] += 1
            _call(trace, at, call, groups[call["group"]], streams[call["group"]], counters[call["group"]])
            at += SLOT_US
        if phase != "optimizer":
            _optimizer(trace, at)
    return trace


def _distributed_info(sequence: dict[str, Any], groups: dict[str, Any]) -> dict[str, Any]:
    info = distributed_info(sequence["rank"], sequence["ranks"])
    listed = {group["pg_name"]: group for group in info["pg_config"]}
    for group in groups.values():
        listed[group["name"]] = {
            "pg_name": group["name"],
            "pg_desc": group["description"],
            "backend_config": "cuda:nccl",
            "pg_size": len(group["ranks"]),
            "ranks": group["ranks"],
        }
    return info | {"pg_config": list(listed.values()), "pg_count": len(listed)}


def _optimizer(trace: Trace, at: int) -> int:
    trace.annotation("Optimizer.step#AdamW.step", at, at + 60)
    trace.gemm(at + 30, at + 90, launch=at + 5)
    return at + SLOT_US


def _call(trace: Trace, at: int, call: dict[str, Any], group: dict[str, Any], stream: int, number: int) -> None:
    backward = call["phase"] == "backward"
    thread = BACKWARD_THREAD if backward else MAIN_THREAD
    if backward:
        trace.cpu_op("autograd::engine::evaluate_function: MmBackward0", at, at + 60, tid=thread)
    trace.gemm(at + 10, at + 50, launch=at + 2, thread=thread)
    metadata = _metadata(call, group, number)
    under = trace.comms_op(NAMES[call["op"]], at + 30, at + 45, tid=thread, metadata=metadata)
    more = {"launch": at + 35, "thread": thread, "under": under, "stream": stream, "metadata": metadata}
    trace.collective(NAMES[call["op"]], at + 50, at + 80, **more)


def _metadata(call: dict[str, Any], group: dict[str, Any], number: int) -> dict[str, Any]:
    dtype, width = SIZES[call["dtype"]]
    ranks = group["ranks"]
    elements = call["size"] // width
    sent = {"all_gather": elements // len(ranks)}.get(call["op"], elements)
    got = {"reduce_scatter": elements // len(ranks), "all_gather": elements}.get(call["op"], elements)
    peer = {"send": "Dst Rank", "recv": "Src Rank"}.get(call["op"])
    more: dict[str, Any] = {peer: ranks[call["peer"]]} if peer else {}
    if len(ranks) > SHOWN:
        shown = [str(rank) for rank in ranks[:SHOWN]]
        more["Process Group Ranks"] = f"[{', '.join(shown)}, ...]"
    return {
        "elements": sent,
        "out_elements": got,
        "dtype": dtype,
        "group": group["name"],
        "description": group["description"],
        "ranks": ranks,
        "group_size": len(ranks),
        "seq": number,
        **more,
    }
