"""HTA's own functions on our columns: overlap, critical path, and what handing over takes against HTA's own loading.

    python -m tests.benchmarks.hta_handover --traces FOLDER

``FOLDER`` holds one folder of traces per run. The interpreter must import ``hta`` (package traceinsight). Every run
gets a process of its own. Wall time, after all imports; commprof reads with one process, HTA as it likes. Writes
``reports/records/hta.md``.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[2] / "reports" / "records" / "hta.md"
STEP = 1
"""Which step the critical path is of, counted from 0: the first may start in the middle of something."""


def examine(folder: Path) -> dict[str, Any]:
    """Both ways to HTA's objects, their overlap and critical path, and our overlap."""
    from hta.trace_analysis import TraceAnalysis

    import commprof

    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    trace, read = _timed(lambda: commprof.load(folder))
    handed, handing = _timed(trace.to_hta)
    assert trace is not None
    files = {rank.rank: rank.file.path for rank in trace.ranks}
    theirs, loading = _timed(lambda: TraceAnalysis(trace_files=files, include_last_profiler_step=True))
    ours = {
        rank.rank: [round(100 * d.whole.overlap / d.whole.comm, 2) for d in rank.devices if d.whole.comm]
        for rank in commprof.analyze(folder, jobs=1).ranks
    }
    return {
        "read": read, "handing": handing, "loading": loading, "ours": ours, "events": _events(handed),
        "handed": _attempt(lambda: _overlap(handed)), "own": _attempt(lambda: _overlap(theirs)),
        "path_handed": _attempt(lambda: _path(handed, min(files))),
        "path_own": _attempt(lambda: _path(theirs, min(files))),
    }  # fmt: skip


def _timed(make: Callable[[], Any]) -> tuple[Any, float | str]:
    """A result and the seconds it took; where it fails, why instead."""
    begin = time.perf_counter()
    try:
        made = make()
    except Exception as error:  # whatever HTA raises on a trace that it cannot read
        return None, f"{type(error).__name__}: {error}"[:120]
    return made, time.perf_counter() - begin


def _attempt(make: Callable[[], Any]) -> Any:
    made, took = _timed(make)
    return took if isinstance(took, str) else made


def _events(handed: Any) -> int:
    return sum(len(frame) for frame in handed.t.traces.values())


def _overlap(analysis: Any) -> dict[int, float] | None:
    if analysis is None:
        return None
    table = analysis.get_comm_comp_overlap(visualize=False)
    pairs = zip(table["rank"], table["comp_comm_overlap_pctg"], strict=True)
    return {int(rank): round(float(share), 2) for rank, share in pairs if share == share}


def _path(analysis: Any, rank: int) -> dict[str, float] | str | None:
    """By what the critical path of one step is bound, in percent of it."""
    if analysis is None:
        return None
    found = analysis.critical_path_analysis(rank, "ProfilerStep", STEP)
    if not found or not found[1]:
        return "no path found"
    # HTA prints its summary too; the answer of this process is one line of its own.
    return {str(name): round(float(share), 2) for name, share in found[0].summary().items()}


