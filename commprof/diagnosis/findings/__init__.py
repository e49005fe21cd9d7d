"""Findings: one small function per rule, in one list, whose order is the order of precedence.

An instant of exposed or idle time goes to the first case that claims it. Artefacts of the recording come first, since
they are no property of the run; then what came from elsewhere (input, late ranks, bubbles, unequal exchanges, slow
links), because no change of the program would bring it back; then what the program does, from the most special cause to
the most general; the CPU's part last, with what nobody claimed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commprof.diagnosis.findings.bucket_copies import bucket_copies
from commprof.diagnosis.findings.capture import max_connections, profiler_start, timing_enabled, unclaimed
from commprof.diagnosis.findings.case import Case
from commprof.diagnosis.findings.dataparallel import (
    compiled_backward,
    ddp_no_overlap,
    ddp_tail_bucket,
    find_unused,
    reduction_alternates,
    repeated_reduction,
)  # fmt: skip
from commprof.diagnosis.findings.expert import all_to_all_imbalance
from commprof.diagnosis.findings.held_at_start import held_at_start
from commprof.diagnosis.findings.host import (
    allocator_retries,
    blocking_wait,
    comm_on_compute_stream,
    copy_bound,
    device_synchronisation,
    host_bound,
    input_bound,
    overlap_contention,
)  # fmt: skip
from commprof.diagnosis.findings.knobs import advised_for, strategy_kind
from commprof.diagnosis.findings.late_start import late_start
from commprof.diagnosis.findings.links import network_intermittent, slow_link
from commprof.diagnosis.findings.network import low_bandwidth
from commprof.diagnosis.findings.on_cpu import advised_for_cpu, computes_on_cpu
from commprof.diagnosis.findings.pauses import paused, paused_on_path, paused_stage
from commprof.diagnosis.findings.pipeline import pipeline_bubble
from commprof.diagnosis.findings.sharded import (
    fsdp_late_launch,
    fsdp_longer_than_compute,
    fsdp_no_prefetch,
    fsdp_rate_limiter,
    gather_after_optimizer,
    reduce_scatter_queue,
    serialised_communicator,
)  # fmt: skip
from commprof.diagnosis.findings.sizes import bucket_too_large, buckets_too_small, tiny_messages
from commprof.diagnosis.findings.slow_on_path import slow_on_path
from commprof.diagnosis.findings.straggler import late_input, straggler
from commprof.diagnosis.findings.tensor import tp_across_hosts, tp_has_to_cross, tp_structural
from commprof.diagnosis.ground import Ground

Rule = Callable[[Ground], Iterator[Case]]

RULES: tuple[Rule, ...] = (
    held_at_start,
    profiler_start,
    late_input,
    input_bound,
    straggler,
    paused_on_path,
    slow_on_path,
    late_start,
    network_intermittent,
    slow_link,
    paused_stage,
    pipeline_bubble,
    all_to_all_imbalance,
    tp_across_hosts,
    low_bandwidth,
    tp_has_to_cross,
    gather_after_optimizer,
    blocking_wait,
    compiled_backward,
    bucket_too_large,
    ddp_no_overlap,
    repeated_reduction,
    reduction_alternates,
    buckets_too_small,
    fsdp_rate_limiter,
    fsdp_no_prefetch,
    fsdp_late_launch,
    fsdp_longer_than_compute,
    reduce_scatter_queue,
    serialised_communicator,
    comm_on_compute_stream,
    tiny_messages,
    tp_structural,
    ddp_tail_bucket,
    allocator_retries,
    device_synchronisation,
    paused,
    host_bound,
    bucket_copies,
    copy_bound,
    unclaimed,
    overlap_contention,
    find_unused,
    timing_enabled,
    max_connections,
)


def cases(ground: Ground) -> Iterator[Case]:
    """Every case that any rule makes, in the order of precedence."""
    on_cpu, kind = computes_on_cpu(ground.analysis), strategy_kind(ground.analysis)
    for rule in RULES:
        for case in rule(ground):
            fitting = advised_for(case, kind)
            yield advised_for_cpu(fitting) if on_cpu else fitting
