"""Cases of one call over several ranks: C103 to C123 of the catalogue, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders.command import Run, analyze
from tests.builders.kineto import Trace

Spans = list[tuple[Any, ...]]


def ranks(folder: Path, spans: list[Spans], **options: Any) -> Run:
    """One trace per rank with all-reduces ``(start, end[, size[, sequence number]])`` in µs, analysed together."""

    def fill(trace: Trace, rank: int) -> None:
        for start, end, *rest in spans[rank]:
            metadata: dict[str, Any] = {"elements": rest[0]} if rest and rest[0] else {}
            if len(rest) > 1:
                metadata["seq"] = rest[1]
            trace.all_reduce(start, end, metadata=metadata)

    return run(folder, len(spans), fill, **options)


def run(
    folder: Path, count: int, fill: Callable[[Trace, int], None], *, world: int | None = None, step: int = 100_000,
    hosts: list[str] | None = None, only: list[int] | None = None,
) -> Run:  # fmt: skip
    """Traces of ``count`` ranks, filled in by ``fill(trace, rank)``, analysed together."""
    for rank in only if only is not None else range(count):
        trace = Trace(rank=rank, world_size=world or count)
        if hosts:
            trace.top["host_name"] = hosts[rank]
        if step:
            trace.step(1, 0, step)
        fill(trace, rank)
        trace.write(folder / "run" / f"rank{rank}.json")
    return analyze(folder / "run", folder / "report.json")


def column(found: Run, key: str, op: str | None = None) -> dict[int, list[Any]]:
    """One column of the calls by rank, in order of start."""
    out: dict[int, list[Any]] = {}
    for call in found.report["collectives"]:
        if op is None or call["op"] == op:
            out.setdefault(call["rank"], []).append(call[key])
    return out


def test_c103_the_shortest_duration_is_transfer_and_the_rest_waiting(tmp_path: Path) -> None:
    """C103: rank 0 is in the call for 11,000 us, rank 1 for the last 1,000."""
    found = ranks(tmp_path, [[(0, 11_000)], [(10_000, 11_000)]])

    assert column(found, "wait_ns") == {0: [10_000_000], 1: [0]}
    assert column(found, "transfer_ns") == {0: [1_000_000], 1: [1_000_000]}
    assert column(found, "last_rank") == {0: [1], 1: [1]}


def test_c104_one_rank_alone_cannot_split_waiting_from_transfer(tmp_path: Path) -> None:
    """C104: only rank 0 of C103."""
    found = ranks(tmp_path, [[(0, 11_000)], [(10_000, 11_000)]], only=[0])

    assert column(found, "duration_ns") == {0: [11_000_000]}
    assert column(found, "wait_ns") == column(found, "transfer_ns") == {0: [None]}
    assert found.notes("single-rank")
    assert not found.report["stragglers"]
    assert not {"low-bandwidth", "slow-link", "network-intermittent"} & {row["id"] for row in found.report["findings"]}


def test_c105_with_a_member_missing_the_figures_are_bounds_and_nobody_is_last(tmp_path: Path) -> None:
    """C105: ranks 0, 1 and 3 of a group of four."""
    found = ranks(tmp_path, [[(0, 500)], [(100, 500)], [(0, 500)], [(300, 500)]], only=[0, 1, 3])

    assert column(found, "transfer_ns") == {0: [200_000], 1: [200_000], 3: [200_000]}
    assert column(found, "bound") == {0: [True], 1: [True], 3: [True]}
    assert column(found, "last_rank") == {0: [None], 1: [None], 3: [None]}
    assert column(found, "members_missing") == {0: [1], 1: [1], 3: [1]}
    assert not found.report["stragglers"]


def test_c106_a_clock_that_is_ahead_is_an_offset_and_no_skew(tmp_path: Path) -> None:
    """C106: 20 all-reduces of 100 us, host B's clock 5,000 us ahead."""
    here = [(1000 * i + 37 * (i % 5), 1000 * i + 37 * (i % 5) + 100) for i in range(20)]
    there = [(start + 5000, end + 5000) for start, end in here]
    found = ranks(tmp_path, [here, there], hosts=["A", "B"])

    assert found.report["matching"]["clock_offsets_ns"] == {"0": 0, "1": 5_000_000}
    assert found.report["matching"]["clock_uncertainty_ns"] == 1_000
    assert set(column(found, "skew_ns")[1]) == {0}
    assert not found.report["stragglers"]


