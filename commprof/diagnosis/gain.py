"""What would come back if all communication were hidden, in words: the bound of the report, and no second number."""

from __future__ import annotations

from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Bounds
from commprof.units import format_ns, format_share


def gain_of(ground: Ground, bounds: Bounds) -> tuple[str | None, float]:
    """The sentence on ``all_hidden_ns`` (``None`` where nothing would come back), and the share that would."""
    if bounds.all_hidden_ns is None or bounds.all_hidden_ns >= bounds.step_ns:
        return None, 0.0
    gain = bounds.step_ns - bounds.all_hidden_ns
    step, left = format_ns(bounds.step_ns), format_ns(bounds.all_hidden_ns)
    each, whole = ("per step ", "step time") if ground.word == "step" else ("", "the window")
    share = f"{format_share(gain / bounds.step_ns)} of {whole}{_where(ground)}"
    become = f": {step} would become {left}." if step != left else f": {step} would stay {step}."
    sentence = f"At most {format_ns(gain)} {each}({share}) would come back if all communication were hidden{become}"
    exposed, host = (
        sum(step.total(name) for step in ground.steps) // len(ground.steps) for name in ("exposed_comm", "exposed_host")
    )
    if host > 0:
        sentence += " Exposed communication during which the host had launched nothing else is not counted."
    if gain < exposed - host:
        sentence += " What is not on the critical path of the run, such as waiting for late ranks, would not come back."
    return sentence, gain / bounds.step_ns


def _where(ground: Ground) -> str:
    """Whose step it is, where there are several ranks."""
    if len(ground.analysis.ranks) < 2:
        return ""
    ranks = {step.rank.rank for step in ground.steps}
    return f" on rank {ranks.pop()}, which loses the most" if len(ranks) == 1 else " on the rank that loses the most"
