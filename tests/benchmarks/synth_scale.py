"""Time, memory and size of a simulated run of 1,024 ranks. Run it on an otherwise idle machine.

    python -m tests.benchmarks.synth_scale --ranks 1024 --jobs 2

Writes ``reports/records/synth-scale.md``. Memory is the largest sum over all processes of the run: resident pages, in
which shared ones count in each process, and proportional ones, in which they count once (Linux only).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-scale.md"
_RUN = """
import sys
from pathlib import Path
from commprof.synth import preset, write_run
write_run(preset("large").with_ranks(int(sys.argv[1])), Path(sys.argv[2]), seed=1, jobs=int(sys.argv[3]))
"""


def memory(process: int) -> tuple[int, int]:
    """Resident and proportional memory of a process and its children in kB."""
    resident = proportional = 0
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0, 0
    for pid in [str(process), *children]:
        try:
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found = {row.split(":")[0]: int(row.split()[1]) for row in rows[1:]}
        resident, proportional = resident + found["Rss"], proportional + found["Pss"]
    return resident, proportional


def content(path: Path) -> Counter[tuple[str, str]]:
    """Communication and compute kernels per step of one trace, each found with its launch and its operator."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = [(e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if e["name"].startswith("ProfilerStep#")]
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}
    operators = {e["args"]["External id"] for e in events if e.get("cat") == "cpu_op"}
    found: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.get("cat") == "kernel" and event["args"]["External id"] in operators:
            launched = launches[event["args"]["correlation"]]
            step = next(name for start, end, name in marks if start <= launched < end)
            found[step, "communication" if "nccl" in event["name"] else "compute"] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "run"
        began = time.monotonic()
        command = [sys.executable, "-c", _RUN, str(options.ranks), str(target), str(options.jobs)]
        process = subprocess.Popen(command)
        resident = proportional = 0
        while process.poll() is None:
            now = memory(process.pid)
            resident, proportional = max(resident, now[0]), max(proportional, now[1])
            time.sleep(0.5)
        wall = time.monotonic() - began
        if process.returncode:
            return process.returncode
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(path.stat().st_size for path in target.glob("rank*.json.gz"))
        least = [min(content(target / f"rank{rank}.json.gz").values()) for rank in (0, options.ranks - 1)]
    text = "\n".join(
        [
            "# A simulated run at scale",
            "",
            f"Remade by `python -m tests.benchmarks.synth_scale --ranks {options.ranks} --jobs {options.jobs}` "
            f"({os.cpu_count()} cores).",
            "",
            "| what | value |",
            "| --- | --- |",
            f"| ranks, steps | {options.ranks}, 3 |",
            f"| fewest communication or compute kernels per step (first, last rank) | {least[0]}, {least[1]} |",
            f"| traces, gzipped | {size / 1e6:.0f} MB |",
            f"| time | {wall:.0f} s |",
            f"| CPU time | {usage.ru_utime + usage.ru_stime:.0f} s |",
            f"| memory, sum of resident | {resident / 1e3:.0f} MB |",
            f"| memory, sum of proportional | {proportional / 1e3:.0f} MB |",
            "",
        ]
    )
    print(text)
    if not options.no_record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
