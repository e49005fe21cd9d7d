"""Clocks of two hosts compared by ping-pong: two ends in this process, one with a clock that is wrong on purpose."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from commprof.capture import clock_exchange
from commprof.capture.engine import Whereabouts

pytestmark = pytest.mark.torch

SKEW = 37_000_000


class Store:
    """The part of a job's store that the exchange uses."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        return self.kept[key]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = Store()
    numbers = iter([0, 0, 1, 1, 2, 2])
    monkeypatch.setattr(clock_exchange, "_store", lambda: store)
    monkeypatch.setattr(clock_exchange, "_numbers", numbers)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    return store


def end(rank: int, local_rank: int | None = 0, world: int = 2, skew: int = 0) -> Any:
    where = Whereabouts(rank=rank, source="process group", world_size=world, local_rank=local_rank)
    return clock_exchange.open_exchange(where, lambda: time.time_ns() - skew)


def test_the_offset_is_found_before_and_after_the_loop(store: Store) -> None:
    first, second = end(0), end(1, skew=SKEW)
    try:
        samples = [*second.sample("before"), *second.sample("after")]
        first.sample("after")
    finally:
        first.close()

    assert [sample.moment for sample in samples] == ["before", "after"]
    for sample in samples:
        # What a ping-pong promises: the true offset is inside half of its round trip.
        assert abs(sample.offset_ns - SKEW) <= sample.round_trip_ns / 2 + 1
        assert (sample.reference, sample.rounds) == (0, 200)


@pytest.mark.parametrize(
    ("rank", "local_rank", "world", "source", "local_world"),
    [
        (0, 0, 1, "process group", None),  # one rank
        (3, 3, 8, "process group", None),  # its host is asked for by local rank 0
        (0, 0, 8, "environment RANK", None),  # no process group to meet in
        (0, 0, 8, "process group", "8"),  # one host
    ],
)
def test_where_there_is_nothing_to_compare_nothing_is_opened(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    rank: int,
    local_rank: int,
    world: int,
    source: Any,
    local_world: str | None,
) -> None:
    if local_world is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local_world)
    where = Whereabouts(rank=rank, source=source, world_size=world, local_rank=local_rank)

    assert clock_exchange.open_exchange(where, time.time_ns) is None
    assert store.kept == {}


def test_a_first_rank_without_the_hook_costs_a_second_at_most(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_exchange, "_PATIENCE_S", 0.05)

    with pytest.raises(TimeoutError, match="rank 0 has not opened its end"):
        end(1)


def test_an_address_where_nobody_is_raises(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = end(0)
    _hosts, _, token = first.address.split(" ")
    store.set("commprof/clock/0", f"127.0.0.1 1 {token}")

    with pytest.raises(ConnectionError, match="rank 0 does not answer"):
        end(1)
    first.close()


def test_strangers_and_ends_that_break_off_do_not_stop_the_answers(store: Store) -> None:
    import socket

    first = end(0)
    port = int(first.address.split(" ")[1])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with socket.create_connection(("127.0.0.1", port)):
        pass

    second = end(1)
    assert len(second.sample("before")) == 1
    second.close()
    first.sample("after")
    first.close()


def test_among_many_hosts_each_asks_less(store: Store) -> None:
    first, second = end(0, world=100), end(1, world=100)
    (sample,) = second.sample("before")
    second.close()
    first.close()

    assert sample.rounds == 40  # 4,000 questions of 100 hosts


def test_closing_ends_the_thread(store: Store) -> None:
    others = set(threading.enumerate())  # a closed end of a test before may still be on its way out
    first = end(0)
    (answering,) = [
        thread for thread in threading.enumerate() if thread.name == "commprof-clock" and thread not in others
    ]

    first.close()
    answering.join(5)

    assert not answering.is_alive()
