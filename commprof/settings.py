"""Settings of a project: ``[tool.commprof]`` of the nearest ``pyproject.toml``, under the names of the options."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commprof.errors import InputRefused

LIMIT_KEYS = ("max-exposed", "max-straggler-wait", "min-overlap")
_KEYS = ("comm-pattern", *LIMIT_KEYS, "limit")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project wants of every run.

    ``comm_patterns`` as for ``--comm-pattern``; ``named_limits`` are pairs such as ``("max-exposed", "15%")``,
    ``limits`` texts as for ``--limit``; ``source`` is the file that says so, ``None`` where there is none.
    """

    comm_patterns: tuple[str, ...] = ()
    named_limits: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()
    source: Path | None = None


def load_settings(start: Path | None = None) -> Settings:
    """The settings for a command run in ``start`` (the current folder): of the nearest ``pyproject.toml`` above it.

    Raises :class:`~commprof.errors.InputRefused` for a file that cannot be read, a key that does not exist and a value
    of the wrong kind.
    """
    folder = (start or Path.cwd()).absolute()
    for place in (folder, *folder.parents):
        path = place / "pyproject.toml"
        if path.is_file():
            return _read(path)
    return Settings()


def _read(path: Path) -> Settings:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputRefused(f"{path}: {_reason(error)}", hint="the settings of commprof are read from it") from None
    ours = table.get("commprof") if isinstance(table, dict) else None
    if ours is None:
        return Settings()
    if not isinstance(ours, dict):
        raise InputRefused(f"{path}: [tool.commprof] is not a table")
    for key in ours:
        if key not in _KEYS:
            raise InputRefused(f"{path}: [tool.commprof] knows no {key!r}", hint="there are: " + ", ".join(_KEYS))
    return Settings(
        comm_patterns=_texts(ours, "comm-pattern", path),
        named_limits=tuple((key, _number(ours[key], key, path)) for key in LIMIT_KEYS if key in ours),
        limits=_texts(ours, "limit", path),
        source=path,
    )


def _texts(table: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise InputRefused(f"{path}: [tool.commprof] {key} is {value!r}", hint="give a text or a list of texts")
    return tuple(listed)


def _number(value: Any, key: str, path: Path) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputRefused(f"{path}: [tool.commprof] {key} is {value!r}", hint="give a share such as 0.15 or '15%'")
    return str(value)


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())
