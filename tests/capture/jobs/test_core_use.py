"""What others take of a core during a run, and which runs have to be made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.capture.jobs.core_use import CoreUse
from tests.capture.jobs.faults import is_quiet


class Told(CoreUse):
    """Its readings (clock, idle, own time, seconds) are given."""

    def __init__(self, *readings: tuple[float, float, float]) -> None:
        self.readings = list(readings)
        super().__init__(0)

    def _now(self) -> tuple[float, float, float]:
        return self.readings.pop(0)


@pytest.mark.parametrize(
    ("later", "share"),
    [
        pytest.param((12.0, 6.0, 4.0), 0.0, id="half idle, half its own"),
        pytest.param((12.0, 6.0, 3.5), 0.25, id="half a second of two is of others"),
        pytest.param((12.0, 6.0, 4.1), 0.0, id="coarse clocks do not go below nothing"),
    ],
)
def test_what_neither_idles_nor_is_its_own_is_foreign(later: tuple[float, float, float], share: float) -> None:
    use = Told((10.0, 5.0, 3.0), later)

    found = use.foreign_share()

    assert found == pytest.approx(share)


@pytest.mark.parametrize(
    ("truth", "quiet"),
    [
        ({"foreign_share": 0.04, "slow_network": None}, True),
        ({"foreign_share": 0.06, "slow_network": None}, False),
        ({"foreign_share": 0.2, "slow_network": "2gbit"}, True),
        ({"slow_network": None}, False),
        (None, False),
    ],
)
def test_a_disturbed_run_is_made_again(truth: dict[str, Any] | None, quiet: bool, tmp_path: Path) -> None:
    if truth is not None:
        (tmp_path / "truth.json").write_text(json.dumps(truth))

    found = is_quiet(tmp_path)

    assert found == quiet
