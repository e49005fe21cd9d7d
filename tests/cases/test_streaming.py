"""C024 and C028 in the small: where a block ends, how deep and how large a value is, changes no number.

How much memory and time a large file takes: ``tests.benchmarks.read_large``.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import CPU_PROCESS, t0
from tests.builders.text import Pairs, Raw, Style, gzip_bytes, render
from tests.cases.t0_numbers import assert_t0, faults, file_entry
from tests.cases.test_layouts import rich

Analyze = Callable[..., Run]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the reader take this many bytes at a time; the right ones are far larger than any trace here."""
    from commprof.trace import source

    def use(size: int) -> None:
        monkeypatch.setattr(source, "BLOCK_BYTES", size)
        monkeypatch.setattr(source, "_READ_BYTES", size)

    return use


HARM = {
    "nothing": b"quiet",
    "escape": rb"D:\_x",
    "last backslash": b"x\\",
    "control": b"a\x01b",
    "encoding": b"a\xf0\x9f\x98b",
    "quote": b'say "hi" now',
    "emoji": "😀é数".encode(),
    "braces": b"}]{[,:",
    "escaped quote": rb"a\"}b\\",
}


def harmed(harm: str, style: Style) -> bytes:
    """The rich trace with one frame of this name in its middle, and ``T0``'s worth of events round it."""
    trace = rich()
    trace.add("python_function", "@@", 5, 6, CPU_PROCESS, 1, {"Python id": 1})
    trace.events.insert(9, trace.events.pop())
    return trace.text(style).encode().replace(b"@@", HARM[harm])


@pytest.mark.parametrize(("packed", "size"), [(False, 2), (False, 333), (True, 64), (True, 4096)])
@pytest.mark.parametrize("harm", HARM)
def test_c028_blocks_of_any_size(
    packed: bool,
    harm: str,
    size: int,
    small_blocks: Callable[[int], None],
    run_analyze: Analyze,
    tmp_path: Path,
) -> None:
    style: Style = "pretty" if size % 2 else "compact"
    data = harmed(harm, style)
    path = tmp_path / "rank0.json"
    path.write_bytes(gzip_bytes(data, 3) if packed else data)
    whole = run_analyze(path)

    small_blocks(size)
    run = run_analyze(path)

    assert whole.code == run.code == 0, run.stderr
    assert faults(run) == (harm in ("escape", "last backslash", "control", "encoding", "quote"))
    assert run.json_bytes == whole.json_bytes


@pytest.mark.parametrize("own_ids", [True, False], ids=["ids of their own", "the same ids"])
def test_c024_copies_of_one_trace_have_as_many_times_its_totals(
    own_ids: bool, small_blocks: Callable[[int], None], run_analyze: Analyze, tmp_path: Path
) -> None:
    copies = 20
    one, many = rich(), rich()
    for number in range(1, copies):
        again = rich()
        again.shift(2_000_000 * number)
        for event in again.events:
            if event["name"].startswith("ProfilerStep#"):
                event["name"] = f"ProfilerStep#{int(event['name'].rpartition('#')[2]) + 2 * number}"
            for key in {"correlation", "External id"} & set(event.get("args", {})) if own_ids else ():
                event["args"][key] += 1000 * number
        many.events += again.events
    small_blocks(4096)

    single, run = (
        run_analyze(trace.write(tmp_path / name / "rank0.json")) for name, trace in (("one", one), ("many", many))
    )

    keys = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "copy_ns", "exposed_copy_ns")
    whole = {key: single.report["ranks"][0]["whole"][key] for key in keys}
    assert {key: run.report["ranks"][0]["whole"][key] for key in keys} == {k: copies * ns for k, ns in whole.items()}
    assert file_entry(run)["events"] == copies * file_entry(single)["events"]
    if own_ids:  # kernels of one External id are one call, so the same ids join the calls of all copies
        assert len(run.report["collectives"]) == copies * len(single.report["collectives"])
        assert [step["name"] for step in run.report["ranks"][0]["steps"]] == [
            f"ProfilerStep#{number}" for number in range(1, 2 * copies + 1)
        ]


