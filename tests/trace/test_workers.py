"""Other processes: they work for whoever calls, and do not run the caller's script again."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from commprof.trace.workers import open_pool

FIXTURE = Path(__file__).parents[2] / "fixtures" / "ddp-two-ranks"


def test_a_script_that_guards_nothing_may_analyse_in_several_processes(tmp_path: Path) -> None:
    # Given a script as people write it first: no functions, no guard.
    script = tmp_path / "mine.py"
    script.write_text(
        "import commprof\n"
        "print('begun')\n"
        f"found = commprof.analyze({str(FIXTURE)!r}, jobs=2)\n"
        "print([rank.rank for rank in found.ranks])\n"
    )

    # When it runs,
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)

    # Then it runs once, and has both ranks.
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[:2] == ["begun", "[0, 1]"]


def test_a_pool_whose_process_dies_ends_the_others_and_waits_for_nobody() -> None:
    # Given a pool in which one process sleeps for long,
    with open_pool(2) as pool:
        pool.submit(time.sleep, 600)
        broken = pool.submit(os._exit, 1)

        # When another one dies,
        with pytest.raises(BrokenProcessPool):
            broken.result()

    # Then none is left.
    assert not multiprocessing.active_children()


def test_an_error_beside_a_pool_does_not_wait_for_its_work() -> None:
    with pytest.raises(ZeroDivisionError), open_pool(2) as pool:
        _fail_beside(pool.submit(time.sleep, 600))

    assert not multiprocessing.active_children()


def _fail_beside(work: Future[None]) -> None:
    assert not work.done()
    raise ZeroDivisionError
