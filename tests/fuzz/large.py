"""Large damaged files, each a repetition, so that any size can be made; and what reading one costs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.builders.kineto import t0

_HEAD = b'{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2},"traceEvents":['
_EVENT = (
    b'{"ph":"X","cat":"python_function","name":"%s","pid":1,"tid":1,"ts":%d,"dur":5,"args":{"Python id":1,'
    b'"Call stack":"torch/nn/modules/module.py(1511): _wrapped_call_impl"}}'
)
_T0 = b",".join(json.dumps(event).encode() for event in t0().events)


def _events(name: bytes, size: int) -> bytes:
    one = _EVENT % (name, 100)
    return b",\n".join([one] * (size // len(one)))


def _repeated(piece: bytes) -> Callable[[int], bytes]:
    return lambda size: _HEAD + _T0 + b"," + piece * (size // len(piece)) + b"]}"


LARGE: dict[str, Callable[[int], bytes]] = {
    "clean": lambda size: _HEAD + _T0 + b",\n" + _events(b"forward", size) + b"]}",
    "an invalid escape in every event": lambda size: _HEAD + _T0 + b",\n" + _events(b"D:\\unit\\x", size) + b"]}",
    "a raw quote in every event": lambda size: _HEAD + _T0 + b",\n" + _events(b'say "x" now', size) + b"]}",
    "every event beyond repair": lambda size: _HEAD + _T0 + b",\n" + _events(b'x"', size).replace(b"1,", b"1;") + b"]}",
    "every 40th event beyond repair": lambda size: (
        _HEAD
        + _T0
        + b",\n"
        + b",\n".join(
            [(_events(b"f", 8000) + b",\n" + (_EVENT % (b"f", 9)).replace(b'"pid":', b'"pid";'))] * (size // 8200)
        )
        + b"]}"
    ),
    "an unclosed string at the start": lambda size: _HEAD + b'{"ph":"X","name":"open,' + _events(b"f", size) + b"]}",
    "an unclosed string in the metadata": lambda size: (
        b'{"a":"open,' + _HEAD[1:] + _T0 + b"," + _events(b"f", size) + b"]}"
    ),
    "one giant event": lambda size: _HEAD + _T0 + b',{"ph":"X","name":"' + b"x" * size + b'"}]}',
    "one giant list of objects": lambda size: (
        _HEAD + _T0 + b',{"ph":"X","args":[' + b'{"name":1},' * (size // 11) + b"1]}]}"
    ),
    "no event, only metadata": lambda size: b'{"a":[' + b"1," * (size // 2) + b"1]}",
    "only opening brackets": _repeated(b"["),
    "only closing braces": _repeated(b"}"),
    "only quotes": _repeated(b'"'),
    "only backslashes": _repeated(b"\\"),
    "only spaces": _repeated(b" "),
    "only commas": _repeated(b","),
    "only digits": _repeated(b"1"),
    "only zero bytes": lambda size: b"\0" * size,
    "cut": lambda size: _HEAD + _T0 + b",\n" + _events(b"forward", size)[:-40],
}

_READ = """
import sys
from commprof.errors import CommprofError
from commprof.trace.read import read_rank
try:
    file = read_rank(sys.argv[1]).file
    counts = {**file.repaired, **file.skipped}
    print(f"{file.events} events, {sum(counts.values())} counted" + (", truncated" if file.truncated else ""))
except CommprofError as error:
    print(f"{type(error).__name__}: {error.message.split(': ', 1)[-1]}")
"""


def cost(data: bytes, path: Path, limit_s: float = 300) -> tuple[float, int, str]:
    """Processor seconds and peak bytes of one process that reads ``data``, and what came of it."""
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", _READ, str(path)], stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _peak(process.pid))
        if time.monotonic() - began > limit_s:
            process.kill()
            process.wait()
            return limit_s, peak, "hangs"
        time.sleep(0.02)
    assert process.stdout is not None
    text = process.stdout.read().strip()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, peak, text or f"exit code {process.returncode}"


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
