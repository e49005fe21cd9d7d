"""A progress bar by bytes on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def byte_bar(title: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Yields ``(on_total, on_bytes)``: the number of bytes to come, and each number of bytes done."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield (
            lambda total: bar.update(task, total=total),
            lambda done: bar.advance(task, done),
        )
