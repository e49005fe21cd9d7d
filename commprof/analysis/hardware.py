"""Which machine the run was on, and the bus bandwidth that a group of some shape can reach on it.

A recognised GPU tells the rate between the GPUs of a host, never the network: for that the user names a machine or
describes it in a file. Unknown hardware gives no ceiling and no claim.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from commprof.analysis.hardware_table import NAMED, RECOGNISED, Hardware
from commprof.errors import InputRefused, UsageError

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:GB/s|GBps)?\s*", re.IGNORECASE)
_TEXTS = ("name", "source", "link", "nic")
_COUNTS = ("nics", "gpus")
_KEYS = tuple(field.name for field in fields(Hardware))
_ONE_WAY = ("send", "recv", "send_recv", "broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bus bandwidth that a group can reach, GB/s: below ``low`` something is slow, between the two it depends on the
    algorithm. In-switch reduction may exceed ``high``. ``source`` says where the figures come from."""

    low: float
    high: float
    source: str


def choose_hardware(asked: str | None, device_names: Iterable[str | None]) -> Hardware | None:
    """What the user asked for, else what all devices of the run are; ``None`` where they are not known or differ.

    ``asked`` is a name of :data:`NAMED`, a TOML or JSON file, or a rate in GB/s that every group can reach. Raises
    :class:`~commprof.errors.InputRefused`.
    """
    if asked is not None:
        rate = _RATE.fullmatch(asked)
        if rate is not None:
            if not float(rate[1]) > 0:
                raise UsageError(f"--hardware {asked}: a peak is above 0 GB/s")
            return Hardware(f"{float(rate[1]):g} GB/s", "stated by the user (GB/s)", peak_gbps=float(rate[1]))
        named = NAMED.get(asked.strip().lower())
        return named if named is not None else _read(asked)
    found = {_recognise(name) for name in device_names if name}
    return found.pop() if len(found) == 1 else None


def ceiling(
    hardware: Hardware | None, operation: str, members: int | None, per_host: Sequence[int] | None
) -> Ceiling | None:
    """What a group of ``members`` ranks, ``per_host`` of them on each host, can reach in one operation.

    Over M hosts the adapters that the members on one host can use carry a ring at their sum, a hierarchical algorithm
    up to ``((n-1)/n) / ((M-1)/M)`` times that (NCCL tuning; nccl-tests issue 196); an all-to-all sends the share of
    its bytes that leaves the host, a message goes through one adapter. No ceiling lies above that of the link.
    """
    if hardware is None or not members or members < 2:
        return None
    if hardware.peak_gbps is not None:
        return Ceiling(hardware.peak_gbps, hardware.peak_gbps, hardware.source)
    link = hardware.link_gbps
    if link is None or per_host is None:
        return None
    inside = f"{hardware.name}: {hardware.link} ({hardware.source})"
    if len(per_host) < 2:
        return Ceiling(link, link, inside)
    if hardware.nic_gbps is None:
        return None
    source = f"{hardware.name}: {hardware.nic}, {hardware.nic_gbps:g} GB/s per adapter ({hardware.source})"
    low, high = _over_network(hardware, operation, members, per_host)
    return Ceiling(min(low, link), min(high, link), source)


def _over_network(hardware: Hardware, operation: str, n: int, per_host: Sequence[int]) -> tuple[float, float]:
    assert hardware.nic_gbps is not None
    adapter = hardware.nic_gbps
    per_gpu = adapter * (hardware.nics or 1) / (hardware.gpus or hardware.nics or 1)
    fewest, hosts = min(per_host), len(per_host)
    if operation in _ONE_WAY:
        return min(adapter, per_gpu), adapter
    if operation == "all_to_all":
        leaving = (n - 1) / (n - max(per_host))
        return per_gpu * leaving, max(per_gpu, adapter / max(per_host)) * leaving
    # With more adapters than GPUs a member may use more than its share, and alone on its host any one whole.
    low = per_gpu * fewest
    return low, max(low, adapter) * ((n - 1) / n) / ((hosts - 1) / hosts)


def _recognise(name: str) -> Hardware | None:
    return next((hardware for pattern, hardware in RECOGNISED if pattern.search(name)), None)


def _read(path: str) -> Hardware:
    """A machine described in a file: the fields of :class:`Hardware`, with rates in GB/s."""
    known = f"names: {', '.join(NAMED)}; a file holds {', '.join(_KEYS)} (rates in GB/s)"
    if not os.path.exists(path):
        raise InputRefused(f"--hardware {path}: neither a known machine nor a file", hint=known)
    try:
        with open(path, "rb") as file:
            data = file.read()
        values = json.loads(data) if data.lstrip()[:1] == b"{" else tomllib.loads(data.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise InputRefused(
            f"{path}: not a description of hardware: {' '.join(str(error).split())}", hint=known
        ) from None
    for key, value in values.items():
        if key not in _KEYS:
            raise InputRefused(f"{path}: unknown key {key!r}", hint=known)
        if not _fits(key, value):
            raise InputRefused(f"{path}: {key} is {value!r}", hint=known)
    name = os.path.basename(path)
    stated = Hardware(name, f"stated in {name}")
    given: dict[str, Any] = {k: float(value) if k.endswith("gbps") else value for k, value in values.items()}
    return replace(stated, **given)


def _fits(key: str, value: object) -> bool:
    if key in _TEXTS:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value < 1e6 and (key not in _COUNTS or isinstance(value, int))
