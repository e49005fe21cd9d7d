"""DDP's buckets of two public traces, and their parameters from a capture's bucket map."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.analysis.model import RankAnalysis
from commprof.analysis.run import analyze
from commprof.manifest import Bucket, DdpModule, Manifest, manifest_name, trace_name, write_manifest
from tests.builders.kineto import Trace
from tests.cases.test_where import ddp


def test_five_buckets_of_each_step_on_an_a100(public_traces: Path) -> None:
    (rank,) = analyze(public_traces / "ddp-resnet50-a100", jobs=1).ranks

    names = rank.shares.step_names
    sizes = [4 * elements for elements in (2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040)]
    assert [(names[b.step], b.index, b.size) for b in rank.buckets] == [
        (f"ProfilerStep#{step}", index, size) for step in (4, 5, 6) for index, size in enumerate(sizes)
    ]
    # What is exposed beside the buckets are the broadcasts of buffers at the head of each step.
    for step in rank.devices[0].steps:
        mine = sum(b.exposed for b in rank.buckets if names[b.step] == step.name)
        assert step.split.exposed_comm - mine == _broadcasts(rank, step.name)
    assert [(b.index, bool(b.tail)) for b in rank.buckets] == 3 * [
        (0, False), (1, False), (2, False), (3, False), (4, True),
    ]  # fmt: skip


def _broadcasts(rank: RankAnalysis, step: str) -> int:
    row = next(row for row in rank.exposure if row.by == "op" and row.step == step and row.calls == 2)
    return row.exposed_ns


def test_buckets_of_a_host_that_runs_far_ahead(public_traces: Path) -> None:
    (rank,) = analyze(public_traces / "ddp-resnet-mi300x", jobs=1).ranks

    first = [b for b in rank.buckets if b.index == 0]
    second = [b for b in rank.buckets if b.index == 1]
    # The launch is 24 to 31 ms before the start, but the gradients were not ready before: nothing was queued.
    assert [b.queued for b in first] == [0, 0, 0]
    assert [round((b.lag or 0) / 1e6, 1) for b in first] == [-23.7, -26.5, -31.1]
    assert [24 <= round((b.start - (b.launched or 0)) / 1e6) <= 31 for b in first] == [True, True, True]
    assert [round((b.queued or 0) / 1e6, 1) for b in second] == [2.2, 2.0, 2.0]


SIZES = [1_000_000, 2_000_000]


def captured(folder: Path, trace: Trace, buckets: list[Bucket], module: str = "") -> RankAnalysis:
    """The analysis of a capture folder of one rank with a bucket map."""
    trace.write(folder / trace_name(0))
    manifest = Manifest(
        rank=0, rank_source="process group", world_size=2, host="one", trace=trace_name(0),
        recorded_steps=("ProfilerStep#5",), ddp=(DdpModule(module=module, buckets=tuple(buckets)),),
    )  # fmt: skip
    write_manifest(folder, manifest)
    assert (folder / manifest_name(0)).exists()
    (rank,) = analyze(folder, jobs=1).ranks
    return rank


def known(sizes: list[int], layout: str = "rebuilt") -> list[Bucket]:
    return [
        Bucket(index=i, size_bytes=size, parameters=(f"layer{i}.weight",), layout=layout)  # type: ignore[arg-type]
        for i, size in enumerate(sizes)
    ]


def test_the_bucket_map_gives_parameters_and_layout(tmp_path: Path) -> None:
    rank = captured(tmp_path, ddp(1, SIZES), known(SIZES))

    assert [(b.index, b.parameters, b.layout) for b in rank.buckets] == [
        (0, ("layer0.weight",), "rebuilt"), (1, ("layer1.weight",), "rebuilt"),
    ]  # fmt: skip


@pytest.mark.parametrize("factor", [2, 4])
def test_compressed_buckets_are_still_those_of_the_map(factor: int, tmp_path: Path) -> None:
    rank = captured(tmp_path, ddp(1, SIZES), known([factor * size for size in SIZES]))

    assert [b.parameters for b in rank.buckets] == [("layer0.weight",), ("layer1.weight",)]


def test_a_map_that_does_not_fit_names_nothing(tmp_path: Path) -> None:
    rank = captured(tmp_path, ddp(1, SIZES), known([1_000_000, 3_000_000]))

    assert [(b.index, b.parameters, b.layout) for b in rank.buckets] == [(0, None, "unknown"), (1, None, "unknown")]


def test_c134_the_map_tells_the_first_iteration_alone(tmp_path: Path) -> None:
    rank = captured(tmp_path, ddp(1, [sum(SIZES)]), known(SIZES))

    assert [(b.parameters, b.layout) for b in rank.buckets] == [(None, "first-iteration")]
