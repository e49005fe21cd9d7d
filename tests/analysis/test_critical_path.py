"""The critical path of a run: by hand, and what it promises against the simulator's truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import commprof
from commprof.analysis.critical_path import CriticalPath
from commprof.synth import write_run
from commprof.synth.sampling import random_fault, random_scenario
from tests.analysis.test_wait_chain import STEPS, write

PROMISES = {"host-pause": {"straggler"}, "loader-stall": {"straggler", "input-bound"}}


def path_of(folder: Path) -> CriticalPath:
    """The path of the run in a folder."""
    found = commprof.analyze(folder, jobs=1).critical_path
    assert found is not None
    return found


def test_every_instant_of_the_steps_lies_on_the_path_once(tmp_path: Path) -> None:
    """Steps of 8.4 ms: rank 5 computes 5 ms, where others compute 3, before the call of its pair (4 and 5).

    After the 100 µs of that call all have 3 ms left, so that the pair is last at the calls of both columns, of 200 µs.
    The first kernel of a step starts 100 µs after the step before has ended.
    """
    found = path_of(write(tmp_path / "run", lambda rank, step: (2000 if rank == 5 else 0, 0)))

    steps = STEPS - 1
    assert found.steps == steps
    assert found.length == steps * 8_400_000
    assert int(found.transfers.sum()) == pytest.approx(steps * 300_000, rel=0.01)
    own = found.own / steps
    assert own[4] + own[5] == pytest.approx(8_100_000, rel=0.02)
    assert own[5] >= 5_000_000
    assert not np.any(np.delete(own, [4, 5]) > 100_000)


def test_a_slow_rank_takes_what_it_computes_longer(tmp_path: Path) -> None:
    """The same run: of the 5 + 3 ms of rank 5 on the path 2 are beyond what the others of its role compute."""
    found = path_of(write(tmp_path / "run", lambda rank, step: (2000 if rank == 5 else 0, 0)))

    beyond = found.compute - np.median(np.delete(found.compute, 5))
    assert beyond.tolist() == [(STEPS - 1) * 2_000_000 if rank == 5 else 0 for rank in range(8)]
    assert found.own[5] >= beyond[5]


def test_missing_ranks_have_no_path(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda rank, step: (0, 0))
    (folder / "rank7.json").unlink()

    assert commprof.analyze(folder, jobs=1).critical_path is None


@pytest.mark.parametrize(
    ("seed", "program", "regime", "kind"),
    [
        (350, "ddp", "gpu", "host-pause"),  # partly behind compute: exposed pieces show less than it costs
        (309, "fsdp-explicit", "mixed", "loader-stall"),  # much waiting that would be lost without it too
        (338, "async-tp", "mixed", "loader-stall"),  # on all ranks: exposed calls hold the time of the CPU
        (504, "zero1", "host", "loader-stall"),  # the CPU then waits for a copy of the batch, not for compute
    ],
)
def test_the_promise_is_an_upper_bound_that_is_close(
    seed: int, program: str, regime: str, kind: str, tmp_path: Path
) -> None:
    scenario = random_scenario(seed, program=program, regime=regime, real=seed % 2 == 1, steps=6)
    scenario = replace(scenario, faults=(random_fault(scenario, seed, kind=kind),))
    written = write_run(scenario, tmp_path / "run", seed=seed, calls=False)
    truth = json.loads(written.truth.read_text())
    gain = truth["step_ns"] - truth["step_ns_without"][kind]

    findings = commprof.diagnose(commprof.analyze(written.folder, jobs=1)).findings

    promised = sum(finding.recoverable_ns or 0 for finding in findings if finding.id in PROMISES[kind])
    # What the loop fetches in every step anyway is promised as well.
    usual = scenario.loader_ns if kind == "loader-stall" else 0
    assert 0.98 * gain <= promised <= 1.15 * (gain + usual)
