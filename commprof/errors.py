"""Everything commprof raises on purpose.

CommprofError            exit 4, the run itself broke
├── InputRefused         exit 2, the file or the option cannot be used
│   ├── NotATrace        exit 2, passed over when it lies in a folder
│   └── UsageError       exit 2, the call itself makes no sense
├── CannotAnswer         exit 3, read, but the question has no answer in it
└── WorkerDied           exit 4, a process of ours ended before its time

Each error is one line: what, why and, as ``hint``, what to do about it.
"""

from __future__ import annotations


class CommprofError(Exception):
    """An error that a person should read; never a traceback.

    ``message`` names the file or option and the reason, ``hint`` what to do; both are single lines.
    """

    exit_code = 4

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders when ranks are read in parallel, and must arrive with their hint.
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[CommprofError], message: str, hint: str | None) -> CommprofError:
    return kind(message, hint=hint)


class InputRefused(CommprofError):
    """The input cannot be used: unreadable, not a trace, two files for one rank."""

    exit_code = 2


class UsageError(InputRefused):
    """The options or arguments contradict each other or hold an impossible value."""


class CannotAnswer(CommprofError):
    """The input was read, but what was asked cannot be answered from it."""

    exit_code = 3


class WorkerDied(CommprofError):
    """A worker process ended before it delivered its rank."""

    exit_code = 4


class NotATrace(InputRefused):
    """A file that is no trace at all: refused when named, passed over (and listed) in a folder."""
