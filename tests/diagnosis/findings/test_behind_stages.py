"""Stages of a pipeline that hold up the others, which nobody but the simulator can tell from its bubble."""

from __future__ import annotations

from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.model import Diagnosis
from commprof.synth import Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns


def diagnosed(scenario: Scenario, folder: Path) -> Diagnosis:
    """A simulated run, judged."""
    return commprof.diagnose(commprof.analyze(write_run(scenario, folder, seed=3, causes=False, calls=False).folder))


def test_a_stage_that_pauses_makes_the_bubble_of_the_others_longer(tmp_path: Path) -> None:
    # Two stages, no replica: what the pause of one costs is what the run takes less without it.
    whole = Scenario(
        name="gpipe", strategy="none", pp=2, inner=1, microbatches=4, schedule="gpipe", layers=4, hidden=1024,
        sequence=512, batch=2, steps=5, launch_ns=3_000, sync_each_step=True,
        faults=(Fault("host-pause", 0, 1_500_000),),
    )  # fmt: skip
    usual = whole.without("host-pause")
    gain = (step_ns(simulate(make_plan(whole, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    found = [one for one in diagnosed(whole, tmp_path / "paused").findings if one.cause == "pause"]
    without = [one for one in diagnosed(usual, tmp_path / "usual").findings if one.cause == "pause"]

    assert found[0].severity != "info"
    assert found[0].ranks == (0,)
    assert sum(one.recoverable_ns or 0 for one in found) == pytest.approx(gain, rel=0.25)
    assert not [one for one in without if one.severity != "info"]


def test_stages_that_pause_in_turn_are_one_finding(tmp_path: Path) -> None:
    # In every step one of two stages pauses: what is bubble on one of them is its own pause on the other.
    whole = Scenario(
        name="gpipe", strategy="none", pp=2, inner=1, microbatches=4, schedule="gpipe", layers=4, hidden=1024,
        sequence=512, batch=2, steps=5, launch_ns=3_000, sync_each_step=True,
        faults=(Fault("gc-pause", None, 1_500_000),),
    )  # fmt: skip

    found = [one for one in diagnosed(whole, tmp_path / "run").findings if one.cause == "pause"]

    assert [(one.ranks, one.severity) for one in found] == [((0, 1), "high")]
    assert found[0].charged_ns == pytest.approx(1_500_000, rel=0.25)
