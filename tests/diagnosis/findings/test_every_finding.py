"""Every finding of the catalogue: found where it must be, with times worked out by hand, and not in the neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.catalogue import FINDING_IDS
from commprof.diagnosis.model import Diagnosis
from tests.diagnosis.findings.pairs import gradients, host, network
from tests.diagnosis.findings.pairs.pair import Pair, Setting

PAIRS: dict[str, Pair] = {**network.PAIRS, **gradients.PAIRS, **host.PAIRS}


def diagnosed(setting: Setting, folder: Path) -> Diagnosis:
    """The diagnosis of the traces of a setting."""
    for rank, trace in enumerate(setting.traces):
        trace.write(folder / f"rank{rank}.json")
    analysis = commprof.analyze(folder, jobs=1, hardware=setting.hardware)
    if setting.environment:
        analysis.capture["environment"] = setting.environment
    return commprof.diagnose(analysis)


def test_every_finding_has_a_pair() -> None:
    assert set(PAIRS) == set(FINDING_IDS)


@pytest.mark.parametrize("identity", PAIRS)
def test_a_finding_where_it_must_be(identity: str, tmp_path: Path) -> None:
    pair = PAIRS[identity]

    found = [finding for finding in diagnosed(pair.build(True), tmp_path).findings if finding.id == identity]

    assert found
    assert all(finding.title and finding.advice and finding.evidence for finding in found)
    for stated, by_hand in ((found[0].charged_ns, pair.charged), (found[0].recoverable_ns, pair.back)):
        if by_hand is None:
            assert stated is None
        else:
            assert stated is not None
            assert 1000 * by_hand - 1 <= stated <= 1000 * (by_hand + pair.within) + 1


@pytest.mark.parametrize("identity", PAIRS)
def test_no_finding_in_its_neighbour(identity: str, tmp_path: Path) -> None:
    found = diagnosed(PAIRS[identity].build(False), tmp_path)

    assert found.accounting is not None
    assert [finding for finding in found.findings if finding.id == identity and finding.severity != "info"] == []
    if PAIRS[identity].charged is None and identity != "find-unused":
        assert identity not in {finding.id for finding in found.findings}
