"""What analyses ask of the CPU side of a trace with a device; everything else of it is let go after reading."""

from __future__ import annotations

import re

from commprof.trace.classify import PARAM_COMMS
from commprof.trace.columns import Keep

NEEDED = Keep(
    operators=re.compile(
        r"^(?:record_param_comms|c10d::|_c10d_functional|nccl:|xccl:|gloo:|symm_mem::|ProfilerStep|Optimizer\.step#"
        r"|torch::distributed::reducer::|torch\.distributed\.ddp\.reducer|fsdp::|FSDP::)"
    ),
    around=PARAM_COMMS,
    calls=re.compile(r"Synchronize|Memcpy|Launch"),
)
