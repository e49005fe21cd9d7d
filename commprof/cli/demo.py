"""``commprof demo``: a real small training run on this machine, captured, analysed and reported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commprof.cli import options
from commprof.errors import UsageError

if TYPE_CHECKING:
    from commprof.capture.jobs.strategies import Strategy

NAMES = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "pp", "pp-dp", "ep")


def demo(
    strategy: Annotated[str, typer.Option("--strategy", help="One of " + ", ".join(NAMES) + ".")] = "ddp",
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks", min=2, max=16, help="Number of training processes [2, hsdp and pp-dp 4].", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the capture [runs/demo].", show_default=False)
    ] = None,
    debug: options.Debug = False,
) -> int:
    """Train a small transformer in parallel on this machine, capture it, and report on its communication.

    Takes well under a minute on two cores. Uses gloo on CPUs, NCCL where there are enough GPUs. zero2 and zero3 are
    DeepSpeed's where it is installed, else PyTorch's own FSDP1.

    Example: commprof demo --strategy fsdp --ranks 4
    """
    if strategy not in NAMES:
        raise UsageError(f"--strategy {strategy}: not one of {', '.join(NAMES)}")
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "commprof demo trains with PyTorch, which is not installed", hint='pip install "commprof[torch]"'
        )
    from commprof.capture.jobs.strategies import strategies
    from commprof.cli.streams import print_out

    job = strategies()[strategy]
    number = job.usual if ranks is None else ranks
    job.check(strategy, number)
    folder = _fresh_folder(out, "demo" if strategy == "ddp" else f"demo-{strategy}")
    print_out(f"Training a small transformer on {number} processes: {job.title}\n")
    _train(folder, job, number)
    return _report(folder)


def _fresh_folder(out: Path | None, usual: str) -> Path:
    """``out``, or under ``runs`` the first of ``usual``, ``usual``-2, ... that is not there.

    No capture is mixed with another.
    """
    if out is None:
        names = (Path("runs") / (usual if n == 1 else f"{usual}-{n}") for n in count(1))
        return next(path for path in names if not path.exists())
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is there already and not an empty folder", hint="give a new one with --out")
    return out


def _train(folder: Path, job: Strategy, ranks: int) -> None:
    from commprof.capture.jobs.launch import launch

    command = [*job.command, "--out", str(folder.resolve()), "--rendezvous", "{rendezvous}"]
    with _progress("Training") as progress:
        launch(command, ranks, progress=progress)


def _report(folder: Path) -> int:
    """Analyse as ``commprof analyze`` does, and close with the verdict."""
    from commprof.cli.analyze import report_on
    from commprof.cli.streams import print_out

    report = report_on([str(folder)])
    print_out(report["verdict"]["summary"] + "\n")
    return 0


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar over the steps of rank 0 on a terminal; nothing when piped."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
