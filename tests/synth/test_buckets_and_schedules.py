"""Bucket layouts against those that torch 2.13 gave, schedules against the papers."""

from __future__ import annotations

import pytest

from commprof.synth.dataparallel import assign_buckets
from commprof.synth.schedule import schedule
from tests.synth.by_hand import round_job, run

MIB = 1 << 20
# Eight Linear(1024, 1024) in fp32, gradients ready from the last to the first, bias before weight.
LINEARS = [((layer, "linear"), n) for layer in reversed(range(8)) for n in (1024, 1024 * 1024)]


@pytest.mark.parametrize(
    ("first", "cap", "expected"),
    [
        # rebuilt_bucket_sizes as DistributedDataParallel logged them
        (1 * MIB, 25 * MIB, [4_198_400, 29_388_800]),
        (8 * MIB, 8 * MIB, [8_396_800] * 4),
    ],
)
def test_buckets_overshoot_their_cap_as_in_torch(first: int, cap: int, expected: list[int]) -> None:
    buckets = assign_buckets(LINEARS, first, cap, 4)

    assert [bucket.elements * 4 for bucket in buckets] == expected


def test_first_layout_that_find_unused_parameters_keeps() -> None:
    # Filled in the order of the parameters, weight before bias, and reduced in reverse: 4096, 29388800, 4194304.
    parameters = [((layer, "linear"), n) for layer in range(8) for n in (1024 * 1024, 1024)]

    buckets = assign_buckets(parameters, 1 * MIB, 25 * MIB, 4)

    assert [bucket.elements * 4 for bucket in reversed(buckets)] == [4_096, 29_388_800, 4_194_304]


def text(actions) -> str:
    return " ".join(f"{'F' if a.forward else 'B'}{a.microbatch}" + ("'" * a.chunk) for a in actions)


def test_1f1b_of_three_stages() -> None:
    # Narayanan et al.: stage s warms up with p - s - 1 forward passes, then one forward, one backward.
    shown = [text(schedule("1f1b", stage, 3, 4)) for stage in range(3)]

    assert shown == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_gpipe_of_two_stages() -> None:
    assert text(schedule("gpipe", 1, 2, 3)) == "F0 F1 F2 B0 B1 B2"


def test_interleaved_of_two_stages_with_two_chunks() -> None:
    # Warm-up (p - s - 1) * 2 + (v - 1) * p: 4 on stage 0, 2 on stage 1; ' marks the second chunk.
    shown = [text(schedule("interleaved", stage, 2, 4, 2)) for stage in range(2)]

    assert shown == [
        "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
    ]


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(2, 2, 2), (4, 8, 2), (2, 6, 3)])
def test_interleaved_runs_every_pass_once_and_forward_first(stages: int, microbatches: int, chunks: int) -> None:
    for stage in range(stages):
        actions = schedule("interleaved", stage, stages, microbatches, chunks)

        done: set[tuple[int, int]] = set()
        for action in actions:
            if action.forward:
                done.add((action.microbatch, action.chunk))
            else:
                assert (action.microbatch, action.chunk) in done
        assert len(actions) == len(set(actions)) == 2 * microbatches * chunks


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(2, 4, 2), (2, 6, 3), (4, 8, 2), (3, 6, 2)])
def test_every_message_of_an_interleaved_pipeline_meets_its_own_receive(
    stages: int, microbatches: int, chunks: int
) -> None:
    # The engine refuses a send that meets the receive of another microbatch, chunk or direction.
    scenario = round_job(
        10**12, strategy="none", inner=1, pp=stages, microbatches=microbatches, chunks=chunks,
        schedule="interleaved", layers=stages * chunks,
    )  # fmt: skip

    timeline = run(scenario)

    # One activation and one gradient per microbatch and boundary.
    assert len(timeline.calls) == 2 * microbatches * (stages * chunks - 1)
