"""Which table of a rank an event belongs to, by its ``cat``: the spellings of all eras and vendors."""

from __future__ import annotations

from enum import IntEnum


class Table(IntEnum):
    """Where the rows of a category go. ``UNUSED`` is known and needed by no analysis, ``UNKNOWN`` has no category."""

    UNKNOWN = -1
    UNUSED = 0
    KERNEL = 1
    COPY = 2
    RUNTIME = 3
    OPERATOR = 4
    ANNOTATION = 5


_BY_NAME = {
    "cpu_op": Table.OPERATOR,
    "operator": Table.OPERATOR,
    "user_annotation": Table.ANNOTATION,
    "gpu_user_annotation": Table.UNUSED,
    "mtia_ccp_events": Table.KERNEL,
    "hpu_op": Table.KERNEL,
    "runtime": Table.RUNTIME,
    "driver": Table.RUNTIME,
}


def table_of(category: object) -> Table:
    """The table for one value of ``cat``.

    Device categories differ by vendor and year (``kernel``, ``Kernel``, ``xpu_kernel``, ``gpu_memcpy``, ``Memset``)
    but share their last word, and so do the runtimes (``cuda_runtime``, ``hip_driver``, ``xpu_runtime``).
    """
    if not isinstance(category, str) or not category:
        return Table.UNKNOWN
    name = category.strip().lower()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.endswith("kernel"):
        return Table.KERNEL
    if name.endswith(("memcpy", "memset")):
        return Table.COPY
    if name.endswith(("_runtime", "_driver")):
        return Table.RUNTIME
    return Table.UNUSED


COMPLETE_CATEGORIES = (
    "cpu_op", "Operator", "user_annotation", "gpu_user_annotation", "python_function", "kernel", "Kernel",
    "gpu_memcpy", "gpu_memset", "Memcpy", "Memset", "cuda_runtime", "cuda_driver", "hip_runtime", "Runtime",
    "xpu_runtime", "xpu_driver", "mtia_runtime", "mtia_ccp_events", "mtia_insight", "glow_runtime", "hpu_op",
    "privateuse1_runtime", "privateuse1_driver", "cuda_sync", "cuda_event", "cuda_profiler_range", "overhead",
    "collective_comm", "gpu_pm_counter", "cpu_instant_event", "Trace",
)  # fmt: skip
"""Categories of complete events that Kineto has written since 2021: each decodes to one string for all its events."""

FLOW_CATEGORIES = ("ac2g", "fwdbwd", "async", "async_cpu_to_gpu")
"""Categories of the arrows between events."""

FLOW_NAMES = (*FLOW_CATEGORIES, "launch")
"""Their names: since 2022 that of the category."""

FLOW, OTHER = 6, 7
"""Codes of a batch beside the tables: a flow, and an event of any other phase than these two kinds."""

ONLY_COMPLETE = bytes(code < FLOW for code in range(256))
ONLY_OTHERS = bytes(code == OTHER for code in range(256))
"""For ``bytes.translate``: codes to marks of these events."""


class CodeByCategory(dict[str | None, int]):
    """The code of an event of the slim decoder by its ``cat``: a table, :data:`FLOW` or :data:`OTHER`."""

    def __init__(self) -> None:
        super().__init__({category: int(table_of(category)) for category in COMPLETE_CATEGORIES})
        self.update(dict.fromkeys(FLOW_CATEGORIES, FLOW))
        self[None] = OTHER


class TableByCategory(dict[object, int]):
    """:func:`table_of`, remembered per distinct value."""

    def __missing__(self, category: object) -> int:
        table = int(table_of(category))
        self[category] = table
        return table
