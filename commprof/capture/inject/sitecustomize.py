"""Python runs this at its start in every process of ``commprof run``; it costs nothing until torch is imported.

A sitecustomize of the user's own, which this one hides, is run too.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _watch() -> None:
    # What starts here must never break the program that it rides on.
    try:
        from commprof.capture.autorun import watch_imports

        watch_imports(os.environ["COMMPROF_RUN"])
    except Exception as error:
        print(f"commprof: {sys.executable} is not captured: {type(error).__name__}: {error}", file=sys.stderr)


def _run_the_hidden_one() -> None:
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("COMMPROF_RUN"):
    _watch()
_run_the_hidden_one()