def test_c107_ends_that_differ_are_an_end_skew_and_make_nobody_late(tmp_path: Path) -> None:
    """C107: equal starts, and equal ends but for one call that rank 1 ends 50 us later."""
    here = [(1000 * i, 1000 * i + 100) for i in range(20)]
    there = [(start, end + (50 if i == 7 else 0)) for i, (start, end) in enumerate(here)]
    found = ranks(tmp_path, [here, there])

    assert set(column(found, "skew_ns")[0]) == {0}
    assert column(found, "end_skew_ns")[0] == [50_000 if i == 7 else 0 for i in range(20)]
    assert set(column(found, "last_rank")[0]) == {None}
    assert not found.report["stragglers"]


@pytest.mark.parametrize("sequence", [True, False])
def test_c108_the_start_of_a_profiler_counts_nowhere(tmp_path: Path, sequence: bool) -> None:
    """C108: the first of 20 calls lasts 15 s on rank 0 and 14 us on rank 1."""
    ends = [15_000_000 + 1000 * i for i in range(20)]
    spans: list[Spans] = [[(0 if i == rank == 0 else end - 14, end) for i, end in enumerate(ends)] for rank in (0, 1)]
    if sequence:
        spans = [[(*span, 1000, i) for i, span in enumerate(mine)] for mine in spans]
    found = ranks(tmp_path, spans, step=16_000_000)

    assert column(found, "flag")[0] == ["profiler-start"] + [None] * 19
    assert not found.report["stragglers"]
    assert [row["id"] for row in found.report["findings"] if row["severity"] != "info"] == []
    assert found.report["groups"][0]["clean_calls"] == 19
    assert column(found, "exposed_ns")[0][0] == 14_999_999_000 + 1000
    (note,) = found.notes("profiler-start")
    assert "15.0 s of exposed time, 100.0 % of exposed communication" in note


LONG_US = 15_000_000


@pytest.mark.parametrize(
    ("count", "long", "warned"), [(20, [9], False), (20, [0, 1, 2, 3, 4], True), (7, [0], True)]
)  # fmt: skip
def test_c109_long_calls_that_are_no_start_are_real(tmp_path: Path, count: int, long: list[int], warned: bool) -> None:
    """C109: as C108, but the long one in tenth place, five in front, or only seven calls of the kind."""
    ends = np.cumsum([LONG_US if i in long else 1000 for i in range(count)]).tolist()
    late = [(end - 14, end) for end in ends]
    waiting = [(end - (LONG_US if i in long else 14), end) for i, end in enumerate(ends)]
    found = ranks(tmp_path, [waiting, late], step=ends[-1] + 1000)

    assert column(found, "flag") == {0: [None] * count, 1: [None] * count}
    assert column(found, "wait_ns")[0] == [1000 * (LONG_US - 14) if i in long else 0 for i in range(count)]
    assert [row["rank"] for row in found.report["stragglers"]] == [1]
    told = [line for line in found.lines if "could not be told from training" in line]
    assert [f"{len(long)} of {count} calls are long" in line for line in told] == [True] * warned
    assert all("rank 0" in line for line in told)


