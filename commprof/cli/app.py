"""The command line: verbs, and the one place that turns an error into a line and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from commprof.cli.analyze import analyze
from commprof.cli.check import check
from commprof.cli.compare import compare
from commprof.cli.demo import demo
from commprof.cli.doctor import doctor
from commprof.cli.ending import EXIT_CODE, Terminated, terminable
from commprof.cli.run import run as run_command
from commprof.cli.schema import schema
from commprof.cli.streams import any_text, discard, print_error, print_out
from commprof.cli.synth import synth
from commprof.errors import CommprofError
from commprof.version import __version__

app = typer.Typer(
    name="commprof",
    help="Is communication the bottleneck of your distributed PyTorch training, where, and how much would you gain?",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(analyze)
app.command()(check)
app.command()(compare)
app.command()(demo)
app.command(name="run", context_settings={"allow_interspersed_args": False})(run_command)
app.command()(synth)
app.command()(schema)
app.command()(doctor)

_OBJECTS_BEFORE_COLLECTING = 50_000
_INTERRUPTED = 130
_PLAIN_WORDS = (
    (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"must be \1 or less"),
    (r"Input should be a valid integer.*", "is not a whole number"),
    (r"Input should be a valid number.*", "is not a number"),
)
_BROKE = 4


def _version(wanted: bool) -> None:
    if wanted:
        print_out(f"commprof {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_out(context.get_help() + "\n")


@cache
def _verbs() -> Any:
    """The commands, made once: reading the signatures of all verbs takes a quarter of the time of a small trace."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on standard error (``--debug``: traceback)."""
    with any_text():
        try:
            with terminable():
                return _main(list(sys.argv[1:] if argv is None else argv))
        except Terminated:
            return EXIT_CODE


def _main(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    try:
        return int(_verbs()(arguments, standalone_mode=False) or 0)
    except CommprofError as error:
        if debug:
            traceback.print_exc()
        _line(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as ended:
        # Typer's answer to a reader of its help who went away.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        discard(sys.__stdout__ or sys.stdout)
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        _line(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return _BROKE
    except Exception as error:
        code = _package(error) if isinstance(error, ModuleNotFoundError) else _usage(error)
        if code is not None:
            return code
        if debug:
            traceback.print_exc()
        _line(f"internal error: {type(error).__name__}: {error} (run again with --debug and report it)")
        return _BROKE


def _package(error: ModuleNotFoundError) -> int | None:
    """The exit code for a package that is not installed, after naming it; ``None`` for a module of our own."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "commprof"):
        return None
    _line(f"the package {package} is not installed (pip install {package})")
    return 2


def _usage(error: Exception) -> int | None:
    """The exit code of an error that the command line parser raised, after printing it; ``None`` for another one."""
    if type(error).__name__ == "Abort":
        return _INTERRUPTED
    if not hasattr(error, "format_message"):
        return None
    _line(f"{_plainly(error.format_message())} (commprof --help shows how)")
    return 2


def _plainly(message: str) -> str:
    """In the words of a command line what the parser says of any value."""
    for theirs, ours in _PLAIN_WORDS:
        message = re.sub(theirs, ours, message)
    return message


def _line(text: str) -> None:
    print_error("commprof: " + " ".join(text.split()))


def run() -> None:
    """Entry point of the ``commprof`` command."""
    # Imports and tables make many objects and hardly any cycle: looking for garbage takes a tenth of the start.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    _leave(main())


def _leave(code: int) -> NoReturn:
    """End the process; what it holds goes with it: taking everything apart first takes longer than most traces."""
    if threading.active_count() == 1:
        with contextlib.suppress(OSError, ValueError):  # output that cannot be written is reported the usual way
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            atexit._run_exitfuncs()
            os._exit(code)
    sys.exit(code)
