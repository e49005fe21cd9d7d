"""C221 and its kind: a package that is not installed is one line and exit 2, never a question and never an install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.kineto import t0

# The package is hidden as if it were not installed; whatever would start an installer or read an answer fails loudly.
HIDDEN = """
import sys
sys.modules[{package!r}] = None
def watch(event, args):
    if event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "builtins.input", "socket.connect"):
        print("TOUCHED", event, args, file=sys.stderr, flush=True)
        raise SystemExit(99)
sys.addaudithook(watch)
from commprof.cli.app import main
sys.exit(main({arguments!r}))
"""


def without(package: str, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """``commprof ARGUMENTS`` in ``folder`` with standard input closed and ``package`` missing."""
    program = HIDDEN.format(package=package, arguments=[str(argument) for argument in arguments])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    root = Path(__file__).parents[2]
    env["PYTHONPATH"] = os.pathsep.join([str(root), env.get("PYTHONPATH", "")])
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=120, check=False)


@pytest.mark.parametrize(
    ("package", "arguments", "named"),
    [
        ("torch", ("demo",), "torch"),
        ("s3fs", ("analyze", "s3://bucket/trace.json"), "s3fs"),
        ("gcsfs", ("analyze", "gs://bucket/trace.json"), "gcsfs"),
        ("plotly", ("analyze", "rank0.json", "-o", "report.html"), "plotly"),
        ("zstandard", ("analyze", "rank0.json.zst", "--no-html"), "zstandard"),
        ("isal", ("analyze", "rank0.json.gz", "--no-html"), "isal"),
        ("jinja2", ("analyze", "rank0.json", "-o", "report.html"), "jinja2"),
    ],
)  # fmt: skip
def test_c221_a_missing_package_is_named_in_one_line(
    package: str, arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    """C221: standard input closed, a package missing."""
    import zstandard

    t0().write(tmp_path / "rank0.json")
    t0().write(tmp_path / "rank0.json.gz")
    (tmp_path / "rank0.json.zst").write_bytes(zstandard.compress((tmp_path / "rank0.json").read_bytes()))

    found = without(package, *arguments, folder=tmp_path)

    assert found.returncode == 2, found.stderr
    (line,) = found.stderr.splitlines()
    assert named in line
    assert "install" in line
    assert "?" not in line
