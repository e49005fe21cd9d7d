"""Sizes of a damaged file are not cut into buckets without end: the analysis stays within its memory."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from commprof.analysis.bucket_advice import MIB, MOST_BUCKETS, advise_buckets
from commprof.analysis.run import analyze
from commprof.synth import parse_fault, preset, write_run
from tests.builders.command import strict_json

_NUMBER = re.compile(r'("(?:In|Out) msg nelems": ?)(\d+)')
_ROOM = 3_000_000_000
_LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({_ROOM}, {_ROOM}))
from commprof.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def enlarged(folder: Path, times: int, source: Path) -> Path:
    """The run of two ranks, all messages so many times as large."""
    folder.mkdir()
    paths = sorted(source.glob("rank*.json.gz"))
    assert len(paths) == 2
    for path in paths:
        text = gzip.decompress(path.read_bytes()).decode()
        text, count = _NUMBER.subn(lambda found: f"{found[1]}{int(found[2]) * times}", text)
        assert count
        (folder / path.stem).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("fault", ["no-overlap", "blocking-wait"])
def test_messages_of_petabytes_need_no_memory_of_that_size(fault: str, tmp_path: Path) -> None:
    # 1.61 GB of gradients become 16.1 PB a step. In buckets of 25 MiB that is 610 million of them, in buckets of 1 MiB
    # 15 billion; an array of that length takes 5 GB or 120, and the analysis would make several.
    scenario = preset("ddp").with_ranks(2)
    faulty = replace(scenario, faults=(parse_fault(fault),))
    run = enlarged(tmp_path / "run", 10_000_000, write_run(faulty, tmp_path / "written", seed=1, calls=False).folder)
    out = tmp_path / "report.json"

    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, "analyze", run, "--no-html", "--jobs", "1", "--json", out],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    report = strict_json(out.read_bytes())
    assert report["strategy"]["measured_bytes_per_step"] > 10**15


def test_no_layout_has_more_buckets_than_any_model_needs(tmp_path: Path) -> None:
    # The simulated model has 1.61 GB of gradients. 40 times that is more than 50,000 buckets of 1 MiB, and fewer of
    # 2 MiB: only the layouts of the smallest buckets are left out.
    written = write_run(preset("ddp").with_ranks(2), tmp_path / "written", seed=1, calls=False)
    whole = enlarged(tmp_path / "run", 40, written.folder)

    (advice,) = advise_buckets(analyze(whole, jobs=1))

    assert advice.size > MOST_BUCKETS * MIB
    assert min(layout.cap for layout in advice.layouts) == 2 * MIB
    # The first bucket may be smaller than the others, and changes their number by one.
    assert max(layout.buckets for layout in advice.layouts) <= MOST_BUCKETS + 1
