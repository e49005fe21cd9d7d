"""What causes take of the critical path: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from commprof.analysis.critical_path import CriticalPath
from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.on_path import OnPath, PathLedger, all_of, of_late


def path(**changed: list[int]) -> CriticalPath:
    """Two steps of four ranks of one role; nothing on the path but what is given."""
    columns = {name: np.zeros(4, np.int64) for name in ("own", "launching", "inputs", "pauses", "cpu", "role")}
    columns |= {name: np.full(4, 1_000, np.int64) for name in ("compute", "fetched", "paused")}
    columns |= {name: np.array(values) for name, values in changed.items() if name != "gap"}
    nothing = np.empty(0, np.int64)
    gap = np.array(changed.get("gap", [10] * 4), np.float64)
    return CriticalPath(steps=2, length=0, match=nothing, transfers=nothing, gap=gap, **columns)


def late(cause: str, *members: int, kind: str = "persistent") -> Straggler:
    """A late rank as far as the path asks."""
    row = object.__new__(Straggler)
    for name, value in {"cause": cause, "members": members, "kind": kind}.items():
        object.__setattr__(row, name, value)
    return row


def test_a_slow_device_takes_what_of_the_path_it_takes_longer_for() -> None:
    found = path(own=[900, 1_600, 0, 0])

    wanted = of_late(found, range(4), late("slow-device", 1), np.array([0, 600, 0, 0]))

    assert wanted is not None
    assert PathLedger(found).take(wanted) == 300
    assert of_late(found, range(4), late("slow-device", 1), np.zeros(4, np.int64)) is None


def test_a_slow_host_takes_the_part_of_its_launches_by_which_it_is_slower() -> None:
    # Ranks 2 and 3 share a host whose launches take 40 where those of the others take 10: three quarters are its own.
    found = path(cpu=[0, 0, 8_000, 0], launching=[0, 0, 4_000, 0], gap=[10, 10, 40, 40])

    wanted = of_late(found, range(4), late("host", 2, 3))

    assert wanted is not None
    assert PathLedger(found).take(wanted) == (6_000 + 3_000) // 2


@pytest.mark.parametrize(("longer", "taken"), [(6_000, 6_000), (20_000, 12_000)])
def test_what_a_cpu_does_longer_at_once_may_lie_on_the_path_whole(longer: int, taken: int) -> None:
    # Its launches come in the same time as those of the others, but for a pause; there is no more of it than this.
    found = path(cpu=[0, 8_000, 0, 0], launching=[0, 4_000, 0, 0])

    wanted = of_late(found, range(4), late("host", 1), on_cpu=np.array([0, longer, longer, 0]))

    assert wanted is not None
    assert PathLedger(found).take(wanted) == taken // 2


def test_each_part_of_the_path_is_promised_once() -> None:
    found = path(inputs=[1_000, 3_000, 0, 0], fetched=[1_000, 3_000, 1_000, 1_000])
    ledger, mine = PathLedger(found), of_late(found, range(4), late("input", 1))
    everybody = all_of(found, "inputs")
    assert mine is not None
    assert everybody is not None

    promised = [ledger.take(wanted) for wanted in (mine, everybody, everybody)]

    # 2000 of rank 1 are beyond the others; what is left of all ranks are 1000 each of ranks 0 and 1.
    assert promised == [1_000, 1_000, 0]


def test_the_cause_with_the_fewest_ranks_comes_first() -> None:
    found = path(inputs=[1_000, 3_000, 0, 0], cpu=[5, 0, 0, 0])
    one, two = OnPath({"inputs": np.array([0, 1, 0, 0])}, ranks=1), all_of(found, "inputs")
    bounded = all_of(found, "cpu", at_most=3)
    assert two is not None
    assert bounded is not None

    assert one.turn < two.turn < bounded.turn


def test_causes_on_the_cpu_give_back_no_more_than_faster_cpus_could() -> None:
    # 500 ns per step of inputs, 300 of pauses and 400 of launches are on the path, but after 450 the step waits for
    # its devices: either of the first two can go alone, launches get what they leave.
    found = path(inputs=[1_000, 0, 0, 0], pauses=[0, 600, 0, 0], cpu=[0, 800, 0, 0], own=[0, 0, 2_000, 0])
    ledger = PathLedger(found, room=850)
    tight = PathLedger(found, room=450)

    wanted = [all_of(found, "inputs"), all_of(found, "pauses"), all_of(found, "cpu", at_most=9), all_of(found, "own")]

    assert [ledger.take(one) for one in wanted if one is not None] == [500, 300, 50, 1_000]
    assert [tight.take(one) for one in wanted if one is not None] == [450, 300, 0, 1_000]
    assert tight.of_room(1_000) == 450


def test_without_room_what_is_on_the_path_counts() -> None:
    found = path(cpu=[0, 800, 0, 0])

    assert PathLedger(found).take(OnPath({"cpu": found.cpu})) == 400


def test_calls_that_are_not_made_take_launches_and_transfers_of_the_path_and_leave_the_room_to_others() -> None:
    # Two steps: 600 + 200 ns of launches and 1000 ns of transfers go with them. Of a room of 100 ns per step for faster
    # CPUs all is left, whereas the launches are told once.
    found = path(launching=[1_000, 1_000, 0, 0])
    found.match, found.transfers = np.array([3, 8]), np.array([4_000, 500])
    ledger = PathLedger(found, room=100)
    needless = OnPath({"launching": np.array([600, 200, 0, 0])}, ranks=2, transfers=np.array([400, 600]), sure=False)

    first, second, others = (
        ledger.take(needless),
        ledger.take(needless),
        ledger.take(OnPath({"launching": found.launching})),
    )

    assert (first, second, others) == ((800 + 900) // 2, (400 + 200 + 400) // 2, 100)
    assert needless.turn == float("inf")
