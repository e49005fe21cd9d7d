"""The console that people read; apart from ``streams`` because help must not wait for rich."""

from __future__ import annotations

from rich.console import Console

from commprof.cli.streams import discard


class Output(Console):
    """A console whose reader may go away (``commprof analyze ... | head``): the rest is for nobody."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1, which means something else here."""
        self.quiet = True
        discard(self.file)
