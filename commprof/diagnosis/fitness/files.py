"""Checks of the files themselves: can they be read, whole, and which ranks are they."""

from __future__ import annotations

from collections import Counter, defaultdict

from commprof.analysis.combine import ranks_text
from commprof.diagnosis.examination import Examination, Examined
from commprof.diagnosis.fitness.check import Check, Limits, count, of_ranks, part_of
from commprof.trace.metadata import rank_in_name
from commprof.trace.model import FileFacts
from commprof.units import format_bytes


def readable(found: Examination, limits: Limits) -> list[Check]:
    """One FAIL per broken file."""
    failed = [
        Check(
            "readable", "FAIL", f"{broken.path}: {broken.reason}", _sentence(broken.hint) or "Capture this rank again."
        )
        for broken in found.broken
    ]
    if failed:
        return failed
    text = f"{count(len(found.files), 'trace')} read"
    if found.passed_over:
        text += f", {count(len(found.passed_over), 'other file')} passed over"
    return [Check("readable", "PASS", text)]


def _sentence(hint: str | None) -> str | None:
    """A hint of an error as a sentence of its own."""
    return None if not hint else f"{hint[:1].upper()}{hint[1:]}{'' if hint.endswith('?') else '.'}"


def one_file_per_rank(found: Examination, limits: Limits) -> list[Check]:
    """Two files for one rank are two captures, or ranks that nothing tells apart."""
    by_rank: dict[int, list[Examined]] = defaultdict(list)
    for file in found.files:
        by_rank[file.rank].append(file)
    return [
        Check(
            "one per rank",
            "FAIL",
            f"{len(files)} files for rank {rank}: {', '.join(file.facts.path for file in files[:3])}"
            + (", ..." if len(files) > 3 else ""),
            "Choose one capture with --only GLOB; if they are different ranks, name them rank0.json, rank1.json, ...",
        )
        for rank, files in sorted(by_rank.items())
        if len(files) > 1
    ]


def complete_files(found: Examination, limits: Limits) -> list[Check]:
    """A profiler does not write in order of time, so a cut file lacks work from anywhere in the capture."""
    cut = [file for file in found.files if file.facts.truncated]
    checks = [
        Check(
            "complete",
            "FAIL",
            f"{file.facts.path} is cut after {count(file.facts.events, 'event')}; what is missing may be from any step",
            "Copy the whole file again, or capture again and wait for the export before the job ends.",
        )
        for file in cut
    ]
    partial = [(file, file.manifest) for file in found.files if file.manifest is not None and file.manifest.partial]
    checks += [
        Check(
            "complete",
            "WARN",
            f"{of_ranks([file])}: the capture ended early ({manifest.reason or 'no reason given'})",
            "Use the steps before that, or capture a run that gets through the window.",
        )
        for file, manifest in partial
    ]
    return checks or [Check("complete", "PASS", "every file is whole")]


def clean_events(found: Examination, limits: Limits) -> list[Check]:
    """Events that were repaired, or left out because they cannot be used."""
    events = sum(file.facts.events for file in found.files)
    skipped, repaired, bad_metadata, nameless = Counter[str](), Counter[str](), 0, 0
    for file in found.files:
        skipped.update({kind: number for kind, number in file.facts.skipped.items() if kind != "bad_metadata"})
        repaired.update(file.facts.repaired)
        bad_metadata += file.facts.skipped["bad_metadata"]
        nameless += file.facts.events_ignored
    parts = []
    if skipped.total():
        parts.append(f"{part_of(skipped.total(), events, 'event')} left out: {_listed(skipped)}")
    if nameless:
        parts.append(f"{count(nameless, 'event')} without a category ignored")
    if repaired.total():
        parts.append(f"{count(repaired.total(), 'event')} repaired: {_listed(repaired)}")
    if bad_metadata:
        parts.append(f"{count(bad_metadata, 'entry')} of the metadata unreadable")
    if not parts:
        return [Check("clean events", "PASS", f"none of {count(events, 'event')} was damaged")]
    where = of_ranks(file for file in found.files if _damaged(file.facts))
    lost = skipped.total() or nameless or bad_metadata
    advice = f"Figures of {where} miss what was left out." if lost else "Nothing is missing in the figures."
    wrong = skipped.total() > limits.skipped * events
    return [Check("clean events", "FAIL" if wrong else "WARN", "; ".join(parts), advice)]


