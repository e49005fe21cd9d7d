"""Data for the browser: strict JSON that cannot end the script element that holds it."""

from __future__ import annotations

from typing import Any

import msgspec
from markupsafe import Markup

# "<" and ">" so that no string can close the element or open a comment, "&" for parsers that decode entities,
# U+2028 and U+2029 because they end a line in older JavaScript.
_ESCAPES = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


def json_for_script(data: Any) -> Markup:
    """JSON text of ``data`` for a ``<script type="application/json">``; NaN and infinities become ``null``."""
    text = msgspec.json.encode(data).decode()
    for raw, escaped in _ESCAPES:
        text = text.replace(raw, escaped)
    return Markup(text)


class Strings:
    """Texts stored once; columns hold their index. Texts beyond ``most_characters`` in all are left out."""

    LEFT_OUT = "(name left out to keep the file small)"

    def __init__(self, most_characters: int = 1_500_000) -> None:
        self._index: dict[str, int] = {}
        self._left = most_characters

    def add(self, text: str) -> int:
        """Index of ``text``."""
        if text not in self._index:
            self._left -= len(text)
            if self._left < 0:
                text = self.LEFT_OUT
        return self._index.setdefault(text, len(self._index))

    @property
    def texts(self) -> list[str]:
        return list(self._index)
