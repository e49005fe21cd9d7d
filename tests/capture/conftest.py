"""What the capture tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capture folder that is not there yet."""
    return tmp_path / "run"
