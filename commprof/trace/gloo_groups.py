"""Which process group a gloo call belongs to: its events name none.

The Flight Recorder's entries of a capture name group and number of each collective. Without them the thread tells: each
group runs its collectives on two threads of its own (``ProcessGroupGloo``), made when the group is, so that their ids
stand in the order in which the groups were made.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from commprof.manifest import FlightEntry
from commprof.trace.arguments import CallFacts
from commprof.trace.model import ProcessGroup
from commprof.trace.operations import operation_of

THREADS_PER_GROUP = 2
_NEIGHBOURS = 4
_PIPELINE = re.compile(r"pipe|(?:^|[^a-z])pp(?:[^a-z]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the Flight Recorder says of one call."""

    group: str
    sequence: int
    elements_in: int | None
    elements_out: int | None
    dtype: str | None


def recorded_calls(
    entries: Iterable[FlightEntry], base_ns: int, starts: Sequence[int], ends: Sequence[int], operations: Sequence[str]
) -> dict[int, Recorded]:
    """Entry of each operator, by its place: the one created inside it. ``starts`` ascend."""
    found: dict[int, Recorded] = {}
    place = -1
    for entry in sorted(entries, key=lambda entry: entry.created_ns):
        created = entry.created_ns - base_ns
        while place + 1 < len(starts) and starts[place + 1] <= created:
            place += 1
        operation = operation_of(entry.name)
        for candidate in range(place, max(place - _NEIGHBOURS, -1), -1):
            fits = operations[candidate] == operation or (operations[candidate], operation) == (
                "reduce_scatter", "all_reduce",
            )  # fmt: skip
            if candidate not in found and created <= ends[candidate] and fits:
                found[candidate] = Recorded(
                    entry.group, entry.seq, _elements(entry.input_sizes), _elements(entry.output_sizes),
                    entry.input_dtypes[0] if entry.input_dtypes else None,
                )  # fmt: skip
                break
    return found


def _elements(sizes: tuple[tuple[int, ...], ...]) -> int | None:
    if not sizes:
        return None
    total = 0
    for sides in sizes:
        product = 1
        for side in sides:
            product *= side
        total += product
    return total


def stated_size(facts: CallFacts) -> int | None:
    """The size of the group as far as a call's own shapes tell it."""
    given, got = facts.elements_in, facts.elements_out
    if facts.operation == "all_gather" and given and got and got % given == 0:
        return got // given
    if facts.operation == "reduce_scatter" and given and got and given % got == 0:
        return given // got
    if facts.operation == "all_to_all" and facts.given is not None and facts.given.complete:
        return len(facts.given.values)
    return None


def groups_by_vote(votes: Mapping[int, Counter[str]], groups: Sequence[ProcessGroup]) -> dict[int, ProcessGroup]:
    """Group of each thread that most of its calls name."""
    by_name = {group.name: group for group in groups}
    found = {}
    for thread, counts in votes.items():
        name, count = counts.most_common(1)[0]
        if 2 * count > counts.total() and name in by_name:
            found[thread] = by_name[name]
    return found


def groups_by_order(
    threads: Iterable[int],
    sizes: Mapping[int, set[int]],
    places: Mapping[int, int],
    groups: Sequence[ProcessGroup],
) -> dict[int, ProcessGroup]:
    """Group of each thread, where order, number and what its calls state leave only one.

    ``groups`` in order of creation; ``sizes`` are the group sizes that the calls of a thread speak of, ``places`` the
    highest place of a root.
    """
    ordered = sorted(threads)
    possible: dict[int, set[int]] = defaultdict(set)
    seats = [seat // THREADS_PER_GROUP for seat in range(THREADS_PER_GROUP * len(groups))]

    def fits(thread: int, group: int) -> bool:
        size = groups[group].size
        if size is None:
            return True
        return places.get(thread, 0) < size and all(stated == size for stated in sizes.get(thread, ()))

    # Seat by seat: how far the threads before reach, and from where the threads after still fit.
    before = [_reach(ordered, seats, fits, forward=True), _reach(ordered, seats, fits, forward=False)]
    for number, thread in enumerate(ordered):
        for seat, group in enumerate(seats):
            if before[0][number][seat] and before[1][number][seat] and fits(thread, group):
                possible[thread].add(group)
    return {thread: groups[next(iter(found))] for thread, found in possible.items() if len(found) == 1}


def _reach(
    ordered: Sequence[int], seats: Sequence[int], fits: Callable[[int, int], bool], *, forward: bool
) -> list[list[bool]]:
    """``[n][s]``: whether the threads before number ``n`` (after it, backward) fit on the seats before (after) it."""
    numbers = range(len(ordered)) if forward else range(len(ordered) - 1, -1, -1)
    places = range(len(seats)) if forward else range(len(seats) - 1, -1, -1)
    step = 1 if forward else -1
    out = [[True] * len(seats) for _ in ordered]
    for number in numbers:
        previous = number - step
        if not 0 <= previous < len(ordered):
            continue
        possible = False
        for seat in places:
            out[number][seat] = possible
            possible = possible or (out[previous][seat] and fits(ordered[previous], seats[seat]))
    return out


def groups_of_messages(
    peer_places: Sequence[int | None], rank: int, groups: Sequence[ProcessGroup], with_collectives: set[str]
) -> list[ProcessGroup | None]:
    """Group of each send or receive, which runs on the caller's thread; ``None`` where more than one may be meant.

    The peer is another member of it. Where the same groups remain for all messages of the rank, it is the one of them
    that alone is called a pipeline, or has no collectives of its own.
    """
    possible = [[group for group in groups if _holds(group, place, rank)] for place in peer_places]
    common = possible[0] if possible and all(found == possible[0] for found in possible) else []
    named = [group for group in common if _PIPELINE.search(group.description)]
    quiet = [group for group in common if group.name not in with_collectives]
    chosen = named if len(named) == 1 else quiet if len(quiet) == 1 and not named else []
    return [found[0] if len(found) == 1 else chosen[0] if chosen else None for found in possible]


def _holds(group: ProcessGroup, peer_place: int | None, rank: int) -> bool:
    """Whether the rank may have a peer at that place of the group."""
    members = group.ranks or ()
    if rank not in members or len(members) < 2:
        return False
    return peer_place is None or (peer_place < len(members) and members[peer_place] != rank)
