"""Every limit that a judgement rests on, with where its default comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defaults of the verdict, all shares of step time unless said otherwise.

    They are this project's own choice: 10 % is what a change must give back to be worth an engineer's day, and about
    the spread of step times that large clusters show without any fault (GPU time varies by 9 % at 64k GPUs: PRISM,
    Meta); 2 % is the resolution at which two parts of a step are told apart.
    """

    communication: float = 0.10
    """Exposed communication from which on it can be the bottleneck."""
    share_of_idle: float = 0.5
    """... and it must be at least this part of idle time."""
    quiet: float = 0.10
    """Below this sum of exposed communication, exposed copies and idle the device computes: the bottleneck is that."""
    balanced: float = 0.02
    """Two causes closer than this are not ranked."""
    profiler_cost: float = 0.10
    """Profiled steps longer than unprofiled ones by more than this make a verdict on the host doubtful."""
    little: float = 0.02
    """Below this, a share is not worth a sentence."""

    finding: float = 0.02
    """Findings start here; ``medium`` and ``high`` from the two below. The same resolution and the same day's work."""
    medium: float = 0.05
    high: float = 0.10
    enough_steps: int = 3
    """With fewer steps nothing is known of noise and every time is an estimate."""
    standard_errors: float = 2.0
    """A mean must exceed this many of its standard errors over steps: 95 % of a normal distribution."""
    source: str = "default: a share of the step that two causes can be told apart at, and that is worth a change"
    late_half: float = 0.5
    """Part of blamed communication that must be waiting (or of lost time that must be bubble) to name that instead."""
    no_overlap: float = 0.02
    """Less of the reductions hidden than this is no overlap."""
    bucket_cap: int = 25 << 20
    """Default cap of a DDP bucket (torch, ``reducer.hpp``: 25 MiB)."""
    first_bucket: int = 1 << 20
    """Default size of the first DDP bucket: small by design (torch, ``reducer.hpp``: 1 MiB)."""
    large_bucket: int = 40 << 20
    """A bucket overshoots its cap by one parameter; from here on, with a third of all gradients in it, it is large."""
    large_bucket_share: float = 1 / 3
    tiny_message: int = 256 << 10
    """Below this a message costs latency: 10 to 30 us of base latency (nccl, ``tuning.cc``) are MBs at NVLink rate."""
    large_message: int = 1 << 20
    """From here on bandwidth can be held against the hardware, with the allowance for latency below."""
    latency_ns: int = 30_000
    """Allowance for latency: the base latency of a collective between hosts (nccl, ``tuning.cc``: 10 to 30 us)."""
    inner_latency_ns: int = 15_000
    """The same inside a host, where a message takes fewer and shorter hops (nccl, ``tuning.cc``: 7 to 15 us)."""
    base_latency_ns: int = 8_400
    """What a message pays once, however many hops it takes (nccl, ``tuning.cc``: Simple)."""
    hop_latency_ns: int = 14_000
    """... and for every hop between hosts (nccl, ``tuning.cc``: Simple over the network)."""
    inner_hop_latency_ns: int = 5_700
    """... and inside a host (nccl, ``tuning.cc``: Simple over PCIe, more than over NVLink)."""
    least_latency_ns: int = 10_000
    """The least between hosts: to claim a link the benefit of the doubt is its, what is promised is a bound."""
    least_inner_latency_ns: int = 7_000
    """The least inside a host."""
    no_bytes: int = 32 << 10
    """A message below this takes its latency: at the rates of today's links its bytes are through in a microsecond."""
    small_latency_ns: int = 30_000
    """A message of unknown size that lasts no longer is tiny: base latencies are 10 to 30 us (nccl, ``tuning.cc``)."""
    many_buckets: int = 8
    """Fewer reductions than this are never too many: with them a step has something to overlap."""
    many_calls: int = 16
    """So many tiny messages a step are worth joining."""
    latency_share: float = 0.5
    """A call of which latency is at least this part is bound by latency."""
    imbalance: float = 1.1
    """Largest over mean of the bytes sent in an all-to-all from which on it is called unequal."""
    efficiency: float = 0.5
    """Bus bandwidth below this part of the hardware's is low; systems in order reach 70 to 95 % (nccl-tests)."""
    fused: float = 0.10
    """Fused kernels above this share of the step: communication inside them cannot be seen from one rank."""


DEFAULTS = Thresholds()