@pytest.mark.parametrize("size", [1, 13, 100])
def test_c029_a_cut_file_in_small_blocks(
    size: int, small_blocks: Callable[[int], None], run_analyze: Analyze, tmp_path: Path
) -> None:
    text = rich().text()
    path = tmp_path / "rank0.json"
    for cut in (len(text) // 2, len(text) - 3, len(text) - 30):
        path.write_text(text[:cut])
        whole = run_analyze(path)
        with pytest.MonkeyPatch.context():
            small_blocks(size)
            run = run_analyze(path)

        assert whole.code == run.code == 0
        assert file_entry(run)["truncated"]
        assert run.report["ranks"] == whole.report["ranks"]


def nested(depth: int, brackets: str = "[]") -> Raw:
    """A value this deep."""
    opening, closing = (brackets[0], brackets[1]) if brackets == "[]" else ('{"a":', "}")
    return Raw(opening * depth + ("1" if brackets == "{}" else "") + closing * depth)


@pytest.mark.parametrize("brackets", ["[]", "{}"])
@pytest.mark.parametrize("depth", [50, 3000, 30_000])
@pytest.mark.parametrize("where", ["argument", "root", "event"])
def test_values_of_any_depth(where: str, depth: int, brackets: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    match where:
        case "argument":
            trace.cpu_op("aten::mm", 10, 20)["args"]["Input Dims"] = nested(depth, brackets)
        case "root":
            trace.top["meta"] = nested(depth, brackets)
        case "event":
            trace.events.insert(1, nested(depth, brackets))

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) <= 1


@pytest.mark.parametrize("length", [10_000, 3_000_000])
def test_strings_of_any_length(length: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.add("python_function", "x" * length, 10, 20, CPU_PROCESS, 1, {"text": 'q"' * (length // 4)})
    trace.events.insert(1, trace.events.pop())
    trace.top["note"] = "y" * length

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0
    assert len(run.json_bytes) < 100_000


TOO_FAR = ["1e300", "1e17", "9300000000000000", "-1e17", "-9300000000000000", "9" * 30]


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", TOO_FAR)
def test_times_beyond_64_bits_of_ns_are_left_out_and_counted(
    value: str, key: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    trace.gemm(700, 710)[key] = Raw(value)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 1


def test_text_that_looks_like_the_start_of_the_events(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    inner = {"ph": "X", "cat": "kernel", "name": "decoy", "pid": 0, "tid": 7, "ts": 0, "dur": 5000}
    top: dict[str, Any] = {
        "note": '"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 0, "dur": 9000}]',
        "traceEvents ": [inner],
        "meta": {"traceEvents": [inner]},
        "list": [{"traceEvents": [inner]}],
    }
    path = tmp_path / "rank0.json"
    path.write_text(render({**top, **trace.top, "traceEvents": trace.events, "later": {"traceEvents": [inner]}}))

    run = run_analyze(path)

    assert_t0(run)


@pytest.mark.parametrize("seed", range(6))
def test_keys_of_an_event_in_any_order(seed: int, run_analyze: Analyze, tmp_path: Path) -> None:
    rng = random.Random(seed)
    trace = t0()
    events = []
    for event in trace.events:
        pairs = list(event.items())
        rng.shuffle(pairs)
        args = list(event["args"].items())
        rng.shuffle(args)
        events.append(Pairs((key, Pairs(args) if key == "args" else value) for key, value in pairs))
    trace.events = events

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["size_bytes"] == 4_000_000


@pytest.mark.parametrize("padding", [b"\x00" * 4096, b"\n" * 5000, b" \t\r\n" * 9])
def test_padding_after_the_end(padding: bytes, run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(t0().text().encode() + padding)

    run = run_analyze(path)

    assert_t0(run)


@pytest.mark.parametrize("name", ["run[1]", "a b", "ünïcode", "100%", "x*y", "-o", "it's", '"q"'])
def test_folders_and_files_with_odd_names(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    folder = tmp_path / name
    path = t0().write(folder / f"{name}_rank0.json")

    for given in (path, folder):
        run = run_analyze(given)

        assert_t0(run)
        assert Path(file_entry(run)["path"]).name == path.name


def test_a_file_url(run_analyze: Analyze, tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")

    run = run_analyze([f"file://{path}"])  # type: ignore[list-item]

    assert_t0(run)


@pytest.mark.traces
def test_c028_a_real_trace_on_one_line(public_traces: Path, run_analyze: Analyze, tmp_path: Path) -> None:
    source = public_traces / "ddp-resnet50-a100" / "rank0.json.gz"
    text = gzip.decompress(source.read_bytes())
    path = tmp_path / "rank0.json"
    path.write_bytes(re.sub(rb"\s*\n\s*", b"", text))

    plain, run = run_analyze(source), run_analyze(path)

    assert text.count(b"\n") > 100_000 > path.read_bytes().count(b"\n")
    assert run.code == 0
    for part in ("ranks", "coverage", "collectives"):
        assert run.report[part] == plain.report[part]
