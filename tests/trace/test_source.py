"""Packed files whose end is not as it should be."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from commprof.errors import InputRefused
from commprof.trace import source
from commprof.trace.read import read_rank
from tests.builders.kineto import Trace


def packed_trace(steps: int = 40, name: str = "") -> bytes:
    trace = Trace(rank=0, world_size=2)
    for number in range(steps):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(t + 100, t + 600, launch=t + 10, under=trace.cpu_op("aten::mm", t + 5, t + 15))
    text = trace.text().encode()
    if not name:
        return gzip.compress(text, mtime=0)
    head = b"\x1f\x8b\x08\x1c" + bytes(6) + b"\x03\x00abc" + name.encode() + b"\x00" + b"a comment\x00"
    return head + gzip.compress(text, mtime=0)[10:]


@pytest.mark.parametrize("place", [-8, -5, -4, -1], ids=["checksum", "checksum end", "length", "length end"])
@pytest.mark.parametrize("piece", [1 << 20, 500], ids=["one piece", "many pieces"])
@pytest.mark.parametrize("name", ["", "rank0.json"], ids=["bare", "named"])
def test_a_wrong_checksum_costs_no_event(
    place: int, piece: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a gzip file that is whole but for its checksum or length,
    monkeypatch.setattr(source, "_PIECE_BYTES", piece)
    monkeypatch.setattr(source, "_READ_BYTES", piece)
    packed = bytearray(packed_trace(name=name))
    good, bad = tmp_path / "good.json.gz", tmp_path / "bad.json.gz"
    good.write_bytes(packed)
    packed[place] ^= 0x40
    bad.write_bytes(packed)

    # When it is read,
    whole, found = read_rank(str(good)), read_rank(str(bad))

    # Then all its events are there, and a warning.
    assert found.file.events == whole.file.events > 100
    assert (found.device.start == whole.device.start).all()
    assert [warning for warning in found.warnings if "checksum" in warning]
    assert not [warning for warning in whole.warnings if "checksum" in warning]


def test_damage_in_the_middle_is_not_taken_for_a_wrong_checksum(tmp_path: Path) -> None:
    # Given a gzip file in which a stretch of the packed data is overwritten,
    packed = bytearray(packed_trace())
    packed[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed)

    # When it is read, then what was unpacked before that is not enough.
    with pytest.raises(InputRefused, match="damaged gzip data"):
        read_rank(str(path))
