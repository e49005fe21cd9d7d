"""The process groups that the calls of one rank name, each once, completed from what the file says of its groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from commprof.trace.arguments import CallFacts
from commprof.trace.metadata import parse_ranks, shown_ranks
from commprof.trace.model import GroupFacts, ProcessGroup, RankTrace


@dataclass(slots=True)
class GroupTable:
    """Distinct groups of one rank. Ask for calls that name their ranks first: the others are held against those."""

    rank: RankTrace
    facts: list[GroupFacts] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)

    def index(self, call: CallFacts) -> int:
        """Place of the call's group in :attr:`facts`, -1 where the call names none."""
        if call.group_name is None and call.group_ranks is None:
            return -1
        key = (call.group_name, str(call.group_ranks), call.group_size)
        if key not in self._known:
            self._known[key] = self._place(self._facts(call))
        return self._known[key]

    def member(self, group: int, place: int | None) -> int | None:
        """Global rank of the member at a place of the group; ``None`` where its members are not known."""
        if group < 0 or place is None:
            return None
        facts = self.facts[group]
        if facts.ranks is not None:
            return facts.ranks[place] if place < len(facts.ranks) else None
        # A group as large as the job holds every rank, in order: PyTorch sorts the ranks of its default group.
        everyone = facts.size is not None and facts.size == self.rank.world_size
        return place if everyone and place < (facts.size or 0) else None

    def _place(self, facts: GroupFacts) -> int:
        if facts in self.facts:
            return self.facts.index(facts)
        if facts.ranks is None and facts.name is not None:
            # Calls of one group may leave optional fields out: the same name and size is the same group.
            alike = [
                place
                for place, other in enumerate(self.facts)
                if other.name == facts.name
                and facts.size in (None, other.size)
                and (other.ranks is None or set(facts.shown) <= set(other.ranks))
                and (other.ranks is not None or facts.shown in ((), other.shown))
            ]
            if len(alike) == 1:
                return alike[0]
        self.facts.append(facts)
        return len(self.facts) - 1

    def _facts(self, call: CallFacts) -> GroupFacts:
        ranks = parse_ranks(call.group_ranks)
        shown = shown_ranks(call.group_ranks) if ranks is None else ()
        entry = self._entry(call, ranks, shown)
        if ranks is None and entry and entry.ranks and call.group_size in (None, len(entry.ranks)):
            # The profiler writes at most thirty members; the configuration at the head of the file has them all.
            ranks = entry.ranks
        size = call.group_size or (len(ranks) if ranks else entry.size if entry else None)
        description = call.group_description or (entry.description if entry else None)
        members = "known" if ranks else "partly" if shown else "unknown"
        return GroupFacts(call.group_name, description or None, ranks, size, members, () if ranks else shown)

    def _entry(self, call: CallFacts, ranks: tuple[int, ...] | None, shown: tuple[int, ...]) -> ProcessGroup | None:
        """What the file's configuration says of the group; ``None`` unless it can only be one entry."""
        found = [
            entry
            for entry in self.rank.groups
            if entry.name == call.group_name
            and (entry.size is None or call.group_size in (None, entry.size))
            and (ranks is None or entry.ranks in (None, ranks))
            and (entry.ranks is None or set(shown) <= set(entry.ranks))
        ]
        return found[0] if found and all(entry == found[0] for entry in found) else None
