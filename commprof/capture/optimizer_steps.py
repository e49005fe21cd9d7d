"""Steps of a loop by its optimizer: for a script that nobody changed.

A step ends where the loop's leading optimizer ends its own: the first one seen. Others beside it (two
players of a game) and inside it (a sharded optimizer steps the one that it wraps) end no step.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

_GIVEN_UP_AFTER = 50  # steps of others since the leading optimizer's last one


class OptimizerSteps:
    """Calls ``on_step`` after each step of the leading optimizer, outside the range that it has in the trace."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step
        self._depth = 0
        self._leader: weakref.ref[Any] | None = None
        self._others = 0

    def run(self, optimizer: Any, step: Callable[[], Any]) -> Any:
        """Run ``step`` of ``optimizer``; what it raises ends no step of the loop."""
        self._depth += 1
        try:
            result = step()
        finally:
            self._depth -= 1
        if self._depth == 0 and self._leads(optimizer):
            self._on_step()
        return result

    def _leads(self, optimizer: Any) -> bool:
        leader = self._leader() if self._leader is not None else None
        self._others = 0 if leader is optimizer else self._others + 1
        if leader is None or self._others > _GIVEN_UP_AFTER:
            self._leader, self._others = weakref.ref(optimizer), 0
            return True
        return leader is optimizer


def wrap_optimizers(optimizer_class: Any, steps: OptimizerSteps, on_first: Callable[[], None]) -> None:
    """Have every ``torch.optim.Optimizer`` made from now on run its steps through ``steps``.

    ``on_first`` is called when the first one is made. Inside code that ``torch.compile`` compiles no step
    is seen.
    """
    profiled, init = optimizer_class.profile_hook_step, optimizer_class.__init__

    def profile_hook_step(func: Any) -> Any:
        inner = profiled(func)

        @functools.wraps(func)
        def step(*args: Any, **kwargs: Any) -> Any:
            import torch

            if torch.compiler.is_compiling():
                return inner(*args, **kwargs)
            return steps.run(args[0], lambda: inner(*args, **kwargs))

        return step

    @functools.wraps(init)
    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        optimizer_class.__init__ = init
        on_first()
        init(self, *args, **kwargs)

    optimizer_class.profile_hook_step = staticmethod(profile_hook_step)
    optimizer_class.__init__ = first_init


def wrap_engine(engine_class: Any, method: str, steps: OptimizerSteps) -> None:
    """Have a DeepSpeed engine count as the optimizer: ``method`` steps it, at the end of an accumulation."""
    original = getattr(engine_class, method)

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Asked before: the step itself moves on to the next micro-batch.
        if method == "step" and not self.is_gradient_accumulation_boundary():
            return original(self, *args, **kwargs)
        return steps.run(self, lambda: original(self, *args, **kwargs))

    setattr(engine_class, method, step)
