"""Cases of late ranks and hosts: C173 to C182 of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commprof.manifest import Manifest, write_manifest
from tests.builders.command import Run, analyze
from tests.builders.kineto import COMPUTE_STREAM, GEMM, Trace
from tests.cases.test_matching import run

STEP_US = 10_000


class Rank:
    """A rank whose host launches each kernel right before it runs: steps of compute, then one all-reduce.

    ``at`` is its time in µs. Kernels start 4 µs after their launch, so that every pause of the host is a gap.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.at, self.number = trace, 0, 0
        self._begin = 0

    def begin(self) -> None:
        self._begin, self.number = self.at, self.number + 1

    def compute(self, length: int, name: str = GEMM) -> None:
        self.trace.kernel(name, self.at + 4, self.at + 4 + length, launch=self.at)
        self.at += 4 + length

    def pause(self, length: int, annotation: str | None = None) -> None:
        if annotation:
            self.trace.annotation(annotation, self.at, self.at + length)
        self.at += length

    def reduce(self, until: int, **metadata: Any) -> None:
        """An all-reduce from now on that ends at ``until`` on every rank."""
        self.trace.all_reduce(self.at + 4, until, launch=self.at, metadata=metadata)
        self.at = until

    def end(self) -> None:
        self.trace.step(self.number, self._begin, self.at)


def job(folder: Path, count: int, steps: int, program: Any, **options: Any) -> Run:
    """``program(rank, step, place)`` is the part of a step before the all-reduce, which ends when the last is there."""
    traces = [Trace(rank=rank, world_size=count) for rank in range(count)]
    states = [Rank(trace) for trace in traces]
    for step in range(steps):
        for place, rank in enumerate(states):
            rank.begin()
            program(rank, step, place)
        until = max(rank.at for rank in states) + 4 + 200
        for rank in states:
            rank.reduce(until, seq=step)
            rank.end()
    for place, trace in enumerate(traces):
        if options.get("hosts"):
            trace.top["host_name"] = options["hosts"][place]
        trace.write(folder / "run" / f"rank{place}.json")
    return analyze(folder / "run", folder / "report.json")


def late(found: Run) -> list[tuple[Any, ...]]:
    return [(row["rank"], row["kind"], row["cause"]) for row in found.report["stragglers"]]


def test_c173_a_pause_that_goes_round_names_nobody(tmp_path: Path) -> None:
    """C173: 4 ranks, 8 steps; in step i rank i mod 4 pauses for 5 ms on the host with an idle device."""

    def program(rank: Rank, step: int, place: int) -> None:
        rank.compute(3000)
        if step % 4 == place:
            rank.pause(5000)
        rank.compute(3000)

    found = job(tmp_path, 4, 8, program)

    assert late(found) == [(None, "rotating", "host")]
    row = found.report["stragglers"][0]
    assert row["charged_ns_per_step"] == pytest.approx(5_000_000, rel=0.01)
    text = " ".join(str(entry["value"]) for entry in row["evidence"])
    assert "garbage collection" in text
    assert "contention" in text


def test_c174_a_data_loader_that_is_slow_on_one_rank_is_the_input_of_that_rank(tmp_path: Path) -> None:
    """C174: rank 2 is late by 8 ms in every step, in the data loader."""

    def program(rank: Rank, step: int, place: int) -> None:
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        rank.pause(8100 if place == 2 else 100, loader)
        rank.compute(6000)

    found = job(tmp_path, 4, 5, program)

    assert late(found) == [(2, "persistent", "input")]
    assert found.report["stragglers"][0]["charged_ns_per_step"] == pytest.approx(8_000_000, rel=0.01)


