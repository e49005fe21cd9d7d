"""DeepSpeed: steps of the loop are those of its engine at the end of an accumulation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from commprof.capture.hook import Capture
from commprof.capture.integrations.method_steps import after_each


@contextmanager
def capture(engine: Any, out: str | os.PathLike[str], **options: Any) -> Iterator[Capture]:
    """Capture the loop inside; ``engine`` as ``deepspeed.initialize`` gives it, ``options`` those of ``Capture``."""
    # A pipeline's engine refuses step(): it steps at the end of train_batch(), once per call.
    pipeline = any(kind.__name__ == "PipelineEngine" for kind in type(engine).__mro__)
    method = "train_batch" if pipeline else "step"
    with (
        Capture(out, **{"model": engine, **options}) as hook,
        after_each(engine, method, lambda: pipeline or bool(engine.is_gradient_accumulation_boundary()), hook.step),
    ):
        yield hook
