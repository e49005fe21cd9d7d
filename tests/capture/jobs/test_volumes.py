"""Bytes per step: derived by hand, recorded beside the run, and measured from its trace."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from commprof.capture.jobs.launch import launch
from commprof.capture.jobs.strategies import strategies
from tests.builders.command import analyze
from tests.builders.sequence import sequence_trace
from tests.capture.jobs import volumes
from tests.capture.jobs.sequences import SEQUENCES, load
from tests.conftest import ROOT

with_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
BY_HAND = {
    "fsdp-2": volumes.fsdp(2),
    "hsdp-2x2": volumes.hsdp(2, 2),
    "tp-2": volumes.tensor(2),
    "tp-sequence-2": volumes.tensor_sequence(2),
    "tp2-fsdp2": volumes.tensor_in_fsdp(2, 2),
    "fsdp-64": volumes.fsdp(64, layers=2),
    "hsdp8x16": volumes.hsdp(8, 16, layers=2),
    "tp8-fsdp64": volumes.tensor_in_fsdp(64, 8, layers=2),
}


def test_the_model_has_as_many_parameters_as_counted_by_hand() -> None:
    assert (volumes.LAYER, volumes.ROOT, volumes.PARAMETERS) == (789_760, 279_040, 3_438_080)


def test_bytes_of_a_pipeline_are_those_of_its_borders_and_of_its_stages() -> None:
    # 2 x 64 tokens of width 256: 131,072 B. Two stages: each sends 4 and receives 4. Four: so do the outer ones, the
    # inner ones have two borders. DDP over two replicas moves the gradients of a stage once: half of the model.
    message = 131_072

    assert volumes.pipeline() == 8 * message
    assert volumes.pipeline(3) == (8 + 16 + 8) * message / Fraction(3)
    assert volumes.pipeline(4) == (8 + 16 + 16 + 8) * message / Fraction(4)
    assert volumes.pipeline(2, 2) == 8 * message + 4 * 3_438_080 / Fraction(2)


@pytest.mark.parametrize("name", BY_HAND)
def test_recorded_calls_send_what_the_formula_says(name: str) -> None:
    sequence = load(name)

    assert volumes.sent(sequence["calls"], sequence["groups"]) == BY_HAND[name]


@pytest.mark.parametrize("name", BY_HAND)
def test_measured_bytes_are_those_of_the_formula_and_every_difference_is_named(name: str, tmp_path: Path) -> None:
    path = sequence_trace(load(name)).write(tmp_path / "rank.json")

    strategy = analyze(path, tmp_path / "report.json").report["strategy"]

    assert set(strategy["name"].split("+")) == SEQUENCES[name].strategy
    check_bytes(strategy, BY_HAND[name])


def check_bytes(strategy: dict[str, Any], by_hand: Fraction) -> None:
    """Measured as derived; what each part has more or less than its formula is named, to one percent of it."""
    assert strategy["measured_bytes_per_step"] == pytest.approx(float(by_hand), abs=1)
    for part in strategy["parts"]:
        named = sum(difference["bytes"] for difference in part["differences"])
        assert part["measured_bytes"] == pytest.approx(part["expected_bytes"] + named, rel=0.01)


@pytest.mark.torch
@with_torch
def test_a_real_run_sends_what_the_formula_says_and_the_analysis_finds_it(tmp_path: Path) -> None:
    _, module, *options = strategies()["ep"].command
    job = ["-m", "tests.capture.jobs.recorded", module, *options, "--steps", "2"]
    folder = tmp_path / "ep"

    launch([*job, "--out", str(folder), "--rendezvous", "{rendezvous}"], 2, timeout_s=120)
    report = analyze(folder, tmp_path / "report.json").report

    # The last step: DDP's buckets have long been rebuilt. Ranks send unequal numbers of tokens, their mean is known.
    records = [json.loads(Path(f"{folder}.calls-{rank}.json").read_text()) for rank in range(2)]
    last = [[c for c in record["calls"] if c["step"] == record["calls"][-1]["step"]] for record in records]
    recorded = [volumes.sent(calls, record["groups"]) for calls, record in zip(last, records, strict=True)]
    assert sum(recorded) / 2 == volumes.experts(2)
    assert recorded[0] != recorded[1]
    assert set(report["strategy"]["name"].split("+")) == {"ep", "ddp"}
    assert {row["role"] for row in report["groups"]} == {"ep", "dp"}
    check_bytes(report["strategy"], volumes.experts(2))


@pytest.mark.torch
@with_torch
def test_a_stored_sequence_is_what_the_job_calls_today(tmp_path: Path) -> None:
    code = (
        "import sys, json; from tests.capture.jobs.sequences import record; "
        "print(json.dumps({name: record(name) for name in sys.argv[1:]}))"
    )
    names = ["hsdp-2x2", "tp2-fsdp2"]

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *names],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    for name, found in json.loads(done.stdout.splitlines()[-1]).items():
        stored = load(name)
        assert [found["groups"], found["calls"]] == [stored["groups"], stored["calls"]]
