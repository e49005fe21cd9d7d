"""The command line: verbs, and the one place that turns an error into a line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from commprof.cli.analyze import analyze
from commprof.cli.check import check
from commprof.cli.compare import compare
from commprof.cli.demo import demo
from commprof.cli.doctor import doctor
from commprof.cli.run import run as run_command
from commprof.cli.schema import schema
from commprof.cli.synth import synth
from commprof.errors import CommprofError
from commprof.version import __version__

app = typer.Typer(
    name="commprof",
    help="Is communication the bottleneck of your distributed PyTorch training, where, and how much would you gain?",
    no_args_is_help=True,
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
_BROKE = 4


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"commprof {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@cache
def _verbs() -> Any:
    """The commands, made once: reading the signatures of all verbs takes a quarter of the time of a small trace."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one line on standard error (``--debug``: traceback)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
    except BrokenPipeError:
        # Nobody reads any more. What is still buffered must not fail again when the interpreter closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    _line(f"{error.format_message()} (commprof --help shows how)")
    return 2


def _line(text: str) -> None:
    print("commprof: " + " ".join(text.split()), file=sys.stderr)


def run() -> None:
    """Entry point of the ``commprof`` command."""
    # Imports and tables make many objects and hardly any cycle: looking for garbage takes a tenth of the start.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    sys.exit(main())
