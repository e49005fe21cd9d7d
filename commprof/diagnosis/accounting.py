"""Each exposed or idle instant is charged to at most one finding (``spec``: section 11).

Cases are served in the order in which they come, which is the order of precedence of ``findings.RULES``: a case gets
what is left of its claim. So the charges never exceed ``exposed_comm + exposed_copy + idle`` of the reference ranks,
and step, charges and what nobody explains add up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from commprof.diagnosis.catalogue import REST
from commprof.diagnosis.cpu_room import cpu_room
from commprof.diagnosis.findings.case import PARTS, Case, reference_ranks
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import SEVERITIES, Accounting, Evidence, Finding, Share, Threshold
from commprof.diagnosis.on_path import PathLedger
from commprof.intervals import Int64Array

_FROM_ELSEWHERE = {
    "straggler", "slow-link", "low-bandwidth", "network-intermittent", "input-bound", "all-to-all-imbalance",
}  # fmt: skip
"""Findings on what makes a rank late, or its calls long, wherever it is: others wait for these."""
_WAITING = ("queued", "peer-wait")
"""Causes of exposed communication that say only that it waits."""
ELSEWHERE = "all charged to other findings; without them it would cost"
"""Of a finding that nothing is charged to: what it rests on is proven, but others were charged with all of its time."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one finding is charged over all reference steps, nanoseconds by part of the claim."""

    parts: dict[str, int]

    @property
    def ns(self) -> int:
        """All parts together."""
        return sum(self.parts.values())

    def share(self, name: str, finding: int | None = None) -> Share:
        """The part of the step that this is, by kind of time."""
        exposed = sum(self.parts.get(part, 0) for part in PARTS)
        return Share(name, self.ns, finding, exposed, self.parts.get("idle", 0), self.parts.get("copy", 0))


