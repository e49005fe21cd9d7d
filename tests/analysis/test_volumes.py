"""Bytes per step by formula beside what is measured, by hand: the rows of differences close the gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from commprof.analysis import volumes
from commprof.analysis.traffic import Traffic
from commprof.analysis.volumes import Moves, Volume
from commprof.manifest import (
    Bucket,
    DdpModule,
    FsdpUnit,
    Manifest,
    Parameters,
    Pipeline,
    PipelineStage,
)
from tests.analysis.uses import B, Call, F, O, traffic


def moves(calls: Sequence[Call], members: int, width: int = 4) -> Moves:
    table = traffic(calls, members, width)
    return Moves(table, np.arange(len(table)), members)


def manifest(**more: object) -> Manifest:
    return Manifest(rank=0, rank_source="process group", world_size=4, host="a", **more)  # type: ignore[arg-type]


def model(count: int) -> Manifest:
    return manifest(parameters=Parameters(count=count, bytes=4 * count, trainable_count=count))


def rows(volume: Volume) -> dict[str, int]:
    return {row.what: row.bytes for row in volume.differences}


def closes(volume: Volume) -> bool:
    """Formula and differences add up to what was measured, to a rounded byte per row."""
    assert volume.expected is not None
    assert volume.measured is not None
    gap = volume.measured - volume.expected - sum(row.bytes for row in volume.differences)
    return abs(gap) <= len(volume.differences) + 1


def test_ddp_counts_gradients_twice_around_the_ring() -> None:
    # 4 ranks, 3000 B of gradients: 2 x 3/4 x 3000.
    calls: list[Call] = [("all_reduce", 2_000, B), ("all_reduce", 1_000, B)]

    found = volumes.data_parallel(moves(calls, 4), 1, [])

    assert (found.measured, found.expected, rows(found)) == (4_500, 4_500, {})
    assert found.assumed is not None
    assert "3000 B" in found.assumed


def test_ddp_with_what_is_no_gradient() -> None:
    calls: list[Call] = [
        ("broadcast", 500, F), ("broadcast", 8, F), ("all_reduce", 4, F), ("all_reduce", 3_000, B),
        ("all_reduce", 40, B),
    ]  # fmt: skip
    some = moves(calls, 4)
    some.traffic.floating[4] = False  # the map of used parameters is int32

    found = volumes.data_parallel(some, 1, [])

    assert found.expected == 4_500
    assert rows(found) == {"map of used parameters": 60, "buffer broadcasts": 508, "scalars (all-reduce)": 6}
    assert closes(found)


def test_ddp_with_known_buckets_counts_backward_passes() -> None:
    # The capture knows 1500 B of gradients; 3000 B per step are two passes that both synchronised.
    calls: list[Call] = [("all_reduce", 1_500, B)] * 2
    known = manifest(ddp=(DdpModule(module="model", buckets=(Bucket(index=0, size_bytes=1_500),)),))

    found = volumes.data_parallel(moves(calls, 2), 1, [known])

    assert (found.expected, found.measured, found.assumed) == (3_000, 3_000, None)
    assert found.formula == "m 2(N-1)/N P bg, m = 2"


def test_ddp_padding_shows_against_the_buckets() -> None:
    calls: list[Call] = [("all_reduce", 1_600, B)]
    known = manifest(ddp=(DdpModule(module="model", buckets=(Bucket(index=0, size_bytes=1_500),)),))

    found = volumes.data_parallel(moves(calls, 2), 1, [known])

    assert found.expected == 1_500
    assert rows(found) == {"padding or parameters without gradient": 100}


@pytest.mark.parametrize(
    ("calls", "expected", "formula"),
    [
        # 1000 parameters of 4 bytes over 4 ranks.
        ([("reduce_scatter", 4_000, B), ("all_gather", 4_000, O)], 6_000, "(N-1)/N P (bg + bp)"),
        ([("all_reduce", 4_000, B), ("all_gather", 4_000, O)], 9_000, "(N-1)/N P (2 bg + bp)"),
        ([("all_reduce", 4_000, B), *[("broadcast", 1_000, O)] * 4], 10_000, "2(N-1)/N P bg + P bp"),
        ([*[("reduce", 1_000, B)] * 4, ("all_gather", 4_000, O)], 7_000, "P bg + (N-1)/N P bp"),
        (
            [*[("reduce_scatter", 4_000, B)] * 2, ("all_gather", 4_000, O)],
            9_000,
            "(N-1)/N P (bg + bp), gradients m = 2 times",
        ),
    ],
    ids=["scattered", "DeepSpeed", "torch", "reduced to owners", "ZeRO-2 over two microbatches"],
)
def test_zero_in_its_forms(calls: list[Call], expected: int, formula: str) -> None:
    found = volumes.partitioned(moves(calls, 4), [])

    assert (found.measured, found.expected, found.formula, rows(found)) == (expected, expected, formula, {})


def test_zero_padding_shows_against_known_parameters() -> None:
    # 998 parameters, padded to 1000 for 4 ranks: 2 elements of 4 bytes, 3/4 of each.
    calls: list[Call] = [("reduce_scatter", 4_000, B), ("all_gather", 4_000, O), ("all_reduce", 4, O)]

    found = volumes.partitioned(moves(calls, 4), [model(998)])

    assert found.expected == round(0.75 * 998 * 8)
    assert rows(found) == {"padding of gradients": 6, "padding of parameters": 6, "scalars (all-reduce)": 6}
    assert closes(found)


def test_fsdp_gathers_twice_and_scatters_once() -> None:
    # Two units of 400 and 600 elements over 4 ranks, the second one kept for the backward pass.
    calls: list[Call] = [
        ("all_gather", 1_600, F), ("all_gather", 2_400, F), ("all_gather", 1_600, B), ("reduce_scatter", 2_400, B),
        ("reduce_scatter", 1_600, B), ("all_reduce", 4, O),
    ]  # fmt: skip

    found = volumes.sharded(moves(calls, 4), None, 1, [])

    assert found.expected == round(0.75 * 1_000 * 12)
    assert rows(found) == {"parameters still held in the backward pass": -1_800, "scalars (all-reduce)": 6}
    assert found.measured == 9_000 - 1_800 + 6


def test_fsdp_padding_shows_against_known_units() -> None:
    # 997 elements in a unit over 4 ranks: 1000 are gathered twice and scattered.
    calls: list[Call] = [("all_gather", 4_000, F), ("all_gather", 4_000, B), ("reduce_scatter", 4_000, B)]
    unit = FsdpUnit(module="", kind="fsdp2", count=997, bytes=3_988, gradient_bytes=3_988)

    found = volumes.sharded(moves(calls, 4), None, 1, [manifest(fsdp=(unit,))])

    assert found.expected == round(0.75 * 997 * 12)
    padding = {"padding of shards": 9, "padding of shards (backward)": 9, "gradients padded or not reduced": 9}
    assert rows(found) == padding
    assert closes(found)


def test_what_is_gathered_beyond_the_rounding_of_shards_is_no_padding() -> None:
    # 998 elements over 4 ranks, cut to 1000; 400 of them are gathered a second time while the forward pass still runs,
    # and the backward pass needs no gather for these nor for the last 300. 3/4 of 4 bytes each.
    calls: list[Call] = [
        ("all_gather", 4_000, F), ("all_gather", 1_600, F), ("all_gather", 1_200, B), ("reduce_scatter", 4_000, B)
    ]  # fmt: skip

    found = volumes.sharded(moves(calls, 4), None, 1, [model(998)])

    assert found.expected == round(0.75 * 998 * 12)
    assert rows(found) == {
        "padding of shards": 6,
        "parameters gathered again before the backward pass": 1_200,
        "parameters still held in the backward pass": -2_100,
        "padding of shards (backward)": 6,
        "gradients padded or not reduced": 6,
    }
    assert closes(found)


def test_parameters_that_are_gathered_late_or_twice_in_the_backward_pass() -> None:
    # 1000 elements over 4 ranks, of which the forward pass gathers 600 and the backward pass 1200: 3/4 of 4 bytes each.
    calls: list[Call] = [("all_gather", 2_400, F), ("all_gather", 4_800, B), ("reduce_scatter", 4_000, B)]

    found = volumes.sharded(moves(calls, 4), None, 1, [model(1_000)])

    assert rows(found) == {
        "parameters not gathered before the backward pass": -1_200,
        "parameters gathered again in the backward pass": 600,
    }
    assert closes(found)


def test_fsdp_counts_microbatches() -> None:
    calls: list[Call] = [("all_gather", 4_000, F), ("all_gather", 4_000, B), ("reduce_scatter", 4_000, B)] * 3

    found = volumes.sharded(moves(calls, 4), None, 3, [])

    assert found.expected == found.measured == 27_000
    assert found.formula == "m times (N-1)/N P (2 bp + bg), m = 3"


def test_hybrid_shards_are_summed_over_their_replicas() -> None:
    # 1000 elements, 4 shards, 2 replicas: 3/4 x 12000, and 2 x 1/2 x 1000 B of shards.
    shard: list[Call] = [("all_gather", 4_000, F), ("all_gather", 4_000, B), ("reduce_scatter", 4_000, B)]
    table = traffic([*shard, ("all_reduce", 1_000, B)], 4)
    table.moved[3] = 1_000
    whole, replicas = Moves(table, np.arange(4), 4), Moves(table, np.array([3]), 2)

    found = volumes.sharded(whole, replicas, 1, [])

    assert (found.expected, found.measured, rows(found)) == (10_000, 10_000, {})
    assert found.formula == "(S-1)/S P (2 bp + bg) + 2 (R-1)/R P/S bg"


@pytest.mark.parametrize(
    ("forward", "backward", "differences"),
    [
        (4, 4, {}),
        (4, 8, {"activation recomputation": 4 * 1_500}),
        (5, 5, {"all-reduces of that size outside the layers": 2 * 1_500}),
    ],
    ids=["two layers", "recomputed", "with embedding and head"],
)
def test_tensor_parallelism_sums_four_times_per_layer(forward: int, backward: int, differences: dict[str, int]) -> None:
    # b s h of 1000 B over 4 ranks: 1500 B each.
    calls: list[Call] = [*[("all_reduce", 1_000, F)] * forward, *[("all_reduce", 1_000, B)] * backward]

    found = volumes.tensor(moves(calls, 4))

    assert found.expected == 2 * 4 * 1_500
    assert rows(found) == differences
    assert closes(found)


def test_inference_has_half_of_the_sums() -> None:
    found = volumes.tensor(moves([("all_reduce", 1_000, F)] * 5, 4))

    assert found.expected == 2 * 2 * 1_500
    assert rows(found) == {"all-reduces of that size outside the layers": 1_500}


@pytest.mark.parametrize(
    ("again", "differences"),
    [(2, {}), (1, {"inputs not gathered again in the backward pass": -2 * 2 * 750})],
    ids=["Megatron", "PyTorch"],
)
def test_sequence_parallelism_gathers_six_times_and_scatters_four(again: int, differences: dict[str, int]) -> None:
    layer: list[Call] = [("all_gather", 1_000, F), ("reduce_scatter", 1_000, F)] * 2
    backward: list[Call] = [*[("all_gather", 1_000, B)] * again, ("reduce_scatter", 1_000, B)] * 2

    found = volumes.sequence(moves([*layer * 2, *backward * 2], 4))

    assert found.expected == 2 * 10 * 750
    assert rows(found) == differences
    assert closes(found)


def test_messages_of_a_pipeline_are_counted_at_both_ends() -> None:
    # The first of two stages, 3 microbatches: 3 activations out, 3 gradients in, and a flag of the schedule.
    calls: list[Call] = [*[("send", 1_000, F)] * 3, *[("recv", 1_000, B)] * 3, ("send", 8, F)]
    stage = PipelineStage(index=0, stages=2)
    known = manifest(pipeline=Pipeline(stages=(stage,), microbatches=3))

    number = volumes.pipeline_messages([known])
    found = volumes.messages(moves(calls, 2), "each way", number)

    assert number == 6.0
    assert (found.expected, found.measured, rows(found)) == (6_000, 6_008, {"scalars (send)": 8})


@pytest.mark.parametrize(
    ("stages", "own", "ranks", "number"), [(4, 1, 4, 4 * 5 * 3 / 4), (4, 2, 2, 4 * 5 * 3 / 2)], ids=["plain", "chunks"]
)
def test_a_capture_knows_how_many_messages_a_schedule_has(stages: int, own: int, ranks: int, number: float) -> None:
    held = [tuple(PipelineStage(index=r + k * ranks, stages=stages) for k in range(own)) for r in range(ranks)]

    found = volumes.pipeline_messages([manifest(pipeline=Pipeline(stages=s, microbatches=5)) for s in held])

    # Each of the 3 boundaries carries 5 microbatches there and back, and each message has two ends.
    assert found == number


def test_experts_move_tokens_four_times_and_count_them() -> None:
    calls: list[Call] = [("all_to_all", 16, F), *[("all_to_all", 1_000, F)] * 2, *[("all_to_all", 1_000, B)] * 2]
    some = moves(calls, 4)
    some.traffic.floating[0] = False

    found = volumes.exchange(some, "4 k b s h (e-1)/e per expert layer and microbatch")

    assert (found.expected, found.measured, rows(found)) == (3_000, 3_012, {"numbers of tokens": 12})


def _every(calls: list[Call]) -> list[Callable[[], Volume]]:
    return [
        lambda: volumes.data_parallel(moves(calls, 4), 1, []),
        lambda: volumes.partitioned(moves(calls, 4), []),
        lambda: volumes.sharded(moves(calls, 4), None, 1, []),
        lambda: volumes.tensor(moves(calls, 4)),
        lambda: volumes.sequence(moves(calls, 4)),
        lambda: volumes.messages(moves(calls, 4), "each way"),
        lambda: volumes.exchange(moves(calls, 4), "formula"),
    ]


def test_without_sizes_nothing_is_measured_and_nothing_expected() -> None:
    calls: list[Call] = [("all_reduce", -1, B), ("all_gather", -1, F), ("send", -1, F)]

    for find in _every(calls):
        volume = find()

        assert (volume.measured, volume.expected, volume.differences) == (None, None, ())


def test_a_formula_without_its_calls_expects_nothing() -> None:
    for find in _every([("barrier", 0, None)]):
        assert find().expected is None


def test_shares_are_means_over_ranks_and_steps() -> None:
    # Rank 0 has two steps of 100 B, rank 1 one step of 400 B: means 100 and 400, together 250.
    table = Traffic(
        rank=np.array([0, 0, 1, 1]), group=np.zeros(4, np.int64), operation=np.ones(4, np.int8),
        phase=np.full(4, -1, np.int8), unit=np.array([0, 1, 0, -1]), size=np.array([100, 100, 400, 9_999]),
        width=np.full(4, 4), floating=np.ones(4, np.bool_), moved=np.array([100.0, 100.0, 400.0, 9_999.0]),
        place=np.zeros(4), peer=np.full(4, -1), units=np.array([2, 1]),
    )  # fmt: skip

    assert float((table.moved * table.share).sum()) == 250.0
