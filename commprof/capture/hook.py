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
import shlex
import sys
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

from commprof.capture.core_wait import CoreWatch
from commprof.capture.engine import Engine, RunFacts, Whereabouts
from commprof.capture.folder import CaptureFolder, describe
from commprof.capture.recording import Recording, RunState, manifest_of
from commprof.capture.selection import Ranks, check_model, parse_folder, parse_ranks
from commprof.capture.slow_steps import MOST_KEPT, MOST_RECORDINGS, SlowSteps
from commprof.capture.termination import Termination
from commprof.capture.window import DEFAULT_MAX_STEPS, StepLog, Window
from commprof.errors import UsageError
from commprof.manifest import Clock, Manifest, SlowStep, slow_folder, step_name
from commprof.units import format_ns

_LOGGER = logging.getLogger("commprof")


class Phase(Enum):
    """Where a capture stands; only ``start()`` to ``stop()`` counts steps."""

    NEW = auto()
    WAITING = auto()  # counting, profiler untouched
    READY = auto()  # profiler prepared, not recording
    RECORDING = auto()
    DONE = auto()  # the window is over, steps are still timed
    FAILED = auto()  # nothing recorded; the manifest will say why
    UNSELECTED = auto()  # this rank was not asked for
    STOPPED = auto()


_COUNTING = frozenset(Phase) - {Phase.NEW, Phase.STOPPED}
_IDLE = frozenset({Phase.WAITING, Phase.DONE})


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
    traces grow by the step. Start and length of every step are kept.

    ``model``: the module, or several in a list or dict; its sizes, buckets and units go into the manifest.
    Without it the modules that an optimizer trains are looked for.
    ``ranks``: "all", a list, "one-per-host" (local rank 0), or "replica": the first data-parallel replica
    and the data-parallel group of rank 0, so that every group that rank 0 is in is complete.
    ``slow_step``: also record the step after one that took that many times the running median, at most
    three times, each into a subfolder ``slow-step-N``. ``with_stack``: record Python stacks (larger and
    slower). ``nvtx``: while recording, ranges of ``torch.cuda.nvtx`` show in the trace too.
    ``write_limit_s``: how long the training waits at most for the folder. ``start()`` and ``stop()`` may be
    used instead of ``with``. Made before CUDA graphs are captured, it notes their collectives.

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
        slow_step: float | None = None,
        with_stack: bool = False,
        nvtx: bool = True,
        max_steps: int = DEFAULT_MAX_STEPS,
        write_limit_s: float = 10.0,
        _engine: Engine | None = None,
        _first: int = 0,
        _step_source: str = "step()",
    ) -> None:
        folder = parse_folder(out)
        self._choice = parse_ranks(ranks)
        check_model(model)
        self._slow = None if slow_step is None else SlowSteps(slow_step)
        self._warned: set[str] = set()
        window = Window(skip, warmup, steps)
        if steps > max_steps:
            self._warn("steps", f"steps={steps} is cut to {max_steps} (max_steps={steps} records them all)")
            window = Window(skip, warmup, max_steps)
        self._engine = _engine if _engine is not None else _torch_engine(with_stack, nvtx)
        self._model = model
        self._write_limit_s = write_limit_s
        log = StepLog(self._engine.unix_ns, self._engine.tick_ns, _first)
        self._run = RunState(os.getpid(), log, str(self._choice), _step_source)
        self._main = Recording(self._folder(folder), window)
        self._current = self._main
        self._phase = Phase.NEW
        self._resume = Phase.DONE  # the phase after a recording
        self._index = _first
        self._slow_found: list[SlowStep] = []
        self._slow_due: SlowStep | None = None
        self._term = Termination(self._on_term, write_limit_s)

    # What the user calls

    def start(self) -> None:
        """Begin to count; the first step starts here."""
        if self._phase is not Phase.NEW:
            self._warn("start", "start() was called twice, the second call does nothing")
            return
        self._phase = Phase.WAITING
        self._run.pid = os.getpid()
        # Holds the hook until the process ends: thrown away inside the window, it still has a file to write.
        atexit.register(self._at_exit)
        self._sample_clocks("before")
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
        """The process ends without ``stop()``: sys.exit, the hook was thrown away, or nobody was to call it."""
        if self._counting():
            by_itself = self._run.step_source != "step()" and not hasattr(sys, "last_value")
            self._end(None if by_itself else f"the process ended in step {self._index}")

    def _on_term(self) -> None:
        if self._counting():
            self._end(f"SIGTERM in step {self._index}")

    def _counting(self) -> bool:
        # A forked child (a data loader's worker) inherits the hook, but the capture is its parent's.
        return self._phase in _COUNTING and os.getpid() == self._run.pid

    # The loop

    def _advance(self) -> None:
        duration = self._run.log.end()
        if self._phase is Phase.RECORDING:
            self._current.recorded.append(self._index)
        elif self._slow is not None and duration is not None and self._phase in _IDLE:
            self._slow_due = self._slow.observe(self._index, duration)
        self._index += 1
        self._arrive()

    def _arrive(self) -> None:
        """Step ``self._index`` is about to begin."""
        try:
            if self._phase is Phase.RECORDING:
                self._engine.close_step()
                if self._index > self._current.window.last:
                    self._finish(None)
            if self._phase is Phase.WAITING and self._index >= self._main.window.ready:
                self._make_ready()
            if self._phase is Phase.READY and self._index >= self._main.window.first:
                self._begin_recording()
            if self._slow_due is not None:
                self._record_after(self._slow_due)
            if self._phase is Phase.RECORDING:
                self._engine.open_step(step_name(self._index))
        finally:
            self._run.log.begin()

    def _make_ready(self) -> None:
        if not self._selected(self._engine.whereabouts()):
            self._phase = Phase.UNSELECTED
        elif self._engine.occupied():
            # Only one profiler can be at work, and the user's own comes first.
            self._give_way(f"another profiler was active in step {self._index}")
        else:
            self._engine.prepare(self._on_rival)
            self._phase = Phase.READY

    def _selected(self, where: Whereabouts) -> bool:
        self._run.where = where
        doubt = self._choice.doubt(where)
        if doubt is not None and self._choice.speaks(where):
            self._warn("ranks", doubt)
        return self._choice.takes(where)

    def _begin_recording(self) -> None:
        self._current.clock = Clock(start_ns=self._engine.unix_ns())
        self._engine.start()
        self._current.watch = CoreWatch(self._engine.tick_ns)
        self._phase = Phase.RECORDING
        self._term.begin()

    def _record_after(self, slow: SlowStep) -> None:
        """Record the step that begins: the one before it was slow. The window itself comes first."""
        self._slow_due = None
        kept = len(self._slow_found) < MOST_KEPT
        wanted = kept and sum(it.recorded is not None for it in self._slow_found) < MOST_RECORDINGS
        if self._phase in _IDLE and wanted and self._selected(self._engine.whereabouts()):
            if self._engine.occupied():
                self._warn("rival", f"another profiler was active in step {self._index}, the slow step is not recorded")
            else:
                folder = self._main.folder.path / slow_folder(self._index)
                self._current = Recording(self._folder(folder), Window(0, self._index, 1))
                self._resume = self._phase
                self._engine.prepare(self._on_rival)
                self._begin_recording()
        if kept:
            self._slow_found.append(slow)

    def _give_way(self, reason: str) -> None:
        self._phase = Phase.FAILED
        self._main.reason = reason
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
            reason = f"{describe(error)} in step {self._index}"
            self._current.reason = reason
            self._phase = Phase.FAILED if self._current is self._main else self._resume
            self._current, self._slow = self._main, None
            self._warn("failure", f"capture given up: {reason}")
            with contextlib.suppress(Exception):
                self._engine.stop(wait_for_device=False)
            self._term.end()

    # The end

    def _finish(self, reason: str | None) -> None:
        """End recording and write the trace; ``reason`` says why it is partial, ``None`` that it is whole."""
        began = self._engine.tick_ns()
        recording, main = self._current, self._current is self._main
        self._term.closing()
        self._phase = Phase.DONE if main else self._resume
        recording.reason = reason
        recording.cut = None if reason is None else self._index
        self._engine.close_step()
        recording.core_wait = recording.watch.seen() if recording.watch else None
        recording.clock = Clock(start_ns=recording.clock.start_ns, stop_ns=self._engine.unix_ns())
        # After an error a collective may be stuck on the device, and a process that can end must not wait
        # for it.
        self._engine.stop(wait_for_device=reason is None)
        where = self._read_facts(recording)
        recording.folder.put_trace(where.rank, self._engine.export, lambda: self._manifest(recording), began)
        self._warn_of_timeout(where.timeout_ns, recording.folder.export_ns)
        if not main:
            self._note_slow(recording)
        self._current = self._main
        self._tell(recording, where)
        self._term.end()

    def _note_slow(self, recording: Recording) -> None:
        """The slow step gets to know its recording."""
        slow = self._slow_found[-1]
        if recording.folder.trace is not None:
            self._slow_found[-1] = SlowStep(
                step=slow.step,
                duration_ns=slow.duration_ns,
                median_ns=slow.median_ns,
                recorded=step_name(recording.window.first),
                folder=recording.folder.path.name,
            )

    def _read_facts(self, recording: Recording) -> Whereabouts:
        now, before = self._engine.whereabouts(), self._run.where
        # A process group that exists by now decides; one that is gone was asked when the window began.
        where = now if before is None or now.source == "process group" else before
        self._run.where = where
        try:
            clock = recording.clock
            recording.facts = self._engine.facts(self._model, clock.start_ns or 0, clock.stop_ns or 0)
        except Exception as error:
            recording.facts = RunFacts(notes=(f"facts of the run not read: {describe(error)}",))
        return where

    def _warn_of_timeout(self, limit_ns: int | None, export_ns: int | None) -> None:
        if limit_ns and export_ns and export_ns > limit_ns / 2:
            where = self._run.where
            self._warn(
                "timeout",
                f"rank {where.rank if where else 0}: writing the trace took {format_ns(export_ns)}, more than half of "
                f"the process group's timeout of {format_ns(limit_ns)}: other ranks wait for this one meanwhile",
            )

    def _tell(self, recording: Recording, where: Whereabouts) -> None:
        """One line for the user, on one rank: where the capture is, and what to do with it or what cut it short."""
        if recording.folder.trace is None or not self._choice.speaks(where):
            return
        path = recording.folder.path
        analyse = f"; to analyse: commprof analyze {shlex.quote(str(path))}"
        more = f", but {recording.reason}" if recording.reason else analyse
        with contextlib.suppress(Exception):
            print(f"commprof: captured to {path}{more}", file=sys.stderr, flush=True)

    def _end(self, reason: str | None) -> None:
        """The loop is over, by ``reason`` if not by itself."""
        atexit.unregister(self._at_exit)
        try:
            slow = self._current is not self._main
            if self._phase is Phase.RECORDING and (reason or (self._current.recorded and not slow)):
                short = f"the loop ended after {len(self._current.recorded)} of {self._current.window.steps} steps"
                self._guard(lambda: self._finish(reason or short))
            elif slow:
                self._guard(self._drop)
            if self._phase in {Phase.WAITING, Phase.READY, Phase.RECORDING}:
                self._guard(lambda: self._nothing_recorded(reason))
            if self._phase is not Phase.UNSELECTED and self._run.where is not None:
                if reason is None:
                    self._sample_clocks("after")
                self._main.folder.put_manifest(self._run.where.rank, lambda: self._manifest(self._main))
        finally:
            self._phase = Phase.STOPPED
            self._model = None
            self._term.end()
            with contextlib.suppress(Exception):
                self._engine.close()

    def _drop(self) -> None:
        """The loop ended as the step after a slow one began: there is nothing to write of it."""
        self._phase, self._current = self._resume, self._main
        self._engine.stop(wait_for_device=False)

    def _nothing_recorded(self, reason: str | None) -> None:
        self._phase = Phase.FAILED
        needed = f"no step recorded: at least {self._main.window.needed} steps needed, the loop had {self._index}"
        self._main.reason = f"no step recorded: {reason}" if reason else needed
        self._engine.stop(wait_for_device=False)
        if not self._selected(self._run.where or self._engine.whereabouts()):
            self._phase = Phase.UNSELECTED
        elif reason is None:
            why = str(self._main.window) if self._index else "is capture.step() called after every iteration?"
            self._warn("empty", f"{needed} ({why})")

    def _sample_clocks(self, moment: Any) -> None:
        try:
            self._run.samples.extend(self._engine.clock_samples(moment))
        except Exception as error:
            self._run.notes.append(f"clocks {moment} the loop not compared: {describe(error)}")

    def _manifest(self, recording: Recording) -> Manifest:
        return manifest_of(self._run, recording, self._slow_found)

    def _folder(self, path: Any) -> CaptureFolder:
        return CaptureFolder(path, self._write_limit_s, tick_ns=self._engine.tick_ns, warn=self._warn)

    def _warn(self, key: str, message: str) -> None:
        """One line on the logger per kind of trouble; not even a logger that raises reaches the training."""
        if key in self._warned:
            return
        self._warned.add(key)
        with contextlib.suppress(Exception):
            _LOGGER.warning("commprof: %s", message)


def _torch_engine(with_stack: bool, nvtx: bool) -> Engine:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("Capture needs PyTorch, which is not installed", hint='pip install "commprof[torch]"')
    from commprof.capture.torch_engine import TorchEngine

    return TorchEngine(with_stack=with_stack, nvtx=nvtx)
