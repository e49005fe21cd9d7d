"""The ranks of one run put side by side: which are missing, which groups they share, what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from commprof.analysis.captures import hint_to_choose
from commprof.analysis.coverage import coverage_notes
from commprof.analysis.model import Analysis, Note, NoteCode, RankAnalysis
from commprof.errors import InputRefused
from commprof.manifest import Manifest
from commprof.trace.metadata import rank_in_name
from commprof.trace.model import GroupFacts
from commprof.units import format_ns

_LONG_NS = 3_600_000_000_000
_ALL_BUT = 0.999
"""A device that is idle for more than this share of more than an hour was not recorded in one go."""


def combine(
    path: str,
    ranks: list[RankAnalysis],
    ignored: list[tuple[str, str]],
    manifests: Sequence[Manifest] = (),
    patterns: Sequence[str] = (),
) -> Analysis:
    """One :class:`Analysis` of all ranks.

    Raises :class:`~commprof.errors.InputRefused` where two files are of one rank.
    """
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    _refuse_double(ranks)
    declared = [rank.world_size for rank in ranks if rank.world_size]
    world = max(declared, default=None)
    have = {rank.rank for rank in ranks}
    missing = [] if world is None else sorted(set(range(world)) - have)
    groups, group_of, assumed = _merge_groups(ranks, world)
    warnings = [warning for rank in ranks for warning in rank.warnings]
    used = {pattern for rank in ranks for pattern in rank.patterns_used}
    warnings += [f"--comm-pattern {pattern!r} matches no kernel" for pattern in patterns if pattern not in used]
    if len(set(declared)) > 1:
        warnings.append(f"the files disagree on the world size ({', '.join(map(str, sorted(set(declared))))})")
    analysis = Analysis(
        path=path,
        ranks=ranks,
        ignored=ignored,
        world_size=world,
        missing_ranks=missing,
        groups=groups,
        group_of=group_of,
        group_assumed=assumed,
        notes=[],
        warnings=warnings,
        capture=_capture(manifests),
        manifests=sorted(manifests, key=lambda manifest: manifest.rank),
    )
    analysis.notes = _notes(analysis)
    return analysis


def _refuse_double(ranks: list[RankAnalysis]) -> None:
    for one, other in pairwise(ranks):
        if one.rank == other.rank:
            how = (
                "both say so"
                if one.file.rank_source == other.file.rank_source == "distributedInfo"
                else "as far as known"
            )
            raise InputRefused(
                f"{one.file.path} and {other.file.path}: two files for rank {one.rank} ({how})",
                hint=hint_to_choose(one.file.path, other.file.path, one.rank),
            )


def _merge_groups(ranks: list[RankAnalysis], world: int | None) -> tuple[list[GroupFacts], list[list[int]], bool]:
    """Groups over all ranks by identity: the name and the members; size and what is shown where those are unknown."""
    groups: list[GroupFacts] = []
    index: dict[object, int] = {}
    group_of: list[list[int]] = []
    for rank in ranks:
        mapping = []
        for facts in rank.calls.groups:
            key = (facts.name, facts.ranks or ("shown", facts.shown, facts.size))
            if key not in index:
                index[key] = len(groups)
                groups.append(facts)
            mapping.append(index[key])
        group_of.append(mapping)
    several = any(rank.configured_groups > 1 for rank in ranks)
    if groups or several or not any(len(rank.calls) for rank in ranks):
        return groups, group_of, False
    # Older traces name no group at all: then everything is taken to be one group of all ranks.
    everyone = GroupFacts("all ranks (assumed)", None, tuple(range(world)) if world else None, world, "unknown")
    for rank in ranks:
        rank.calls.group[:] = 0
        rank.coverage.group_unknown = 0
    return [everyone], [[0] for _ in ranks], True


def _capture(manifests: Sequence[Manifest]) -> dict[str, Any]:
    def typical(values: list[int | None]) -> int | None:
        known = sorted(value for value in values if value is not None)
        return known[len(known) // 2] if known else None

    environment: dict[str, str] = {}
    for manifest in manifests:
        environment.update(manifest.environment)
    return {
        "profiled_step_ns": typical([manifest.profiled_step_ns for manifest in manifests]),
        "unprofiled_step_ns": typical([manifest.unprofiled_step_ns for manifest in manifests]),
        "export_ns": typical([manifest.export_ns for manifest in manifests]),
        "environment": environment,
        "cores": {str(manifest.rank): manifest.cores for manifest in manifests if manifest.cores is not None},
        "core_wait": {
            str(manifest.rank): share for manifest in manifests if (share := _core_wait(manifest)) is not None
        },
    }


def _core_wait(manifest: Manifest) -> float | None:
    """For which share of the recording the training thread was ready to run and had no core."""
    wait = manifest.core_wait
    return wait.ns / wait.of_ns if wait is not None and wait.of_ns > 0 else None


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as ranges: ``0–5, 7``."""
    parts: list[str] = []
    start = previous = None
    for rank in [*ranks, None]:
        if start is not None and rank != previous + 1:  # type: ignore[operator]
            parts.append(str(start) if start == previous else f"{start}–{previous}")
            start = rank
        elif start is None:
            start = rank
        previous = rank
    return ", ".join(parts)


