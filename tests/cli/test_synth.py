"""``commprof synth`` as a person runs it: what it says it wrote, and which numbers of ranks it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.command import call


@pytest.mark.parametrize(("ranks", "said"), [(1, "1 trace ("), (2, "2 traces (")])
def test_traces_are_counted(ranks: int, said: str, tmp_path: Path) -> None:
    code, out, err = call("synth", "ddp", "-o", tmp_path / "run", "--ranks", str(ranks), "--steps", "1")

    assert (code, err) == (0, "")
    assert out.startswith(said)


@pytest.mark.parametrize(
    ("scenario", "ranks", "hint"), [("ddp", "0", "give 1 or more"), ("tp-dp", "3", "give a multiple of 2 (tp 2)")]
)
def test_ranks_that_do_not_fit_are_refused_with_those_that_do(
    scenario: str, ranks: str, hint: str, tmp_path: Path
) -> None:
    code, out, err = call("synth", scenario, "-o", tmp_path / "run", "--ranks", ranks)

    assert (code, out) == (2, "")
    assert err == f"commprof: {ranks} ranks do not fit scenario {scenario} ({hint})\n"
