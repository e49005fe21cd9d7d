"""JSON text and compressed bytes of a trace, exactly as wanted, good or bad.

``json.dumps`` cannot write what real profilers write (exact decimals beyond a double, bare ``inf``, a key
given twice), so values may be :class:`Raw` tokens and objects may be :class:`Pairs`.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import zipfile
from collections.abc import Sequence
from typing import Any, Literal

Style = Literal["compact", "spaced", "pretty"]


class Raw(str):
    """A token that stands in the JSON text as it is: ``Raw("NaN")``, ``Raw("1.100")``."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object given as its (key, value) pairs, so that a key can come twice."""


def render(value: Any, style: Style = "spaced", depth: int = 0) -> str:
    """JSON text: ``compact`` (no space at all), ``spaced`` (like json.dumps) or ``pretty`` (indented)."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        value = Pairs(value.items())
    if isinstance(value, Pairs):
        return _block(
            "{}",
            [json.dumps(k) + _colon(style) + render(v, style, depth + 1) for k, v in value],
            style,
            depth,
        )
    if isinstance(value, list | tuple):
        return _block("[]", [render(v, style, depth + 1) for v in value], style, depth)
    return json.dumps(value)


def _colon(style: Style) -> str:
    return ":" if style == "compact" else ": "


def _block(brackets: str, parts: Sequence[str], style: Style, depth: int) -> str:
    opening, closing = brackets
    if not parts:
        return brackets
    if style == "pretty":
        inner = "\n" + "  " * (depth + 1)
        return opening + inner + ("," + inner).join(parts) + "\n" + "  " * depth + closing
    return opening + ("," if style == "compact" else ", ").join(parts) + closing


def gzip_bytes(data: bytes, members: int = 1) -> bytes:
    """Gzip ``data`` in ``members`` concatenated members; the same bytes on every run."""
    cuts = [len(data) * i // members for i in range(members + 1)]
    return b"".join(gzip.compress(data[a:b], mtime=0) for a, b in itertools.pairwise(cuts))


def zip_bytes(data: bytes, name: str = "trace.json") -> bytes:
    """A zip archive with one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()
