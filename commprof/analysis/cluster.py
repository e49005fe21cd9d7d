"""Ranks read and reduced by the workers of a running Dask scheduler (extra ``dask``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from commprof.errors import InputRefused, UsageError, WorkerDied
from commprof.version import __version__

_CONNECT_S = 10
_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def on_cluster(run: Callable[[_Work], _Result], work: Sequence[_Work], address: str) -> Iterator[_Result]:
    """The results of ``run`` for each piece of ``work``, in order; workers need this version and the same paths.

    Work whose worker dies goes to another one, as often as the scheduler allows. Raises :class:`UsageError` without
    the package or where no scheduler answers at ``address``, :class:`InputRefused` where there are no workers or they
    have another version, :class:`WorkerDied` where they give up.
    """
    try:
        from distributed import Client, KilledWorker, connect
    except ImportError:
        raise UsageError("--scheduler needs Dask", hint="pip install 'commprof[dask]'") from None

    async def answers() -> None:
        comm = await connect(address, timeout=_CONNECT_S)
        await comm.close()

    try:
        # Asked before a client is made: one that never connected speaks up again when it is thrown away.
        asyncio.run(answers())
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"no Dask scheduler at {address}: {reason}", hint="an address is tcp://HOST:8786") from None
    with Client(address, timeout=_CONNECT_S, set_as_default=False) as client:
        _refuse_others(client.run(_version, on_error="return"))
        try:
            yield from client.get_executor().map(run, work)
        except KilledWorker:
            raise WorkerDied(
                "workers of the scheduler ended before a rank was read", hint="out of memory? give them more"
            ) from None


def _version() -> str:
    return __version__


def _refuse_others(versions: dict[str, object]) -> None:
    """``versions`` by the address of a worker; an exception where commprof could not be imported there."""
    if not versions:
        raise InputRefused("the scheduler has no workers", hint="start some: dask worker ADDRESS")
    for worker, version in sorted(versions.items()):
        if version != __version__:
            told = f"commprof {version}" if isinstance(version, str) else f"no commprof ({version})"
            raise InputRefused(f"{worker} has {told}, not {__version__}", hint="install the same everywhere")
