"""The machine that is simulated: hosts, GPUs, links, and where each rank sits.

Bandwidths are bytes per second in one direction, latencies nanoseconds per hop. The default figures are round
numbers near an H100 host (NVLink near the bus bandwidth that NCCL models, one 400 Gbit/s adapter per GPU).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_NIC_BASE = 1 << 20  # port numbers below are GPU ports, from here on network adapters
_NICS_MAX = 64


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link: ``latency_ns`` per hop and ``bytes_per_s`` in one direction."""

    latency_ns: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts that are all alike.

    ``nvlink_domain`` is the number of neighbouring GPUs of a host that NVLink joins (0: all of them); GPUs of
    one host in different domains talk over ``pcie``. ``nics_per_host`` adapters are shared evenly by the GPUs.
    """

    gpus_per_host: int = 8
    nvlink_domain: int = 0
    nics_per_host: int = 8
    nvlink: Link = Link(700, 300_000_000_000)
    pcie: Link = Link(2_000, 24_000_000_000)
    nic: Link = Link(5_000, 50_000_000_000)
    flops_per_s: int = 400_000_000_000_000
    memory_bytes_per_s: int = 2_500_000_000_000
    sms: int = 132
    device_name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 85_029_158_912


@dataclass(frozen=True, slots=True)
class Path:
    """What ranks have between them: the narrowest link, and what they occupy.

    ``ports`` are the GPU ports or adapters on the way, ``resources`` their directions (``2 * port`` out,
    ``2 * port + 1`` in) that are taken.
    """

    latency_ns: int
    bytes_per_s: int
    resources: tuple[int, ...]
    ports: frozenset[int]
    hosts: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Which GPU slot each rank occupies; slot ``s`` is GPU ``s % gpus_per_host`` of host ``s // gpus_per_host``."""

    cluster: Cluster
    slots: tuple[int, ...]
    slow_links: dict[int, int] = field(default_factory=dict)
    """Port number to the share of its bandwidth that is left, in thousandths."""

    @classmethod
    def in_order(cls, cluster: Cluster, ranks: int) -> Placement:
        """Rank ``r`` on slot ``r``, the way launchers place them."""
        return cls(cluster, tuple(range(ranks)))

    def host(self, rank: int) -> int:
        """Number of the host that holds ``rank``."""
        return self.slots[rank] // self.cluster.gpus_per_host

    def device(self, rank: int) -> int:
        """Number of the GPU of ``rank`` inside its host."""
        return self.slots[rank] % self.cluster.gpus_per_host

    def hosts(self) -> list[int]:
        """All host numbers in use, in order."""
        return sorted({self.host(rank) for rank in range(len(self.slots))})

    def gpu_port(self, rank: int) -> int:
        """Number of the GPU's own port (NVLink or PCIe)."""
        return self.slots[rank]

    def nic(self, rank: int) -> int:
        """Port number of the network adapter that ``rank`` uses."""
        cluster = self.cluster
        adapter = self.device(rank) * cluster.nics_per_host // cluster.gpus_per_host
        return _NIC_BASE + self.host(rank) * _NICS_MAX + adapter

    def path(self, ranks: Sequence[int], *, one_way: bool = False) -> Path:
        """The path among ``ranks``: inside one NVLink domain, inside one host, or over the network.

        Over the network a group may use every adapter that its members on a host have, but never more than
        NVLink carries. Links are full duplex: a collective takes both directions of each port, a message
        (``one_way``, from the first to the last of ``ranks``) one of each.
        """
        cluster = self.cluster
        by_host: dict[int, list[int]] = {}
        for rank in ranks:
            by_host.setdefault(self.host(rank), []).append(rank)
        if len(by_host) == 1:
            domain = cluster.nvlink_domain or cluster.gpus_per_host
            link = cluster.nvlink if len({self.device(r) // domain for r in ranks}) == 1 else cluster.pcie
            ports, latency, width = [self.gpu_port(r) for r in ranks], link.latency_ns, link.bytes_per_s
        else:
            adapters = {host: {self.nic(r) for r in members} for host, members in by_host.items()}
            narrowest = min(len(nics) for nics in adapters.values()) * cluster.nic.bytes_per_s
            width, latency = min(narrowest, cluster.nvlink.bytes_per_s), cluster.nic.latency_ns
            ports = [self.nic(r) for r in ranks]
        left = min(self.slow_links.get(port, 1000) for port in ports)
        if one_way:
            resources: tuple[int, ...] = (2 * ports[0], 2 * ports[-1] + 1)
        else:
            resources = tuple(sorted({2 * port + way for port in ports for way in (0, 1)}))
        return Path(latency, max(1, width * left // 1000), resources, frozenset(ports), len(by_host))
