"""Lightning: a callback, for ``lightning`` and ``pytorch_lightning`` alike."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

from commprof.capture.hook import Capture

_WHERE = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
_Callback: Any = importlib.import_module(_WHERE).Callback


class CaptureCallback(_Callback):  # type: ignore[misc]
    """``Trainer(..., callbacks=[CaptureCallback("runs/x")])``; options are those of ``Capture``."""

    def __init__(self, out: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        # A strategy may send the callback to other processes: nothing of a capture exists before it starts.
        self._out, self._options = out, options
        self._capture: Capture | None = None
        self._stepped = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._stepped = trainer.global_step
        self._capture = Capture(self._out, **self._options)
        self._capture.start()

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """A batch that only accumulates leaves ``global_step`` alone."""
        if self._capture is not None and trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self._capture.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._capture is not None:
            self._capture.stop()
            self._capture = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._capture is not None:
            self._capture.__exit__(type(exception), exception, None)
            self._capture = None
