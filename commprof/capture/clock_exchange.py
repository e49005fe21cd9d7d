"""Compares the clocks of hosts by ping-pong, before and after the loop.

Over sockets of its own: no collective, nothing inside the loop, and no process waits for another longer than
a second. Rank 0 answers in a thread that sleeps while nobody asks; where it listens, the others learn from
the job's store. One rank of each host asks, those of rank 0's host with a local rank of 0 too.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import torch.distributed as dist

from commprof.capture.engine import Whereabouts
from commprof.capture.surroundings import whole_number
from commprof.manifest import ClockSample

_ROUNDS = 200
_FEWEST = 20
_QUESTIONS = 4000  # from all hosts together, in about a second
_PATIENCE_S = 1.0
_WORD = struct.Struct("!q")
_TOKEN_BYTES = 16
_numbers = count()  # of the exchanges of this process; the ranks of a job open them in the same order


class ClockExchange:
    """One end of the exchange: ``sample`` gives what this rank found, ``close`` ends its part."""

    def sample(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def open_exchange(where: Whereabouts, unix_ns: Callable[[], int]) -> ClockExchange | None:
    """This rank's end; ``None`` where no clock is to be compared: one host, one rank, no process group."""
    local_world = whole_number(os.environ, "LOCAL_WORLD_SIZE")
    if where.source != "process group" or where.world_size == 1 or local_world == where.world_size:
        return None
    key = f"commprof/clock/{next(_numbers)}"
    if where.rank == 0:
        answerer = Answerer(unix_ns)
        _store().set(key, answerer.address)
        return answerer
    if where.local_rank:
        return None
    return Asker(_address(key), unix_ns, where.world_size // (local_world or 1))


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _address(key: str) -> str:
    """What rank 0 has put under ``key``; asks again rather than wait, which would block the job's store."""
    store, until = _store(), time.monotonic() + _PATIENCE_S
    while not store.check([key]):
        if time.monotonic() > until:
            raise TimeoutError(f"rank 0 has not opened its end within {_PATIENCE_S:g} s")
        time.sleep(0.01)
    found: bytes = store.get(key)
    return found.decode()


class Answerer(ClockExchange):
    """Rank 0: answers each question with the time on its clock."""

    def __init__(self, unix_ns: Callable[[], int]) -> None:
        self._unix_ns = unix_ns
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, backlog=1024, dualstack_ipv6=both)
        self._ends: list[socket.socket] = []
        self._quiet = threading.Event()
        self._wake, self._woken = socket.socketpair()
        threading.Thread(target=self._answer, name="commprof-clock", daemon=True).start()

    @property
    def address(self) -> str:
        """Where to find it: places to try in turn, the port, and a token that tells it from a stranger."""
        return " ".join([",".join(_own_addresses()), str(self._listener.getsockname()[1]), self._token.hex()])

    def sample(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        """Nothing to find out here; after the loop, wait until the others have asked."""
        if moment == "after" and self._ends:
            self._quiet.wait(_PATIENCE_S)
        return ()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
            self._wake.close()

    def _answer(self) -> None:
        """Until closed. A stranger, or an end that breaks off, is dropped."""
        with self._listener, self._woken, selectors.DefaultSelector() as selector:
            for door in (self._listener, self._woken):
                selector.register(door, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    end: Any = key.fileobj
                    if end is self._woken:
                        for open_end in self._ends:
                            open_end.close()
                        return
                    if end is not self._listener:
                        self._reply(end, selector)
                    elif (new := self._let_in()) is not None:
                        selector.register(new, selectors.EVENT_READ)

    def _let_in(self) -> socket.socket | None:
        """The end that knocks, if it knows the token; a stranger keeps the others waiting for a moment only."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            end = stack.enter_context(self._listener.accept()[0])
            end.settimeout(_PATIENCE_S / 10)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _exactly(end, _TOKEN_BYTES) == self._token:
                end.sendall(self._token)
                self._ends.append(end)
                self._quiet.clear()
                stack.pop_all()
                return end
        return None

    def _reply(self, end: socket.socket, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):
            if end.recv(1):
                end.sendall(_WORD.pack(self._unix_ns()))
                return
        selector.unregister(end)
        end.close()
        self._ends.remove(end)
        if not self._ends:
            self._quiet.set()


class Asker(ClockExchange):
    """Another rank: asks, and keeps the answer that came back fastest.

    A question that waits behind those of other hosts gives a wrong answer: the more there are, the fewer
    each asks, at random moments.
    """

    def __init__(self, address: str, unix_ns: Callable[[], int], askers: int = 1) -> None:
        self._unix_ns = unix_ns
        self._rounds = max(_FEWEST, min(_ROUNDS, _QUESTIONS // max(1, askers)))
        self._pause_s = 0.0 if self._rounds == _ROUNDS else _PATIENCE_S / 2 / self._rounds
        self._random = random.Random()  # not the program's own, whose numbers must not change
        hosts, port, token = address.split(" ")
        self._end = _connect(hosts.split(","), int(port), bytes.fromhex(token))

    def sample(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        best: tuple[int, int, int] | None = None
        until = time.monotonic() + _PATIENCE_S
        rounds = 0
        while rounds < self._rounds and time.monotonic() < until:
            if self._pause_s:
                time.sleep(self._random.uniform(0, 2 * self._pause_s))
            asked = self._unix_ns()
            self._end.sendall(b"?")
            (theirs,) = _WORD.unpack(_exactly(self._end, _WORD.size))
            answered = self._unix_ns()
            rounds += 1
            found = (answered - asked, asked, theirs - (asked + answered) // 2)
            best = found if best is None or found < best else best
        if moment == "after":
            self.close()
        if best is None:
            return ()
        trip, at, offset = best
        sample = ClockSample(moment=moment, reference=0, at_ns=at, offset_ns=offset, round_trip_ns=trip, rounds=rounds)
        return (sample,)

    def close(self) -> None:
        self._end.close()


def _own_addresses() -> list[str]:
    """Where other hosts may reach this one: what the job's own rendezvous uses comes first."""
    found = []
    master = os.environ.get("MASTER_ADDR")
    if master:
        found.append(master)
        # A datagram socket that is connected sends nothing, but knows from which address it would.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))
            found.append(probe.getsockname()[0])
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        found += sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None, socket.AF_INET)})
    return list(dict.fromkeys([*found, name, "127.0.0.1"]))


def _connect(hosts: list[str], port: int, token: bytes) -> socket.socket:
    """To the first place where the right one answers, within a second in all."""
    until = time.monotonic() + _PATIENCE_S
    for host in hosts:
        patience = until - time.monotonic()
        if patience <= 0:
            break
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            end = stack.enter_context(socket.create_connection((host, port), timeout=patience))
            end.settimeout(_PATIENCE_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.sendall(token)
            if _exactly(end, len(token)) == token:
                stack.pop_all()
                return end
    raise ConnectionError(f"rank 0 does not answer at {', '.join(hosts)}")


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end is gone")
        data += part
    return data
