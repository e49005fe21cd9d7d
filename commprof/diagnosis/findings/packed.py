"""What lies inside compute and goes behind other compute with the communication beside it: kernels that pack."""

from __future__ import annotations

from commprof.diagnosis.findings.sharded import PACKING
from commprof.diagnosis.findings.unblocked import packing
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence


def packed_behind(ground: Ground) -> tuple[Evidence, ...]:
    """How long kernels take that stand on the streams of collectives: behind a call that lasts too long they run when
    nothing else is left to compute, and behind compute where it is in order. Beside what comes back, since it is
    compute."""
    packed = packing(ground)
    return (Evidence(PACKING, packed, "ns"),) if packed else ()
