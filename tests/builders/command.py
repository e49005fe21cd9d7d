"""The command line in this process: arguments in; exit code, report and both streams out."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """What one call of the command line left behind; ``report`` is None where no JSON was written."""

    code: int
    stdout: str
    stderr: str
    report: Any
    json_bytes: bytes

    @property
    def lines(self) -> list[str]:
        """The lines of standard error that hold anything."""
        return [line for line in self.stderr.splitlines() if line.strip()]

    @property
    def everything(self) -> str:
        """All text a person can read: both streams and every string of the report."""
        return "\n".join([self.stdout, self.stderr, *strings(self.report)])

    def notes(self, code: str) -> list[str]:
        """The messages of the notes with this code."""
        return [note["message"] for note in self.report["notes"] if note["code"] == code]


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def strict_json(data: bytes) -> Any:
    """Parse JSON; refuse what RFC 8259 does not know: NaN, Infinity, a key given twice, control bytes."""

    def no_constant(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError(f"a key comes twice in {[key for key, _ in pairs]}")
        return result

    return json.loads(data.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=no_duplicates)


def call(*argv: str | Path) -> tuple[int, str, str]:
    """Run ``commprof`` with these arguments in this process."""
    from commprof.cli.app import main  # late: collecting tests must not need a whole commprof

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in argv])
    texts = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]  # type: ignore[attr-defined]
    assert type(code) is int, f"main returned {code!r} instead of an exit code"
    return code, texts[0], texts[1]


def analyze(paths: Path | list[Path], out: Path, *options: str | Path) -> Run:
    """``commprof analyze PATHS --no-html --json OUT``; no traceback may ever show."""
    out.unlink(missing_ok=True)
    listed = paths if isinstance(paths, list) else [paths]
    html = [] if "-o" in options else ["--no-html"]
    code, stdout, stderr = call("analyze", *listed, *html, "--json", out, *options)
    assert "Traceback" not in stdout + stderr, stderr
    data = out.read_bytes() if out.exists() else b""
    return Run(code, stdout, stderr, strict_json(data) if data else None, data)
