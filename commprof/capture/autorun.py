"""The part of ``commprof run`` inside the training process: a hook that starts by itself.

Nothing happens until the program imports torch's optimizers or DeepSpeed's engine; the capture is made
with the first optimizer and begins to count after its first step, which is step 0. It ends with the
process.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from commprof.capture.optimizer_steps import OptimizerSteps, wrap_engine, wrap_optimizers

if TYPE_CHECKING:
    from commprof.capture.hook import Capture

STEP_SOURCE = "optimizer"


class AutoCapture:
    """One capture per process: ``make`` it early, ``step`` it after each optimizer step."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._capture: Capture | None = None
        self._started = False
        self._pid = 0

    def make(self) -> None:
        """CUDA graphs that are captured from now on are noted."""
        # A forked process is a rank of its own, and its parent's capture is not its business.
        if self._capture is None or self._pid != os.getpid():
            from commprof.capture.hook import Capture

            self._pid, self._started = os.getpid(), False
            self._capture = Capture(**self._options, _first=1, _step_source=STEP_SOURCE)

    def step(self) -> None:
        self.make()
        if self._capture is None:
            return
        if self._started:
            self._capture.step()
        else:
            self._started = True
            self._capture.start()


def watch_imports(options: str) -> None:
    """Wait for the modules that hold what steps; ``options`` of ``Capture`` as JSON."""
    capture = AutoCapture(json.loads(options))
    steps = OptimizerSteps(capture.step)
    todo: dict[str, Callable[[ModuleType], None]] = {
        "torch.optim.optimizer": lambda it: wrap_optimizers(it.Optimizer, steps, capture.make),
        "deepspeed.runtime.engine": lambda it: wrap_engine(it.DeepSpeedEngine, "step", steps),
        "deepspeed.runtime.pipe.engine": lambda it: wrap_engine(it.PipelineEngine, "train_batch", steps),
    }
    sys.meta_path.insert(0, _Watch(todo))


class _Watch(importlib.abc.MetaPathFinder):
    """Runs something right after a module is loaded; finds nothing by itself."""

    def __init__(self, todo: dict[str, Callable[[ModuleType], None]]) -> None:
        self._todo = todo

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        then = self._todo.pop(fullname, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, then)
        return spec


class _Then(importlib.abc.Loader):
    """The loader of a module, and what follows; a release without what we look for costs a line, no more."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._follow = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        try:
            self._follow(module)
        except Exception as error:
            print(f"commprof: not captured: {module.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
