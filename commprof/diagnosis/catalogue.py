"""The findings that there are, by the ids of the report, and what they need to be seen."""

from __future__ import annotations

REST = "exposed-communication"
"""What no rule about one kind of program claims, under its cause: longer than the compute beside it, structural,
queued, or not determined. Every other id names one kind; without this, exposed time of any other would show nowhere
among the findings, and a trace that cannot tell the cause (neither launches nor other ranks) would have none."""

FINDING_IDS = (
    "ddp-tail-bucket", "ddp-no-overlap", "compiled-backward", "reduction-alternates", "buckets-too-small",
    "bucket-too-large", "tiny-messages", "repeated-reduction", "find-unused", "bucket-copies", "fsdp-no-prefetch",
    "fsdp-late-launch", "fsdp-longer-than-compute", "fsdp-rate-limiter", "serialised-communicator",
    "reduce-scatter-queue", "gather-after-optimizer", "tp-structural", "tp-across-hosts", "pipeline-bubble",
    "all-to-all-imbalance", "comm-on-compute-stream", "blocking-wait", "device-synchronisation", "allocator-retries",
    "low-bandwidth", "slow-link", "network-intermittent", "straggler", "overlap-contention", "max-connections",
    "timing-enabled", "host-bound", "input-bound", "copy-bound", "profiler-start", REST,
    "not-communication",
)  # fmt: skip

NEEDS_PEERS = frozenset({"straggler", "slow-link", "low-bandwidth", "network-intermittent"})
"""Findings that no rank alone can show."""

COMPUTE_SIDE = frozenset({"overlap-contention", "find-unused", "max-connections", "timing-enabled", "profiler-start"})
"""Findings that lie inside compute or in the recording: they are no reason for any bottleneck, and against none."""
