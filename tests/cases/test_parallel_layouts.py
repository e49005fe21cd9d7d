"""Cases of sharded, expert-parallel and pipelined jobs over several ranks: C144, C154, C170 to C172."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.command import analyze
from tests.builders.kineto import SEND_RECV, Trace
from tests.cases.test_matching import column, run

MB = 1_000_000
NOTIFY = "void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*, int*, int)"
DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)"


@pytest.mark.parametrize(("late", "steps"), [(0, 6), (2, 6), (3, 1), (7, 2)])
def test_c144_a_slow_network_between_hosts_is_the_network_and_no_ranks_fault(
    late: int, steps: int, tmp_path: Path
) -> None:
    """C144: 8 ranks on two hosts reduce 100 MB in 100 ms: 1.75 GB/s of 12.5 stated. One enters 0.5 ms later."""
    hosts = ["A"] * 4 + ["B"] * 4
    for rank in range(8):
        trace = Trace(rank=rank, world_size=8)
        trace.top["host_name"] = hosts[rank]
        for step in range(steps):
            at = 120_000 * step
            trace.step(step, at, at + 120_000)
            trace.gemm(at, at + 19_000)
            entry = at + 19_000 + (500 if rank == late else 0)
            trace.all_reduce(entry, at + 119_500, metadata={"elements": 25 * MB, "seq": step})
        trace.write(tmp_path / "run" / f"rank{rank}.json")

    found = analyze(tmp_path / "run", tmp_path / "report.json", "--hardware", "12.5")

    assert found.report["stragglers"] == []
    assert found.report["verdict"]["bottleneck"] == "communication"
    ids = [finding["id"] for finding in found.report["findings"]]
    assert ids[0] == "low-bandwidth"
    assert "straggler" not in ids
    assert found.report["findings"][0]["title"].lower().startswith("network bound")
    assert "network bound" in found.stdout.lower()


def test_c144_inside_one_host_low_bandwidth_is_no_matter_of_the_network(tmp_path: Path) -> None:
    """The same calls where all ranks are on one host."""

    def fill(trace: Trace, rank: int) -> None:
        trace.top["host_name"] = "A"
        for step in range(6):
            trace.gemm(120_000 * step, 120_000 * step + 20_000)
            at = 120_000 * step + 20_000
            trace.all_reduce(at, at + 100_000, metadata={"elements": 25 * MB, "seq": step})

    run(tmp_path, 8, fill, step=720_000)
    found = analyze(tmp_path / "run", tmp_path / "report.json", "--hardware", "12.5")

    assert found.report["findings"][0]["id"] == "low-bandwidth"
    assert "network bound" not in found.everything.lower()


@pytest.mark.parametrize(("late", "steps"), [(3, 1), (3, 4), (0, 4), (7, 2)])
def test_c154_a_late_all_gather_is_the_fault_of_the_cpu_that_was_busy(late: int, steps: int, tmp_path: Path) -> None:
    """C154: seven ranks are in an all-gather for 5000 us, rank 3 (or another) for 500 after 4500 us on its CPU.

    At the end of a step every host waits for its device.
    """

    def fill(trace: Trace, rank: int) -> None:
        for step in range(steps):
            at = 10_000 * step
            trace.step(step, at, at + 10_000)
            trace.gemm(at + 10, at + 3_000, launch=at)
            entry = at + 3_010 + (4_500 if rank == late else 0)
            if rank == late:
                trace.cpu_op("aten::index_put_", at + 3_000, at + 7_500)
            trace.all_gather(entry, at + 8_010, launch=entry - 8, metadata={"seq": step})
            trace.gemm(at + 8_020, at + 9_990, launch=entry)
            trace.runtime("cudaDeviceSynchronize", entry + 10, at + 9_995)

    found = run(tmp_path, 8, fill, step=0)

    waits = column(found, "wait_ns")
    assert waits == {rank: [0 if rank == late else 4_500_000] * steps for rank in range(8)}
    assert [(row["rank"], row["cause"]) for row in found.report["stragglers"]] == [(late, "host")]


def notified(trace: Trace, rank: int) -> None:
    """5000 us of ``notify_dispatch`` (100 on later ranks), then 200 us of ``dispatch``, 10 more per rank."""
    trace.kernel(NOTIFY, 0 if rank == 0 else 4900, 5000, stream=20)
    trace.kernel(DISPATCH, 5010, 5210 + 10 * rank, stream=20)


@pytest.mark.parametrize("count", [1, 2])
def test_c170_a_kernel_that_only_synchronises_waits_and_the_dispatch_after_it_does_not(
    count: int, tmp_path: Path
) -> None:
    """C170: on one rank, and beside a second that notifies last."""
    found = run(tmp_path, count, notified, world=8, step=6000)

    assert [row["op"] for row in found.report["collectives"] if row["rank"] == 0] == ["barrier", "all_to_all"]
    assert column(found, "wait_ns", "barrier")[0] == [5_000_000]
    assert column(found, "transfer_ns", "barrier")[0] == [0]
    assert column(found, "duration_ns", "all_to_all")[0] == [200_000]
    assert {wait for waits in column(found, "wait_ns", "all_to_all").values() for wait in waits} <= {None, 0}
    split = found.report["ranks"][0]["steps"][0]
    assert (split["comm_ns"], split["compute_ns"]) == (5_200_000, 0)


@pytest.mark.parametrize("how", ["operator", "id alone"])
def test_c171_kernels_of_one_external_id_are_one_call(how: str, tmp_path: Path) -> None:
    """C171: an ``all_to_all_single`` of 8 ranks as 8 kernels that run beside each other and with gaps between."""
    spans = [(100, 150), (110, 160), (150, 170), (200, 230), (205, 210), (300, 340), (320, 360), (500, 510)]
    trace = Trace(rank=0, world_size=8)
    trace.step(1, 0, 1000)
    trace.gemm(0, 90)
    operator = trace.comms_op("all_to_all", 10, 40, metadata={"elements": 8000})
    if how == "id alone":
        trace.events.remove(operator)
    for number, (start, end) in enumerate(spans):
        args = {key: value for key, value in operator["args"].items() if key != "Seq"}
        trace.kernel(SEND_RECV, start, end, stream=20 + number, launch=20, under=operator, args=args)

    found = analyze(trace.write(tmp_path / "rank0.json"), tmp_path / "report.json")

    (row,) = found.report["collectives"]
    assert (row["op"], row["kernels"]) == ("all_to_all", 8)
    assert row["duration_ns"] == (70 + 30 + 60 + 10) * 1000
    assert row["exposed_ns"] == found.report["ranks"][0]["steps"][0]["comm_ns"] == row["duration_ns"]


Message = tuple[str, int, int]


def grouped(trace: Trace, messages: list[Message], at: int) -> None:
    """``batch_isend_irecv`` of (call, peer, elements): rows of the messages, then one bare kernel from ``at + 100``."""
    with_range = trace.annotation("nccl:coalesced", at, at + 60)
    with_range["args"]["Input Dims"] = [[]]
    for place, (call, peer, elements) in enumerate(messages):
        key = "Dst Rank" if call == "send" else "Src Rank"
        begin = at + 10 * place
        trace.comms_op(call, begin, begin + 5, metadata={"elements": elements}, args={key: peer})
    trace.kernel(SEND_RECV, at + 100, at + 150, stream=20, launch=at + 55)


def partners(messages: list[Message]) -> list[dict[str, int]]:
    return [
        {"peer": peer, "sent_bytes": 4 * size * (call == "send"), "received_bytes": 4 * size * (call == "recv")}
        for call, peer, size in messages
    ]


def test_c172_a_grouped_exchange_has_the_bytes_and_peers_of_its_rows(tmp_path: Path) -> None:
    """C172: two batches, each takes the rows since the launch before; the third has none of its own."""
    first, second = [("send", 2, 1000), ("recv", 0, 500)], [("recv", 2, 200), ("send", 0, 300), ("send", 3, 50)]
    trace = Trace(rank=1, world_size=4)
    trace.step(1, 0, 2000)
    trace.gemm(10, 50, launch=5)
    grouped(trace, first, 100)
    trace.gemm(320, 380, launch=290)
    grouped(trace, second, 400)
    trace.kernel(SEND_RECV, 900, 950, stream=21, launch=850)

    found = analyze(trace.write(tmp_path / "rank1.json"), tmp_path / "report.json")

    rows = found.report["collectives"]
    assert [row["op"] for row in rows] == ["send_recv"] * 3
    assert [row["partners"] for row in rows] == [partners(first), partners(second), None]
    assert [(row["sent_bytes"], row["received_bytes"]) for row in rows] == [(4000, 2000), (1400, 800), (None, None)]
    assert found.report["ranks"][0]["steps"][0]["comm_ns"] == 150_000


def test_c172_rows_of_another_thread_are_not_of_the_batch(tmp_path: Path) -> None:
    """C172: the rows were recorded on another thread than the one that launches."""
    trace = Trace(rank=1, world_size=4)
    trace.step(1, 0, 1000)
    trace.comms_op("send", 100, 105, tid=99, args={"Dst Rank": 2})
    trace.kernel(SEND_RECV, 200, 250, stream=20, launch=155)

    found = analyze(trace.write(tmp_path / "rank1.json"), tmp_path / "report.json")

    (row,) = found.report["collectives"]
    assert (row["op"], row["sent_bytes"], row["partners"], row["peer"]) == ("send_recv", None, None, None)
