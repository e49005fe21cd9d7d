"""Pauses of the CPU: it launches nothing and waits for nothing, and the device runs out of work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.critical_path import beyond_role
from commprof.diagnosis.findings.before_calls import launches_pause
from commprof.diagnosis.findings.behind_stages import behind_stage
from commprof.diagnosis.findings.case import Case, Claim, all_steps, delayed, idle_of, reference_ranks
from commprof.diagnosis.findings.unsure import unsure
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath, all_of
from commprof.intervals import Int64Array

_ADVICE = (
    "Look for what stops the process: garbage collection (gc.freeze(), gc.disable() with gc.collect() at a chosen "
    "step), logging, checkpoints, evaluation, other processes on its cores.",
)


def paused_stage(ground: Ground) -> Iterator[Case]:
    """Stages pause on their CPUs, and their pipeline waits for them: without other replicas nobody else tells the
    bubble from that.

    Where they take turns, the reference rank shows some of these pauses as bubble and those of its own as they are: it
    is one cause, and costs about the same in every step.
    """
    behind = behind_stage(ground, "pause")
    if behind is None or int(behind.ns.sum()) < ground.limits.finding * ground.duration:
        return
    own = _own(ground)
    assert own.idle is not None
    itself = np.flatnonzero(_per_step(ground, own)).tolist()
    ranks = tuple(sorted({*behind.ranks, *(ground.steps[step].rank.rank for step in itself)}))
    yield Case(
        "host-bound",
        f"The CPU of {'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)} pauses: the other stages of the "
        "pipeline wait for it",
        Claim(host=own.host, wait=behind.wait, idle=behind.idle + own.idle),
        _ADVICE,
        (
            Evidence(
                "waiting in the pipeline for a stage that pauses", int(behind.ns.sum()) // len(ground.steps), "ns"
            ),
        ),
        cause="pause", host_back=True, ranks=ranks, steps=all_steps(ground),
        path=all_of(ground.analysis.critical_path, "pauses"),
    )  # fmt: skip


def paused_on_path(ground: Ground) -> Iterator[Case]:
    """Pauses in most steps of a rank that the others wait for, which is not named as late because nobody knows how much
    they sent meanwhile: the run goes through these pauses, and would end earlier by as much at most."""
    path = ground.analysis.critical_path
    if path is None:
        return
    for one in unsure(ground, "host", lambda late: beyond_role(path.pauses, path.paused, path.role, late)):
        row = one.row
        who = f"{'rank' if len(row.members) == 1 else 'ranks'} {ranks_text(row.members)}"
        yield Case(
            "host-bound",
            f"The CPU of {who} pauses: others wait for it, and the critical path goes through it",
            one.claim,
            _ADVICE,
            (Evidence("pauses on the critical path beyond those of equal ranks", one.found, "ns"),),
            cause="pause", host_back=True, ranks=tuple(row.members), steps=all_steps(ground), confidence="bound",
            path=OnPath({"pauses": one.longer}, None, len(row.members)),
        )  # fmt: skip


def paused(ground: Ground) -> Iterator[Case]:
    """Long gaps in which the CPU launches nothing and waits for nothing, where they alone are worth a finding."""
    own = _own(ground)
    if int(_per_step(ground, own).sum()) < ground.limits.finding * ground.duration:
        return
    assert own.idle is not None
    assert own.host is not None
    yield Case(
        "host-bound",
        "The CPU pauses now and then: it launches nothing, and the device runs out of work",
        own,
        _ADVICE,
        (
            Evidence("idle while the CPU paused or was behind for it", int(own.idle.sum()) // len(ground.steps), "ns"),
            Evidence("communication exposed meanwhile", int(own.host.sum()) // len(ground.steps), "ns"),
        ),
        cause="pause", host_back=True, ranks=reference_ranks(ground),
        steps=all_steps(ground), path=all_of(ground.analysis.critical_path, "pauses"),
    )  # fmt: skip


def _own(ground: Ground) -> Claim:
    """What the reference ranks lose by pauses of their own; none where these are what launching takes."""
    counts = not launches_pause(ground)
    host = np.where(ground.exposed.awaited, 0, delayed(ground, "pause"))
    return Claim(host=host * counts, idle=idle_of(ground, "pause") * counts)


def _per_step(ground: Ground, own: Claim) -> Int64Array:
    assert own.host is not None
    assert own.idle is not None
    return ground.per_step(ground.exposed.step, own.host) + ground.per_step(ground.idle.step, own.idle)
