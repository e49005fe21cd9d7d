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


class TableByCategory(dict[object, int]):
    """:func:`table_of`, remembered per distinct value."""

    def __missing__(self, category: object) -> int:
        table = int(table_of(category))
        self[category] = table
        return table
