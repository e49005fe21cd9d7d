"""Find out whether communication slows a distributed PyTorch training down, where, and by how much.

>>> import commprof
>>> analysis = commprof.analyze("runs/ddp")              # doctest: +SKIP
>>> commprof.write_report(analysis, html="report.html")  # doctest: +SKIP

Nothing heavy is imported before it is needed: ``import commprof`` loads neither torch nor pandas nor plotly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from commprof.version import __version__

if TYPE_CHECKING:
    from commprof.analysis.model import Analysis
    from commprof.analysis.run import analyze
    from commprof.api import load, write_report
    from commprof.capture import Capture
    from commprof.diagnosis.diagnose import diagnose
    from commprof.diagnosis.model import Diagnosis
    from commprof.errors import CannotAnswer, CommprofError, InputRefused, NotATrace, UsageError, WorkerDied
    from commprof.trace.model import Trace

_WHERE = {
    "Analysis": "commprof.analysis.model",
    "CannotAnswer": "commprof.errors",
    "Capture": "commprof.capture",
    "CommprofError": "commprof.errors",
    "Diagnosis": "commprof.diagnosis.model",
    "InputRefused": "commprof.errors",
    "NotATrace": "commprof.errors",
    "Trace": "commprof.trace.model",
    "UsageError": "commprof.errors",
    "WorkerDied": "commprof.errors",
    "analyze": "commprof.analysis.run",
    "diagnose": "commprof.diagnosis.diagnose",
    "load": "commprof.api",
    "write_report": "commprof.api",
}

__all__ = [
    "Analysis",
    "CannotAnswer",
    "Capture",
    "CommprofError",
    "Diagnosis",
    "InputRefused",
    "NotATrace",
    "Trace",
    "UsageError",
    "WorkerDied",
    "__version__",
    "analyze",
    "diagnose",
    "load",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'commprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
