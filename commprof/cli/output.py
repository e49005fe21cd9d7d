"""The console that people read; apart from ``streams`` because help must not wait for rich."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from commprof.cli.streams import discard


class Output(Console):
    """A console whose reader may go away (``commprof analyze ... | head``): the rest is for nobody."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Without the blanks that fill up a table: what is no terminal keeps, compares or pastes the lines."""
        if self.is_terminal or self.quiet:
            super().print(*objects, **options)
            return
        with self.capture() as kept:
            super().print(*objects, **options)
        try:
            self.file.write("".join(f"{line.rstrip(' ')}\n" for line in kept.get().removesuffix("\n").split("\n")))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1, which means something else here."""
        self.quiet = True
        discard(self.file)