def test_c110_setting_up_a_communicator_is_long_on_all_ranks_and_no_waiting(tmp_path: Path) -> None:
    """C110: the first call of a group lasts 214,000 us on both ranks, nine more 20 us each."""
    spans = [(0, 214_000)] + [(220_000 + 1000 * i, 220_020 + 1000 * i) for i in range(9)]
    found = ranks(tmp_path, [spans, spans], step=300_000)

    assert column(found, "flag") == {rank: ["first-use"] + [None] * 9 for rank in (0, 1)}
    assert not found.report["stragglers"]
    assert [row["id"] for row in found.report["findings"] if row["severity"] != "info"] == []
    (group,) = found.report["groups"]
    assert (group["clean_calls"], group["busbw_gbps_median"], group["wait_ns"]) == (9, 200.0, 0)  # 4 MB in 20 us
    # 214 ms on two ranks, of 214.18 each.
    (note,) = found.notes("first-use")
    assert "428 ms of exposed time, 99.9 % of exposed communication" in note


def test_c108_one_rank_alone_cannot_tell_why_the_start_was_long(tmp_path: Path) -> None:
    spans = [(0, 214_000)] + [(220_000 + 1000 * i, 220_020 + 1000 * i) for i in range(9)]
    found = ranks(tmp_path, [spans, spans], only=[0], step=300_000)

    (note,) = found.notes("profiler-start")
    assert "the start of the recording or of a communicator" in note
    assert found.notes("first-use") == []


@pytest.mark.parametrize("sequence", [True, False])
def test_c111_captures_of_different_times_say_nothing_about_each_other(tmp_path: Path, sequence: bool) -> None:
    """C111: rank 0 is captured from 0 to 10 s, rank 1 from 20 to 30 s."""
    first = [(1_000_000 * i, 1_000_000 * i + 100, 1000, i) for i in range(10)]
    second = [(start + 20_000_000, end + 20_000_000, size, seq + 50) for start, end, size, seq in first]
    spans: list[Spans] = [[span if sequence else span[:3] for span in mine] for mine in (first, second)]
    found = ranks(tmp_path, spans, step=0)

    assert found.notes("captures-apart")
    assert found.report["matching"]["matched"] == 0
    assert set(column(found, "wait_ns")[0]) == set(column(found, "skew_ns")[0]) == {None}
    assert not found.report["stragglers"]
    assert not found.report["waits"]


def test_c112_sequence_numbers_match_what_both_captures_hold(tmp_path: Path) -> None:
    """C112: rank 0 holds numbers 10 to 19, rank 1 holds 11 to 19."""
    spans = [(100 * i, 100 * i + 40, 1000, 10 + i) for i in range(10)]
    found = ranks(tmp_path, [spans, spans[1:]])

    assert found.report["matching"]["matched"] == 9
    assert found.report["matching"]["unmatched_by_reason"]["window-edge"] == 1
    assert column(found, "match")[0][1:] == column(found, "match")[1]
    assert column(found, "skew_ns")[1] == [0] * 9


def test_c113_without_numbers_the_same_calls_match_by_operation_and_size(tmp_path: Path) -> None:
    """C113: as C112 with ten sizes and no numbers."""
    spans = [(100 * i, 100 * i + 40, 1000 * (i + 1)) for i in range(10)]
    found = ranks(tmp_path, [spans, spans[1:]])

    assert found.report["matching"]["matched"] == 9
    assert found.report["matching"]["unmatched_by_reason"]["window-edge"] == 1
    assert column(found, "match")[0][1:] == column(found, "match")[1]
    assert column(found, "skew_ns")[1] == [0] * 9


@pytest.mark.parametrize("missing", [0, 1, 200, 399])
def test_one_missing_call_among_400_equal_ones_shifts_nothing(tmp_path: Path, missing: int) -> None:
    ends = 1000 + np.cumsum(np.random.default_rng(5).integers(80, 400, 400))
    spans = [[(int(end) - 50, int(end) + rank) for end in ends] for rank in range(2)]
    del spans[1][missing]
    found = ranks(tmp_path, spans, step=200_000)

    assert found.report["matching"]["matched"] == 399
    partner = {call: i for i, call in enumerate(column(found, "match")[0]) if call is not None}
    expected = [i for i in range(400) if i != missing]
    assert [partner[call] for call in column(found, "match")[1]] == expected


