"""Strategy, roles and bytes of simulated runs, without descriptions of groups, against the simulator's truth."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commprof.synth import preset, write_run
from tests.benchmarks.synth_roles import compare, report_of

PROGRAMS = ("ddp", "zero1-torch", "zero2", "fsdp", "hsdp", "sp", "ep", "tp-fsdp", "tp-pp-dp", "pp-interleaved")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_simulated_run_is_recognised_without_descriptions(name: str, tmp_path: Path) -> None:
    scenario = replace(preset(name), layers=4 if "pp" not in name else 8, hidden=512, sequence=256, steps=2)
    written = write_run(replace(scenario, described_groups=False), tmp_path / "run", seed=7, causes=False)

    tally = compare(report_of(written.folder), json.loads(written.truth.read_text()))

    assert tally.wrong == []
    assert tally.groups > 0
    assert tally.bytes_off == pytest.approx(0.0, abs=1e-6)