def _damaged(facts: FileFacts) -> bool:
    return bool(facts.skipped.total() or facts.repaired.total() or facts.events_ignored)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {kind.replace('_', ' ')}" for kind, number in sorted(counts.items()) if number)


def ranks_present(found: Examination, limits: Limits) -> list[Check]:
    """All ranks are needed to tell waiting from transferring."""
    have = sorted({file.rank for file in found.files})
    world = found.world_size
    reasons = [f"rank {manifest.rank}: {reason}" for manifest, reason in found.without_trace]
    if world is None:
        text = f"{of_ranks(found.files)}; nothing says how many ranks the job had"
        return [Check("ranks", "WARN", text, "Start the profiler after init_process_group, on every rank.")]
    missing = sorted(set(range(world)) - set(have))
    stated = sorted({file.world_size for file in found.files if file.world_size})
    checks = []
    if len(stated) > 1:
        text = f"the files disagree on the number of ranks ({', '.join(map(str, stated))})"
        checks.append(Check("ranks", "FAIL", text, "Give the files of one run only (--only GLOB)."))
    if missing:
        text = f"{len(have)} of {world}: {_missing(missing)} missing" + "".join(f"; {reason}" for reason in reasons[:4])
        advice = "Give all ranks: with some missing, waiting for peers cannot be told from transferring."
        checks.append(Check("ranks", "WARN", text, advice))
    if not checks:
        checks.append(Check("ranks", "PASS", f"all of them: {of_ranks(found.files)} of {world}"))
    return checks


def _missing(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"


def rank_known(found: Examination, limits: Limits) -> list[Check]:
    """Where the number of each rank comes from."""
    assumed = [file for file in found.files if file.facts.rank_source == "default"]
    named = [file for file in found.files if file.facts.rank_source == "filename"]
    conflicts = [
        file
        for file in found.files
        if file.facts.rank_source == "distributedInfo" and rank_in_name(file.facts.path) not in (None, file.rank)
    ]
    advice = "Start the profiler after init_process_group, or put the rank into the file name (rank3.json)."
    checks = []
    if assumed:
        text = f"nothing says which rank {assumed[0].facts.path} is; rank 0 is assumed"
        checks.append(Check("rank numbers", "WARN", text, advice))
    if named:
        text = f"{of_ranks(named)}: taken from the file name, the trace itself says nothing"
        checks.append(Check("rank numbers", "WARN", text, advice))
    if conflicts:
        text = f"{conflicts[0].facts.path} states rank {conflicts[0].rank}, another one than its name"
        if len(conflicts) > 1:
            text += f"; so do {len(conflicts) - 1} more"
        checks.append(Check("rank numbers", "WARN", text, "The trace is believed; rename the file."))
    if not checks:
        sources = sorted({file.facts.rank_source for file in found.files})
        checks.append(
            Check("rank numbers", "PASS", f"stated by {' and '.join(_SOURCES[source] for source in sources)}")
        )
    return checks


_SOURCES = {"distributedInfo": "the trace", "manifest": "the capture's manifest"}


def trace_size(found: Examination, limits: Limits) -> list[Check]:
    """Large traces cost the training time to write and everybody time to move."""
    size = sum(file.facts.bytes for file in found.files)
    events = sum(file.facts.events for file in found.files)
    text = f"{format_bytes(size)}, {count(events, 'event')} in {count(len(found.files), 'file')}"
    largest = max(found.files, key=lambda file: file.facts.bytes)
    most_steps = max(len(file.marks) for file in found.files)
    if most_steps > limits.most_steps:
        text += f"; {most_steps} steps in one capture"
        return [Check("size", "WARN", text, f"Record 4 steps, at most {limits.most_steps}: more make the same means.")]
    if largest.facts.bytes > limits.most_bytes:
        text += f"; {largest.facts.path} alone {format_bytes(largest.facts.bytes)}"
        return [Check("size", "WARN", text, "Record fewer steps, without stacks and memory, and let it end in .gz.")]
    return [Check("size", "PASS", text)]
