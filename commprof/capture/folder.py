"""What a capture leaves behind: the trace and the manifest of one rank, or one warning that says why not."""

from __future__ import annotations

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from commprof.capture.delivery import Delivery, deliver_trace, free_number, is_whole
from commprof.manifest import Manifest, trace_name, write_manifest

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


class CaptureFolder:
    """Writes one rank's files; nothing but ``BaseException`` of a signal comes out of it.

    ``warn(key, message)`` takes at most one message per key, ``tick_ns`` is a monotonic clock. Afterwards
    ``trace`` is the name of the trace (``None``: not written), ``lost`` the reason if there is none,
    ``export_ns`` the time from the end of recording to the trace in its place.
    """

    def __init__(
        self,
        path: Path,
        limit_s: float,
        *,
        tick_ns: Callable[[], int],
        warn: Callable[[str, str], None],
    ) -> None:
        self.path = path
        self.trace: str | None = None
        self.lost: str | None = None
        self.export_ns: int | None = None
        self._number: int | None = None
        self._delivery = Delivery(limit_s)
        self._tick_ns = tick_ns
        self._warn = warn

    def put_trace(
        self, rank: int, export: Callable[[Path], None], manifest: Callable[[], Manifest], since_ns: int
    ) -> None:
        """Export to a local file, compress it into the folder, and write the manifest that names it."""
        raw = self._export(rank, export)
        if raw is None:
            return

        def job() -> None:
            self._number = number = deliver_trace(raw, self.path, rank)
            self.trace = trace_name(rank, number)
            self.export_ns = self._tick_ns() - since_ns
            shutil.rmtree(raw.parent, ignore_errors=True)
            if number > 1:
                self._warn("second", f"{self.path} holds a capture of this rank already, this one is {self.trace}")
            write_manifest(self.path, manifest(), number=number)

        try:
            if not self._delivery.run(job):
                self._warn("slow", f"writing to {self.path} is past its time limit and goes on; the trace is {raw}")
        except Exception as error:
            kept = f", its trace is {raw}" if raw.exists() else ""
            self._lose(f"the capture could not be written to {self.path}: {describe(error)}", kept)

    def put_manifest(self, rank: int, manifest: Callable[[], Manifest]) -> None:
        """Bring the manifest up to date; a folder that cannot be written has had its warning already."""

        def job() -> None:
            self.path.mkdir(parents=True, exist_ok=True)
            if self._number is None:
                self._number = free_number(self.path, rank)
            write_manifest(self.path, manifest(), number=self._number)

        try:
            self._delivery.run(job)
        except Exception as error:
            self._warn("write", f"the manifest could not be written to {self.path}: {describe(error)}")

    def _export(self, rank: int, export: Callable[[Path], None]) -> Path | None:
        """Let the profiler write its JSON into a local folder of our own; ``None`` after a failure."""
        local: Path | None = None
        raw: Path | None = None
        try:
            local = Path(tempfile.mkdtemp(prefix="commprof-"))
            raw = local / trace_name(rank).removesuffix(".gz")
            export(raw)
            if not is_whole(raw):
                raise OSError(errno.ENOSPC, "the profiler's file is cut short, the disk may be full")
            return raw
        except BaseException as error:
            full = isinstance(error, OSError) and error.errno in _DISK_FULL
            keep = isinstance(error, Exception) and not full and raw is not None and _size(raw) > 0
            if local is not None and not keep:
                shutil.rmtree(local, ignore_errors=True)
            if not isinstance(error, Exception):
                raise
            self._lose(
                f"the trace could not be exported: {describe(error)}",
                f", the raw file is {raw}" if keep else "",
            )
            return None

    def _lose(self, reason: str, kept: str) -> None:
        self.lost = reason
        self._warn("write", reason + kept)


def describe(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
