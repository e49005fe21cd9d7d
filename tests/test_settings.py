"""``[tool.commprof]``: what is read, from where, and the one line that a wrong value gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.errors import InputRefused
from commprof.settings import Settings, load_settings


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_the_nearest_file_above_counts(tmp_path: Path) -> None:
    project(tmp_path, '[tool.commprof]\nmax-exposed = 0.5\ncomm-pattern = "far"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    project(tmp_path / "a", '[tool.commprof]\ncomm-pattern = ["mine.*", "ours"]\nmin-overlap = "60%"\nlimit = "x<=1"\n')

    settings = load_settings(inner)

    assert settings.comm_patterns == ("mine.*", "ours")
    assert settings.named_limits == (("min-overlap", "60%"),)
    assert settings.limits == ("x<=1",)
    assert settings.source == tmp_path / "a" / "pyproject.toml"


def test_a_project_without_settings_of_ours_has_none(tmp_path: Path) -> None:
    settings = load_settings(project(tmp_path, "[tool.ruff]\nline-length = 120\n"))

    assert settings == Settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.commprof]\nmax-exposd = 0.1\n", "'max-exposd'"),
        ("[tool.commprof]\nmax-exposed = true\n", "max-exposed is True"),
        ("[tool.commprof]\nmax-exposed = [1]\n", "max-exposed is [1]"),
        ("[tool.commprof]\ncomm-pattern = [1]\n", "comm-pattern is [1]"),
        ("[tool.commprof]\nlimit = 3\n", "limit is 3"),
        ("[tool]\ncommprof = 3\n", "not a table"),
        ("[tool.commprof\n", "line 1"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_file(text: str, words: str, tmp_path: Path) -> None:
    project(tmp_path, text)

    with pytest.raises(InputRefused) as caught:
        load_settings(tmp_path)

    assert words in str(caught.value)
    assert "pyproject.toml" in str(caught.value)
    assert "\n" not in str(caught.value)
