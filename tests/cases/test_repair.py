"""C010 to C020 and C042: broken strings, numbers and keys are repaired or left out, and counted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import CPU_PROCESS, Trace, t0
from tests.builders.text import Pairs, Raw, Style
from tests.cases.t0_numbers import assert_t0, faults, file_entry, repaired, skipped

Analyze = Callable[..., Run]
STYLES: list[Style] = ["compact", "spaced", "pretty"]


def frame(trace: Trace, name: str, place: int | None = None, cat: str = "python_function") -> dict[str, Any]:
    """A Python frame; ``place`` is where it goes among the events."""
    event = trace.add(cat, name, 100, 110, CPU_PROCESS, 1, {"Python id": 1})
    if place is not None:
        trace.events.insert(place, trace.events.pop())
    return event


def written(path: Path, trace: Trace, raw: dict[str, bytes], style: Style = "spaced") -> Path:
    """Write ``trace`` with each marker text replaced by raw bytes."""
    data = trace.text(style).encode()
    for marker, content in raw.items():
        assert marker.encode() in data
        data = data.replace(marker.encode(), content)
    path.write_bytes(data)
    return path


# C010: backslashes that escape nothing.


@pytest.mark.parametrize("style", STYLES)
def test_c010_windows_paths(style: Style, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for name in ("@one", "@two", "@three"):
        frame(trace, name)
    names = {"@one": rb"torch\cuda\__init__.py", "@two": rb"D:\unit\x", "@three": rb"a\b"}

    run = run_analyze(written(tmp_path / "rank0.json", trace, names, style))

    assert_t0(run)
    assert repaired(run) == {"invalid_escape": 2}
    assert len(run.notes("repaired")) == 1


INVALID_ESCAPES = [chr(c) for c in range(0x20, 0x7F) if chr(c) not in '"\\/bfnrtu']


def test_c010_every_invalid_escape(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    raw = {}
    for number, character in enumerate(INVALID_ESCAPES):
        frame(trace, f"@{number:03d}")
        raw[f"@{number:03d}"] = b"dir\\" + character.encode() + b"rest"

    run = run_analyze(written(tmp_path / "rank0.json", trace, raw))

    assert_t0(run)
    assert repaired(run) == {"invalid_escape": len(INVALID_ESCAPES)}


def test_c010_every_legal_escape_is_left_alone(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    frame(trace, "@@")
    legal = rb"\" \\ \/ \b \f \n \r \t \u00e9 \ud83d\ude00"

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": legal}))

    assert_t0(run)
    assert faults(run) == 0


@pytest.mark.parametrize("escape", [rb"\u", rb"\u1", rb"\u12", rb"\u12g4", rb"\uXYZW", rb"\U0001F600"])
def test_c010_short_unicode_escapes(escape: bytes, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    frame(trace, "@@", place=2)

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": b"D:" + escape}))

    assert_t0(run)
    assert repaired(run) == {"invalid_escape": 1}


@pytest.mark.parametrize("where", ["kernel name", "argument", "category of a frame", "key"])
def test_c010_invalid_escapes_anywhere_in_an_event(where: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    match where:
        case "kernel name":
            trace.events[1]["name"] = "ampere_@@"
        case "argument":
            trace.events[2]["args"]["note"] = "C:@@"
        case "category of a frame":
            frame(trace, "f", cat="python@@")
        case "key":
            trace.events[1]["args"]["k@@"] = 1

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": rb"\_x"}))

    assert_t0(run)
    assert repaired(run) == {"invalid_escape": 1}


# C011: a name that ends in one backslash swallows its closing quote.


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("cat", ["python_function", "cpu_op", "user_annotation"])
def test_c011_a_backslash_before_the_closing_quote(
    cat: str, place: int, style: Style, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    event = frame(trace, "x@@", place, cat=cat)
    event["name"], event["cat"] = event["name"], event.pop("cat")  # "name" before "cat", as in the report

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": b"\\"}, style))

    assert_t0(run)
    assert faults(run) == 1


# C012: raw quotes and newlines.


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "name",
    [
        b'say "hello" twice\nand go',
        b'one " quote',
        b'"',
        b'""',
        b'"quoted"',
        b'a", b',
        b'lambda: d["key"]',
        b'f("x", "y"): 3',
        b'print("}")',
        b'end with a quote"',
        b'"begin with one',
        b'{"json": "inside"}',
    ],
)
def test_c012_a_raw_quote_in_a_name(name: bytes, style: Style, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    frame(trace, "@@", place=2)

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": name}, style))

    assert_t0(run)
    assert faults(run) == 1


# C013: control bytes.


@pytest.mark.parametrize("byte", range(0x20))
def test_c013_a_control_byte_in_a_kernel_name(byte: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[1]["name"] = "ampere@@_tn"
    path = written(tmp_path / "rank0.json", trace, {"@@": bytes([byte])})

    run = run_analyze(path)

    assert_t0(run)
    assert repaired(run) == {"control_character": 1}
    assert not re.search(rb"[\x00-\x09\x0b-\x1f]", run.json_bytes)


def test_c013_no_raw_control_byte_reaches_the_outputs(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[1]["name"] = "ampere@1_tn"
    trace.events[2]["args"]["Process Group Description"] = "data@2parallel"
    path = written(tmp_path / "rank0.json", trace, {"@1": bytes(range(1, 9)), "@2": b"\x1b[31m\x0c\x07"})

    run = run_analyze(path, "-o", tmp_path / "r.html")

    assert_t0(run)
    for data in (run.json_bytes, (tmp_path / "r.html").read_bytes()):
        assert not re.search(rb"[\x00-\x08\x0b-\x1f]", data)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr))
    assert "\x1b[31m" not in run.stdout


# C014: bytes that are not UTF-8.


BAD_UTF8 = [
    bytes.fromhex(text) for text in ["f0", "80", "bf", "c0af", "c1", "c3", "e282", "eda080", "f09f98", "f5", "fe", "ff"]
]


@pytest.mark.parametrize("data", BAD_UTF8, ids=lambda data: data.hex())
def test_c014_bytes_that_are_not_utf8(data: bytes, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[1]["name"] = "ampere@@_tn"

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": data}))

    assert_t0(run)
    assert repaired(run) == {"encoding": 1}


def test_c014_every_lone_high_byte(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for byte in range(0x80, 0x100):
        frame(trace, f"@{byte:03d}@")

    raw = {f"@{byte:03d}@": bytes([byte]) for byte in range(0x80, 0x100)}
    run = run_analyze(written(tmp_path / "rank0.json", trace, raw))

    assert_t0(run)
    assert repaired(run) == {"encoding": 128}


def test_c014_the_byte_shows_as_the_replacement_character(run_analyze: Analyze, tmp_path: Path) -> None:
    # The name is listed as unclassified, so the report shows it.
    trace = Trace(rank=0, world_size=1)
    trace.step(1, 0, 1000)
    trace.kernel("mystery@@thing", 0, 500)

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": b"\xf0"}))

    assert [entry["name"] for entry in run.report["coverage"]["unclassified"]] == ["mystery�thing"]


def test_c014_good_utf8_is_left_alone(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    frame(trace, "@@")

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": "größe 数据 😀".encode()}))

    assert_t0(run)
    assert faults(run) == 0


# C015: whole files in another encoding.


def test_c015_a_byte_order_mark_counts_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b"\xef\xbb\xbf" + t0().text().encode())

    run = run_analyze(path)

    assert_t0(run)
    assert faults(run) == 0


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32")],
)
def test_c015_another_encoding_is_named(encoding: str, named: str, run_analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(t0().text().encode(encoding))

    run = run_analyze(path)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert "rank0.json" in run.lines[0]
    assert named in run.lines[0]


# C016 to C020: numbers that are none.


@pytest.mark.parametrize("token", ["inf", "-inf", "nan", "NaN", "-nan", "Infinity", "-Infinity", "1e400", "-1e999"])
@pytest.mark.parametrize("on", ["kernel", "frame"])
def test_c016_bare_infinities_in_arguments(on: str, token: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    event = trace.events[2] if on == "kernel" else frame(trace, "f")
    event["args"]["memory bandwidth (GB/s)"] = Raw(token)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert repaired(run) == {"non_finite": 1}
    assert not re.search(r"\b(nan|inf|infinity)\b", run.stdout, re.IGNORECASE)


def test_c016_a_size_that_is_infinite_is_unknown(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for key in ("In msg nelems", "Out msg nelems"):
        trace.events[2]["args"][key] = Raw("Infinity")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["size_bytes"] is None


@pytest.mark.parametrize("token", ["NaN", "nan", "inf", "Infinity", "-Infinity", "1e400"])
def test_c017_kernels_without_a_finite_time_are_dropped(token: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.gemm(650, 700)["ts"] = Raw(token)
    trace.gemm(700, 750)["dur"] = Raw(token)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert (skipped(run), repaired(run)) == ({"non_finite": 2}, {})


def test_c018_records_that_were_not_filled_in(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for number in range(3):
        start = 5_000_000 + 1000 * number
        trace.step(number + 1, start, start + 1000)
        trace.gemm(start, start + 600)
        trace.all_reduce(start + 500, start + 900)
    for _ in range(1000):
        trace.gemm(0, 0)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (rank,) = run.report["ranks"]
    assert rank["steps"][-1]["end_ns"] - rank["steps"][0]["start_ns"] == 3_000_000
    assert [(s["compute_ns"], s["comm_ns"], s["exposed_comm_ns"]) for s in rank["steps"]] == 3 * [
        (600_000, 400_000, 300_000)
    ]
    assert skipped(run) == {"zero_timestamp": 1000}
    assert len(run.notes("skipped")) == 1


@pytest.mark.parametrize("position", ["before", "after"])
def test_c019_a_kernel_without_length_is_no_fault(position: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.gemm(500, 500)
    if position == "before":
        trace.events.insert(2, trace.events.pop())

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0


def test_c020_negative_and_missing_durations(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.gemm(700, 710)["dur"] = -5
    trace.cpu_op("aten::mm", 700, 710)["dur"] = -1
    del trace.gemm(720, 730)["dur"]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert skipped(run) == {"negative_duration": 2, "no_duration": 1}
    assert not re.search(rb":\s*-\d", run.json_bytes)


def test_c020_negative_times_before_the_base_are_real(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.shift(-10_000_000)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0


# C042: keys that come twice.


def twice(event: dict[str, Any], key: str, first: Any) -> Pairs:
    """The event with ``key`` given a first time before its real value."""
    pairs = Pairs()
    for name, value in event.items():
        if name == key:
            pairs.append((name, first))
        pairs.append((name, value))
    return pairs


@pytest.mark.parametrize("style", STYLES)
def test_c042_the_last_of_two_keys_wins_whole(style: Style, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    other = {"stream": 7, "Collective name": "broadcast", "In msg nelems": 5, "Seq": 77}
    trace.events[1] = twice(trace.events[1], "ts", 1)
    trace.events[2] = twice(trace.events[2], "args", other)

    run = run_analyze(trace.write(tmp_path / "rank0.json", style))

    assert_t0(run)
    assert repaired(run) == {"duplicate_key": 2}
    (row,) = run.report["collectives"]
    assert (row["stream"], row["size_bytes"], row["seq"]) == (20, 4_000_000, None)


@pytest.mark.parametrize(
    ("key", "first"),
    [("ts", 450), ("dur", 1), ("name", "memcpy"), ("cat", "cpu_op"), ("ph", "B"), ("pid", 9), ("tid", 3), ("args", {})],
)
def test_c042_any_key_may_come_twice(key: str, first: Any, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[2] = twice(trace.events[2], key, first)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert repaired(run) == {"duplicate_key": 1}


def test_c042_an_argument_may_come_twice(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[2]["args"] = twice(trace.events[2]["args"], "In msg nelems", 5)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) <= 1
    assert run.report["collectives"][0]["size_bytes"] == 4_000_000


# An event with two faults counts once; faults of all kinds in one file are counted apart.


def test_an_event_with_two_faults_counts_once(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    frame(trace, "@@", place=2)["args"]["rate"] = Raw("inf")

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": b"D:\\x \x01 \xff"}))

    assert_t0(run)
    assert faults(run) == 1


def test_a_repaired_event_that_is_skipped_counts_once(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.gemm(700, 710)
    trace.events[-1] |= {"name": "@@", "dur": -5}

    run = run_analyze(written(tmp_path / "rank0.json", trace, {"@@": b"D:\\x"}))

    assert_t0(run)
    assert faults(run) == 1


@pytest.mark.parametrize("seed", range(8))
def test_faults_of_many_kinds_in_one_file(seed: int, run_analyze: Analyze, tmp_path: Path) -> None:
    rng = random.Random(seed)
    trace, raw = t0(), {}
    kinds = {"invalid_escape": b"D:\\x", "control_character": b"a\x07b", "encoding": b"a\xffb"}
    wanted = dict.fromkeys(kinds, 0)
    for number in range(40):
        kind = rng.choice(list(kinds))
        wanted[kind] += 1
        frame(trace, f"@{number:03d}@", place=rng.randrange(len(trace.events) + 1))
        raw[f"@{number:03d}@"] = kinds[kind]

    run = run_analyze(written(tmp_path / "rank0.json", trace, raw, rng.choice(STYLES)))

    assert_t0(run)
    assert repaired(run) == {kind: count for kind, count in wanted.items() if count}
    assert file_entry(run)["events"] == 43