def test_c175_waiting_of_the_host_for_the_device_is_idle_and_no_exposed_communication(tmp_path: Path) -> None:
    """C175: a copy to the host and a synchronisation, 300 us without a kernel, 15 times per step."""
    trace = Trace(rank=0, world_size=1)
    at = 0
    for _ in range(15):
        trace.kernel(GEMM, at + 4, at + 104, launch=at)
        trace.runtime("cudaStreamSynchronize", at + 10, at + 404)
        at += 404
    trace.kernel(GEMM, at + 4, at + 104, launch=at)
    trace.step(1, 0, at + 104)
    trace.write(tmp_path / "rank0.json")

    found = analyze(tmp_path / "rank0.json", tmp_path / "report.json")

    assert sum(row["exposed_comm_ns"] for row in found.report["ranks"][0]["steps"]) == 0
    idle = {row["cause"]: row["idle_ns"] for row in found.report["idle"]}
    assert idle["synchronisation"] == pytest.approx(4_500_000, rel=0.02)


@pytest.mark.parametrize(
    ("lengths", "expected"), [((4000, 4000, 4000, 1000), [3]), ((4000, 4050, 3950, 4020), [])]
)  # fmt: skip
def test_c176_c177_the_shortest_communication_is_the_late_rank_unless_that_is_noise(
    tmp_path: Path, lengths: tuple[int, ...], expected: list[int]
) -> None:
    """C176, C177: a step of 10 ms on four ranks, which communicate for these times."""

    def fill(trace: Trace, rank: int) -> None:
        trace.gemm(0, STEP_US - lengths[rank])
        trace.all_reduce(STEP_US - lengths[rank], STEP_US)

    found = run(tmp_path, 4, fill, step=STEP_US)

    assert [row["rank"] for row in found.report["stragglers"]] == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_c178_a_host_whose_ranks_take_turns_in_being_last_is_named(tmp_path: Path, seed: int) -> None:
    """C178: 16 ranks on hosts A and B; in 90 of 100 calls the last to arrive is one of B's."""
    import random

    drawn = random.Random(seed)
    last = [8 + i % 8 for i in range(90)] + [i % 8 for i in range(10)]
    drawn.shuffle(last)

    def fill(trace: Trace, rank: int) -> None:
        for i, slow in enumerate(last):
            start = 1000 * i + (300 if rank == slow else 0)
            trace.gemm(1000 * i - 100 if i else 0, start)
            trace.all_reduce(start, 1000 * i + 500, metadata={"seq": i})

    found = run(tmp_path, 16, fill, hosts=["A"] * 8 + ["B"] * 8)

    named = [row for row in found.report["stragglers"] if row["rank"] is None]
    assert [row["host"] for row in named] == ["B"]
    assert (named[0]["last"], named[0]["matched"]) == (90, 100)
    assert named[0]["members"] == list(range(8, 16))


@pytest.mark.parametrize(("slower", "expected"), [(1.2, [(2, "persistent", "slow-device")]), (1.02, [])])
def test_c179_kernels_that_take_longer_on_one_rank(
    tmp_path: Path, slower: float, expected: list[tuple[Any, ...]]
) -> None:  # fmt: skip
    """C179: the GEMMs of rank 2 last 20 % longer in every step; 2 % give nobody."""

    def program(rank: Rank, step: int, place: int) -> None:
        for _ in range(10):
            rank.compute(round(500 * (slower if place == 2 else 1)))

    found = job(tmp_path, 4, 5, program)

    assert late(found) == expected


def test_more_kernels_are_more_work_and_no_slow_device(tmp_path: Path) -> None:
    def program(rank: Rank, step: int, place: int) -> None:
        for _ in range(12 if place == 1 else 10):
            rank.compute(500)

    found = job(tmp_path, 4, 5, program)

    assert late(found) == [(1, "persistent", "more-work")]


