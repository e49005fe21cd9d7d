"""Findings about the recording itself and its environment: artefacts and variables that change what runs beside "
"what."""

from __future__ import annotations

from collections.abc import Iterator

from commprof.diagnosis.findings.case import Case, Claim, ranks_of, steps_of, whole
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence

_ON = ("1", "true", "yes", "on", "y")


def profiler_start(ground: Ground) -> Iterator[Case]:
    """Calls that the start of the recording or the set-up of a communicator made long: no property of the run."""
    for flag, what in (
        ("profiler-start", "Calls at the start of the recording waited for other ranks to start theirs"),
        ("first-use", "The first call of a communicator set it up"),
    ):
        rows = ground.flag_is(flag)
        if rows.any():
            yield Case(
                "profiler-start",
                f"{what}: an artefact, not a cost of the run",
                whole(ground, rows, "host", "wait", "rest"),
                ("Record after a few warm-up steps; these calls are left out of averages, bandwidth and waiting.",),
                (Evidence("longest exposed stretch of one such call", int(ground.exposed.ns[rows].max()), "ns"),),
                cause=flag, ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
                group_id=ground.one_group(rows), calls=ground.calls_in(rows), nothing_back=True, most="info",
            )  # fmt: skip


def timing_enabled(ground: Ground) -> Iterator[Case]:
    """``TORCH_NCCL_ENABLE_TIMING`` records events around every collective, which costs overlap (pytorch#143890)."""
    value = ground.analysis.capture.get("environment", {}).get("TORCH_NCCL_ENABLE_TIMING", "")
    if str(value).strip().lower() in _ON:
        yield Case(
            "timing-enabled",
            f"TORCH_NCCL_ENABLE_TIMING={value}: timing of collectives removes overlap",
            Claim(),
            ("Unset TORCH_NCCL_ENABLE_TIMING for runs that matter; the flight recorder then keeps no durations.",),
            (Evidence("TORCH_NCCL_ENABLE_TIMING", str(value), ""),),
            nothing_back=True,
        )  # fmt: skip


def max_connections(ground: Ground) -> Iterator[Case]:
    """``CUDA_DEVICE_MAX_CONNECTIONS=1`` queues all streams in one order, so communication starts when its turn "
    "comes."""
    value = str(ground.analysis.capture.get("environment", {}).get("CUDA_DEVICE_MAX_CONNECTIONS", "")).strip()
    exposed = int(ground.exposed.ns.sum())
    if value == "1" and exposed:
        yield Case(
            "max-connections",
            "CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams start in the order of their launches",
            Claim(),
            (
                "Without tensor-parallel overlap nothing needs the value 1: unset CUDA_DEVICE_MAX_CONNECTIONS or set "
                "8, so "
                "that a collective need not wait for kernels launched before it. With FSDP 1 is known to remove "
                "overlap.",
            ),
            (
                Evidence("CUDA_DEVICE_MAX_CONNECTIONS", value, ""),
                Evidence("exposed communication", exposed // len(ground.steps), "ns"),
            ),
            nothing_back=True,
        )  # fmt: skip
