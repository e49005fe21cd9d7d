"""Checks of the steps: are they marked, whole, the same on all ranks, and typical of the run."""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np

from commprof.analysis.model import DeviceAnalysis, RankAnalysis
from commprof.diagnosis.examination import Examination, Examined
from commprof.diagnosis.fitness.check import Check, Limits, count, of_ranks, short
from commprof.trace.operations import OPERATIONS
from commprof.units import format_ns

_CALL_STEP = "Call capture.step() (prof.step() with torch.profiler) at the end of each step."
_LATER = "Capture later in the run, with a warm-up step, so that set-up is over."


def number_of(mark: str) -> int | None:
    """The number in ``ProfilerStep#5``."""
    digits = mark.rpartition("#")[2].strip().split(" ")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def first_numbers(found: Examination) -> list[int]:
    """The number of the first recorded step of every file that tells it."""
    numbers = (number_of(mark) for file in found.files for mark in file.marks[:1])
    return [number for number in numbers if number is not None]


def steps_marked(found: Examination, limits: Limits) -> list[Check]:
    """Steps need a mark, and device work that shows where they begin and end."""
    unmarked = [file for file in found.files if file.analysis and not file.marks]
    checks = []
    if unmarked:
        text = f"{of_ranks(unmarked)}: no step marks, so all figures are of one window"
        checks.append(Check("steps", "WARN", text, _CALL_STEP))
    marked = [file for file in found.files if file.analysis and file.marks]
    for file in marked:
        checks += _faulty_steps(file)
    if not marked:
        return checks
    fewest = min(len(_closed_lengths(file)) for file in marked)
    at_most = max(len(file.marks) for file in marked)
    text = f"{count(at_most, 'step')} marked, {count(fewest, 'step')} with a known end"
    if fewest < limits.closed_steps:
        checks.append(Check("steps", "WARN", text, "Record 4 steps: a mean of fewer than two shows no spread."))
    elif not checks:
        checks.append(Check("steps", "PASS", text))
    return checks


def _closed_lengths(file: Examined) -> list[int]:
    """Lengths of the steps with a known end, in order."""
    device = _device(file)
    return [] if device is None else [step.split.duration for step in device.steps if not step.open]


def _device(file: Examined) -> DeviceAnalysis | None:
    """The device whose steps stand for the file: its first."""
    return None if file.analysis is None else file.analysis.devices[0]


def _faulty_steps(file: Examined) -> list[Check]:
    device = _device(file)
    if device is None:
        return []
    checks = []
    cut = [step.name for step in device.steps if step.incomplete]
    if cut:
        text = f"{of_ranks([file])}: kernels of {_names(cut)} are missing, the capture ended before them"
        checks.append(Check("steps", "WARN", text, "Record one step more, or synchronise the device before the end."))
    without = device.without_window
    if without:
        reasons = Counter(reason for _, reason in without)
        listed = ", ".join(f"{number} with {reason}" for reason, number in sorted(reasons.items()))
        text = f"{of_ranks([file])}: {len(without)} of {count(len(file.marks), 'step')} without a window ({listed})"
        advice = "Means leave them out; mark steps that train, and nothing else."
        checks.append(Check("steps", "WARN", text, advice))
    return checks


def _names(names: list[str]) -> str:
    return ", ".join(short(name, 30) for name in names[:3]) + (", ..." if len(names) > 3 else "")


