"""Microseconds as written in the file to exact integer nanoseconds.

A double holds ``us.nnn`` exactly enough only below 2^43 us (101 days): above that its steps are wider than 1 ns.
Kineto's three-month base keeps newer files below; older ones write absolute Unix time (1.7e15 us), where a
fraction must be read from the text. Integers are exact at any size.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT_LIMIT_US = float(1 << 43)
EXACT_LIMIT_NS = (1 << 43) * 1000

MISSING = np.iinfo(np.int64).min
"""Stands for "no number given" in the arrays of this module."""

NOT_FINITE = MISSING + 1
"""Stands for NaN, an infinity, or a number beyond int64 nanoseconds."""

_RANGE_NS = 1 << 62


_PLAIN = re.compile(rb"-?\d{1,15}\.\d{1,3}")
_NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
# As C libraries write them; a repair leaves such words as strings.
_INFINITE = re.compile(rb"[-+]?(?:nan(?:\([a-z]*\))?|inf(?:inity)?|1\.#(?:inf|ind|qnan|snan)\w*)", re.IGNORECASE)


def to_ns(values: list[Any]) -> tuple[NDArray[np.int64], bool]:
    """Microseconds (int, float, or anything at all) to nanoseconds, shape ``(n,)``.

    The second value says whether some of them were floats too large to be exact: then :func:`exact_to_ns` must
    read the text. What is not a number becomes :data:`MISSING`, what is not finite :data:`NOT_FINITE`.
    """
    try:
        numbers = np.array(values)
    except (ValueError, OverflowError):
        return _one_by_one(values)
    if numbers.ndim != 1 or (bool in map(type, values) and ((numbers == 0) | (numbers == 1)).any()):
        return _one_by_one(values)
    if numbers.dtype == np.int64:
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) >= _RANGE_NS // 1000:
            return _one_by_one(values)
        return numbers * 1000, False
    if numbers.dtype != np.float64:
        return _one_by_one(values)
    # An integer above 2^53 has already lost digits in a float array; a float above the limit has lost its fraction.
    if len(numbers) and not np.abs(numbers).max() < EXACT_LIMIT_US:
        return _one_by_one(values)
    return _small_to_ns(numbers), False


def floats_to_ns(values: list[float]) -> tuple[NDArray[np.int64], bool]:
    """The same for values that are all floats; those too large to be exact are only near what they stand for."""
    given = np.frombuffer(array("d", values), np.float64)
    large = ~(np.abs(given) < EXACT_LIMIT_US)
    if not large.any():
        return _small_to_ns(given), False
    out = _small_to_ns(np.where(large, 0.0, given))
    out[large] = np.where(given[large] < 0, -EXACT_LIMIT_NS, EXACT_LIMIT_NS)
    return out, True


def _small_to_ns(us: NDArray[np.float64]) -> NDArray[np.int64]:
    whole = np.trunc(us)
    return (whole * 1000 + np.rint((us - whole) * 1000)).astype(np.int64)


def exact_to_ns(texts: Sequence[bytes | None]) -> NDArray[np.int64]:
    """The same from the JSON text of each number (``None`` where absent)."""
    out = np.empty(len(texts), np.int64)
    for index, text in enumerate(texts):
        out[index] = MISSING if text is None else _text_to_ns(text)
    return out


def _text_to_ns(text: bytes) -> int:
    if _PLAIN.fullmatch(text):
        whole, _, fraction = text.partition(b".")
        sign = -1 if whole.startswith(b"-") else 1
        return int(whole) * 1000 + sign * int(fraction.ljust(3, b"0"))
    if _INFINITE.fullmatch(text):
        return NOT_FINITE
    if not _NUMBER.fullmatch(text):
        return MISSING
    try:
        return _decimal_to_ns(Decimal(text.decode("ascii")))
    except InvalidOperation:  # an exponent of twenty digits
        return NOT_FINITE


def _decimal_to_ns(number: Decimal) -> int:
    if not number.is_finite() or number.adjusted() > 18:
        return NOT_FINITE
    ns = int((number * 1000).to_integral_value(ROUND_HALF_EVEN))
    return ns if abs(ns) < _RANGE_NS else NOT_FINITE


def _one_by_one(values: list[Any]) -> tuple[NDArray[np.int64], bool]:
    out = np.empty(len(values), np.int64)
    inexact = False
    for index, value in enumerate(values):
        if type(value) is float:
            if not math.isfinite(value):
                out[index] = NOT_FINITE
            elif abs(value) < EXACT_LIMIT_US:
                whole = math.trunc(value)
                out[index] = whole * 1000 + round((value - whole) * 1000)
            else:
                inexact = True
                out[index] = _decimal_to_ns(Decimal(value))
        elif type(value) is int:
            out[index] = value * 1000 if abs(value) < _RANGE_NS // 1000 else NOT_FINITE
        elif type(value) is str:
            out[index] = _text_to_ns(value.strip().encode())
        else:
            out[index] = MISSING
    return out, inexact


def is_large(times: NDArray[np.int64], values: list[Any]) -> NDArray[np.bool_]:
    """Which times were written as doubles that are too large to hold whole nanoseconds."""
    large: NDArray[np.bool_] = (times >= EXACT_LIMIT_NS) | (times <= -EXACT_LIMIT_NS)
    return large & np.array([type(value) is float for value in values], np.bool_)
