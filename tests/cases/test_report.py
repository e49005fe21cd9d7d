"""C206, C209, C219, C220, C222 and C225: what the outputs say, and what they must not do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run, call, strict_json, strings
from tests.builders.kineto import Trace, t0
from tests.cases.t0_numbers import assert_t0
from tests.conftest import ROOT

Analyze = Callable[..., Run]
PERCENT = re.compile(r"\d+(?:\.\d+)?\s?%")
OF_WHAT = re.compile(r"of (?:\w+ ){0,3}(?:communication|exposed|step|window|compute|device|overlap|time|steps)")


@pytest.fixture
def outputs(run_analyze: Analyze, tmp_path: Path) -> Callable[..., Run]:
    """Analyse a trace into ``r.html`` beside the JSON."""

    def write(trace: Trace) -> Run:
        path = trace.write(tmp_path / "in" / "rank0.json")
        return run_analyze(path, "-o", tmp_path / "r.html")

    return write


# C206: the file loads nothing.


class Loads(HTMLParser):
    """Every address that a browser would fetch because of a tag or a style."""

    LOADING = ("src", "srcset", "poster", "data", "action", "formaction", "background", "manifest", "ping")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect loading attributes, and ``href`` of everything but a link that a person clicks."""
        self._style = tag == "style"
        for name, value in attrs:
            if name in self.LOADING or (name in ("href", "xlink:href") and tag != "a"):
                self.addresses.append(value or "")
            if name == "style":
                self.addresses += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_endtag(self, tag: str) -> None:
        """Leave a style sheet."""
        self._style = self._style and tag != "style"

    def handle_data(self, data: str) -> None:
        """Collect what a style sheet loads."""
        if self._style:
            self.addresses += re.findall(r"url\(([^)]*)\)", data) + re.findall(r"@import\s+(\S+)", data)


def test_c206_the_html_loads_nothing_from_outside(outputs: Callable[..., Run], tmp_path: Path) -> None:
    outputs(t0())

    parser = Loads()
    parser.feed((tmp_path / "r.html").read_text(encoding="utf-8"))

    outside = [address for address in parser.addresses if not address.strip("'\" ").startswith(("data:", "#"))]
    assert outside == []


def test_c206_the_html_is_one_file(outputs: Callable[..., Run], tmp_path: Path) -> None:
    outputs(t0())

    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "r.html"}


# C209: a percentage says of what.


def test_c209_every_percentage_in_the_texts_says_of_what(outputs: Callable[..., Run]) -> None:
    run = outputs(t0())

    for text in strings(run.report):
        for found in PERCENT.finditer(text):
            assert OF_WHAT.match(text[found.end() :].lstrip()), text


def test_c209_every_percentage_on_the_terminal_says_of_what(outputs: Callable[..., Run]) -> None:
    run = outputs(t0())

    assert PERCENT.search(run.stdout)
    for line, headings in _lines_with_headings(run.stdout):
        for found in PERCENT.finditer(line):
            told = OF_WHAT.match(line[found.end() :].lstrip()) or OF_WHAT.search(headings)
            assert told, (line, headings)


def test_c209_the_two_ratios_are_told_apart(outputs: Callable[..., Run]) -> None:
    run = outputs(t0())

    shown = " ".join([run.stdout, *strings(run.report)]).replace("\n", " ")
    assert re.search(r"25\.0 % of communication time", shown)
    assert re.search(r"30\.0 % of step time", shown)


def _lines_with_headings(shown: str) -> Iterator[tuple[str, str]]:
    """Each line with the lines above it in its block: the headings of its table."""
    block: list[str] = []
    for line in shown.splitlines():
        if not line.strip():
            block = []
            continue
        yield line, "\n".join(block)
        block.append(line)


# C219: the contract of the machine-readable report, key by key.


