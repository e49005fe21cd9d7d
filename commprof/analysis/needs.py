"""What analyses ask of the CPU side of a trace with a device; everything else of it is let go after reading."""

from __future__ import annotations

import re

from commprof.trace.classify import PARAM_COMMS
from commprof.trace.columns import Keep

NEEDED = Keep(
    # Communication and what packs it; where the step is; what makes the CPU wait for the device.
    operators=re.compile(
        r"^(?:record_param_comms|c10d::|_c10d_functional|nccl:|xccl:|gloo:|symm_mem::"
        r"|torch::distributed::reducer::|torch\.distributed\.ddp\.reducer|fsdp::|FSDP::|FullyShardedDataParallel\."
        r"|ProfilerStep|Optimizer\.step#|autograd::engine::evaluate_function|CompiledFunctionBackward"
        r"|DistributedDataParallel\.forward|enumerate\(DataLoader\)"
        r"|aten::(?:item|_local_scalar_dense|is_nonzero|nonzero|equal)$)"
    ),
    around=PARAM_COMMS,
    calls=re.compile(r"Synchronize|Memcpy|Launch|Malloc|Free"),
)
