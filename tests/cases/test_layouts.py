"""C027, C028, C030, C034 to C036, C043, C044 and C047: every layout and compression gives the same numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.builders.command import Run, strings
from tests.builders.kineto import CPU_PROCESS, Trace, t0
from tests.builders.text import Pairs, Raw, gzip_bytes, render, zip_bytes
from tests.cases.t0_numbers import WHOLE, assert_t0, faults, file_entry, repaired, skipped

Analyze = Callable[..., Run]
TEXT = t0().text().encode()


# C027: numbers that a double cannot hold.


def test_c027_large_ids_stay_different(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[2]["args"]["Comms Id"] = Raw("18446744073709551615")
    trace.all_reduce(950, 990)["args"]["Comms Id"] = Raw("18446744073709551614")
    trace.cpu_op("aten::mm", 10, 20)["args"]["flops"] = Raw("1e400")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [(call["start_ns"], call["kernels"]) for call in run.report["collectives"]] == [(500_000, 1), (950_000, 1)]
    assert repaired(run) == {"non_finite": 1}
    assert run.report["ranks"][0]["steps"][0]["comm_ns"] == 440_000


@pytest.mark.parametrize("big", ["18446744073709551616", "1" * 40, "-9223372036854775809", "1.5", '"7"'])
def test_c027_numbers_of_any_size_in_arguments(big: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for key in ("Comms Id", "Input Tensors start", "context"):
        trace.events[2]["args"][key] = Raw(big)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


@pytest.mark.parametrize("correlation", [2**31, 2**32 + 5, 2**53 + 1, 2**63 - 1])
def test_c027_large_correlations_are_joined_exactly(correlation: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for number in (0, 1):
        id_ = correlation - number
        trace.runtime("cudaLaunchKernel", 10 + 10 * number, 12 + 10 * number, correlation=id_)
        trace.gemm(100 + 100 * number, 200 + 100 * number, args={"correlation": id_})
    trace.all_reduce(500, 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["coverage"]["linked_device_events"] == 2
    assert run.report["ranks"][0]["steps"][0]["start_ns"] == 0


# C028: one trace in every form, with and without something to repair: the same report each time.


def forms() -> dict[str, tuple[str, bytes]]:
    """Name and bytes of a richer ``T0`` in every readable form."""
    trace = rich()
    text = {style: trace.text(style).encode() for style in ("compact", "spaced", "pretty")}
    forms = {f"{style} object": (".json", data) for style, data in text.items()}
    forms["gzip"] = (".json.gz", gzip_bytes(text["spaced"]))
    forms["gzip in members"] = (".json.gz", gzip_bytes(text["spaced"], 5))
    forms["gzip without the ending"] = (".json", gzip_bytes(text["spaced"]))
    forms["zstd"] = (".json.zst", zstandard.ZstdCompressor().compress(text["spaced"]))
    forms["zip"] = (".json.zip", zip_bytes(text["spaced"]))
    forms["byte order mark"] = (".json", b"\xef\xbb\xbf" + text["spaced"])
    forms["crlf"] = (".json", text["pretty"].replace(b"\n", b"\r\n"))
    forms["tabs"] = (".json", text["pretty"].replace(b"  ", b"\t"))
    forms["one event a line"] = (".json", text["compact"].replace(b'},{"ph"', b'},\n{"ph"'))
    after = {"traceEvents": trace.events, **trace.top}
    forms["events first"] = (".json", render(after).encode())
    forms["escaped slashes"] = (".json", text["spaced"].replace(b"/", rb"\/"))
    forms["escaped letters"] = (".json", text["spaced"].replace(b"kernel", rb"k\u0065rnel"))
    return forms


def rich() -> Trace:
    """``T0`` with launches, operators, copies, instants, counters, flows and a second step."""
    trace = Trace(rank=0, world_size=2)
    for number in (1, 2):
        t = 1000 * (number - 1)
        trace.step(number, t, t + 1000)
        operator = trace.cpu_op("aten::mm", t + 1, t + 9)
        trace.gemm(t + 20, t + 600, launch=t + 2, under=operator)
        comms = trace.comms_op("allreduce", t + 10, t + 19)
        trace.all_reduce(t + 500, f"{t + 900}.125", launch=t + 12, under=comms)
        trace.copy(t + 930, t + 960, launch=t + 21)
        trace.events.append({"ph": "i", "s": "t", "name": "[memory]", "pid": CPU_PROCESS, "tid": 1, "ts": t})
        trace.events.append({"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": t})
    return trace


@pytest.mark.parametrize("form", [name for name in forms() if name != "spaced object"])
def test_c028_every_form_gives_the_same_report(form: str, run_analyze: Analyze, tmp_path: Path) -> None:
    plain = run_analyze(_saved(tmp_path / "a", "spaced object"))

    run = run_analyze(_saved(tmp_path / "b", form))

    assert run.code == plain.code == 0, run.stderr
    assert _comparable(run) == _comparable(plain)


def _saved(folder: Path, form: str) -> Path:
    ending, data = forms()[form]
    folder.mkdir(exist_ok=True)
    path = folder / f"rank0{ending}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("harm", [rb"\_", b"\x01", b"\xff", b'"'], ids=["escape", "control", "encoding", "quote"])
@pytest.mark.parametrize("place", [0, 6, 17])
def test_c028_a_repair_elsewhere_changes_no_number(
    harm: bytes, place: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    # The tolerant path reads the whole file or a part of it; what it reads must be the same.
    trace = rich()
    plain = run_analyze(trace.write(tmp_path / "a" / "rank0.json"))
    trace.add("python_function", "x@@", 5, 6, CPU_PROCESS, 1, {"Python id": 1})
    trace.events.insert(place, trace.events.pop())
    (tmp_path / "rank0.json").write_bytes(trace.text().encode().replace(b"@@", harm))

    run = run_analyze(tmp_path / "rank0.json")

    assert faults(run) == 1
    compared = [key for key in plain.report if key not in ("input", "notes")]
    assert {key: run.report[key] for key in compared} == {key: plain.report[key] for key in compared}


def _comparable(run: Run) -> Any:
    """The report without the name and the size of the file."""
    report = json.loads(run.json_bytes)
    report["input"]["path"] = None
    for file in report["input"]["files"]:
        file["path"] = file["bytes"] = None
    return report


# C030: a bare array, also one that was never closed.


@pytest.mark.parametrize("ending", ["]", "", ",", ", ", ",\n", ",]", ",\n]", "\n"])
def test_c030_an_array_as_the_root_need_not_be_closed(ending: str, run_analyze: Analyze, tmp_path: Path) -> None:
    text = t0().text(root="list").rstrip().removesuffix("]") + ending
    path = tmp_path / "rank0.json"
    path.write_text(text)

    run = run_analyze(path)

    assert_t0(run)
    assert faults(run) == 0
    assert not file_entry(run)["truncated"]
    assert not run.notes("truncated")
    assert not [line for line in run.lines if "trunc" in line.lower() or "repair" in line.lower()]


# C034 to C036: compression.


@pytest.mark.parametrize("members", [1, 2, 3, 50])
def test_c034_all_members_of_a_gzip_file_are_read(members: int, run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip_bytes(TEXT, members))

    run = run_analyze(path)

    assert_t0(run)
    assert not file_entry(run)["truncated"]


COMPRESSED = {
    "plain": TEXT,
    "gzip": gzip_bytes(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
    "zip": zip_bytes(TEXT),
}


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz", "rank0.json.zst", "rank0.zip", "rank0.trace"])
@pytest.mark.parametrize("kind", list(COMPRESSED))
def test_c035_the_first_bytes_decide_not_the_name(kind: str, name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(COMPRESSED[kind])

    run = run_analyze(path)

    assert_t0(run)


def test_c036_zstd_in_frames_and_zip_with_one_member(run_analyze: Analyze, tmp_path: Path) -> None:
    compress = zstandard.ZstdCompressor().compress
    half = len(TEXT) // 2
    for name, data in (
        ("rank0.json.zst", compress(TEXT[:half]) + compress(TEXT[half:])),
        ("rank0.json.zip", zip_bytes(TEXT, "deep/folder/trace.json")),
    ):
        (tmp_path / name).write_bytes(data)

        run = run_analyze(tmp_path / name)

        assert_t0(run)


@pytest.mark.parametrize(
    ("magic", "named"),
    [
        (b"BZh91AY&SY", "bzip2"),
        (b"\xfd7zXZ\x00\x00", "xz"),
        (b"7z\xbc\xaf\x27\x1c", "7-?z"),
        (b"PAR1\x15\x04", "parquet"),
        (b"SQLite format 3\x00", "sqlite"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ],
)
def test_c036_other_formats_are_refused_by_name(magic: bytes, named: str, run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(magic + bytes(200))

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "rank0.json" in run.lines[0]
    assert re.search(named, run.lines[0].lower())


# C043: a file of another writer.


def test_c043_events_of_every_other_kind(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    extra: list[Any] = [
        {"ph": "X", "name": "f", "pid": "CPU functions", "tid": "main", "ts": 3, "dur": 4},
        {"ph": "X", "name": "no category", "pid": "CPU functions", "tid": 1, "ts": 3, "dur": 4, "args": {}},
        {"ph": "B", "name": "begin", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "E", "name": "begin", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 9},
        {"ph": "i", "name": "instant", "pid": 1, "tid": 1, "ts": 3, "s": "g"},
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": "x", "ts": 0, "args": {"sort_index": 5}},
        {"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 3},
        {"ph": "f", "name": "ac2g", "cat": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 5, "bp": "e"},
        {"ph": "C", "name": "GPU memory", "pid": 0, "ts": 3, "args": {"bytes": 5}},
        {"ph": "N", "name": "object", "id": "0x1", "pid": 0, "tid": 0, "ts": 1},
        {"name": "no phase", "ts": 1, "dur": 2},
        {},
    ]

    path = tmp_path / "rank0.json"
    path.write_text(render(extra[:6] + trace.events + extra[6:]))
    run = run_analyze(path)

    assert_t0(run)


@pytest.mark.parametrize("value", ["null", "7", '"text"', "[]", "[[1, 2], {}]", "true", "{}"])
def test_c043_array_elements_that_are_no_events(value: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events.insert(2, Raw(value))

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) <= 1


@pytest.mark.parametrize("key", ["ts", "dur", "name", "cat", "ph", "pid", "tid", "args"])
@pytest.mark.parametrize("value", ["null", '"text"', "[]", "{}", "true", "[1, 2]"])
def test_c043_values_of_the_wrong_type_cost_one_event(
    key: str, value: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    trace.cpu_op("aten::mm", 10, 20)[key] = Raw(value)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) <= 1


# C044: keys that are not there.


def linked_t0() -> Trace:
    """``T0`` with a launch event and an operator for each kernel."""
    trace = Trace(rank=0, world_size=2)
    trace.step(1, 0, 1000)
    trace.gemm(10, 600, launch=2, under=trace.cpu_op("aten::mm", 1, 5))
    trace.all_reduce(500, 900, launch=12, under=trace.comms_op("allreduce", 10, 15))
    return trace


LINKED = {"compute_ns": 590_000, "comm_ns": 400_000, "overlap_ns": 100_000, "exposed_comm_ns": 300_000, "idle_ns": 0}


@pytest.mark.parametrize("key", ["args", "pid", "tid", "stream", "correlation", "External id", "device", "ph"])
def test_c044_a_key_missing_from_all_events(key: str, run_analyze: Analyze, tmp_path: Path) -> None:
    for trace, whole in ((t0(), WHOLE), (linked_t0(), LINKED)):
        for event in trace.events:
            event.pop(key, None)
            event.get("args", {}).pop(key, None)

        run = run_analyze(trace.write(tmp_path / "rank0.json"))

        if key == "ph":
            assert run.code in (2, 3)
            continue
        assert run.code == 0, run.stderr
        (row,) = run.report["ranks"]
        keys = set(whole) - {"comm_share"}
        assert {k: row["whole"][k] for k in keys} == {k: whole[k] for k in keys}
        (call,) = run.report["collectives"]
        assert (call["op"], call["duration_ns"], call["exposed_ns"]) == ("all_reduce", 400_000, 300_000)


def test_c044_without_cat_nothing_is_left(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for event in trace.events:
        del event["cat"]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert (run.code, len(run.lines)) == (3, 1)
    assert "rank0.json" in run.lines[0]


def test_c044_without_correlation_the_marks_are_the_windows(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = linked_t0()
    for event in trace.events:
        event["args"].pop("correlation", None)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert row["windows"] == "annotation"
    assert (row["steps"][0]["duration_ns"], row["steps"][0]["exposed_host_ns"]) == (1_000_000, None)
    assert run.report["coverage"]["device_events"] == 2
    assert run.report["coverage"]["linked_device_events"] == 0
    assert run.notes("no-launch-links")


def test_c044_without_arguments_the_name_decides_and_is_counted(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for event in trace.events:
        del event["args"]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    (call,) = run.report["collectives"]
    assert (call["kind_source"], call["size_bytes"], call["dtype"], call["stream"]) == ("name", None, None, 20)
    assert run.report["coverage"]["comm_without_metadata"] == 1


@pytest.mark.parametrize("key", list(t0().top))
def test_c044_a_key_missing_from_the_root(key: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    del trace.top[key]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


@pytest.mark.parametrize("value", ["null", "7", '"text"', "[]", "{}", "[1]", "true", "NaN", "1e400"])
@pytest.mark.parametrize(
    "key", ["schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "host_name"]
)
def test_c044_a_root_value_of_another_type(key: str, value: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.top[key] = Raw(value)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


# C047: group configurations in odd spellings.


CONFIG = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}


@pytest.mark.parametrize(
    "config",
    [
        [CONFIG],
        json.dumps([CONFIG]),
        [{**CONFIG, "ranks": "[0, 1]"}],
        json.dumps([{**CONFIG, "ranks": "[0, 1]"}]),
    ],
    ids=["list", "string", "ranks as a string", "both"],
)
def test_c047_group_members_in_every_spelling(config: Any, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.top["distributedInfo"]["pg_config"] = config
    del trace.events[2]["args"]["Process Group Ranks"]  # only the configuration knows the members

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0
    (group,) = run.report["groups"]
    assert (group["ranks"], group["members"], group["description"]) == ([0, 1], "known", "default_pg")


@pytest.mark.parametrize(
    "config",
    ['"not a list"', "7", '[{"pg_name": "0", "ranks": "[0, one]"}]', '[{"pg_name": "0", "ranks": 5}]', '["x"]', '"[{"'],
)
def test_c047_an_unreadable_configuration_is_counted(config: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.top["distributedInfo"]["pg_config"] = Raw(config)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert skipped(run) == {"bad_metadata": 1}


def test_c047_a_description_with_a_quote_comes_back_unchanged(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    quoted = 'the "fast" group\\1'
    trace.top["distributedInfo"]["pg_config"][0]["pg_desc"] = quoted
    trace.events[2]["args"]["Process Group Description"] = quoted

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert quoted in set(strings(run.report["groups"]))


def test_a_root_key_given_twice_is_counted(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    pairs = Pairs([("displayTimeUnit", "ns"), *trace.top.items(), ("traceEvents", trace.events)])
    path = tmp_path / "rank0.json"
    path.write_text(render(pairs))

    run = run_analyze(path)

    assert_t0(run)
    assert faults(run) <= 1
