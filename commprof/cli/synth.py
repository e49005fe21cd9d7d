"""``commprof synth``: write a simulated run with its truth."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

_MANY_RANKS = 16


def synth(
    scenario: Annotated[
        str,
        typer.Argument(help="A scenario by name (ddp, fsdp, tp-pp-dp, slow-gpu, ...), a JSON file, or 'list'."),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="New folder for the run.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", help="World size; the scenario's own if left out.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same bytes.")] = 0,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps to simulate.")] = None,
    real: Annotated[
        bool, typer.Option("--real", help="The realistic model of collectives instead of the ideal one.")
    ] = False,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", help="Add KIND, KIND:RANK or KIND:RANK:SIZE (RANK 'all' for every rank); repeatable."),
    ] = None,
    calls: Annotated[
        bool | None,
        typer.Option("--calls/--no-calls", help="Truth of every call in truth.json (default: up to 64 ranks)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes that write files; one per core for large runs.")
    ] = None,
) -> None:
    """Write a simulated training run: one Kineto trace per rank, and truth.json with what is true about it.

    Example: commprof synth fsdp --fault slow-gpu:2:200 -o runs/slow --ranks 4 --seed 1
    """
    from dataclasses import replace

    from commprof.cli.streams import print_out
    from commprof.errors import UsageError
    from commprof.synth import PRESETS, parse_fault, preset, read_scenario, write_run
    from commprof.units import format_bytes

    if scenario == "list":
        for name, known in PRESETS.items():
            faults_in = "".join(f", {fault.kind}" for fault in known.faults)
            print_out(f"{name:16} {'+'.join(known.parts())} on {known.ranks} ranks{faults_in}\n")
        return
    if output is None:
        raise UsageError("no folder for the run", hint="give one with -o")
    chosen = read_scenario(Path(scenario)) if scenario.endswith(".json") else preset(scenario)
    if ranks is not None:
        chosen = chosen.with_ranks(ranks)
    if steps is not None:
        chosen = replace(chosen, steps=steps)
    if real:
        chosen = replace(chosen, real=True)
    if faults:
        chosen = replace(chosen, faults=(*chosen.faults, *map(parse_fault, faults)))
    if jobs is None:
        jobs = (os.cpu_count() or 1) if chosen.ranks >= _MANY_RANKS else 1
    with _progress() as told:
        written = write_run(chosen, output, seed=seed, calls=calls, jobs=jobs, progress=told)
    size, number = format_bytes(written.bytes_written), len(written.traces)
    print_out(f"{number} {'trace' if number == 1 else 'traces'} ({size}) and truth.json in {written.folder}\n")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar over the ranks on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    # No refreshing thread: worker processes are forked while the bar is shown.
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("Simulating", total=None)
        yield lambda done, ranks: bar.update(
            task, completed=done, total=ranks, description="Writing ranks", refresh=True
        )
