"""What the diagnosis says of the public traces, against what is known of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.model import Diagnosis

pytestmark = pytest.mark.traces
BUCKETS = {"ddp-tail-bucket", "ddp-no-overlap", "bucket-too-large", "buckets-too-small"}


def judged(folder: Path, name: str) -> Diagnosis:
    """The diagnosis of one of the traces."""
    return commprof.diagnose(commprof.analyze(folder / name, jobs=1))


def named(diagnosis: Diagnosis) -> list[str]:
    """Ids of findings of severity low or higher."""
    return [finding.id for finding in diagnosis.findings if finding.severity != "info"]


def test_a_host_bound_run_gets_no_advice_on_buckets(public_traces: Path) -> None:
    analysis = commprof.analyze(public_traces / "ddp-resnet50-a100", jobs=1)
    found = commprof.diagnose(analysis)

    assert found.verdict.bottleneck == "host"
    assert named(found)[0] == "host-bound"
    assert not BUCKETS & {finding.id for finding in found.findings}
    for step in analysis.ranks[0].devices[0].steps:
        assert step.split.exposed_blocking is not None
        assert step.split.exposed_blocking <= 0.005 * step.split.duration


def test_a_run_bound_by_communication_names_its_tail_and_size(public_traces: Path) -> None:
    found = judged(public_traces, "ddp-resnet-mi300x")

    assert found.verdict.bottleneck == "communication"
    assert found.verdict.exposed_comm_share is not None
    assert found.verdict.exposed_comm_share > 0.5
    tail = next(finding for finding in found.findings if finding.id == "ddp-tail-bucket")
    assert tail.severity == "high"
    assert any(entry.what == "bytes of the last bucket" and entry.value for entry in tail.evidence)


def test_waiting_for_late_ranks_is_no_matter_of_bandwidth(public_traces: Path) -> None:
    found = judged(public_traces, "dlrm-8rank-v100")

    assert found.verdict.bottleneck == "straggler"
    assert "straggler" in named(found)
    assert not {"low-bandwidth", "slow-link", "network-intermittent"} & set(named(found))


def test_many_tiny_all_reduces_should_be_joined(public_traces: Path) -> None:
    found = judged(public_traces, "tiny-allreduce-v100")

    tiny = next(finding for finding in found.findings if finding.id == "tiny-messages")
    assert tiny.calls == 404
    assert "bucket" in tiny.advice[0]


def test_one_rank_does_not_communicate(public_traces: Path) -> None:
    found = judged(public_traces, "world1-v100")

    assert "No communication found" in found.verdict.summary
    assert named(found) == []


def test_two_ranks_of_128_accuse_nobody(public_traces: Path) -> None:
    analysis = commprof.analyze(public_traces / "sampled-2of128", jobs=1)
    found = commprof.diagnose(analysis)

    assert len(analysis.missing_ranks) == 126
    assert any("2 of 128 ranks" in note.message for note in analysis.notes)
    assert not {"straggler", "slow-link", "low-bandwidth"} & {finding.id for finding in found.findings}