def _notes(analysis: Analysis) -> list[Note]:
    notes: list[Note] = []
    ranks = analysis.ranks
    communicates = any(len(rank.calls) for rank in ranks)
    if analysis.missing_ranks:
        missing = analysis.missing_ranks
        word = "rank" if len(missing) == 1 else "ranks"
        text = f"{len(ranks)} of {analysis.world_size} ranks are in the input; {word} {ranks_text(missing)} missing"
        waiting = ", so waiting for them cannot be told from transferring" if len(ranks) > 1 else ""
        notes.append(Note("missing-ranks", f"{text}{waiting}."))
    if len(ranks) == 1 and communicates:
        notes.append(
            Note(
                "single-rank",
                "One rank only: communication time includes waiting for peers, which one rank cannot tell apart.",
            )
        )
    for rank in ranks:
        _rank_notes(rank, notes)
    on_cpu = [rank.rank for rank in ranks if rank.on_cpu]
    if on_cpu:
        who = f"rank{'s' if len(on_cpu) > 1 else ''} {ranks_text(on_cpu)}"
        text = "communication on the CPU (gloo) includes queueing and waiting for peers"
        notes.append(Note("cpu-communication", f"{who}: {text}."))
    if analysis.group_assumed:
        notes.append(
            Note(
                "group-assumed",
                "The trace names no process groups; all collectives are taken to belong to one of all ranks.",
            )
        )
    notes += coverage_notes(analysis)
    if not communicates:
        notes.append(Note("no-communication", "No communication was found in this trace."))
    return notes


def _rank_notes(rank: RankAnalysis, notes: list[Note]) -> None:
    where = f"rank {rank.rank}"
    file = rank.file
    if file.rank_source == "default":
        notes.append(Note("rank-assumed", f"{file.path}: nothing says which rank this is; rank 0 is assumed."))
    if file.rank_source == "filename":
        notes.append(Note("rank-assumed", f"{file.path}: rank {file.rank} is taken from the file name."))
    if file.rank_source == "distributedInfo" and rank_in_name(file.path) not in (None, file.rank):
        notes.append(Note("rank-conflict", f"{file.path}: the file says rank {file.rank}, its name another one."))
    if file.truncated:
        notes.append(Note("truncated", f"{file.path}: the file is cut; truncated after {_events(file.events)}."))
    damage: tuple[tuple[NoteCode, Counter[str], str], ...] = (
        ("repaired", file.repaired, "repaired"),
        ("skipped", file.skipped, "left out"),
    )
    for code, counts, text in damage:
        found = {kind: count for kind, count in sorted(counts.items()) if count}
        if found:
            listed = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in found.items())
            total = sum(found.values())
            notes.append(Note(code, f"{where}: {_events(total)} {'was' if total == 1 else 'were'} {text} ({listed})."))
    device = rank.devices[0]
    whole = device.whole
    if whole.duration > _LONG_NS and whole.idle > _ALL_BUT * whole.duration:
        notes.append(
            Note(
                "events-apart",
                f"{where}: its device events lie up to {format_ns(whole.duration)} apart with next to nothing between "
                "them: a timestamp is broken, or several captures are in one file. Steps may be wrong.",
            )
        )
    if device.windows == "none":
        notes.append(
            Note("no-step-marks", f"{where}: no step marks; shares are of the whole window. Call step() in the loop.")
        )
    elif device.windows == "annotation" and not rank.on_cpu:
        notes.append(
            Note(
                "no-launch-links", f"{where}: nothing links kernels to their launches; steps are the CPU's step marks."
            )
        )
    _work_notes(rank, notes)
    first = [bucket for bucket in rank.buckets if bucket.layout == "first-iteration" and bucket.step >= 0]
    early = sorted({rank.shares.step_names[bucket.step] for bucket in first})
    if early:
        text = "shows DDP before its buckets are rebuilt: one bucket after the backward pass, as in no later step; "
        text += "findings and the table of buckets leave it out where there are others"
        notes.append(Note("before-bucket-rebuild", f"{where}: {', '.join(early)} {text}."))
    incomplete = [step.name for step in device.steps if step.incomplete]
    if incomplete:
        notes.append(Note("incomplete-step", f"{where}: the capture cut kernels of {', '.join(incomplete)}."))
    if device.without_window:
        listed = ", ".join(f"{name} ({reason})" for name, reason in device.without_window[:6])
        more = f" and {len(device.without_window) - 6} more" if len(device.without_window) > 6 else ""
        notes.append(
            Note(
                "steps-without-window",
                f"{where}: {_steps(len(device.without_window))} without a window on the device: {listed}{more}; "
                f"means are over {_steps(len(device.steps))} that have one.",
            )
        )


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count:,} steps"


def _work_notes(rank: RankAnalysis, notes: list[Note]) -> None:
    """What the kind of device work means for the numbers."""
    where = f"rank {rank.rank}"
    total, linked = rank.coverage.device_events, rank.coverage.linked_device_events
    if 0 < linked < total:
        notes.append(
            Note(
                "partly-linked",
                f"{where}: {linked:,} of {total:,} kernels linked to their launch ({total - linked:,} without launch).",
            )
        )
    main = {device.device: device.compute_stream for device in rank.devices}
    calls = rank.calls
    inline = [index for index in range(len(calls)) if calls.stream[index] == main.get(int(calls.device[index]))]
    if inline and not rank.on_cpu:
        ns = int(rank.shares.exposed[inline].sum())
        notes.append(
            Note(
                "cannot-be-hidden",
                f"{where}: {len(inline):,} calls run on the compute stream and cannot overlap with its kernels "
                f"({format_ns(ns)} exposed).",
            )
        )
    if rank.coverage.possible_comm_calls:
        notes.append(
            Note(
                "possible-communication",
                f"{where}: {rank.coverage.possible_comm_calls:,} peer-to-peer copies with no operator "
                f"({format_ns(rank.coverage.possible_comm_ns)}) may be communication; they count as copies.",
            )
        )