SPLIT = {
    "duration_ns", "compute_ns", "fused_ns", "fused_wait_ns", "comm_ns", "overlap_ns", "overlap_comm_copies_ns",
    "overlap_thin_ns", "exposed_comm_ns", "copy_ns", "exposed_copy_ns", "idle_ns", "overlap_ratio", "comm_share",
    "exposed_host_ns", "exposed_blocking_ns", "idle_host_ns",
}  # fmt: skip
BOUNDED = SPLIT | {"start_ns", "end_ns"}
KEYS: dict[str, set[str]] = {
    "": {
        "schema", "commprof_version", "input", "ranks", "collectives", "groups", "buckets", "matching", "waits",
        "stragglers", "strategy", "exposure", "idle", "imbalance", "pipeline", "units", "contention", "bounds",
        "whatif", "checks", "findings", "verdict", "notes", "coverage",
    },
    "input": {
        "path", "files", "ignored", "capture", "hardware", "world_size", "ranks", "missing_ranks", "backend",
        "devices",
    },
    "input.files.0": {
        "path", "rank", "rank_source", "bytes", "events", "device_events", "truncated", "host", "events_ignored",
        "repaired", "skipped",
    },
    "input.files.0.repaired": {
        "invalid_escape", "control_character", "raw_quote", "non_finite", "encoding", "duplicate_key", "clipped",
    },
    "input.files.0.skipped": {
        "bad_event", "no_duration", "negative_duration", "non_finite", "zero_timestamp", "bad_metadata",
    },
    "input.capture": {"profiled_step_ns", "unprofiled_step_ns", "export_ns", "environment", "cores", "core_wait"},
    "input.hardware": {"name", "source"},
    "ranks.0": {"rank", "device", "windows", "whole", "steps", "steps_without_window", "mean"},
    "ranks.0.whole": BOUNDED,
    "ranks.0.steps.0": BOUNDED | {"name", "incomplete", "open"},
    "ranks.0.mean": SPLIT | {"steps"},
    "collectives.0": {
        "rank", "step", "op", "group", "group_size", "seq", "dtype", "size_bytes", "start_ns", "duration_ns",
        "exposed_ns", "wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns", "algbw_gbps", "busbw_gbps",
        "stream", "kind_source", "bucket", "phase", "group_id", "peer", "root", "kernels", "channels", "copy_engine",
        "fused", "device", "launched_ns", "exposed_by_step", "sole_ns", "touched_ns", "hidden_ns", "hidden_by",
        "module", "on_compute_stream", "cause", "flag", "match", "members_missing", "bound", "last_rank", "last_by",
        "skew_ns", "end_skew_ns", "busbw_at_least_gbps",
    },
    "groups.0": {
        "group", "description", "ranks", "op", "role", "group_id", "group_size", "members", "role_evidence",
        "overlap_ns", "calls", "bytes", "comm_ns", "exposed_ns", "exposed_host_ns", "exposed_wait_ns",
        "exposed_transfer_ns", "wait_ns", "transfer_ns", "busbw_gbps_median", "busbw_gbps_best", "clean_calls",
        "contended", "crosses_hosts", "calls_without_size", "alpha_ns", "beta_gbps", "fit_error", "peak_gbps",
        "peak_source", "efficiency", "compute_to_comm",
    },
    "verdict": {"bottleneck", "summary", "exposed_comm_share", "recoverable_share"},
    "coverage": {
        "unrecognised_kernel_share", "comm_without_metadata", "device_events", "linked_device_events",
        "unclassified", "fused_calls", "possible_comm", "unknown_dtype", "unknown_collective", "group_unknown",
        "clamped_launches", "graph_kernels",
    },
}  # fmt: skip
OPERATIONS = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "send_recv",
    "barrier",
    "unknown",
}
BOTTLENECKS = {
    "communication",
    "straggler",
    "pipeline",
    "imbalance",
    "host",
    "input",
    "compute",
    "copy",
    "balanced",
    "unknown",
}
FINDINGS = {
    "ddp-tail-bucket",
    "ddp-no-overlap",
    "compiled-backward",
    "reduction-alternates",
    "buckets-too-small",
    "bucket-too-large",
    "tiny-messages",
    "repeated-reduction",
    "find-unused",
    "bucket-copies",
    "fsdp-no-prefetch",
    "fsdp-late-launch",
    "fsdp-longer-than-compute",
    "fsdp-rate-limiter",
    "serialised-communicator",
    "reduce-scatter-queue",
    "gather-after-optimizer",
    "tp-structural",
    "tp-across-hosts",
    "pipeline-bubble",
    "all-to-all-imbalance",
    "comm-on-compute-stream",
    "blocking-wait",
    "device-synchronisation",
    "allocator-retries",
    "low-bandwidth",
    "slow-link",
    "network-intermittent",
    "straggler",
    "overlap-contention",
    "max-connections",
    "timing-enabled",
    "host-bound",
    "input-bound",
    "copy-bound",
    "profiler-start",
    "not-communication",
}


