"""The reader under seeded damage: the short version of ``python -m tests.benchmarks.fuzz_reader``."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import fixture_seeds
from tests.fuzz.harness import Checker, content_of, inline_helpers, small_blocks
from tests.fuzz.large import LARGE
from tests.fuzz.mutators import MUTATORS, PLAIN, Mutator

SEEDS = {seed.name: seed.data for seed in fixture_seeds()}
SMALL = sorted(name for name, data in SEEDS.items() if len(data) < 2000)


@pytest.fixture(scope="module")
def checkers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checker]:
    """One judge per clean file."""
    return {name: Checker(data, tmp_path_factory.mktemp("fuzz")) for name, data in SEEDS.items()}


@pytest.mark.parametrize("mutate", MUTATORS, ids=lambda function: function.__name__)
def test_seeded_damage_breaks_no_promise(mutate: Mutator, checkers: dict[str, Checker]) -> None:
    for number in range(12):
        rng = random.Random(f"{mutate.__name__} {number}")
        name = rng.choice(SMALL if number else ["host-bound"])
        data = mutate(SEEDS[name], rng)

        verdict = checkers[name].check(data, block=rng.choice((0, 16, 50, 333)), walk=rng.choice((0, 60, 300)))

        assert verdict.fault is None, f"{name}, number {number}: {verdict.fault}"


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(SMALL),
    pieces=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=6)), min_size=1, max_size=3),
    block=st.sampled_from((0, 16, 64)),
)
def test_any_bytes_in_any_place_break_no_promise(
    name: str, pieces: list[tuple[float, int, bytes]], block: int, checkers: dict[str, Checker]
) -> None:
    data = SEEDS[name]
    for place, lost, put in pieces:
        at = int(place * len(data))
        data = data[:at] + put + data[at + lost :]

    verdict = checkers[name].check(data, block=block, walk=60)

    assert verdict.fault is None


@pytest.mark.parametrize("mutate", PLAIN, ids=lambda function: function.__name__)
def test_damage_reads_the_same_with_the_help_of_other_processes(mutate: Mutator, checkers: dict[str, Checker]) -> None:
    for number in range(6):
        rng = random.Random(f"{mutate.__name__} {number} helped")
        name = rng.choice(sorted(SEEDS))
        data = mutate(SEEDS[name], rng)
        alone = checkers[name].read(data)

        with small_blocks(max(40, len(data) // 40), rng.choice((0, 100, 1000))), inline_helpers(1 + number % 2):
            helped = checkers[name].read(helpers=True)

        assert helped.error == alone.error
        assert helped.content == alone.content


@pytest.mark.parametrize("name", sorted(SEEDS))
@pytest.mark.parametrize("walk", [0, 100, 1 << 16])
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_clean_file_reads_the_same_from_blocks_of_any_size(
    name: str, walk: int, tolerant: bool, checkers: dict[str, Checker]
) -> None:
    checker = checkers[name]
    whole = checker.read(SEEDS[name])

    for block in (16, 17, 61, 250, 999):
        with small_blocks(block, walk):
            outcome = checker.read(tolerant=tolerant)

        assert outcome.trace is not None
        assert content_of(outcome.trace) == whole.content


def _depth(text: bytes) -> int:
    return text.count(b"{") - text.count(b"}")


@pytest.mark.parametrize("name", ["t0-compact", "t0-pretty"])
def test_c029_a_file_cut_anywhere_holds_the_events_before_the_cut(name: str, checkers: dict[str, Checker]) -> None:
    checker, data = checkers[name], SEEDS[name]
    start = data.index(b'"traceEvents"')
    ends = [at + 1 for at in range(start, len(data)) if data[at : at + 1] == b"}" and _depth(data[: at + 1]) == 1][:3]
    assert len(ends) == 3

    for cut in range(ends[0], len(data) - 4, 7):
        outcome = checker.read(data[:cut])

        assert outcome.trace is not None
        assert outcome.trace.file.events == sum(end <= cut for end in ends)
        assert outcome.trace.file.truncated == (b"]" not in data[ends[-1] : cut])


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_file_of_repeated_damage_ends_within_the_time_limit(name: str, checkers: dict[str, Checker]) -> None:
    checker = checkers["t0"]

    verdict = checker.check(LARGE[name](200_000), block=5000, walk=3000)

    assert verdict.fault is None
