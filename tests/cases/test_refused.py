"""C029, C031 to C033, C048 and C224: cut, mixed and foreign files are refused or read as far as they go."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run, call
from tests.builders.kineto import GEMM, Trace, nanos, t0
from tests.builders.text import Style, gzip_bytes, zip_bytes
from tests.cases.t0_numbers import assert_t0, faults, file_entry

Analyze = Callable[..., Run]


def long_trace(rank: int = 0, steps: int = 12, world_size: int = 2) -> Trace:
    """A trace of some tens of kB: steps like ``T0`` with operators and frames between the kernels."""
    trace = Trace(rank=rank, world_size=world_size)
    for number in range(steps):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        for op in range(10):
            trace.cpu_op(f"aten::op_{op}", t + op, t + op + 1)
        trace.gemm(t, t + 600)
        trace.all_reduce(t + 500, t + 900)
    return trace


# C029: files cut anywhere.


def event_ends(text: str, events: int) -> list[int]:
    """The offset after each event of a trace text: a scan of its own, over the decoder of the standard library."""
    decoder = json.JSONDecoder()
    at = text.index("[", text.index('"traceEvents"')) + 1
    ends = []
    for _ in range(events):
        while text[at] in " \n,":
            at += 1
        _, at = decoder.raw_decode(text, at)
        ends.append(at)
    return ends


def totals(trace: Trace, count: int) -> tuple[int, int]:
    """Summed duration of the compute and of the communication kernels among the first ``count`` events."""
    kernels = [event for event in trace.events[:count] if event["cat"] == "kernel"]
    compute = sum(nanos(str(event["dur"])) for event in kernels if event["name"] == GEMM)
    comm = sum(nanos(str(event["dur"])) for event in kernels if event["name"] != GEMM)
    return compute, comm


@pytest.mark.parametrize(("style", "count"), [("compact", 40), ("spaced", 10), ("pretty", 10)])
def test_c029_a_file_cut_at_50_places(style: Style, count: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = long_trace(steps=5)
    text = trace.text(style)
    ends = event_ends(text, len(trace.events))
    rng = random.Random(29)
    closed = len(text.rstrip()) - 1  # a cut from here on loses nothing but white space
    cuts = sorted({rng.randrange(closed) for _ in range(count)} | {rng.randrange(ends[0]) for _ in range(4)})
    cuts += [ends[0], ends[20], ends[20] - 1, ends[20] + 1, ends[-1], ends[-1] - 1]
    path = tmp_path / "rank0.json"
    for cut in cuts:
        path.write_text(text[:cut])
        complete = sum(end <= cut for end in ends)
        compute, comm = totals(trace, complete)

        run = run_analyze(path)

        if complete == 0:
            assert (run.code, len(run.lines)) == (2, 1), cut
            continue
        assert run.code == (0 if comm else 3), (cut, run.stderr)
        if run.report is None:
            assert compute == comm == 0
            continue
        assert file_entry(run)["truncated"], cut
        assert file_entry(run)["events"] == complete, cut
        notes = [note.replace(",", "") for note in run.notes("truncated")]
        assert any(f"truncated after {complete} event" in note for note in notes), notes
        (row,) = run.report["ranks"]
        assert (row["whole"]["compute_ns"], row["whole"]["comm_ns"]) == (compute, comm), cut
        assert faults(run) == 0, cut


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.999])
def test_c029_a_gzip_file_cut_short(keep: float, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = long_trace(steps=60)
    packed = gzip_bytes(trace.text().encode())
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])

    run = run_analyze(path)

    assert run.code == 0, run.stderr
    complete = file_entry(run)["events"]
    compute, comm = totals(trace, complete)
    (row,) = run.report["ranks"]
    assert file_entry(run)["truncated"]
    assert 0 < complete <= len(trace.events)
    assert (row["whole"]["compute_ns"], row["whole"]["comm_ns"]) == (compute, comm)


def test_c029_a_gzip_file_with_a_broken_end_says_so(run_analyze: Analyze, tmp_path: Path) -> None:
    packed = bytearray(gzip_bytes(t0().text().encode()))
    packed[-6] ^= 0xFF  # the checksum
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(bytes(packed))

    run = run_analyze(path)

    assert run.code == 2 or file_entry(run)["truncated"] or faults(run)
    assert any("rank0.json.gz" in line for line in run.lines)


# C031 to C033: files of another kind, or of more than one process.


def test_c031_an_execution_trace_is_not_a_profiler_trace(run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    node = {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {}, "outputs": {}, "attrs": []}
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "x", "nodes": [node]}))

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "execution trace, not a profiler trace" in run.lines[0]
    assert "rank0.json" in run.lines[0]


def interleaved(one: bytes, other: bytes, block: int) -> bytes:
    """Two files written into one, block by block, as two processes without a lock do."""
    pairs = itertools.zip_longest(
        (one[at : at + block] for at in range(0, len(one), block)),
        (other[at : at + block] for at in range(0, len(other), block)),
        fillvalue=b"",
    )
    return b"".join(itertools.chain.from_iterable(pairs))


@pytest.mark.parametrize("block", [512, 4096, 16384])
@pytest.mark.parametrize("style", ["compact", "spaced", "pretty"])
def test_c032_two_writers_in_one_file(style: Style, block: int, run_analyze: Analyze, tmp_path: Path) -> None:
    one, other = (long_trace(rank=rank, steps=30).text(style).encode() for rank in (0, 1))
    path = tmp_path / "rank0.json"
    path.write_bytes(interleaved(one, other, block))

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "more than one process wrote" in run.lines[0]
    assert "rank0.json" in run.lines[0]


def test_c032_one_file_after_the_other(run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(long_trace(rank=0).text() + long_trace(rank=1).text())

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "rank0.json" in run.lines[0]


def test_c033_a_merged_trace_with_colliding_correlations(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for device in (0, 1):
        launch = trace.runtime("cudaLaunchKernel", 5, 7, correlation=77)
        launch["pid"] = launch["tid"] = 100 + device
        trace.gemm(10, 600, device=device, args={"correlation": 77})
        trace.all_reduce(500, 900, device=device)

    run = run_analyze(trace.write(tmp_path / "merged.json"))

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "merged trace: correlation ids collide" in run.lines[0]
    assert "merged.json" in run.lines[0]


def test_c033_two_devices_of_one_process_do_not_collide(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for device in (0, 1):
        trace.gemm(10, 600, device=device, launch=5 + 3 * device)
        trace.all_reduce(500, 900, device=device)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code == 0, run.stderr
    assert [(row["device"], row["whole"]["exposed_comm_ns"]) for row in run.report["ranks"]] == [
        (0, 300_000),
        (1, 300_000),
    ]


# C048 and C224: each refusal is one line with the file and the reason.


def cpu_only() -> str:
    """Operators but no kernel (C069)."""
    trace = Trace()
    trace.step(1, 0, 100)
    trace.cpu_op("aten::mm", 10, 90)
    return trace.text()


def silent() -> str:
    """Compute only although the job has eight ranks (C071)."""
    trace = Trace(world_size=8)
    trace.gemm(0, 600)
    return trace.text()


REFUSALS: dict[str, tuple[bytes, int, str]] = {
    "no bytes": (b"", 2, "empty file"),
    "empty object": (b"{}", 2, "no traceEvents"),
    "only white space": (b" \n\n", 2, "empty file"),
    "no events": (b'{"traceEvents": []}', 3, "no events"),
    "no events in an array": (b"[]", 3, "no events"),
    "another object": (b'{"lr": 0.1, "layers": [1]}', 2, "no traceEvents"),
    "events are no array": (b'{"traceEvents": 5}', 2, "traceEvents"),
    "a number": (b"17\n", 2, "not a trace"),
    "a string": (b'"traceEvents"', 2, "not a trace"),
    "plain text": (b"loss 3.14\nloss 2.71\n", 2, "not a trace"),
    "html": (b"<!DOCTYPE html><html></html>", 2, "not a trace"),
    "python source": (b"import torch\n", 2, "not a trace"),
    "random bytes": (random.Random(1).randbytes(3000), 2, "not a trace"),
    "empty gzip": (gzip.compress(b"", mtime=0), 2, "empty file"),
    "gzip of text": (gzip.compress(b"hello hello hello", mtime=0), 2, "not a trace"),
    "gzip header only": (b"\x1f\x8b\x08\x00", 2, ""),
    "zip of text": (zip_bytes(b"hello"), 2, "not a trace"),
    "zip without member": (b"PK\x05\x06" + bytes(18), 2, ""),
    "zstd header only": (b"\x28\xb5\x2f\xfd", 2, ""),
    "operators only": (cpu_only().encode(), 3, "no GPU kernels in this trace"),
    "operators only, cut": (cpu_only().encode()[:-4], 3, "the file is cut after"),
    "no communication on 8 ranks": (silent().encode(), 3, "no communication"),
    "two values": (b'{"traceEvents": [', 2, ""),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_c048_c224_a_refusal_is_one_line(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    data, code, reason = REFUSALS[name]
    path = tmp_path / "odd_rank0.json"
    path.write_bytes(data)

    run = run_analyze(path)

    assert (run.code, len(run.lines)) == (code, 1), run.stderr
    assert "odd_rank0.json" in run.lines[0]
    assert reason.lower() in run.lines[0].lower()
    assert (run.report is not None) == (name == "no communication on 8 ranks")


@pytest.mark.parametrize("kind", ["missing file", "missing folder", "empty folder", "folder without traces", "glob"])
def test_c224_paths_that_hold_no_trace(kind: str, run_analyze: Analyze, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    path = {"missing file": folder / "x.json", "missing folder": tmp_path / "no" / "such"}.get(kind, folder)
    if kind == "folder without traces":
        (folder / "notes.txt").write_text("hello")
        (folder / "params.json").write_text("{}")
    if kind == "glob":
        path = folder / "rank*.json"

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1), run.stderr
    assert str(path.name) in run.lines[0]


def test_c224_a_file_that_may_not_be_read(run_analyze: Analyze, tmp_path: Path) -> None:
    # A folder with the name of a file inside a folder of traces, and a link to nowhere.
    path = tmp_path / "rank0.json"
    path.symlink_to(tmp_path / "nowhere.json")

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "rank0.json" in run.lines[0]


@pytest.mark.parametrize(
    "argv",
    [
        ["analyze"],
        ["analyze", "x.json", "--no-such-option"],
        ["no-such-verb"],
        ["analyze", "x.json", "--steps", "six"],
        ["analyze", "x.json", "--jobs", "0"],
        ["analyze", "x.json", "--jobs", "many"],
    ],
    ids=lambda argv: " ".join(argv),
)
def test_c224_wrong_usage_is_exit_2_without_a_traceback(argv: list[str]) -> None:
    code, _, err = call(*argv)

    assert code == 2
    assert err.strip()
    assert "Traceback" not in err


def test_c224_an_output_that_cannot_be_written_is_one_line(run_analyze: Analyze, tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")
    (tmp_path / "blocker").write_text("a file, not a folder")

    code, _, err = call("analyze", path, "--no-html", "--json", tmp_path / "blocker" / "r.json")

    assert code in (2, 4)
    assert len(err.strip().splitlines()) == 1
    assert "blocker" in err


def test_one_bad_file_among_good_ones_is_named(run_analyze: Analyze, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    t0().write(folder / "rank0.json")
    (folder / "rank1.json").write_bytes(b"")

    run = run_analyze(folder)

    assert_t0(run)
    assert run.report["input"]["ignored"] == [{"path": "rank1.json", "reason": "empty file"}]
    assert run.report["input"]["missing_ranks"] == [1]


def test_a_step_that_no_trace_has_is_the_news_of_a_mixed_folder(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 500)
    trace.all_reduce(400, 900)
    trace.write(tmp_path / "run" / "rank0.json")
    (tmp_path / "run" / "truth.json").write_text("{}", encoding="utf-8")

    run = run_analyze(tmp_path / "run", "--steps", "99")

    assert run.code == 3
    (line,) = run.lines
    assert "no step 99" in line
    assert "ProfilerStep#1" in line
    assert "traceEvents" not in line
