"""Simulated runs of each strategy, each with a fault: the advice names knobs that whoever runs it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.model import Diagnosis
from commprof.synth import parse_fault, preset, write_run

DDP = ("bucket_cap_mb", "bf16_compress_hook", "delay_all_reduce", "gradient_as_bucket_view")
FSDP = ("fully_shard", "set_modules_to_forward_prefetch", "limit_all_gathers")


def diagnosed(name: str, folder: Path, *faults: str) -> Diagnosis:
    """A small run of the preset, four layers deep."""
    scenario = replace(preset(name), layers=4, steps=3, faults=tuple(map(parse_fault, faults)))
    write_run(scenario, folder, seed=5, causes=False, calls=False)
    return commprof.diagnose(commprof.analyze(folder, jobs=1))


def advice(found: Diagnosis) -> str:
    return "\n".join(line for finding in found.findings for line in finding.advice)


@pytest.mark.parametrize(
    ("name", "fault", "missing", "named"),
    [
        ("zero1", "no-overlap", (*DDP, *FSDP, "no_sync"), "overlap_comm=True"),
        ("zero2", "huge-bucket", (*DDP, *FSDP, "no_sync"), "reduce_bucket_size"),
        ("zero2", "tiny-buckets:all:65536", (*DDP, *FSDP, "no_sync"), "stage 1"),
        ("zero1-torch", "slow-gpu:2:200", ("--overlap-param-gather", "allgather_bucket_size"), "overlap_with_ddp=True"),
        ("fsdp", "late-launch:all:1500000", DDP, "set_modules_to_forward_prefetch"),
        ("zero3", "huge-bucket", DDP, "stage3_prefetch_bucket_size"),
        ("ep", "slow-gpu:1:200", (), "--moe-shared-expert-overlap"),
        ("sp", "slow-gpu:1:200", ("sequence parallel turns",), "--tp-comm-overlap"),
        ("pp", "slow-gpu:1:200", (), "ScheduleInterleaved1F1B"),
        ("tp-dp", "huge-bucket", FSDP, "--ddp-bucket-size"),
    ],
)
def test_advice_fits_the_strategy(name: str, fault: str, missing: tuple[str, ...], named: str, tmp_path: Path) -> None:
    text = advice(diagnosed(name, tmp_path / "run", fault))

    assert [knob for knob in missing if knob in text] == []
    assert named in text


def test_a_message_that_waits_for_the_other_side_has_a_cause(tmp_path: Path) -> None:
    found = diagnosed("pp", tmp_path / "run", "slow-gpu:1:200")

    titles = {finding.cause: finding.title for finding in found.findings}
    assert "waits for the other side" in titles["peer-wait"]
    assert not any("not determined" in title for title in titles.values())
