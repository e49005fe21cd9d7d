"""Entries of the Flight Recorder, from a dump as torch 2.13 writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def entry(record: int, created: int, **more: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": record + 1, "p2p_seq_id": 0, "is_p2p": False, "op_id": record, "record_id": record,
        "process_group": ["3", "mesh_dp"], "profiling_name": "gloo:all_reduce", "time_created_ns": created,
        "thread_id": "7", "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"], **more,
    }  # fmt: skip


def read(monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]]) -> tuple[Any, list[str]]:
    from commprof.capture.flight import flight_entries

    dump = json.dumps({"version": "2.10", "entries": entries}).encode()
    monkeypatch.setattr(torch._C._distributed_c10d, "_dump_fr_trace_json", lambda: dump, raising=False)
    notes: list[str] = []
    return flight_entries(100, 200, notes), notes


def test_only_calls_of_the_window_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found, notes = read(monkeypatch, [entry(0, 99), entry(1, 100), entry(2, 199), entry(3, 200)])

    assert [(e.seq, e.group, e.name, e.input_sizes) for e in found] == [
        (2, "3", "gloo:all_reduce", ((3, 4),)),
        (3, "3", "gloo:all_reduce", ((3, 4),)),
    ]
    assert notes == []


def test_point_to_point_has_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = read(monkeypatch, [entry(0, 150, is_p2p=True, p2p_seq_id=9, profiling_name="gloo:send 0->1")])

    assert [(e.seq, e.is_p2p) for e in found] == [(9, True)]


def test_a_recorder_too_small_for_the_window_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, notes = read(monkeypatch, [entry(number, 110 + number) for number in range(5, 8)])

    assert notes == ["the Flight Recorder kept only the last 3 calls of the window (TORCH_FR_BUFFER_SIZE)"]


def test_a_window_that_begins_with_the_first_call_of_all_has_lost_none(monkeypatch: pytest.MonkeyPatch) -> None:
    _, notes = read(monkeypatch, [entry(0, 110)])

    assert notes == []
