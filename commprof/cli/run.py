"""``commprof run``: an unchanged training command under the hook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from commprof.cli import options
from commprof.errors import UsageError


def run(
    command: Annotated[list[str], typer.Argument(help="The command, after --.", show_default=False)],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Folder for the capture [runs/run].", show_default=False)
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Optimizer steps to wait.")] = 4,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Steps with the profiler ready, not recording.")] = 1,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to record, 20 at most.")] = 4,
    ranks: Annotated[
        str, typer.Option("--ranks", help="all, replica, one-per-host, or numbers: 0,3.", metavar="RANKS")
    ] = "all",
    slow_step: Annotated[
        float | None,
        typer.Option("--slow-step", help="Also record after a step that took this many times the median."),
    ] = None,
    max_steps: Annotated[int, typer.Option("--max-steps", min=1, help="Raise the limit on --steps.")] = 20,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Record Python stacks (larger, slower).")] = False,
    nvtx: Annotated[bool, typer.Option("--nvtx/--no-nvtx", help="Show NVTX ranges in the trace.")] = True,
    debug: options.Debug = False,
) -> int:
    """Run an unchanged training command, torchrun too, and capture a few optimizer steps of every rank.

    Steps are counted by the optimizer. The exit code is the command's own.

    Example: commprof run --steps 4 -- torchrun --nproc-per-node 2 train.py --lr 0.1
    """
    from commprof.capture.selection import parse_folder, parse_ranks
    from commprof.capture.slow_steps import SlowSteps

    folder = parse_folder(_folder(out))
    chosen: Any = [int(part) for part in ranks.split(",")] if ranks.replace(",", "").isdigit() else ranks
    parse_ranks(chosen)
    if slow_step is not None:
        SlowSteps(slow_step)
    options = {
        "out": str(folder.resolve()),
        "skip": skip,
        "warmup": warmup,
        "steps": steps,
        "ranks": chosen,
        "slow_step": slow_step,
        "max_steps": max_steps,
        "with_stack": with_stack,
        "nvtx": nvtx,
    }
    before = _manifests(folder)
    code = _run(command, run_environment(options))
    if _manifests(folder) == before:
        why = f"the command ended with {code}" if code else "no process of it ended an optimizer step under torch"
        _say(f"nothing was captured to {folder}: {why}")
    return code


def run_environment(options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which every Python process starts the hook by itself."""
    inject = Path(__file__).resolve().parent.parent / "capture" / "inject"
    path = [str(inject), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "COMMPROF_RUN": json.dumps(dict(options)), "PYTHONPATH": os.pathsep.join(path)}


def _folder(out: str | None) -> str:
    if out is not None:
        return out
    names = (f"runs/run{'' if n == 1 else f'-{n}'}" for n in count(1))
    return next(name for name in names if not Path(name).exists())


def _manifests(folder: Path) -> set[str]:
    from commprof.manifest import SUFFIX

    return {path.name for path in folder.glob(f"*{SUFFIX}")} if folder.is_dir() else set()


def _run(command: list[str], environment: dict[str, str]) -> int:
    """The command's exit code, as a shell gives it; signals to us are for the command."""
    try:
        with _passed_on() as children:
            child = subprocess.Popen(command, env=environment)
            children.append(child)
            code = child.wait()
    except FileNotFoundError:
        hint = f"python {command[0]}" if command[0].endswith(".py") else "check the command after --"
        raise UsageError(f"{command[0]}: no such command", hint=hint) from None
    except PermissionError:
        raise UsageError(f"{command[0]}: cannot be run", hint=f"python {command[0]}") from None
    return code if code >= 0 else 128 - code


@contextmanager
def _passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Signals to us go to the command, and what it makes of them is its business."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        # A terminal sends Ctrl-C to all of its foreground processes, the command included.
        if number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty():
            return
        for child in children:
            child.send_signal(number)

    saved = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in saved:
        signal.signal(number, pass_on)
    try:
        yield children
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    print(f"commprof: {text}", file=sys.stderr)
