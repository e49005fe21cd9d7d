"""Which statements of a report call a link or the network slow, and which of these are false in a simulated run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commprof.synth import Scenario
from commprof.synth.plan import Plan, make_plan

FINDINGS = ("slow-link", "network-intermittent", "low-bandwidth", "tp-across-hosts")
LATE = "late by its transfers"
FAULTS = ("slow-link", "flapping-link")


@dataclass(frozen=True)
class Statement:
    """``what`` calls a link slow that ``ranks`` use, of any severity; ``true`` where the simulated cluster has it."""

    what: str
    ranks: tuple[int, ...]
    true: bool

    def __str__(self) -> str:
        return f"{self.what} of ranks {', '.join(map(str, self.ranks))}"


def machine(scenario: Scenario, path: Path) -> Path:
    """``path``, written with what a user would say of the machine: the rates of its links."""
    cluster = scenario.cluster
    rates = {
        "name": "simulated", "source": "the scenario", "link_gbps": cluster.nvlink.bytes_per_s / 1e9,
        "nic_gbps": cluster.nic.bytes_per_s / 1e9, "nics": cluster.nics_per_host, "gpus": cluster.gpus_per_host,
    }  # fmt: skip
    path.write_text(json.dumps(rates), encoding="utf-8")
    return path


def statements(report: dict[str, Any], scenario: Scenario, seed: int) -> list[Statement]:
    """Every finding that accuses a link, and every rank that is said to be late by its transfers."""
    plan = make_plan(scenario, seed)
    return [Statement(what, ranks, _holds(what, ranks, plan)) for what, ranks in dict.fromkeys(_accused(report))]


def _accused(report: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What is said, and of which ranks: those of the group where one is accused."""
    members = {row["group_id"]: row["ranks"] for row in report["groups"]}
    for row in report["findings"]:
        if row["id"] in FINDINGS:
            yield row["id"], tuple(members.get(row["group_id"]) or row["ranks"])
        elif row["id"] == "straggler" and row["cause"] == "communication" and row["ranks"]:
            yield LATE, tuple(row["ranks"])
    for row in report["stragglers"]:
        if row["cause"] == "communication":
            yield LATE, tuple(row["members"])


def _holds(what: str, ranks: Sequence[int], plan: Plan) -> bool:
    """Whether the simulated cluster is so: a link with a fault is on the way, or the group really crosses hosts."""
    place = plan.placement
    if what == "tp-across-hosts":
        groups = [group.ranks for group in plan.mesh.groups if group.role == "tp" and set(group.ranks) & set(ranks)]
        return any(len({place.host(rank) for rank in group}) > 1 for group in groups)
    links = [ranks]
    if what == LATE:  # among themselves or with their peers
        links = [group.ranks for group in plan.mesh.groups if group.axis != "world" and set(group.ranks) & set(ranks)]
    used = {port for link in links for port in place.path(link).ports}
    faulty = [fault.rank for fault in plan.scenario.faults if fault.kind in FAULTS and fault.rank is not None]
    return any(port in used for rank in faulty for port in (place.gpu_port(rank), place.nic(rank)))