def test_two_equally_good_shifts_are_ambiguous(tmp_path: Path) -> None:
    """At regular intervals nothing tells which of 30 equal calls the other rank lacks: the first or the last."""
    spans = [(100 * i, 100 * i + 40) for i in range(30)]
    found = ranks(tmp_path, [spans, spans[:-1]])

    assert found.report["matching"]["matched"] == 0
    assert found.report["matching"]["unmatched_by_reason"]["ambiguous"] > 0
    # They count as communication, exposed or hidden, like any other.
    note = next(note["message"] for note in found.report["notes"] if note["code"] == "unmatched")
    assert note.endswith("; nothing is said about waiting in them.")


def test_captures_that_begin_and_end_a_call_apart_are_realigned_by_their_ends(tmp_path: Path) -> None:
    """Both ranks hold 60 equal calls, but rank 1 began one later; order alone does not show it."""
    ends = 1000 + np.cumsum(np.random.default_rng(6).integers(80, 400, 61))
    spans = [(int(end) - 50, int(end)) for end in ends]
    found = ranks(tmp_path, [spans[:-1], spans[1:]], step=0)

    assert found.report["matching"]["matched"] == 59
    assert column(found, "match")[0][1:] == column(found, "match")[1][:-1]


def test_numbers_that_contradict_sizes_are_not_trusted(tmp_path: Path) -> None:
    """The counters of two ranks drifted apart: equal numbers stand on calls of different sizes."""
    sizes = [1000, 2000, 3000, 4000]
    spans = [[(100 * i, 100 * i + 40, size, i + shift) for i, size in enumerate(sizes)] for shift in (0, 1)]
    found = ranks(tmp_path, spans)

    assert found.report["matching"]["matched"] == 4
    assert column(found, "match")[0] == column(found, "match")[1]
    assert found.notes("sequence-untrusted")


def test_c114_groups_are_their_name_and_their_members(tmp_path: Path) -> None:
    """C114: groups {0, 1} and {2, 3} are both called 1."""

    def fill(trace: Trace, rank: int) -> None:
        pair = [0, 1] if rank < 2 else [2, 3]
        trace.all_reduce(0, 100 + 10 * rank, metadata={"group": "1", "ranks": pair, "seq": 4})

    found = run(tmp_path, 4, fill)

    assert found.report["matching"]["matched"] == 2
    assert column(found, "wait_ns") == {0: [0], 1: [10_000], 2: [0], 3: [10_000]}


