"""The sample report that tests of single sections look at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import sample_parts


@pytest.fixture
def view() -> dict[str, Any]:
    """The view of a run in which every section has something to say; a new one for each test."""
    return sample_parts.full_view()


@pytest.fixture
def report(view: dict[str, Any]) -> dict[str, Any]:
    """The JSON report inside it."""
    return view["report"]
