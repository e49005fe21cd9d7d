"""Process groups of a job: which ranks talk to each other, along which axis of the parallel layout.

Ranks are laid out with tensor parallel fastest, then the inner and the outer part of data parallel, then the
pipeline: ``rank = ((stage * outer + o) * inner + i) * tp + t``. The inner part is the shard dimension of HSDP
or the expert-parallel dimension; ``dp`` spans both parts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """One process group: ``id`` is also its name in the trace, ``ranks`` are global, ``role`` its purpose."""

    id: int
    axis: str
    description: str
    role: str
    ranks: tuple[int, ...]


class Mesh:
    """All groups of a job with degrees ``tp``, ``inner``, ``outer`` and ``pp``; one-rank groups do not exist."""

    def __init__(
        self, *, tp: int = 1, inner: int = 1, outer: int = 1, pp: int = 1, roles: dict[str, str] | None = None
    ) -> None:
        self.tp, self.inner, self.outer, self.pp = tp, inner, outer, pp
        self.world = tp * inner * outer * pp
        self.roles = {"tp": "tp", "pp": "pp", "dp": "dp", "inner": "shard", "outer": "replicate"}
        self.roles.update(roles or {})
        self.groups: list[Group] = []
        self._of: list[dict[str, Group]] = [{} for _ in range(self.world)]
        self._make("world", [tuple(range(self.world))])
        for axis, degree in (("tp", tp), ("inner", inner), ("outer", outer), ("dp", inner * outer), ("pp", pp)):
            # A dp group equal to its inner or outer part would be the same set of ranks under a second name.
            if degree > 1 and not (axis == "dp" and 1 in (inner, outer)):
                self._make(axis, self._sets(axis))
        for members in self._of:
            if "dp" not in members and ("inner" in members or "outer" in members):
                members["dp"] = members.get("inner") or members["outer"]

    def group(self, rank: int, axis: str) -> Group | None:
        """The group of ``rank`` along ``axis``, or ``None`` where that axis has one rank."""
        return self._of[rank].get(axis)

    def groups_of(self, rank: int) -> list[Group]:
        """Every group that ``rank`` is a member of, in order of creation, each once."""
        return sorted({g.id: g for g in self._of[rank].values()}.values(), key=lambda g: g.id)

    def stage(self, rank: int) -> int:
        """Pipeline stage of ``rank``."""
        return rank // (self.tp * self.inner * self.outer)

    def coordinates(self, rank: int) -> tuple[int, int, int, int]:
        """``(stage, outer, inner, tp)`` of ``rank``."""
        t = rank % self.tp
        i = rank // self.tp % self.inner
        o = rank // (self.tp * self.inner) % self.outer
        return self.stage(rank), o, i, t

    def rank(self, stage: int, outer: int, inner: int, tp: int) -> int:
        """The rank at the given coordinates."""
        return ((stage * self.outer + outer) * self.inner + inner) * self.tp + tp

    def _sets(self, axis: str) -> list[tuple[int, ...]]:
        sets: dict[tuple[int, ...], list[int]] = {}
        dropped = {"tp": (3,), "inner": (2,), "outer": (1,), "dp": (1, 2), "pp": (0,)}[axis]
        for rank in range(self.world):
            key = tuple(c for n, c in enumerate(self.coordinates(rank)) if n not in dropped)
            sets.setdefault(key, []).append(rank)
        return [tuple(ranks) for ranks in sets.values()]

    def _make(self, axis: str, sets: list[tuple[int, ...]]) -> None:
        if axis == "world":
            role, description = "control", "default_pg"
        else:
            role = self.roles[axis]
            description = f"mesh_{role}"
        for ranks in sets:
            group = Group(len(self.groups), axis, description, role, ranks)
            self.groups.append(group)
            for rank in ranks:
                self._of[rank][axis] = group
