"""How fast and in how little memory a large trace is read, against a bare decode and against traceinsight.

    python -m tests.benchmarks.read_large --traces FOLDER [--hta PYTHON] [--runs 5]

Input: the public trace ``ddp-resnet50-a100`` (9.8 MB) repeated 20 times with shifted timestamps, step numbers and
unique ids (198 MB, 811,460 events), gzipped, and the same repeated 102 times (1 GB). Everything is timed as a whole
process, in turn, in one run; the record gives medians and their ratios. ``--hta`` names a Python with traceinsight
0.6.1.
Writes ``reports/records/reading.md``.
"""

from __future__ import annotations

import argparse
import cProfile
import gzip
import io
import os
import pstats
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

RECORD = Path(__file__).parents[2] / "reports" / "records" / "reading.md"
SOURCE = Path("ddp-resnet50-a100") / "rank0.json.gz"
SHIFT_US = 700_000
SHIFT_ID = 200_000

DECODE = """
import sys
from isal import igzip
from commprof.trace.events import full_decoder
import msgspec
data = igzip.open(sys.argv[1]).read()
start = data.index(b"[", data.index(b'"traceEvents"')) + 1
stop = data.rindex(b"]", 0, data.index(b'"INFO"'))
size = 8 << 20
while start < stop:
    cut = min(start + size, stop)
    if cut < stop:
        cut = data.rindex(b"},", start, cut) + 1
        while data[cut : cut + 4].strip()[:1] != b"," or data[cut + 1 : cut + 8].strip()[:1] != b"{":
            cut = data.rindex(b"},", start, cut - 1) + 1
    full_decoder.decode(b"[" + data[start:cut] + b"]")
    start = cut + 1
"""

GUNZIP = """
import sys
from isal import igzip
with igzip.open(sys.argv[1]) as stream:
    while stream.read(1 << 23):
        pass
"""

HTA = """
import logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
"""


ITEMS = """
- `Decoder.decode`: JSON to one small object per event; flows and other unused events are a third of the events and cost
  their skipping. Skipping every event with the same decoder takes half as long: that is the floor of this reader.
- `_decoded`, `Batch.complete`: what each event is, by its category, which decodes to one string for all its events.
- `KeyCount`, `colons`, `may_repeat_keys`: no event may hold a key twice, which a decoder would not say; the keys before
  all colons of a batch are counted and compared with what its events must hold.
- `has_huge_number`, `digit_then_e`, `has_long_number`: numbers beyond a double, searched in the same way.
- `Columns.add`, `_append`, `floats_to_ns`, `integers`, `encode` and their list comprehensions: one attribute of all
  events of a table after the other into an array; operators that no analysis asks for are let go at the end only, when
  it is known that the trace has a device.
- `read_rank` itself: freeing the decoded objects again, batch by batch.
- `join`, `decompress`: gunzip and three copies of the text, to cut it between events and to close the array.
- `parents` in `ranges` and `links`: which range lies in which.
- `searchsorted`, `argsort`, `union`: unions of intervals of all kernels, the split, exposure and idle time.

Of the processor time of reading, the decoder takes three tenths, the columns three tenths, the two searches for what a
decoder would not say two tenths, the rest are codes, copies, gunzip and freeing. So even a decoder without cost would
leave two thirds of it: what is left is one pass of Python or NumPy per attribute of an event.

With a second core another process decodes half of the text. It begins as a copy of this one before the analyses are
imported, opens the file itself and unpacks all of it: nothing but columns passes between the two. Pages that were freed
are kept while the file is read; fresh ones had cost half a second of system time. The analysis of the rank, the
diagnosis and the reports then follow in one process, and the command ends without taking apart what it holds, which
took a quarter of a second. The start takes about 0.7 s of processor time, half of it beside the other process: data
classes, each compiled when its module is imported, are 0.17 s of it, the command line 0.09 s, NumPy 0.1 s. Where the
second core is the other thread of the first, as here, each of the two gets little more than half of it.

Tried and not kept: pyarrow's JSON reader with a schema of the same fields (all events as one list of structs), which
gives columns at once, needs 1.5 times the processor time of decoder, searches and columns together, before a name is
encoded. Identifiers as literals, and batches of 128 to 512 KB, gain nothing that could be told from noise.

What would still gain time: fewer classes to compile at the start, unpacking only once, and a decoder in C that writes
columns in the place of decoder, columns and searches.
"""


@dataclass
class Measured:
    """One whole process: wall seconds, CPU seconds, peak memory of all its processes together in MB."""

    wall: float
    cpu: float
    memory: float


def repeated(source: bytes, times: int, target: Path) -> None:
    """Write the trace ``times`` times over into one file, each copy later and with ids of its own."""
    start = source.index(b"[", source.index(b'"traceEvents"')) + 1
    stop = source.rindex(b"]", 0, source.index(b'"INFO"'))
    body = source[start:stop]
    with target.open("wb") as out:
        out.write(source[:start])
        for copy in range(times):
            out.write((b"," if copy else b"") + shifted(body, copy))
        out.write(source[stop:])


def shifted(body: bytes, copy: int) -> bytes:
    """One copy of the events: every time, step number and id moved past those of the copy before."""
    if not copy:
        return body

    def add(amount: int, pattern: bytes, text: bytes) -> bytes:
        return re.sub(pattern + rb"(\d+)", lambda m: m[1] + str(int(m[2]) + amount).encode(), text)

    body = add(copy * SHIFT_US, rb'("ts": )', body)
    body = add(copy * 3, rb"(ProfilerStep#)", body)
    for key in (rb'("correlation": )', rb'("External id": )', rb'("id": )'):
        body = add(copy * SHIFT_ID, key, body)
    return body


