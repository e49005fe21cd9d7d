"""What faster CPUs could give back: against the simulator with CPUs that launch in no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.cpu_room import cpu_room
from commprof.diagnosis.ground import lay_ground
from commprof.synth import write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.sampling import random_scenario
from commprof.synth.truth import step_ns

FIXTURE = Path(__file__).parents[2] / "fixtures" / "ddp-two-ranks"


def room_and_truth(program: str, folder: Path) -> tuple[float, float]:
    """Room, and by how much a step is shorter if launches cost nothing, both as shares of the step."""
    scenario = random_scenario(3, program=program, regime="mixed", real=False, steps=4)
    scenario = replace(scenario, loader_ns=0, sync_each_step=False)
    free = replace(scenario, launch_ns=1, comm_launch_ns=1)
    step, shortest = (step_ns(simulate(make_plan(one, 3))) or 1 for one in (scenario, free))
    ground = lay_ground(commprof.analyze(write_run(scenario, folder, seed=3).folder, jobs=1))
    assert ground is not None
    room = cpu_room(ground)
    assert room is not None
    return room / step, 1 - shortest / step


@pytest.mark.parametrize("program", ["ddp", "zero1", "fsdp", "tp"])
def test_room_is_by_how_much_steps_are_shorter_with_launches_that_cost_nothing(program: str, tmp_path: Path) -> None:
    room, truth = room_and_truth(program, tmp_path / "run")

    assert room == pytest.approx(truth, abs=0.04)


@pytest.mark.parametrize("program", ["gpipe", "interleaved", "pp-dp"])
def test_room_in_a_pipeline_is_at_least_that(program: str, tmp_path: Path) -> None:
    """How long stages wait for messages is not reckoned beside the bubble."""
    room, truth = room_and_truth(program, tmp_path / "run")

    assert truth <= room <= truth + 0.4


def test_the_rank_that_needs_the_most_decides() -> None:
    # Of steps of 1000 us rank 0 needs 800 (650 of compute, 150 of reduction after it), rank 1 850 (700 and 150);
    # what one rank needs is known to 2 %, which is 17.
    ground = lay_ground(commprof.analyze(FIXTURE, jobs=1))

    assert ground is not None
    assert cpu_room(ground) == 150_000 + 17_000


def test_without_all_ranks_nothing_is_said(tmp_path: Path) -> None:
    scenario = random_scenario(3, program="ddp", regime="mixed", real=False, steps=4)
    folder = write_run(scenario, tmp_path / "run", seed=3).folder
    next(folder.glob("*rank1*")).unlink()

    ground = lay_ground(commprof.analyze(folder, jobs=1))

    assert ground is not None
    assert cpu_room(ground) is None
