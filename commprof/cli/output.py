"""The console that people read; it leaves a closed pipe to the place that turns errors into exit codes."""

from __future__ import annotations

from rich.console import Console


class Output(Console):
    """A console whose reader may go away (``commprof analyze ... | head``)."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1, which means something else here."""
        raise BrokenPipeError
