"""How long communication lasts: the *ideal* and the *real* model.

Ideal: a call starts to transfer when its last member has entered and lasts ``alpha + S * f / beta`` with the
factors ``f`` of nccl-tests; all members end together. Real: small messages use slower protocols with less
latency, what was sent before the last rank entered has arrived already, a kernel that starts beside compute is
complete only when its later blocks find room, ranks end 1 to 50 us apart, and sources of one-directional calls
finish into a 4 MiB buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from commprof.synth.cluster import Path
from commprof.synth.plan import Plan
from commprof.synth.program import Comm
from commprof.synth.traffic import Matrix

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
BUFFER_BYTES = 4 << 20
_LL_BYTES, _LL128_BYTES = 32 << 10, 512 << 10
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Length:
    """Latency, then transfer at the full rate of the path, both in nanoseconds."""

    alpha_ns: int
    transfer_ns: int


def factor(op: str, n: int) -> tuple[int, int]:
    """Bus factor of an operation among ``n`` ranks as numerator and denominator (nccl-tests, PERFORMANCE.md)."""
    if op == "all_reduce":
        return 2 * (n - 1), n
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return n - 1, n
    return 1, 1


def hops(op: str, n: int) -> int:
    """Latency steps of an operation: the depth of a binary tree, up and down for an all-reduce."""
    depth = max(1, (n - 1).bit_length())
    return 2 * depth if op == "all_reduce" else depth


class Timing:
    """Durations of calls under one plan; random parts depend on the call and the seed alone."""

    def __init__(self, plan: Plan) -> None:
        self.scenario = plan.scenario
        self.seed = plan.seed
        self._flaky = {
            port: fault.size
            for fault in plan.scenario.faults
            if fault.kind == "flapping-link" and fault.rank is not None
            for port in (plan.placement.gpu_port(fault.rank), plan.placement.nic(fault.rank))
        }

    def length(self, comm: Comm, path: Path, n: int, call: tuple[int, ...], matrix: Matrix | None) -> Length:
        """Latency and transfer of one call of ``n`` ranks over ``path``."""
        numerator, denominator = factor(comm.op, n)
        size = comm.size_bytes
        if matrix is not None:
            size, numerator, denominator = _busiest(matrix) * size // max(1, sum(matrix[0])), 1, 1
        alpha = self.scenario.comm_base_ns + path.latency_ns * hops(comm.op, n)
        rate_permille = 1000
        if self.scenario.real:
            alpha, rate_permille = _protocol(alpha, size // n)
        bytes_per_s = path.bytes_per_s * rate_permille // 1000
        for port, left in self._flaky.items():
            if port in path.ports and self.random(call, 5, 10) == 0:
                bytes_per_s = max(1, bytes_per_s * left // 1000)
        transfer = -(-size * numerator * 1_000_000_000 // (denominator * bytes_per_s))
        return Length(alpha, transfer)

    def early_share(self, transfer_ns: int, skew_ns: int) -> int:
        """Nanoseconds of the transfer that were over when the last rank entered (real model: at most a fifth)."""
        return min(transfer_ns // 5, skew_ns) if self.scenario.real else 0

    def block_delay(self, call: tuple[int, ...], rank: int, compute_left_ns: int) -> int:
        """How long a kernel that starts beside compute waits for its later blocks."""
        if not self.scenario.real or compute_left_ns <= 0:
            return 0
        return min(compute_left_ns, self.random(call, 1000 + rank, 20_000))

    def end_skew(self, call: tuple[int, ...], rank: int, path: Path, n: int) -> int:
        """How much later than the first this rank ends: up to 1 us per hop inside a host, 5 us between hosts."""
        if not self.scenario.real:
            return 0
        limit = min(50_000, max(1_000, hops("all_reduce", n) * (1_000 if path.hosts == 1 else 5_000)))
        return self.random(call, 100_000 + rank, limit)

    def random(self, call: tuple[int, ...], salt: int, below: int) -> int:
        """A number in ``[0, below)`` that depends on the seed, the call and ``salt`` alone (splitmix64)."""
        x = (self.seed * 0x9E3779B97F4A7C15 + salt) & _MASK
        for part in call:
            x = (x ^ (part + 0x9E3779B97F4A7C15 + (x << 6) + (x >> 2))) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return (x ^ (x >> 31)) % below


def _protocol(alpha_ns: int, bytes_per_rank: int) -> tuple[int, int]:
    """Latency and share of the bandwidth of the protocol that a message of this size uses.

    LL reaches half of the bandwidth, LL128 92 %, at a fraction of the latency of Simple (NCCL's tuning tables).
    """
    if bytes_per_rank < _LL_BYTES:
        return alpha_ns, 500
    if bytes_per_rank < _LL128_BYTES:
        return 2 * alpha_ns, 920
    return 3 * alpha_ns, 1000


def _busiest(matrix: Matrix) -> int:
    """Elements through the busiest rank of an all-to-all, what stays on the rank left out."""
    n = len(matrix)
    out = [sum(matrix[i]) - matrix[i][i] for i in range(n)]
    into = [sum(matrix[j][i] for j in range(n)) - matrix[i][i] for i in range(n)]
    return max(max(out), max(into))
