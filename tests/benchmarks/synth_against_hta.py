"""Overlap of HTA, of commprof and of the simulator's truth on the same whole-microsecond traces.

    python -m tests.benchmarks.synth_against_hta --traces 50 --python PYTHON_WITH_HTA

HTA (package traceinsight, module hta) floors times to microseconds, so the traces are written in whole ones; its last
step is asked for. Writes ``reports/records/synth-against-hta.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from commprof.synth import write_run
from commprof.synth.sampling import PROGRAM_NAMES, random_fault, random_scenario
from tests.benchmarks.synth_against_analysis import report_of

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-against-hta.md"
_HTA = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from importlib.metadata import version
from hta.trace_analysis import TraceAnalysis
answer = {"version": version("traceinsight"), "overlap": []}
for files in json.load(sys.stdin):
    files = {int(rank): path for rank, path in files.items()}
    analysis = TraceAnalysis(trace_files=files, include_last_profiler_step=True)
    table = analysis.get_comm_comp_overlap(visualize=False)
    answer["overlap"].append({int(r): float(p) for r, p in zip(table["rank"], table["comp_comm_overlap_pctg"])})
print("ANSWER" + json.dumps(answer))
"""


@dataclass(frozen=True)
class Row:
    """Overlap of one rank in percent of communication time, three times."""

    seed: int
    name: str
    rank: int
    hta: float
    commprof: float
    truth: float

    @property
    def agrees(self) -> bool:
        return self.hta == self.commprof == self.truth


def compare(traces: int, python: str) -> tuple[str, list[Row]]:
    """Write the runs, ask everybody, and put the answers side by side."""
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for seed in range(traces):
            scenario = random_scenario(seed, program=PROGRAM_NAMES[seed % len(PROGRAM_NAMES)], real=seed % 2 == 1)
            if seed % 4 == 3:
                scenario = replace(scenario, faults=(random_fault(scenario, seed),))
            scenario = replace(scenario, whole_us=True, era=("2.13", "2.4", "2.1")[seed % 3])
            written = write_run(scenario, Path(folder) / str(seed) / "run", seed=seed, causes=False)
            runs.append((seed, scenario.name, written))
        asked = json.dumps([{r: str(path) for r, path in enumerate(w.traces)} for _, _, w in runs])
        done = subprocess.run([python, "-c", _HTA], input=asked, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout.rsplit("ANSWER", 1)[1])
        rows = []
        for (seed, name, written), overlap in zip(runs, answer["overlap"], strict=True):
            truth = {rank["rank"]: rank["whole"] for rank in json.loads(written.truth.read_text())["ranks"]}
            for rank in report_of(written.folder)["ranks"]:
                number = rank["rank"]
                known = truth[number]
                rows.append(
                    Row(
                        seed, name, number, round(overlap[str(number)], 2),
                        round(100 * rank["whole"]["overlap_ns"] / rank["whole"]["comm_ns"], 2),
                        round(100 * known["overlap_ns"] / known["comm_ns"], 2),
                    )
                )  # fmt: skip
    return answer["version"], rows


def record(version: str, rows: list[Row]) -> str:
    """The result as Markdown."""
    traces = len({row.seed for row in rows})
    agree = sum(row.agrees for row in rows)
    lines = [
        "# Overlap against Holistic Trace Analysis",
        "",
        f"Remade by `python -m tests.benchmarks.synth_against_hta --traces {traces} --python PYTHON_WITH_HTA`.",
        "",
        f"{traces} random simulated runs in whole microseconds, {len(rows)} rank files; HTA (traceinsight {version}, "
        f"`include_last_profiler_step=True`) and commprof print the same overlap to two decimals on {agree} of "
        f"{len(rows)}, and both agree with the simulator's truth. First rank of each run:",
        "",
        "| run | program | HTA % | commprof % | truth % |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.seed} | {row.name} | {row.hta:.2f} | {row.commprof:.2f} | {row.truth:.2f} |"
        for row in rows
        if row.rank == 0 or not row.agrees
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=50)
    parser.add_argument("--python", default=sys.executable, help="interpreter that can import hta")
    options = parser.parse_args()
    version, rows = compare(options.traces, options.python)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(record(version, rows), encoding="utf-8")
    differing = [row for row in rows if not row.agrees]
    print(f"{len(rows) - len(differing)} of {len(rows)} agree", *differing[:10], sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