@pytest.mark.parametrize("slow", [5, 0])
def test_c180_a_slow_group_among_equals_is_a_link_and_no_straggler(tmp_path: Path, slow: int) -> None:
    """C180: 8 groups of 2 with equal all-reduces; group 5 has a tenth of the bandwidth, and nobody enters late."""

    def fill(trace: Trace, rank: int) -> None:
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        length = 1000 if rank // 2 == slow else 100
        for i in range(10):
            metadata = {"group": f"g{rank // 2}", "ranks": pair, "seq": i, "elements": 2_500_000}
            at = i * (500 + length)
            trace.gemm(at, at + 500)
            trace.all_reduce(at + 500, at + 500 + length, metadata=metadata)
        trace.step(1, 0, 10 * (500 + length))

    found = run(tmp_path, 16, fill, step=0)

    assert not found.report["stragglers"]
    rates = {row["group"]: row["busbw_gbps_median"] for row in found.report["groups"]}
    assert rates == {f"g{i}": pytest.approx(10 if i == slow else 100) for i in range(8)}
    first = found.report["findings"][0]
    assert (first["id"], first["ranks"]) == ("slow-link", [2 * slow, 2 * slow + 1])
    assert f"link or adapter of ranks {2 * slow}–{2 * slow + 1}" in first["title"]


def test_c181_a_rank_with_one_core_gets_one_line(tmp_path: Path) -> None:
    """C181: rank 4 may run on one core, the others on 16."""
    for rank in range(6):
        trace = Trace(rank=rank, world_size=6)
        trace.all_reduce(0, 100)
        trace.write(tmp_path / "run" / f"rank-{rank:05d}.pt.trace.json")
        manifest = Manifest(
            rank=rank, rank_source="process group", world_size=6, host="A",
            trace=f"rank-{rank:05d}.pt.trace.json", cores=1 if rank == 4 else 16,
        )  # fmt: skip
        write_manifest(tmp_path / "run", manifest)

    found = analyze(tmp_path / "run", tmp_path / "report.json")

    assert len(found.notes("few-cores")) == 1
    assert "rank 4 has 1 core" in found.notes("few-cores")[0]


def test_c182_a_rank_that_lost_most_of_its_kernels_is_left_out(tmp_path: Path) -> None:
    """C182: 1000 kernels on ranks 0, 1 and 3, 100 on rank 2."""

    def fill(trace: Trace, rank: int) -> None:
        for i in range(90 if rank == 2 else 990):
            trace.gemm(10 * i, 10 * i + 8)
        for i in range(10):
            # What is left of rank 2 would make it the last to arrive every time.
            trace.all_reduce(10_000 + 100 * i + (40 if rank == 2 else 0), 10_050 + 100 * i, metadata={"seq": i})

    found = run(tmp_path, 4, fill)

    assert any("rank 2: its capture is incomplete" in note for note in found.notes("capture-incomplete"))
    assert not found.report["stragglers"]
    assert {call["last_rank"] for call in found.report["collectives"]} == {None}
    assert {call["wait_ns"] for call in found.report["collectives"] if call["rank"] == 2} == {None}


def test_lateness_is_followed_to_the_rank_where_it_began(tmp_path: Path) -> None:
    """Ranks 0 and 1 share one group, 0 and 2 and 1 and 3 others: rank 1 computes longer, rank 0 waits for it and is
    late to rank 2 for no other reason."""

    def fill(trace: Trace, rank: int) -> None:
        pair, cross = ([0, 1] if rank < 2 else [2, 3]), ([0, 2] if rank % 2 == 0 else [1, 3])
        for step in range(5):
            base = 10_000 * step
            ready = base + (4000 if rank == 1 else 3000)
            trace.kernel(GEMM, base, ready, stream=COMPUTE_STREAM)
            inner = base + (4100 if rank < 2 else 3100)
            trace.all_reduce(ready, inner, metadata={"group": f"tp{rank // 2}", "ranks": pair, "seq": step})
            trace.kernel(GEMM, inner, inner + 1000)
            trace.all_reduce(
                inner + 1000, base + 5200, metadata={"group": f"dp{rank % 2}", "ranks": cross, "seq": step}
            )  # fmt: skip
            trace.step(step, base, base + 10_000)

    found = run(tmp_path, 4, fill, step=0)

    assert [(row["rank"], row["cause"]) for row in found.report["stragglers"]] == [(1, "slow-device")]
    # All three others lose the millisecond: rank 0 in the first call, ranks 2 and 3 in the second.
    assert found.report["stragglers"][0]["charged_ns_per_step"] == pytest.approx(1_000_000, rel=0.01)
    assert found.report["stragglers"][0]["chain"] == [0, 1]
