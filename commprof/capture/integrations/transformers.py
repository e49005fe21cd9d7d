"""Hugging Face ``Trainer``: a callback."""

from __future__ import annotations

import importlib
import os
from typing import Any

from commprof.capture.hook import Capture

_Callback: Any = importlib.import_module("transformers").TrainerCallback


class CaptureCallback(_Callback):  # type: ignore[misc]
    """``Trainer(..., callbacks=[CaptureCallback("runs/x")])``; options are those of ``Capture``.

    The model is looked for, since ``Trainer`` hands its callbacks the one inside the wrapper. A training
    that fails is written out when the process ends.
    """

    def __init__(self, out: str | os.PathLike[str], **options: Any) -> None:
        self._out, self._options = out, options
        self._capture: Capture | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._capture = Capture(self._out, **self._options)
        self._capture.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._capture is not None:
            self._capture.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._capture is not None:
            self._capture.stop()
            self._capture = None
