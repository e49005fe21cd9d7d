"""Seeded damage to good files: no traceback, no hang, no broken report, whatever the bytes.

A changed digit is another trace, not a fault, so the numbers are only held to the accounting identities
(:func:`tests.conftest.run_analyze` checks them).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run
from tests.builders.text import gzip_bytes
from tests.cases.test_layouts import rich
from tests.conftest import ROOT

Analyze = Callable[..., Run]
Mutation = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rng: random.Random) -> bytes:
    """Lose the end."""
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    """Change single bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(data: bytes, rng: random.Random) -> bytes:
    """Put characters that matter to JSON in place of others."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        changed[rng.randrange(len(changed))] = rng.choice(b'{}[]",:\\\n\x00 -eE.tfn0')
    return bytes(changed)


def splice(data: bytes, rng: random.Random) -> bytes:
    """Move one piece elsewhere."""
    start, length = rng.randrange(len(data)), rng.randint(1, 400)
    piece, rest = data[start : start + length], data[:start] + data[start + length :]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + piece + rest[at:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    """Write one piece twice."""
    start, length = rng.randrange(len(data)), rng.randint(1, 400)
    return data[: start + length] + data[start:]


def lose(data: bytes, rng: random.Random) -> bytes:
    """Leave one piece out."""
    start, length = rng.randrange(len(data)), rng.randint(1, 400)
    return data[:start] + data[start + length :]


def recode(data: bytes, rng: random.Random) -> bytes:
    """Write a part of the file in another encoding."""
    start = rng.randrange(len(data))
    encoding = rng.choice(["utf-16-le", "utf-16-be", "utf-32-le", "cp037"])
    return data[:start] + data[start : start + 200].decode("latin-1").encode(encoding) + data[start + 200 :]


def packed(data: bytes, rng: random.Random) -> bytes:
    """Damage the compressed bytes."""
    return rng.choice([cut, flip, lose, repeat])(gzip_bytes(data, rng.randint(1, 3)), rng)


MUTATIONS: list[Mutation] = [cut, flip, overwrite, splice, repeat, lose, recode, packed]


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda function: function.__name__)
def test_no_damage_gives_a_traceback_or_a_broken_report(
    mutate: Mutation, seed: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    rng = random.Random(f"{mutate.__name__} {seed}")
    gloo = (ROOT / "fixtures" / "gloo-cpu" / "rank0.json").read_bytes()
    data = rng.choice([rich().text("compact").encode(), rich().text("pretty").encode(), gloo])
    path = tmp_path / "rank0.json"
    path.write_bytes(mutate(data, rng))

    run = run_analyze(path)

    assert run.code in (0, 2, 3), run.stderr
    if run.code:
        assert len(run.lines) >= 1
        assert "rank0.json" in run.stderr