def same_steps(found: Examination, limits: Limits) -> list[Check]:
    """Collectives can be matched over ranks only where all ranks recorded the same steps."""
    marked = [file for file in found.files if file.marks]
    if not found.several_ranks or len(marked) < 2:
        return []
    common = set.intersection(*(set(file.marks) for file in marked))
    union = set.union(*(set(file.marks) for file in marked))
    if not common:
        text = f"no step is in all captures: {_extent(marked[0])}, {_extent(marked[-1])}"
        return [Check("same steps", "FAIL", text, "Give every rank the same schedule and call step() equally often.")]
    if common == union:
        return [Check("same steps", "PASS", f"{count(len(common), 'step')}, the same on every rank")]
    counts = Counter(file.marks for file in marked)
    usual = counts.most_common(1)[0][0]
    others = [file for file in marked if file.marks != usual]
    text = f"{len(common)} of {count(len(union), 'step')} on every rank; {of_ranks(others)} recorded others"
    return [Check("same steps", "WARN", text, "Give every rank the same schedule and call step() equally often.")]


def _extent(file: Examined) -> str:
    return f"{of_ranks([file])} has {short(file.marks[0], 30)} to {short(file.marks[-1], 30)}"


def first_step(found: Examination, limits: Limits) -> list[Check]:
    """The first steps of a run, and the first ones under the profiler, are not typical."""
    checks = []
    judged = [(file, ratio) for file in found.files if (ratio := _first_to_others(file)) is not None]
    file, ratio = max(judged, key=lambda item: item[1], default=(None, 0.0))
    if file is not None and ratio > limits.slow_step:
        lengths = _closed_lengths(file)
        text = (
            f"{of_ranks([file])}: the first recorded step takes {format_ns(lengths[0])}, "
            f"the others {format_ns(round(median(lengths[1:])))} ({ratio:.1f} times)"
        )
        checks.append(Check("first step", "WARN", text, _LATER))
    early = min(first_numbers(found), default=None)
    if early is not None and early < 2 and found.world_size != 1:
        text = f"recording began in step {early}: memory, connections and DDP's buckets settle in steps 0 and 1"
        checks.append(Check("first step", "WARN", text, _LATER))
    layouts = {bucket.layout for manifest in found.manifests for ddp in manifest.ddp for bucket in ddp.buckets}
    if "first-iteration" in layouts:
        text = "DDP had not rebuilt its buckets yet: their order is that of the first iteration"
        checks.append(Check("first step", "WARN", text, _LATER))
    if judged and not checks:
        text = f"the first recorded step takes {ratio:.2f} times the median of the others"
        checks.append(Check("first step", "PASS", text))
    return checks


def _first_to_others(file: Examined) -> float | None:
    """Length of the first closed step over the median of the others; ``None`` with fewer than three."""
    lengths = _closed_lengths(file)
    if not file.marks or len(lengths) < 3 or not median(lengths[1:]):
        return None
    return float(lengths[0] / median(lengths[1:]))


def first_collective(found: Examination, limits: Limits) -> list[Check]:
    """A first collective that sets up connections, or waits for ranks whose profiler started later."""
    judged = [(rank, lengths) for rank in found.analyses if (lengths := _first_call(rank)) is not None]
    if not judged:
        return []
    rank, (length, usual) = max(judged, key=lambda item: item[1][0] / item[1][1])
    if length <= limits.slow_call * usual:
        text = f"the first collective takes {length / usual:.2f} times the median of its kind"
        return [Check("first call", "PASS", text)]
    operation = OPERATIONS[int(rank.calls.operation[0])].replace("_", "-")
    text = (
        f"rank {rank.rank}: the first {operation} takes {format_ns(length)}, the median of its kind is "
        f"{format_ns(round(usual))}: connection set-up, or waiting for profilers that started later"
    )
    return [Check("first call", "WARN", text, _LATER)]


def _first_call(rank: RankAnalysis) -> tuple[int, float] | None:
    """Length of the first call and the median of at least two others with its operation, group and size."""
    calls = rank.calls
    if len(calls) < 3:
        return None
    same = np.flatnonzero(
        (calls.operation == calls.operation[0])
        & (calls.group == calls.group[0])
        & (calls.size_bytes == calls.size_bytes[0])
    )
    if len(same) < 3 or not (usual := float(np.median(calls.duration[same[1:]]))):
        return None
    return int(calls.duration[0]), usual
