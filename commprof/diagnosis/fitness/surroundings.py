"""Checks of what surrounded the capture: clocks, options of the profiler, cores, environment."""

from __future__ import annotations

from commprof.diagnosis.examination import Examination
from commprof.diagnosis.fitness.check import Check, Limits, count, of_ranks, short
from commprof.units import format_ns, format_share


def clocks(found: Examination, limits: Limits) -> list[Check]:
    """Ranks of one host share a clock; between hosts, offsets must be estimated from the collectives."""
    if not found.several_ranks:
        return []
    relative = [file for file in found.files if not file.absolute_clock]
    if relative:
        text = f"{of_ranks(relative)}: times count from an unknown instant (no baseTimeNanoseconds)"
        advice = "Arrival order is then told by durations alone; PyTorch 2.4 or newer writes the base time."
        return [Check("clocks", "WARN", text, advice)]
    nameless = [file for file in found.files if file.facts.host is None]
    if nameless:
        text = f"Unix times; {of_ranks(nameless)}: no host name, so nobody knows which ranks share a clock"
        return [Check("clocks", "WARN", text, "commprof.Capture stores the host of each rank.")]
    hosts = {file.facts.host for file in found.files}
    return [Check("clocks", "PASS", f"Unix times; {count(len(found.files), 'rank')} on {count(len(hosts), 'host')}")]


def same_time(found: Examination, limits: Limits) -> list[Check]:
    """Captures of one run overlap in time."""
    spans = [(*file.span, file) for file in found.files if file.absolute_clock and file.span is not None]
    if not found.several_ranks or len(spans) < 2:
        return []
    latest_start, _, late = max(spans, key=lambda item: item[0])
    _, earliest_end, early = min(spans, key=lambda item: item[1])
    if latest_start < earliest_end:
        return [Check("same time", "PASS", f"all captures overlap for {format_ns(earliest_end - latest_start)}")]
    gap = format_ns(latest_start - earliest_end)
    text = f"{of_ranks([late])} was recorded {gap} after {of_ranks([early])} had ended"
    one_clock = late.facts.host is not None and late.facts.host == early.facts.host
    if not one_clock and set(late.marks) & set(early.marks):
        advice = (
            "The steps are the same, so it is the hosts' clocks that differ: an analysis aligns them by the ends of "
            "collectives where those carry sequence numbers, else it compares nothing. Set them with NTP."
        )
        return [Check("same time", "WARN", text, advice)]
    advice = "Capture the same steps on every rank, in one run."
    if one_clock:
        advice += " Ranks of one host share its clock, so these are of two runs."
    return [Check("same time", "FAIL", text, advice)]


def options(found: Examination, limits: Limits) -> list[Check]:
    """Options of the profiler that cost time and space and that no figure needs."""
    events = sum(file.facts.events for file in found.files)
    other = sum(file.other_events for file in found.files)
    heavy = sorted({option for file in found.files for option in file.options & {"with_stack", "profile_memory"}})
    stated = sorted({option for file in found.files for option in file.options})
    text = f"{', '.join(stated)} on" if stated else "the trace states none"
    if heavy and other > limits.other_events * events:
        share = format_share(other / events)
        text = f"{' and '.join(heavy)} on: {share} of {count(events, 'event')} are needed by no figure"
        return [Check("options", "WARN", text, f"Profile with {', '.join(f'{option}=False' for option in heavy)}.")]
    return [Check("options", "PASS", text)]


def profiler_cost(found: Examination, limits: Limits) -> list[Check]:
    """Profiled steps that are much longer than others say more about the profiler than about the job."""
    pairs = [
        (file, plain, profiled)
        for file in found.files
        if file.manifest is not None
        and (plain := file.manifest.unprofiled_step_ns)
        and (profiled := file.manifest.profiled_step_ns)
    ]
    if not pairs:
        return []
    file, plain, profiled = max(pairs, key=lambda pair: pair[2] / pair[1])
    text = f"steps take {format_ns(profiled)} with the profiler, {format_ns(plain)} without"
    if profiled > plain:
        text += f" ({format_share(profiled / plain - 1)} more)"
    if profiled > (1 + limits.profiler_cost) * plain:
        advice = "Idle and host time are overstated; trust what the device does. A longer step suffers less."
        return [Check("profiler cost", "WARN", f"{of_ranks([file])}: {text}", advice)]
    return [Check("profiler cost", "PASS", text)]


def cores(found: Examination, limits: Limits) -> list[Check]:
    """A process that shares one core with its communication threads starts collectives late."""
    known = [(file, file.manifest.cores) for file in found.files if file.manifest is not None and file.manifest.cores]
    if not known:
        return []
    few = [(file, number) for file, number in known if number < limits.cores]
    fewest = min(number for _, number in known)
    if few:
        text = f"{of_ranks(file for file, _ in few)}: {count(fewest, 'core')} to run on"
        others = [number for _, number in known if number >= limits.cores]
        if others:
            text += f", the others {min(others)}" + (f" to {max(others)}" if max(others) > min(others) else "")
        advice = f"Give each process at least {limits.cores} (--cpus-per-task, taskset, container limits)."
        return [Check("cores", "WARN", text, advice)]
    return [Check("cores", "PASS", f"at least {count(fewest, 'core')} for every rank")]


_VARIABLES = (
    (
        "TORCH_NCCL_ENABLE_TIMING",
        {"1"},
        "its timing events remove overlap between collectives and compute",
        "Unset it for training and for captures.",
    ),
    (
        "CUDA_LAUNCH_BLOCKING",
        {"1"},
        "each launch waits for its kernel, so nothing overlaps",
        "Unset it: it is for debugging.",
    ),
    (
        "TORCH_DISTRIBUTED_DEBUG",
        {"DETAIL"},
        "every collective is checked over all ranks before it starts",
        "Unset it for captures.",
    ),
)


def environment(found: Examination, limits: Limits) -> list[Check]:
    """Variables that change communication, as the hook or the job wrote them down."""
    checks = []
    for name, bad, effect, advice in _VARIABLES:
        files = [file for file in found.files if file.variables.get(name, "").upper() in bad]
        if files:
            text = f"{name}={files[0].variables[name]} on {of_ranks(files)}: {effect}"
            checks.append(Check("environment", "WARN", text, advice))
    connections = [file for file in found.files if file.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"]
    if connections:
        text = (
            f"CUDA_DEVICE_MAX_CONNECTIONS=1 on {of_ranks(connections)}: work starts in the order of its launch, "
            "on whatever stream"
        )
        checks.append(Check("environment", "PASS", text))
    if not checks and found.manifests:
        number = len({name for file in found.files for name in file.variables})
        checks.append(
            Check("environment", "PASS", f"{count(number, 'variable')} stored, none known to distort communication")
        )
    return checks


def manifest(found: Examination, limits: Limits) -> list[Check]:
    """What only the hook writes down."""
    have = len(found.manifests)
    if have == len(found.files):
        notes = [note for manifest in found.manifests for note in manifest.notes]
        text = f"{count(have, 'manifest')} of commprof.Capture"
        if notes:
            return [Check("manifest", "WARN", f"{text}; {short(notes[0], 120)}", "See the notes in the manifest.")]
        return [Check("manifest", "PASS", text)]
    text = f"{count(len(found.files) - have, 'file')} without one: cores, environment, buckets, profiler cost unknown"
    return [Check("manifest", "WARN", text, "Capture with commprof.Capture, which writes one beside each trace.")]
