"""Peak rates of GPUs and machines, with their sources: the only place where such figures stand.

Rates are GB/s (10^9 bytes per second) of one GPU in one direction: NVLink or xGMI as the sum over its links, PCIe raw,
network adapters per port. Vendors often quote both directions together; those figures are halved here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Hardware:
    """Rates of a GPU and, where a machine is named, of its network; ``None`` is what is not known.

    ``link_gbps`` is what joins the GPUs of one host, ``nic_gbps`` one adapter of the ``nics`` that the ``gpus`` of a
    host share. ``peak_gbps`` is a peak that the user states for every group; it stands over all others.
    """

    name: str
    source: str
    link: str = "link"
    link_gbps: float | None = None
    pcie_gbps: float | None = None
    nic: str = "network"
    nic_gbps: float | None = None
    nics: int | None = None
    gpus: int | None = None
    peak_gbps: float | None = None


_LINKS = "NVLink rates: alpha-one-index ai-infra-index (both directions, halved); links per GPU: NCCL src/graph/topo.h"

V100 = Hardware("V100 SXM2", _LINKS, "NVLink 2, 6 x 25 GB/s", 150.0, 16.0)
A100 = Hardware("A100 SXM4", _LINKS, "NVLink 3, 12 x 25 GB/s", 300.0, 32.0)
A100_PCIE = Hardware("A100 PCIe", "PCI Express 4.0 x16", "PCIe 4.0 x16", 32.0, 32.0)
H100 = Hardware("H100 SXM5", _LINKS, "NVLink 4, 18 x 25 GB/s", 450.0, 64.0)
H100_PCIE = Hardware("H100 PCIe", "PCI Express 5.0 x16", "PCIe 5.0 x16", 64.0, 64.0)
H200 = replace(H100, name="H200 SXM")
H800 = Hardware("H800 SXM", "nccl issue 1374", "NVLink 4, reduced", 200.0, 64.0)
B200 = Hardware("B200", _LINKS, "NVLink 5, 18 x 50 GB/s", 900.0, 64.0)
GB200 = replace(B200, name="GB200")
MI300X = Hardware("MI300X", "AMD CDNA 3: 7 links per GPU", "xGMI, 7 x 64 GB/s", 448.0, 64.0)
L40S = Hardware("L40S", "PCI Express 4.0 x16", "PCIe 4.0 x16", 32.0, 32.0)

RECOGNISED: tuple[tuple[re.Pattern[str], Hardware], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), hardware)
    for pattern, hardware in (
        (r"\bV100-SXM", V100),
        (r"\bA100-(?:SXM|PG509)", A100),
        (r"\bA100.*PCI", A100_PCIE),
        (r"\bH100 PCIe", H100_PCIE),
        (r"\bH100(?: 80GB HBM3|.*SXM)", H100),
        (r"\bH200(?!.*NVL)", H200),
        (r"\bH800(?!.*PCIe)", H800),
        (r"\bGB200\b", GB200),
        (r"(?<!G)B200\b", B200),
        (r"\bMI300X\b", MI300X),
        (r"\bL40S\b", L40S),
    )
)
"""Names as ``deviceProperties`` give them; the first that fits counts."""

_DGX_A100 = "NVIDIA DGX A100: 8 adapters of 200 Gb/s for 8 GPUs"
_DGX_H100 = "NVIDIA DGX H100: 8 adapters of 400 Gb/s for 8 GPUs"

NAMED: dict[str, Hardware] = {
    "v100": V100, "a100": A100, "a100-pcie": A100_PCIE, "h100": H100, "h100-pcie": H100_PCIE, "h200": H200,
    "h800": H800, "b200": B200, "gb200": GB200, "mi300x": MI300X, "l40s": L40S,
    "dgx-a100": replace(A100, name="DGX A100", nic="HDR", nic_gbps=25.0, nics=8, gpus=8, source=_DGX_A100),
    "dgx-h100": replace(H100, name="DGX H100", nic="NDR", nic_gbps=50.0, nics=8, gpus=8, source=_DGX_H100),
    "dgx-h200": replace(H200, name="DGX H200", nic="NDR", nic_gbps=50.0, nics=8, gpus=8, source=_DGX_H100),
}  # fmt: skip
"""What ``--hardware NAME`` may say."""
