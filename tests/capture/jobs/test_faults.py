"""The runs that studies of real faults are made of."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from commprof.manifest import read_manifests
from tests.capture.jobs.fault_kinds import KINDS, plan
from tests.capture.jobs.faults import pair
from tests.capture.real import names_in, trace_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_follows_from_kind_and_seed_and_its_twin_lacks_the_fault_alone(kind: str) -> None:
    plans = [plan(kind, seed) for seed in range(20)]

    twins = [plan(kind, seed, injected=False) for seed in range(20)]

    assert plans == [plan(kind, seed) for seed in range(20)]
    assert [dataclasses.replace(one, injected=False) for one in plans] == twins
    assert {one.late_rank for one in plans} == {0, 1}
    assert all(0.15 <= one.share <= 0.4 for one in plans)
    assert len({one.name for one in [*plans, *twins]}) == (20 if kind == "none" else 40)


def test_a_late_rank_is_expected_where_a_cause_is() -> None:
    assert {kind for kind, facts in KINDS.items() if facts.cause} == {
        "slow-rank", "slow-loader", "host-pause", "busy-core",
    }  # fmt: skip
    assert all(facts.findings for kind, facts in KINDS.items() if kind != "none")


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_run_is_captured_on_both_ranks_and_only_the_late_one_computes_more(tmp_path: Path) -> None:
    wanted = plan("slow-rank", 0)

    with pair(slow_network=False) as both:
        both.run(wanted, tmp_path / "run")

    truth = json.loads((tmp_path / "run" / "truth.json").read_text())
    assert (truth["rank"], truth["cause"], truth["kind"]) == (wanted.late_rank, "more-work", "slow-rank")
    assert [len(m.recorded_steps) for m in read_manifests(tmp_path / "run")] == [6, 6]
    products = [Counter(names_in(trace_of(tmp_path / "run", rank)))["aten::mm"] for rank in range(2)]
    late, other = products[wanted.late_rank], products[1 - wanted.late_rank]
    # At least one extra product in each of the six steps; without the fault the ranks call the same operators.
    assert late >= other + 6
