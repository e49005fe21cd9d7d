"""Two captures in one folder: the line that refuses them says how to choose one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.builders.command import call
from tests.builders.kineto import t0


@pytest.mark.parametrize(
    "names",
    [
        ("monday/rank0.json", "tuesday/rank0.json"),
        ("rank-00000.pt.trace.json", "rank-00000.2.pt.trace.json"),
        ("rank0.json", "old/rank-00000.json"),
        ("it's/rank0.json", "b c/rank0.json"),
    ],
)
def test_each_choice_of_the_hint_reads_one_capture(names: tuple[str, str], tmp_path: Path) -> None:
    for name in names:
        t0().write(tmp_path / name)

    code, _, line = call("analyze", tmp_path, "--no-html")
    words = shlex.split(line.rpartition("(two captures lie there; ")[2].strip().removesuffix(")"))
    chosen = [words[at + 1] for at, word in enumerate(words) if word == "--only"]

    assert (code, len(line.splitlines()), len(chosen)) == (2, 1, 2)
    assert [call("analyze", tmp_path, "--no-html", "--only", pattern)[0] for pattern in chosen] == [0, 0]


def test_names_that_no_pattern_tells_apart_get_a_general_hint(tmp_path: Path) -> None:
    # The form of the first, "rank[0-9]*.json", fits the second too.
    for name in ("rank0.json", "rank0.2.json"):
        t0().write(tmp_path / name)

    code, _, line = call("analyze", tmp_path, "--no-html")

    assert (code, len(line.splitlines())) == (2, 1)
    assert "choose one capture with --only, such as" in line
