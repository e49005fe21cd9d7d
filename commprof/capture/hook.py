"""The hook around a training loop: it counts steps, records a few of them, and never gets in the way.

Inside the loop it issues no collective, registers no DDP hook and changes no number; it waits for the
device once, when the window closes, as the profiler itself does. Whatever goes wrong in it is one
warning; what the training raises passes through unchanged.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import socket
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

from commprof.capture.engine import Engine, RunFacts, Whereabouts
from commprof.capture.folder import CaptureFolder, describe
from commprof.capture.selection import Ranks, parse_folder, parse_ranks
from commprof.capture.surroundings import communication_environment, usable_cores
from commprof.capture.window import DEFAULT_MAX_STEPS, StepLog, Window
from commprof.errors import UsageError
from commprof.manifest import Clock, Manifest, step_name
from commprof.units import format_ns
from commprof.version import __version__

_LOGGER = logging.getLogger("commprof")


class Phase(Enum):
    """Where a capture stands; it only moves on, and only ``start()`` to ``stop()`` counts steps."""

    NEW = auto()
    WAITING = auto()  # counting, profiler untouched
    READY = auto()  # profiler prepared, not recording
    RECORDING = auto()
    DONE = auto()  # the window is over, steps are still timed
    FAILED = auto()  # nothing recorded; the manifest will say why
    UNSELECTED = auto()  # this rank was not asked for
    STOPPED = auto()


_COUNTING = frozenset(Phase) - {Phase.NEW, Phase.STOPPED}


class Capture:
    """Record a few steps of a training loop into the folder ``out``, one trace and one manifest per rank.

    ::

        with commprof.Capture("runs/x", model=model) as capture:
            for batch in loader:
                ...
                capture.step()

    ``step()`` stands at the end of the loop's body. The first step is 0; steps ``skip + warmup`` to
    ``skip + warmup + steps - 1`` are recorded (5 to 8 by default), with the profiler made ready, but not
    recording, for ``warmup`` steps before. More than ``max_steps`` are cut down to it with a warning:
    traces grow by the step.

    ``model``: with DistributedDataParallel in it, its buckets go into the manifest. ``ranks``: "all" or a
    list. ``with_stack``: record Python stacks (larger and slower). ``write_limit_s``: how long the
    training waits at most for the folder. ``start()`` and ``stop()`` may be used instead of ``with``.

    Raises ``UsageError`` here, before the first step, for options that make no sense. Nothing is raised
    afterwards: each failure is one warning on the logger ``commprof``, and the manifest says what
    happened.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        model: Any = None,
        skip: int = 4,
        warmup: int = 1,
        steps: int = 4,
        ranks: Ranks = "all",
        with_stack: bool = False,
        max_steps: int = DEFAULT_MAX_STEPS,
        write_limit_s: float = 10.0,
        _engine: Engine | None = None,
    ) -> None:
        folder = parse_folder(out)
        self._ranks = parse_ranks(ranks)
        self._warned: set[str] = set()
        self._window = Window(skip, warmup, steps)
        if steps > max_steps:
            self._warn("steps", f"steps={steps} is cut to {max_steps} (max_steps={steps} records them all)")
            self._window = Window(skip, warmup, max_steps)
        self._engine = _engine if _engine is not None else _torch_engine(with_stack)
        self._model = model
        self._log = StepLog(self._engine.unix_ns, self._engine.tick_ns)
        self._folder = CaptureFolder(folder, write_limit_s, tick_ns=self._engine.tick_ns, warn=self._warn)
        self._phase = Phase.NEW
        self._pid = os.getpid()
        self._index = 0
        self._recorded: list[int] = []
        self._cut: int | None = None
        self._reason: str | None = None
        self._where: Whereabouts | None = None
        self._facts = RunFacts()
        self._clock = Clock()

    # What the user calls

    def start(self) -> None:
        """Begin to count; step 0 starts here."""
        if self._phase is not Phase.NEW:
            self._warn("start", "start() was called twice, the second call does nothing")
            return
        self._phase = Phase.WAITING
        self._pid = os.getpid()
        # Holds the hook until the process ends: thrown away inside the window, it still has a file to write.
        atexit.register(self._at_exit)
        self._guard(self._arrive)

    def step(self) -> None:
        """One step of the loop is over."""
        if not self._counting():
            self._warn("step", "step() was called before start() or after stop(), it does nothing")
            return
        self._guard(self._advance)

    def stop(self) -> None:
        """The loop is over; write what is not written yet."""
        if not self._counting():
            self._warn("stop", "stop() was called without start(), it does nothing")
            return
        self._end(None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._counting():
            self._end(None if kind is None else f"{kind.__name__} in step {self._index}")

    def _at_exit(self) -> None:
        """The process ends without ``stop()``: sys.exit, or the hook was thrown away."""
        if self._counting():
            self._end(f"the process ended in step {self._index}")

    def _counting(self) -> bool:
        # A forked child (a data loader's worker) inherits the hook, but the capture is its parent's.
        return self._phase in _COUNTING and os.getpid() == self._pid

    # The loop

    def _advance(self) -> None:
        self._log.end()
        if self._phase is Phase.RECORDING:
            self._recorded.append(self._index)
        self._index += 1
        self._arrive()

    def _arrive(self) -> None:
        """Step ``self._index`` is about to begin."""
        try:
            if self._phase is Phase.RECORDING:
                self._engine.close_step()
                if self._index > self._window.last:
                    self._finish(None)
            if self._phase is Phase.WAITING and self._index >= self._window.ready:
                self._make_ready()
            if self._phase is Phase.READY and self._index >= self._window.first:
                self._begin_recording()
            if self._phase is Phase.RECORDING:
                self._engine.open_step(step_name(self._index))
        finally:
            self._log.begin()

    def _make_ready(self) -> None:
        self._where = self._engine.whereabouts()
        if not self._selected():
            self._phase = Phase.UNSELECTED
        elif self._engine.occupied():
            # Only one profiler can be at work, and the user's own comes first.
            self._give_way(f"another profiler was active in step {self._index}")
        else:
            self._engine.prepare(self._on_rival)
            self._phase = Phase.READY

    def _begin_recording(self) -> None:
        self._clock = Clock(start_ns=self._engine.unix_ns())
        self._engine.start()
        self._phase = Phase.RECORDING

    def _selected(self) -> bool:
        return self._ranks is None or self._where is None or self._where.rank in self._ranks

    def _give_way(self, reason: str) -> None:
        self._phase = Phase.FAILED
        self._reason = reason
        self._warn("rival", f"{reason}, nothing is recorded")

    def _on_rival(self) -> None:
        """Another profiler is about to begin: ours ends first, to leave it the field."""
        reason = f"another profiler was started in step {self._index}"
        if self._phase is Phase.RECORDING:
            self._warn("rival", f"{reason}, the recording ends there")
            self._guard(lambda: self._finish(reason))
        elif self._phase is Phase.READY:
            self._give_way(reason)
            self._guard(lambda: self._engine.stop(wait_for_device=False))

    def _guard(self, work: Callable[[], None]) -> None:
        """Run ``work``; an error in it ends the capture, never the training."""
        try:
            work()
        except Exception as error:
            self._phase = Phase.FAILED
            self._reason = f"{describe(error)} in step {self._index}"
            self._warn("failure", f"capture given up: {self._reason}")
            with contextlib.suppress(Exception):
                self._engine.stop(wait_for_device=False)

    # The end

    def _finish(self, reason: str | None) -> None:
        """End recording and write the trace; ``reason`` says why it is partial, ``None`` that it is whole."""
        began = self._engine.tick_ns()
        self._phase = Phase.DONE
        self._reason = reason
        self._cut = None if reason is None else self._index
        self._engine.close_step()
        self._clock = Clock(start_ns=self._clock.start_ns, stop_ns=self._engine.unix_ns())
        # After an error a collective may be stuck on the device, and a process that can end must not wait
        # for it.
        self._engine.stop(wait_for_device=reason is None)
        where = self._read_facts()
        self._folder.put_trace(where.rank, self._engine.export, self._manifest, began)
        self._warn_of_timeout(where.timeout_ns, self._folder.export_ns)

    def _read_facts(self) -> Whereabouts:
        now = self._engine.whereabouts()
        # A process group that exists by now decides; one that is gone was asked when the window began.
        where = now if self._where is None or now.source == "process group" else self._where
        self._where = where
        try:
            self._facts = self._engine.facts(self._model, self._clock.start_ns or 0, self._clock.stop_ns or 0)
        except Exception as error:
            self._facts = RunFacts(notes=(f"facts of the run not read: {describe(error)}",))
        return where

    def _warn_of_timeout(self, limit_ns: int | None, export_ns: int | None) -> None:
        if limit_ns and export_ns and export_ns > limit_ns / 2:
            self._warn(
                "timeout",
                f"writing the trace took {format_ns(export_ns)}, more than half of the process group's "
                f"timeout of {format_ns(limit_ns)}: other ranks wait for this one meanwhile",
            )

    def _end(self, reason: str | None) -> None:
        """The loop is over, by ``reason`` if not by itself."""
        atexit.unregister(self._at_exit)
        try:
            if self._phase is Phase.RECORDING and (reason or self._recorded):
                short = f"the loop ended after {len(self._recorded)} of {self._window.steps} steps"
                self._guard(lambda: self._finish(reason or short))
            elif self._phase in {Phase.WAITING, Phase.READY, Phase.RECORDING}:
                self._guard(lambda: self._nothing_recorded(reason))
            if self._phase is not Phase.UNSELECTED and self._where is not None:
                self._folder.put_manifest(self._where.rank, self._manifest)
        finally:
            self._phase = Phase.STOPPED
            self._model = None

    def _nothing_recorded(self, reason: str | None) -> None:
        self._phase = Phase.FAILED
        needed = f"no step recorded: at least {self._window.needed} steps needed, the loop had {self._index}"
        self._reason = f"no step recorded: {reason}" if reason else needed
        self._engine.stop(wait_for_device=False)
        self._where = self._where or self._engine.whereabouts()
        if not self._selected():
            self._phase = Phase.UNSELECTED
        elif reason is None:
            self._warn("empty", f"{needed} ({self._window})")

    def _manifest(self) -> Manifest:
        where = self._where or Whereabouts(rank=0, source="default", world_size=1)
        facts = self._facts
        trace = self._folder.trace
        reason = self._folder.lost or self._reason or (None if trace else "the trace was not written")
        return Manifest(
            rank=where.rank,
            rank_source=where.source,
            world_size=where.world_size,
            local_rank=where.local_rank,
            host=socket.gethostname(),
            pid=self._pid,
            commprof_version=__version__,
            trace=trace,
            partial=reason is not None,
            reason=reason,
            recorded_steps=tuple(step_name(index) for index in self._recorded) if trace else (),
            cut_step=step_name(self._cut) if trace and self._cut is not None else None,
            clock=self._clock,
            steps=self._log.times(),
            export_ns=self._folder.export_ns,
            torch_version=facts.torch_version,
            cuda_version=facts.cuda_version,
            nccl_version=facts.nccl_version,
            backend=where.backend,
            device=facts.device,
            groups=where.groups,
            ddp=facts.ddp,
            parameters=facts.parameters,
            fsdp=facts.fsdp,
            meshes=facts.meshes,
            placements=facts.placements,
            pipeline=facts.pipeline,
            optimizers=facts.optimizers,
            environment=communication_environment(),
            cores=usable_cores(),
            flight=facts.flight,
            notes=facts.notes,
        )

    def _warn(self, key: str, message: str) -> None:
        """One line on the logger per kind of trouble; not even a logger that raises reaches the training."""
        if key in self._warned:
            return
        self._warned.add(key)
        with contextlib.suppress(Exception):
            _LOGGER.warning("commprof: %s", message)


def _torch_engine(with_stack: bool) -> Engine:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("Capture needs PyTorch, which is not installed", hint='pip install "commprof[torch]"')
    from commprof.capture.torch_engine import TorchEngine

    return TorchEngine(with_stack=with_stack)