def measure(command: list[str], environment: dict[str, str]) -> Measured:
    """Run one command; peak memory is that of its process tree, sampled, and at least what the system accounts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    _, errors = process.communicate()
    wall = time.perf_counter() - began
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} ...: {errors.decode()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(wall, cpu, peak[0])


def _watch(process: subprocess.Popen[bytes], peak: list[float]) -> None:
    while process.poll() is None:
        total = sum(_resident(pid) for pid in _tree(process.pid))
        peak[0] = max(peak[0], total)
        time.sleep(0.02)


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        found += [int(child) for child in children]
    return found


def _resident(pid: int) -> float:
    """Resident memory; pages that processes share are divided among them (PSS), so that sums are true."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.partition("\nPss:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError, ValueError):
        return 0.0


def medians(results: dict[str, list[Measured]]) -> dict[str, Measured]:
    """Median of each figure by command."""
    return {
        name: Measured(*(statistics.median(getattr(run, key) for run in runs) for key in ("wall", "cpu", "memory")))
        for name, runs in results.items()
    }


def profile(trace: Path) -> str:
    """Where the time of reading and reducing goes, by function."""
    from commprof.analysis.run import analyze

    watch = cProfile.Profile()
    watch.enable()
    analyze(trace, jobs=1)
    watch.disable()
    text = io.StringIO()
    pstats.Stats(watch, stream=text).sort_stats("tottime").print_stats(18)
    lines = [re.sub(r"\S*/(commprof/)", r"\1", line) for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join(re.sub(r"\S*/(?:site-packages|lib/python[\d.]+)/", "", line) for line in lines)


def main() -> None:
    """Make the inputs, time everything in turn, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--hta")
    parser.add_argument("--hta-runs", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = gzip.decompress((arguments.traces / SOURCE).read_bytes())
        small, large = _inputs(source, folder)
        write_record(arguments, small, large, folder, environment)


def _inputs(source: bytes, folder: Path) -> tuple[Path, Path]:
    paths = []
    for name, times in (("small", 20), ("large", 102)):
        plain = folder / f"{name}.json"
        repeated(source, times, plain)
        packed = plain.with_suffix(".json.gz")
        with plain.open("rb") as data, gzip.open(packed, "wb", compresslevel=6) as out:
            while block := data.read(1 << 24):
                out.write(block)
        print(f"{name}: {plain.stat().st_size / 1e6:.0f} MB, gzipped {packed.stat().st_size / 1e6:.1f} MB")
        plain.unlink()
        paths.append(packed)
    return paths[0], paths[1]


def write_record(
    arguments: argparse.Namespace, small: Path, large: Path, folder: Path, environment: dict[str, str]
) -> None:
    """Time all commands in turn and write the record."""
    python = sys.executable

    def ours(trace: Path) -> list[str]:
        out = [str(folder / "r.html"), "--json", str(folder / "r.json")]
        return [python, "-m", "commprof", "analyze", str(trace), "-o", *out]

    commands = {
        "commprof analyze": ours(small),
        "gunzip (ISA-L)": [python, "-c", GUNZIP, str(small)],
        "gunzip and bare typed decode": [python, "-c", DECODE, str(small)],
        "commprof analyze, 1 GB": ours(large),
    }
    for command in commands.values():
        measure(command, environment)
    results: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(arguments.runs):
        for name, command in commands.items():
            if "1 GB" not in name or len(results[name]) < 3:
                results[name].append(measure(command, environment))
                print(name, results[name][-1])
    if arguments.hta:
        name = "traceinsight: load, overlap, breakdown"
        results[name] = [
            measure([arguments.hta, "-c", HTA, str(small)], environment) for _ in range(arguments.hta_runs)
        ]
        print(name, results[name])
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(_record(medians(results), profile(small)), encoding="utf-8")
    print(RECORD.read_text(encoding="utf-8"))


def _record(figures: dict[str, Measured], where: str) -> str:
    ours, bare = figures["commprof analyze"], figures["gunzip and bare typed decode"]
    large = figures["commprof analyze, 1 GB"]
    lines = [
        "# Reading a large trace",
        "",
        "Remade by `python -m tests.benchmarks.read_large --traces FOLDER --hta PYTHON`; whole processes, timed in",
        "turn in one run on two shared cores, medians. Input: 198 MB of Kineto JSON (811,460 events), 16 MB gzipped,",
        "and 1 GB of the same. `commprof analyze` reads, analyses and writes JSON and HTML. Memory is summed over the",
        "processes of a run, shared pages counted once.",
        "",
        "| command | wall s | CPU s | peak memory MB |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {f.wall:.2f} | {f.cpu:.2f} | {f.memory:.0f} |" for name, f in figures.items()),
        "",
        "| ratio | value | mark |",
        "| --- | --- | --- |",
        f"| commprof / (gunzip + bare typed decode), wall | {ours.wall / bare.wall:.2f} | at most 1.5 |",
        f"| 1 GB / 198 MB, wall per byte | {large.wall / ours.wall / (102 / 20):.2f} | at most 1.1 |",
        f"| 1 GB / 198 MB, peak memory | {large.memory / ours.memory:.2f} | below 1.3 |",
    ]
    hta = figures.get("traceinsight: load, overlap, breakdown")
    if hta is not None:
        lines += [
            f"| traceinsight / commprof, wall | {hta.wall / ours.wall:.1f} | at least 15 |",
            f"| commprof / traceinsight, peak memory | {ours.memory / hta.memory:.2f} | at most 0.33 |",
        ]
    lines += ["", "Where the time of one process goes (profiled, so Python functions weigh more than they do):", ""]
    return "\n".join([*lines, "```text", where, "```", ITEMS, ""])


if __name__ == "__main__":
    main()
