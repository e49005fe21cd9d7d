"""Operations, data types and message sizes: the vocabulary of collectives, whoever wrote it down.

Sizes follow nccl-tests: ``S`` is the tensor for all-reduce, broadcast, reduce and point-to-point, the gathered output
for all-gather, the full input for reduce-scatter, one rank's whole send buffer for all-to-all.
"""

from __future__ import annotations

import re

OPERATIONS = (
    "unknown", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
    "send", "recv", "send_recv", "barrier",
)  # fmt: skip
"""Every operation a collective can have; a call stores its index here."""

_BY_WORD = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("dispatch", "all_to_all"),
    ("combine", "all_to_all"),
    ("oneshotreduce", "all_reduce"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send"),
    ("recv", "recv"),
)

_NO_CALL = frozenset({"wait", "init"})


def operation_of(name: str) -> str:
    """The operation that a name speaks of: ``_allgather_base``, ``nccl:all_to_all``, ``c10d::reduce_scatter_``."""
    word = re.sub(r"[^a-z]", "", name.rpartition("::")[2].rpartition("nccl:")[2].lower())
    for part, operation in _BY_WORD:
        if part in word:
            return operation
    return "unknown"


def is_call(collective_name: str) -> bool:
    """Whether a ``record_param_comms`` row is a call; ``wait`` and ``init`` rows move no data."""
    return collective_name.strip().lower() not in _NO_CALL


_ELEMENT_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2,
    "byte": 1, "char": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1, "bool": 1,
    "short": 2, "int16": 2, "uint16": 2, "unsigned short": 2, "int": 4, "int32": 4, "uint32": 4, "unsigned int": 4,
    "long": 8, "int64": 8, "uint64": 8, "long int": 8, "unsigned long": 8, "long long": 8,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16, "complex32": 4, "complex64": 8, "complex128": 16,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::complex<c10::half>": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1, "quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2, "short int": 2, "unsigned short int": 2,
    "long long int": 8, "unsigned long int": 8, "unsigned long long": 8, "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
}  # fmt: skip

_STANDARD_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "byte": "uint8", "unsigned char": "uint8",
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "short int": "int16",
    "unsigned short": "uint16", "unsigned short int": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
    "unsigned long int": "uint64", "unsigned long long": "uint64", "long long": "int64", "long long int": "int64",
    "char": "int8", "signed char": "int8", "short": "int16", "int": "int32", "long": "int64", "long int": "int64",
    "complexfloat": "complex64", "complexdouble": "complex128", "complexhalf": "complex32",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::half>": "complex32",
}  # fmt: skip


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of one element of a c10 or C++ type name; ``None`` for a type that is not known."""
    return None if dtype is None else _ELEMENT_BYTES.get(_plain(dtype))


def standard_dtype(dtype: str | None) -> str | None:
    """The type as PyTorch users write it (``Float`` is ``float32``); unknown names stay as they are."""
    if dtype is None:
        return None
    plain = _plain(dtype)
    return _STANDARD_NAMES.get(plain, plain if plain in _ELEMENT_BYTES else dtype)


def _plain(dtype: str) -> str:
    name = dtype.strip().lower()
    return name if name.startswith("c10::complex") else name.removeprefix("c10::")


def message_bytes(
    operation: str, elements_in: int | None, elements_out: int | None, dtype: str | None, group_size: int | None
) -> int | None:
    """``S`` of one call in bytes, from the elements that the rank gives and gets; ``None`` if it cannot be known."""
    width = element_bytes(dtype)
    if width is None:
        return None
    given, got = elements_in or 0, elements_out or 0
    if operation == "barrier" or (operation == "all_to_all" and elements_in == 0):
        return 0
    if operation in ("all_gather", "gather"):
        elements = got or (given * group_size if group_size else 0)
    elif operation in ("scatter", "reduce_scatter"):
        elements = given or (got * group_size if group_size else 0)
    else:
        elements = given or got
    return elements * width if 0 < elements < 1 << 56 else None


def bus_factor(operation: str, group_size: int | None) -> float | None:
    """``f`` in ``busbw = algbw * f`` (nccl-tests, doc/PERFORMANCE.md); ``None`` where it is not defined."""
    if not group_size or group_size < 1:
        return None
    n = group_size
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    if operation in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    return None