def record(answers: dict[str, dict[str, Any]]) -> str:
    """The result as Markdown."""
    ranks = [(name, rank) for name, answer in answers.items() for rank, mine in answer["ours"].items() if mine]
    equal = sum(_equal(answers[name], rank) for name, rank in ranks)
    lines = [
        "# HTA's own functions on our columns",
        "",
        "Remade by `python -m tests.benchmarks.hta_handover --traces FOLDER`, on the public traces. HTA is "
        f"traceinsight {version('traceinsight')} with pandas {version('pandas')}.",
        "",
        "## Overlap and time",
        "",
        f"HTA's overlap through `to_hta()` equals commprof's to HTA's two printed decimals on {equal} of {len(ranks)} "
        "ranks with communication. Seconds: commprof reads, hands over, and HTA loads the same files itself. The "
        "machine had other work meanwhile: times of one row can be compared, those of two rows cannot.",
        "",
        "| traces | ranks | events | read s | hand over s | HTA loads s | handing over, % of it | equal overlap |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_row(name, answer) for name, answer in answers.items()),
        "",
        "Overlap in percent of communication time, where the three differ or HTA cannot read the file itself. HTA's "
        "parser floors times to whole microseconds; on the same columns in nanoseconds it agrees, so no kernel is "
        "classified differently.",
        "",
        *(_differing(answers) or ["(nowhere)"]),
        "",
        "## Critical path",
        "",
        f"HTA's critical path of step {STEP} (counted from 0) of the first rank, percent by what it is bound by. None "
        "of these traces holds synchronisation events (`cuda_sync`), without which HTA calls its result inaccurate; "
        "`analyze --hta` therefore leaves it out for them. HTA floors times to whole microseconds, `to_hta()` keeps "
        "nanoseconds.",
        "",
        "| traces | through `to_hta()` | HTA from its own parser |",
        "| --- | --- | --- |",
        *(f"| {name} | {_told(a['path_handed'])} | {_told(a['path_own'])} |" for name, a in answers.items()),
    ]
    return "\n".join(lines) + "\n"


def _equal(answer: dict[str, Any], rank: str) -> bool:
    return isinstance(answer["handed"], dict) and [answer["handed"].get(rank)] == answer["ours"][rank]


def _row(name: str, answer: dict[str, Any]) -> str:
    loading = answer["loading"]
    known = isinstance(loading, float)
    share = f"{100 * answer['handing'] / loading:.1f}" if known else "n/a"
    mine = [rank for rank, shares in answer["ours"].items() if shares]
    equal = f"{sum(_equal(answer, rank) for rank in mine)} of {len(mine)}" if mine else "no communication"
    took = f"{loading:.2f}" if known else f"fails ({loading})"
    return (
        f"| {name} | {len(answer['ours'])} | {answer['events']:,} | {answer['read']:.2f} | {answer['handing']:.3f} | "
        f"{took} | {share} | {equal} |"
    )


def _differing(answers: dict[str, dict[str, Any]]) -> list[str]:
    out = []
    for name, answer in answers.items():
        for rank, shares in answer["ours"].items():
            handed, own = ((answer[key] or {}).get(rank) if isinstance(answer[key], (dict, type(None))) else answer[key]
                           for key in ("handed", "own"))  # fmt: skip
            if shares and not [handed] == [own] == shares:
                out.append(f"- {name}, rank {rank}: commprof {shares}, through `to_hta()` {handed}, HTA itself {own}")
    return out


def _told(path: Any) -> str:
    if isinstance(path, dict):
        return ", ".join(f"{name or 'nothing'} {share:.1f}" for name, share in path.items() if share >= 0.05)
    return "not read" if path is None else str(path)


def ask(folder: Path, kept: Path | None) -> dict[str, Any] | None:
    """The answer for one folder, from a process of its own or as it was kept."""
    if kept is not None and kept.exists():
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return known
    command = [sys.executable, "-m", "tests.benchmarks.hta_handover", "--one", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ANSWER" not in done.stdout:
        print(folder.name, done.stderr.strip().splitlines()[-1:])
        return None
    text = done.stdout.rsplit("ANSWER", 1)[1]
    if kept is not None:
        kept.write_text(text, encoding="utf-8")
    answer: dict[str, Any] = json.loads(text)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for answers; those that are there are not made again")
    parser.add_argument("--one", type=Path, help="answer for one folder, as JSON on the last line")
    options = parser.parse_args()
    if options.one:
        print("ANSWER" + json.dumps(examine(options.one)))
        return 0
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    patterns = ("*.pt.trace.json.gz", "*rank*.json.gz", "df_*.json.gz")
    folders = sorted(path for path in options.traces.iterdir() if any(any(path.glob(one)) for one in patterns))
    answers = {
        folder.name: answer
        for folder in folders
        if (answer := ask(folder, options.keep / f"{folder.name}.json" if options.keep else None)) is not None
    }
    RECORD.write_text(record(answers), encoding="utf-8")
    return 0 if len(answers) == len(folders) else 1


if __name__ == "__main__":
    raise SystemExit(main())
