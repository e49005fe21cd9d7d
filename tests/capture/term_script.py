"""A loop under the hook on a fake profiler, told to end by SIGTERM; run as ``python -m tests.capture.term_script``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from commprof.capture import Capture
from tests.capture.fake import FakeEngine


def main(kind: str, folder: Path) -> None:
    engine = FakeEngine()
    if kind == "own handler":
        signal.signal(signal.SIGTERM, lambda *_: print("own handler", flush=True))
    with Capture(folder, _engine=engine, write_limit_s=2.0) as capture:
        for step in range(12):
            if step == 6:
                _end_me(kind, engine)
            capture.step()
    print("loop over", flush=True)


def _end_me(kind: str, engine: Any) -> None:
    if kind == "stuck":
        # Inside one call of C that no Python handler interrupts, as a collective that waits for a lost rank.
        import ctypes

        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)
    elif kind == "child":
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        print("child", os.WTERMSIG(status), flush=True)
    elif kind == "while writing":
        export = engine.export

        def slow(path: Path) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            export(path)

        engine.export = slow
    else:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
