"""The chain of waiting of the worst step as sentences: who waited for whom, and what the late rank had done before."""

from __future__ import annotations

from commprof.report.causes import late_word
from commprof.report.charts.wording import Json, clean
from commprof.units import format_ns

_MOST_REASONS = 3
_NEARLY_ALL = 0.95
_WORDS = {
    "compute": "more or slower compute", "comm": "transfers of its own", "copy": "copies", "input": "its data loader",
    "host": "its host", "other": "gaps that nothing explains", "waiting": "waiting for others itself",
    "inherited": "something before the capture",
}  # fmt: skip


def wait_chain(report: Json) -> Json | None:
    """``{"step", "lost", "links": [{"waits", "because"}], "root", "end"}``; ``None`` for none long enough."""
    chain = report.get("wait_chain")
    if not chain or not chain["links"]:
        return None
    return {
        "step": clean(chain["step"], 60),
        "lost": format_ns(chain["lost_ns"]),
        "links": [_link(link, report.get("groups") or []) for link in chain["links"]],
        "root": clean(chain["root_rank"], 20),
        "end": _end(chain, report.get("stragglers") or []),
    }


def _end(chain: Json, late: list[Json]) -> str:
    """Where it began and why; who is not late over the run is not accused for one step."""
    root = chain["root_rank"]
    mine = next((row for row in late if root == row["rank"] or root in (row.get("members") or [])), None)
    if mine is None:
        return f"It began with rank {root}, which over the whole run is not later than the others by more than noise."
    known = late_word(chain["cause"], mine.get("or_cause"))
    why = f"{known.name}. {known.meaning}" if known else f"{clean(chain['cause'], 40)}."
    return f"It began with rank {root}: {why}"


def _link(link: Json, groups: list[Json]) -> Json:
    group = next((row for row in groups if row.get("group_id") == link["group_id"]), None)
    name = clean(group["description"] or group["group"], 40) if group else ""
    where = f"{clean(link['op'], 30)}{f' of {name}' if name else ''}"
    # One reason needs no number; of several each says how much of the lateness it is.
    several = len(link["did"]) > 1 and link["did"][0]["share"] < _NEARLY_ALL
    did = [
        _WORDS.get(part["what"], clean(part["what"], 30)) + (f" ({part['share']:.2f} of it)" if several else "")
        for part in link["did"][: _MOST_REASONS if several else 1]
    ]
    return {
        "waits": f"Rank {link['rank']} waits {format_ns(link['wait_ns'])} for rank {link['waited_for']} in {where}",
        "because": f"rank {link['waited_for']} is late by {', '.join(did)}" if did else None,
    }
