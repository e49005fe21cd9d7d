"""Other processes: they work for whoever calls, and do not run the caller's script again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
