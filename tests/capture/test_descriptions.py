"""Descriptions as the profiler damages them: every backslash of its metadata becomes a slash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commprof.capture.descriptions import mend_descriptions, need_mending


def info_of(*descriptions: str) -> dict[str, Any]:
    config = [{"pg_name": str(i), "pg_desc": text, "ranks": [0, 1]} for i, text in enumerate(descriptions)]
    return {"backend": "nccl", "rank": 0, "world_size": 2, "pg_count": len(config), "pg_config": config}


def as_kineto(info: dict[str, Any], argument: str = "") -> str:
    """A trace file as Kineto lays it out: one line per metadata key and per argument."""
    header = json.dumps(info).replace("\\", "/")
    event = f'  {{"name": "k",\n    "Process Group Description": "{argument}", "Seq": 1\n  }}'
    return f'{{\n    "schemaVersion": 1,\n      "distributedInfo": {header},\n    "traceEvents": [\n{event}\n  ]}}\n'


def test_plain_descriptions_need_nothing() -> None:
    assert not need_mending(info_of("default_pg", "mesh_dp", "a/b"))
    assert not need_mending(None)


@pytest.mark.parametrize("text", ['a "b"', "back\\slash", "größe", "two\nlines"])
def test_descriptions_with_a_backslash_in_json_need_it(text: str) -> None:
    assert need_mending(info_of("default_pg", text))


@settings(max_examples=50, deadline=None)
@given(text=st.text(min_size=1))
def test_header_comes_back_unchanged_c205(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    info = info_of("default_pg", text)
    path = tmp_path_factory.mktemp("mend") / "raw.json"
    path.write_text(as_kineto(info, "default_pg"), encoding="utf-8")

    mend_descriptions(path, info)

    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert loaded["distributedInfo"] == info
    assert loaded["traceEvents"] == [{"name": "k", "Process Group Description": "default_pg", "Seq": 1}]


@pytest.mark.parametrize("written", ['the "big" one\\', 'the "big" one/'])
def test_arguments_of_events_come_back_unchanged_c205(tmp_path: Path, written: str) -> None:
    description = 'the "big" one\\'
    path = tmp_path / "raw.json"
    path.write_text(as_kineto(info_of(description), written))

    mend_descriptions(path, info_of(description))

    assert json.loads(path.read_text())["traceEvents"][0]["Process Group Description"] == description
