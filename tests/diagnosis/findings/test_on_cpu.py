"""Advice for machines without devices."""

from __future__ import annotations

from dataclasses import replace

from commprof.diagnosis.findings import RULES
from commprof.diagnosis.findings.case import Case, Claim
from commprof.diagnosis.findings.on_cpu import _INSTEAD, advised_for_cpu

_OF_DEVICES = ("nvidia-smi", "dcgmi", "NCCL_", "NVLink", "nvlink", "ibstat", "torch.cuda", "CUDA graphs")


def case(kind: str, cause: str | None) -> Case:
    return Case(kind, "title", Claim(), ("nvidia-smi -q",), cause=cause)


def test_a_rank_without_a_device_is_not_told_to_look_at_one() -> None:
    slow = advised_for_cpu(case("straggler", "slow-device"))
    link = advised_for_cpu(case("slow-link", None))

    assert "OMP_NUM_THREADS" in slow.advice[0]
    assert "nvidia-smi" not in slow.advice[0]
    assert "gloo" in link.advice[0]
    assert (slow.title, slow.cause) == ("title", "slow-device")


def test_a_stage_that_may_run_on_slow_cores_is_told_to_be_moved_first() -> None:
    undecided = replace(case("straggler", "more-work"), advice=("Swap.", "nvidia-smi -q"), or_cause="slow-device")

    first, second = advised_for_cpu(undecided).advice

    assert first == "Swap."
    assert "OMP_NUM_THREADS" in second


def test_other_advice_stays() -> None:
    assert advised_for_cpu(case("straggler", "input")).advice == ("nvidia-smi -q",)
    assert advised_for_cpu(case("ddp-tail-bucket", "tail")).advice == ("nvidia-smi -q",)


def test_no_advice_for_cpus_speaks_of_devices() -> None:
    assert RULES
    for text in _INSTEAD.values():
        assert not any(word in text for word in _OF_DEVICES)
