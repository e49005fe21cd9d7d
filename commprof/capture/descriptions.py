"""Group descriptions that the profiler writes as broken JSON, put right in its file.

Kineto turns every backslash of its metadata into a slash, so a description with a quote, a backslash or a
letter beyond ASCII comes out invalid or changed; in event arguments it stands unescaped. Most runs have
none of these.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_HEADER = b'"distributedInfo":'
_ARGUMENT = b'"Process Group Description": "'


def need_mending(info: dict[str, Any] | None) -> bool:
    """Whether the profiler will damage ``info``, its ``distributedInfo``."""
    return info is not None and "\\" in json.dumps(info)


def mend_descriptions(path: Path, info: dict[str, Any]) -> None:
    """Rewrite the trace at ``path`` so that ``info`` and the descriptions in it are valid JSON and unchanged."""
    scratch = path.with_name(path.name + ".mended")
    damaged = _damaged(info)
    with path.open("rb") as source, scratch.open("wb") as target:
        for line in source:
            if line.lstrip().startswith(_HEADER):
                comma = b"," if line.rstrip().endswith(b",") else b""
                line = b"      " + _HEADER + b" " + json.dumps(info).encode() + comma + b"\n"
            elif _ARGUMENT in line:
                for wrong, right in damaged:
                    line = line.replace(wrong, right)
            target.write(line)
    os.replace(scratch, path)


def _damaged(info: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Event arguments with a description as they are written, and as they should be."""
    descriptions = {str(group.get("pg_desc")) for group in info.get("pg_config", [])}
    written = {(d, w) for d in descriptions for w in (d, d.replace("\\", "/"))}
    pairs = [(_ARGUMENT + w.encode() + b'"', _ARGUMENT[:-1] + json.dumps(d).encode()) for d, w in sorted(written)]
    return [(wrong, right) for wrong, right in pairs if wrong != right]