class Ledger:
    """What is left of every instant that can be charged."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        exposed = ground.exposed
        self._left = {part: getattr(exposed, part).copy() for part in PARTS}
        self._left["idle"] = ground.idle.ns.copy()
        self._left["copy"] = ground.copies.copy()
        self._step_of = {
            **dict.fromkeys(PARTS, exposed.step), "idle": ground.idle.step, "copy": np.arange(len(ground.steps)),
        }  # fmt: skip

    def charge(self, case: Case) -> dict[str, Int64Array]:
        """Take what is left of the claim; nanoseconds by part and step, each of shape ``(steps,)``."""
        taken = {}
        for part, left in self._left.items():
            wanted = getattr(case.claim, part)
            if wanted is None:
                continue
            got = np.minimum(left, wanted)
            left -= got
            taken[part] = self._ground.per_step(self._step_of[part], got)
        return taken

    def left(self, *parts: str) -> Int64Array:
        """What nobody was charged for, by step."""
        total = np.zeros(len(self._ground.steps), np.int64)
        for part in parts:
            total += self._ground.per_step(self._step_of[part], self._left[part])
        return total


def judge(ground: Ground, cases: Iterable[Case], ledger: Ledger) -> list[tuple[Finding, Charge]]:
    """Findings with what they are charged over the reference steps, in the order of precedence.

    What makes calls last longer, and launching, may give back time although others are charged with all of it, or the
    reference ranks lose it by waiting.
    """
    charged = []
    for case in cases:
        taken = ledger.charge(case)
        if not _timed(case) or _any(taken) or _told_elsewhere(case) or _worth_alone(ground, case):
            charged.append((case, taken))
    return [
        (_finding(ground, case, taken, back), Charge({part: int(ns.sum()) for part, ns in taken.items()}))
        for (case, taken), back in zip(charged, _promises(ground, charged), strict=True)
        if not _timed(case) or _any(taken) or back or _worth_alone(ground, case)
    ]


def _told_elsewhere(case: Case) -> bool:
    """Whether a replay, or what others leave of the critical path, tells what comes back without any charge."""
    return case.shorter is not None or (case.path is not None and case.path.at_most is not None)


def _any(taken: dict[str, Int64Array]) -> bool:
    return any(bool(ns.any()) for ns in taken.values())


def _timed(case: Case) -> bool:
    return any(getattr(case.claim, part) is not None for part in (*PARTS, "idle", "copy"))


def _worth_alone(ground: Ground, case: Case) -> bool:
    """Whether a cause would be worth a finding if those before it had not been charged with all of its time: without
    them it costs that time again, so that a reader has to know of it as well."""
    if case.alone is None or int(case.alone.sum()) < ground.limits.finding * ground.duration:
        return False
    return case.by_event or len(ground.steps) < ground.limits.enough_steps or _above_noise(ground, case.alone)


def _promises(ground: Ground, charged: list[tuple[Case, dict[str, Int64Array]]]) -> list[int | None]:
    """What would come back without each cause, nanoseconds per step; ``None`` where no time can be stated.

    What the critical path tells for sure goes first, of that the cause with the fewest ranks. All together promise no
    more than the reference ranks lose, and causes on the CPU no more than there is to gain with faster ones.
    """
    room: int | None = ground.once("cpu room", lambda: cpu_room(ground))
    path, left = PathLedger(ground.analysis.critical_path, room), ground.lost // len(ground.steps)
    out: list[int | None] = [None] * len(charged)
    stated = [index for index, (case, _) in enumerate(charged) if _timed(case) and not case.nothing_back]
    replayed = _replayed(ground, {index: charged[index][0] for index in stated})
    order = sorted(stated, key=lambda index: _turn(charged[index][0]))
    for index in order:
        case, taken = charged[index]
        on_path = None if case.path is None else path.take(case.path)
        if (gain := replayed.get(index)) is not None:
            wanted = gain
        elif on_path is None:
            wanted = _mean(_off_path(ground, case, taken))
            if case.cause == "blocking-wait" or (case.id == "straggler" and case.cause in ("host", "input")):
                wanted = path.of_room(wanted)
            elif path.transfers is not None and _of_transfers(case):
                wanted = min(wanted, path.transfers)
        elif room is None and case.path is not None and case.path.at_most is not None:
            wanted = min(on_path, case.path.at_most)
        else:
            wanted = on_path
        out[index] = min(wanted, left)
        left -= min(wanted, left)
    return out


def _of_transfers(case: Case) -> bool:
    """Whether a case is about nothing but what calls take: it then promises no more than hiding all of them would."""
    claim = case.claim
    return claim.rest is not None and claim.wait is None and claim.idle is None and claim.copy is None


def _turn(case: Case) -> tuple[float, bool]:
    """Causes with few ranks first; what the structure of the program costs gets what is left of the lost time."""
    return math.inf if case.path is None else case.path.turn, case.structural


def _replayed(ground: Ground, cases: dict[int, Case]) -> dict[int, int]:
    """By the key of each case that makes calls last longer, what the run replayed without it gains, nanoseconds per
    step: of calls that several make longer, and of what each hides behind the others, beyond those before it."""
    slow = {key: case.shorter for key, case in cases.items() if case.shorter is not None}
    replay = ground.replay() if slow else None
    if replay is None:
        return {}
    out: dict[int, int] = {}
    together, before = np.zeros(len(next(iter(slow.values()))), np.int64), 0
    for key, shorter in slow.items():
        together = np.maximum(together, shorter)
        gain = replay.gain(together)
        out[key], before = max(gain - before, 0), max(gain, before)
    return out


def _off_path(ground: Ground, case: Case, taken: dict[str, Int64Array]) -> Int64Array:
    """What of a charge comes back, by step, as the case itself says."""
    charged = sum(taken.values(), np.zeros(len(ground.steps), np.int64))
    if case.recoverable is not None:
        return np.minimum(charged, case.recoverable)
    return charged if case.host_back or "host" not in taken else charged - taken["host"]


def _finding(ground: Ground, case: Case, taken: dict[str, Int64Array], back: int | None) -> Finding:
    timed, charged = _timed(case), sum(taken.values(), np.zeros(len(ground.steps), np.int64))
    count, duration = len(ground.steps), ground.duration
    lost = charged if case.cost_ns is None else np.full(count, case.cost_ns, np.int64)
    share = int(lost.sum()) / duration if timed or case.cost_ns is not None else None
    alone = 0 if case.alone is None else int(case.alone.sum())
    worth = share if share is None or back is None else max(share, back * count / duration, alone / duration)
    severity, limit = _severity(ground, case, lost, worth)
    costs = alone // count or back
    elsewhere = () if charged.any() or not costs else (Evidence(ELSEWHERE, costs, "ns"),)
    return Finding(
        id=case.id,
        severity=severity,
        title=ground.worded(case.title),
        charged_ns=_mean(charged) if timed else None,
        recoverable_ns=back,
        share_of_step=share,
        evidence=tuple(_worded(ground, entry) for entry in case.evidence + _by_part(ground, taken) + elsewhere),
        advice=case.advice,
        threshold=case.threshold or Threshold(limit, f"share of {ground.word}", ground.limits.source),
        confidence="estimate" if count < ground.limits.enough_steps and timed else case.confidence,
        cause=case.cause,
        ranks=case.ranks,
        steps=case.steps,
        group_id=case.group_id,
        calls=case.calls,
        structural=case.structural,
        recoverable_share=None if back is None else back * count / duration,
        or_cause=case.or_cause,
    )


def _worded(ground: Ground, entry: Evidence) -> Evidence:
    return Evidence(ground.worded(entry.what), entry.value, entry.unit)


def _by_part(ground: Ground, taken: dict[str, Int64Array]) -> tuple[Evidence, ...]:
    """The parts of a charge, where it has several."""
    words = {
        "host": "exposed while the host was late", "wait": "exposed waiting for peers", "rest": "exposed communication",
        "idle": "idle", "copy": "exposed copies",
    }  # fmt: skip
    parts = [(words[part], ns) for part, ns in taken.items() if ns.sum()]
    return tuple(Evidence(f"charged: {what}", _mean(ns), "ns") for what, ns in parts) if len(parts) > 1 else ()


def _mean(values: Int64Array) -> int:
    return int((2 * int(values.sum()) + len(values)) // (2 * len(values)))


def _severity(ground: Ground, case: Case, lost: Int64Array, share: float | None) -> tuple[str, float]:
    """Severity by the share of the step that is charged or would come back, whichever is more, and the limit that it
    exceeds; ``info`` below noise over steps.

    What a finding gives back may be more than what is left for it: the critical path tells it of some, and of what two
    causes need each other for either one can be removed.
    """
    limits = ground.limits
    if share is None or case.most == "info":
        return "info", limits.finding
    known = [ns for ns in (lost, case.measured, case.alone) if ns is not None]
    if len(lost) >= limits.enough_steps and not any(_above_noise(ground, ns) for ns in known):
        return "low" if case.by_event and share >= limits.finding else "info", limits.finding
    bands = (("high", limits.high), ("medium", limits.medium), ("low", limits.finding))
    for name, limit in bands:
        if share >= limit:
            at_most = SEVERITIES.index(case.most)
            return SEVERITIES[max(at_most, SEVERITIES.index(name))], limit
    return "info", limits.finding


def _above_noise(ground: Ground, lost: Int64Array) -> bool:
    """Whether the mean over steps exceeds its noise, with all steps or without the one that lost the most: a step that
    stands out, as the first of a capture often does, does not make noise of what all the others lose."""
    times = ground.limits.standard_errors
    if lost.mean() > times * _standard_error(ground, lost):
        return True
    others = np.delete(lost, int(np.argmax(lost)))
    enough = len(others) >= ground.limits.enough_steps
    worth = others.mean() * len(ground.steps) >= ground.limits.finding * ground.duration
    return bool(enough and worth and others.mean() > times * np.std(others, ddof=1) / math.sqrt(len(others)))


def _standard_error(ground: Ground, lost: Int64Array) -> float:
    """Standard error of the mean over steps.

    Two ranks that lose nearly the same take turns at being the reference, and lose it to different causes: where each
    of them stands for two steps or more, scatter is that within the steps of one rank.
    """
    plain = float(np.std(lost, ddof=1))
    _, place, count = np.unique([step.where for step in ground.steps], return_inverse=True, return_counts=True)
    if len(count) > 1 and count.min() > 1:
        mean = np.bincount(place, lost) / count
        plain = min(plain, math.sqrt(float(((lost - mean[place]) ** 2).sum()) / (len(lost) - len(count))))
    return plain / math.sqrt(len(lost))


def ranked(findings: list[tuple[Finding, Charge]]) -> list[tuple[Finding, Charge]]:
    """The largest first: by what would come back, then by the charge; entries of severity ``info`` last.

    What communication waits for, be it the other side or the calls before it, is the consequence of what makes a rank
    late or a call long: where a finding names that, those that tell only of the waiting come after it.
    """
    order = sorted(
        findings,
        key=lambda entry: (
            entry[0].severity == "info", -(entry[0].recoverable_ns or 0), -(entry[0].charged_ns or 0), entry[0].id,
        ),
    )  # fmt: skip
    named = [at for at, (found, _) in enumerate(order) if found.severity != "info" and found.id in _FROM_ELSEWHERE]
    until = max(named, default=-1) + 1
    waiting = [entry for entry in order[:until] if entry[0].id == REST and entry[0].cause in _WAITING]
    return [entry for entry in order[:until] if entry not in waiting] + waiting + order[until:]


def account(ground: Ground, findings: list[tuple[Finding, Charge]], ledger: Ledger) -> Accounting:
    """The reference steps as parts that add up: compute, every finding's share, what is unexplained."""
    compute = sum(step.total("compute") for step in ground.steps)
    parts = [Share("compute", compute)]
    parts += [charge.share(finding.id, index) for index, (finding, charge) in enumerate(findings) if charge.ns]
    parts += [
        Charge({part: int(ledger.left(part).sum()) for part in named}).share(name)
        for name, named in (
            ("unexplained-exposed", PARTS),
            ("unexplained-idle", ("idle",)),
            ("exposed-copy", ("copy",)),
        )
    ]
    if sum(part.ns for part in parts) != ground.duration:
        raise AssertionError("the parts of the step do not add up")
    ranks = reference_ranks(ground)
    overlap = sum(step.total("overlap") for step in ground.steps)
    return Accounting(len(ground.steps), ground.duration, overlap, ranks, tuple(parts))