def test_c115_groups_of_one_size_keep_their_own_rows(tmp_path: Path) -> None:
    """C115: the same operation and size in a TP group for 10 us and in a DP group for 1000 us."""

    def fill(trace: Trace, rank: int) -> None:
        tp, dp = ([0, 1], [2, 3])[rank // 2], ([0, 2], [1, 3])[rank % 2]
        for i in range(4):
            trace.all_reduce(2000 * i, 2000 * i + 10, metadata={"group": "1", "ranks": tp, "seq": i})
            trace.all_reduce(2000 * i + 100, 2000 * i + 1100, metadata={"group": "2", "ranks": dp, "seq": i})

    found = run(tmp_path, 4, fill)

    rows = sorted((row["group"], tuple(row["ranks"]), row["transfer_ns"] // 8) for row in found.report["groups"])
    assert rows == [("1", (0, 1), 10_000), ("1", (2, 3), 10_000), ("2", (0, 2), 1_000_000), ("2", (1, 3), 1_000_000)]


def test_c116_streams_are_a_matter_of_each_rank(tmp_path: Path) -> None:
    """C116: one call on stream 20 of rank 0 and on stream 24 of rank 1."""

    def fill(trace: Trace, rank: int) -> None:
        trace.all_reduce(0, 100, stream=20 + 4 * rank)

    found = run(tmp_path, 2, fill)

    assert found.report["matching"]["matched"] == 1


def test_c118_a_call_that_some_members_do_not_hold_is_listed_and_counts_nowhere(tmp_path: Path) -> None:
    """C118: number 641 is on 2 of 8 ranks, at the end of the window."""
    spans = [[(100 * i, 100 * i + 40, 1000, 638 + i) for i in range(4 if rank < 2 else 3)] for rank in range(8)]
    found = ranks(tmp_path, spans)

    matching = found.report["matching"]
    assert matching["matched"] == 3
    assert matching["unmatched_by_reason"]["window-edge"] == 1
    assert matching["unmatched_calls"][0]["seq"] == 641
    assert matching["unmatched_calls"][0]["present"] == [0, 1]
    assert matching["unmatched_calls"][0]["absent"] == [2, 3, 4, 5, 6, 7]
    assert column(found, "skew_ns")[0][3] is None


def test_c120_messages_have_a_counter_of_their_own(tmp_path: Path) -> None:
    """C120: an all-reduce and a send of one group both carry number 5."""

    def fill(trace: Trace, rank: int) -> None:
        trace.all_reduce(0, 100, metadata={"seq": 5})
        call, peer = ("send", {"Dst Rank": 1}) if rank == 0 else ("recv", {"Src Rank": 0})
        trace.collective(call, 200 + 50 * rank, 300, metadata={"seq": 5 + rank}, args=peer)

    found = run(tmp_path, 2, fill)

    assert found.report["matching"]["matched"] == 2
    assert column(found, "match") == {0: [0, 1], 1: [0, 1]}


def test_a_sink_waits_for_its_source_and_a_source_only_if_it_cannot_finish_before(tmp_path: Path) -> None:
    """Common clock from the all-reduces. The first message comes 300 us late; the second is buffered at its source."""

    def fill(trace: Trace, rank: int) -> None:
        for i in range(10):
            trace.all_reduce(100 * i, 100 * i + 50)
        if rank == 0:
            trace.collective("send", 1400, 1500, args={"Dst Rank": 1})
            trace.collective("send", 2000, 2020, args={"Dst Rank": 1})
            trace.collective("send", 3000, 3250, args={"Dst Rank": 1})
        else:
            trace.collective("recv", 1100, 1500, args={"Src Rank": 0})
            trace.collective("recv", 2100, 2130, args={"Src Rank": 0})
            trace.collective("recv", 3200, 3250, args={"Src Rank": 0})

    found = run(tmp_path, 2, fill)

    assert column(found, "wait_ns", "recv") == {1: [300_000, 0, 0]}
    assert column(found, "wait_ns", "send") == {0: [0, 0, 200_000]}
    assert column(found, "transfer_ns", "send") == {0: [100_000, None, 50_000]}
    assert column(found, "last_rank", "recv") == {1: [0, None, 1]}


def test_without_a_common_clock_a_sink_waits_by_duration_and_a_source_is_unknown(tmp_path: Path) -> None:
    def fill(trace: Trace, rank: int) -> None:
        call, peer = ("send", {"Dst Rank": 1}) if rank == 0 else ("recv", {"Src Rank": 0})
        trace.collective(call, 450 if rank == 0 else 100, 550 if rank == 0 else 500, args=peer)

    found = run(tmp_path, 2, fill)

    assert column(found, "wait_ns") == {0: [None], 1: [300_000]}
    assert column(found, "last_by") == {0: ["duration"], 1: ["duration"]}


def test_broadcasts_that_end_early_at_their_root_do_not_move_the_clocks(tmp_path: Path) -> None:
    """128 KiB from rank 0, whose kernel ends 150 us before that of rank 1, between all-reduces."""

    def fill(trace: Trace, rank: int) -> None:
        for i in range(20):
            trace.all_reduce(1000 * i, 1000 * i + 90)
            end = 1000 * i + 320 + 150 * rank
            trace.collective(
                "broadcast", 1000 * i + 300, end, metadata={"elements": 32_768}, args={"Rank": 0}
            )  # fmt: skip

    found = run(tmp_path, 2, fill)

    assert found.report["matching"]["clock_offsets_ns"] == {"0": 0, "1": 0}
    assert found.report["matching"]["clock_uncertainty_ns"] == 1_000


def test_unequal_splits_have_an_imbalance_and_no_transfer(tmp_path: Path) -> None:
    """Rank 1 enters 400 us late and sends to rank 0 alone; the clocks are known from all-reduces."""
    sent = [[1000, 1000], [3000, 0]]

    def fill(trace: Trace, rank: int) -> None:
        for i in range(10):
            trace.all_reduce(100 * i, 100 * i + 50)
        metadata = {
            "elements": sum(sent[rank]), "out_elements": sent[0][rank] + sent[1][rank],
            "in_split": str(sent[rank]), "out_split": str([row[rank] for row in sent]),
        }  # fmt: skip
        trace.collective("all_to_allv", 2000 + 400 * rank, 2600, metadata=metadata)

    found = run(tmp_path, 2, fill)

    # Rank 1 receives nothing from itself; rank 0 has entered long before.
    assert column(found, "wait_ns", "all_to_all") == {0: [400_000], 1: [0]}
    assert column(found, "transfer_ns", "all_to_all") == {0: [None], 1: [None]}
    assert column(found, "own_ns", "all_to_all") == {0: [200_000], 1: [200_000]}
    (group,) = [row for row in found.report["groups"] if row["op"] == "all_to_all"]
    assert (group["wait_ns"], group["transfer_ns"]) == (400_000, None)
    row = found.report["imbalance"][0]
    assert row["sent_bytes"] == {"0": 8_000, "1": 12_000}
    assert row["received_bytes"] == {"0": 16_000, "1": 4_000}
    assert row["per_peer"] == [[4_000, 4_000], [12_000, 0]]
    assert row["ratio"] == pytest.approx(12_000 / 10_000)


def test_batches_of_messages_meet_message_by_message(tmp_path: Path) -> None:
    """A ring of three: batches send to the next rank and receive from the one before; rank 2 enters 500 us late."""

    def fill(trace: Trace, rank: int) -> None:
        late = 500 if rank == 2 else 0
        for i in range(3):
            begin = 1000 * i + 200 + late
            to, of = (rank + 1) % 3, (rank - 1) % 3
            trace.comms_op("send", begin, begin + 5, metadata={"group": "7"}, args={"Dst Rank": to, "Rank": to})
            trace.comms_op("recv", begin + 6, begin + 9, metadata={"group": "7"}, args={"Src Rank": of, "Rank": of})
            trace.kernel("ncclDevKernel_SendRecv()", begin + 20, 1000 * i + 820, stream=20, launch=begin + 12)
            trace.all_reduce(1000 * i + 900, 1000 * i + 950)

    found = run(tmp_path, 3, fill)

    # Rank 0 receives from rank 2, rank 1's message goes to rank 2, which was not there to take it.
    assert column(found, "wait_ns", "send_recv") == {0: [500_000] * 3, 1: [500_000] * 3, 2: [0] * 3}
    assert set(column(found, "last_rank", "send_recv")[1]) == {2}
    assert found.report["matching"]["unmatched"] == 0


def test_c123_hosts_are_what_the_traces_say(tmp_path: Path) -> None:
    """C123: ranks 0 to 3 on host A, 4 to 7 on host B, and one offset per host where its ranks agree."""
    spans = [(1000 * i, 1000 * i + 100) for i in range(20)]
    ahead = [[(start + 7 * (rank > 3), end + 7 * (rank > 3)) for start, end in spans] for rank in range(8)]
    found = ranks(tmp_path, ahead, hosts=["A"] * 4 + ["B"] * 4)

    assert set(found.report["matching"]["clock_offsets_ns"].values()) == {0, 7_000}
    assert found.report["groups"][0]["crosses_hosts"] is True
