"""Accelerate: steps of the loop are those in which the gradients are synchronised."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from commprof.capture.hook import Capture
from commprof.capture.integrations.method_steps import after_each


@contextmanager
def capture(accelerator: Any, optimizer: Any, out: str | os.PathLike[str], **options: Any) -> Iterator[Capture]:
    """Capture the loop inside; ``optimizer`` is a prepared one, ``options`` are those of ``Capture``.

    A step that the gradient scaler skips counts like any other.
    """
    with (
        Capture(out, **options) as hook,
        after_each(optimizer, "step", lambda: bool(accelerator.sync_gradients), hook.step),
    ):
        yield hook