def test_c219_the_keys_of_the_contract(outputs: Callable[..., Run]) -> None:
    run = outputs(t0())

    missing = {}
    for where, keys in KEYS.items():
        value: Any = run.report
        for part in where.split(".") if where else []:
            value = value[int(part)] if part.isdigit() else value[part]
        missing[where] = keys - set(value)

    assert missing == {where: set() for where in KEYS}


class Visible(HTMLParser):
    """The text of a page that a reader sees, up to its glossary."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Enter a script or a style sheet."""
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        """Leave a script or a style sheet."""
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        """Keep what is shown."""
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))

    def figures(self, pattern: str) -> set[tuple[str, ...]]:
        """Every figure of this form before the glossary."""
        end = max(place for place, text in enumerate(self.texts) if text == "Glossary")
        return {found.groups() for text in self.texts[:end] for found in re.finditer(pattern, text)}


NS_PER = {"ns": 1, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def _numbers(value: Any, suffix: str, key: str = "") -> Iterator[float]:
    """Every number of the report whose key ends in ``suffix``."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _numbers(part, suffix, name)
    elif isinstance(value, list):
        for part in value:
            yield from _numbers(part, suffix, key)
    elif key.endswith(suffix) and isinstance(value, int | float):
        yield value


def test_c219_every_figure_of_the_html_is_in_the_json(outputs: Callable[..., Run], tmp_path: Path) -> None:
    run = outputs(t0())

    page = Visible()
    page.feed((tmp_path / "r.html").read_text(encoding="utf-8"))

    said = " ".join(strings(run.report))
    times, shares = set(_numbers(run.report, "_ns")), {*_numbers(run.report, "_share"), *_numbers(run.report, "_ratio")}
    step = run.report["ranks"][0]["steps"][0]
    parts = {value / step["duration_ns"] for key, value in step.items() if key.endswith("_ns") and value is not None}
    shown = page.figures(r"(\d[\d,]*(?:\.(\d+))?) (ns|µs|ms|s)\b")
    assert len(shown) >= 6
    for number, decimals, unit in shown:
        value, off = float(number.replace(",", "")) * NS_PER[unit], NS_PER[unit] * 0.5 / 10 ** len(decimals or "")
        assert any(abs(value - time) <= off for time in times) or f"{number} {unit}" in said, (number, unit)
    for (number,) in page.figures(r"(\d+(?:\.\d+)?) %"):
        near = any(abs(float(number) / 100 - share) <= 0.0005 for share in shares | parts)
        assert near or f"{number} %" in said, number


def test_c219_schema_and_vocabulary(outputs: Callable[..., Run]) -> None:
    run = outputs(t0())

    report = run.report
    assert report["schema"] == "commprof.report/1"
    assert {row["op"] for row in report["collectives"]} <= OPERATIONS
    assert report["verdict"]["bottleneck"] in BOTTLENECKS
    assert {finding["id"] for finding in report["findings"]} <= FINDINGS
    assert {row["windows"] for row in report["ranks"]} <= {"launch", "annotation", "none"}
    assert all(set(note) >= {"code", "message"} and note["message"] for note in report["notes"])


@pytest.mark.parametrize(
    ("ranks", "empty", "told"),
    [(1, {"waits", "whatif"}, {"single-rank", "missing-ranks", "not-built"}), (2, {"whatif"}, {"not-built"})],
)
def test_c219_what_cannot_be_measured_is_null_or_empty_with_a_note(
    ranks: int, empty: set[str], told: set[str], run_analyze: Analyze, tmp_path: Path
) -> None:
    for rank in range(ranks):
        trace = Trace(rank=rank)
        trace.step(1, 0, 1000)
        trace.gemm(0, 600)
        trace.all_reduce(500, 900)
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "in")

    compared = ("waits", "whatif", "strategy", "bounds")
    assert {key for key in compared if run.report[key] in (None, [], {})} == empty
    assert {note["code"] for note in run.report["notes"]} & {"single-rank", "missing-ranks", "not-built"} == told


def test_c219_standard_output_holds_the_json_alone(tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")

    code, out, err = call("analyze", path, "--no-html", "--json", "-")

    assert code == 0
    assert strict_json(out.encode())["ranks"][0]["steps"][0]["exposed_comm_ns"] == 300_000
    assert "30.0 %" in err


def test_c219_no_calls_makes_the_rows_null(run_analyze: Analyze, tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")

    run = run_analyze(path, "--no-calls")

    assert run.report["collectives"] is None
    assert run.report["ranks"][0]["steps"][0]["exposed_comm_ns"] == 300_000


@pytest.mark.parametrize(("wanted", "names"), [("4-5", [4, 5]), ("6", [6]), ("5-6", [5, 6]), ("4-6", [4, 5, 6])])
def test_steps_option_picks_steps(wanted: str, names: list[int], run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for number in (4, 5, 6):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(t, t + 600)
        trace.all_reduce(t + 500, t + 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"), "--steps", wanted)

    (row,) = run.report["ranks"]
    assert [step["name"] for step in row["steps"]] == [f"ProfilerStep#{n}" for n in names]
    assert {step["exposed_comm_ns"] for step in row["steps"]} == {300_000}
    assert row["mean"]["steps"] == len(names)


# C220: the same bytes again.


def test_c220_html_is_the_same_apart_from_one_creation_time(run_analyze: Analyze, tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")

    pages = []
    for name in ("a.html", "b.html"):
        run_analyze(path, "-o", tmp_path / name)
        pages.append((tmp_path / name).read_text(encoding="utf-8"))

    differing = [(a, b) for a, b in zip(*(page.splitlines() for page in pages), strict=True) if a != b]
    assert len(differing) <= 1
    stamp = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?")
    assert len({stamp.sub("", page) for page in pages}) == 1


# C222: no torch, no GPU.


def test_c222_torch_is_neither_needed_nor_loaded(tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"  # an import of torch now fails
        "from commprof.cli.app import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    argv = ["analyze", str(path), "-o", str(tmp_path / "r.html"), "--json", str(tmp_path / "r.json")]

    done = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stderr
    data = (tmp_path / "r.json").read_bytes()
    assert_t0(Run(done.returncode, done.stdout, done.stderr, strict_json(data), data))
    assert (tmp_path / "r.html").exists()


# C225: overlapping kernels of one stream are both drawn.


def test_c225_both_of_two_overlapping_kernels_are_in_the_timeline(outputs: Callable[..., Run], tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.kernel("first_of_the_pair_gemm", 0, 100)
    trace.kernel("second_of_the_pair_gemm", 95, 200)
    trace.all_reduce(500, 900)

    outputs(trace)

    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "first_of_the_pair_gemm" in page
    assert "second_of_the_pair_gemm" in page
