"""One file to the columns of one rank."""

from __future__ import annotations

import gc
import re
from typing import Any

from commprof.errors import CommprofError, InputRefused, NotATrace
from commprof.manifest import Manifest
from commprof.trace.ahead import Ahead
from commprof.trace.categories import Table
from commprof.trace.columns import Chunk, Columns, Keep
from commprof.trace.document import Document
from commprof.trace.heap import give_back, hold, release
from commprof.trace.metadata import Distributed, decide_rank, device_facts, text_or_none
from commprof.trace.model import FileFacts, ProcessGroup, RankTrace
from commprof.trace.source import Progress, open_source
from commprof.trace.workers import PAYS_PACKED_BYTES, team_for, workers_for

_MANY_EVENTS = 100_000
_PARTS_BETWEEN = 48


def read_rank(
    path: str,
    *,
    manifest: Manifest | None = None,
    progress: Progress | None = None,
    tolerant: bool = False,
    keep: Keep | None = None,
    helpers: bool = False,
) -> RankTrace:
    """Read one trace file, plain or compressed, local or at any fsspec URL.

    ``tolerant`` sends every event through the slow path that otherwise only faulty ones take; the result is the same.
    ``keep`` names the rows to keep of a large trace (default: all). With ``helpers`` other processes decode parts of a
    large file; the result is the same. Raises :class:`~commprof.errors.InputRefused` for what is no trace and
    :class:`~commprof.errors.CannotAnswer` for a trace without events.
    """
    source = open_source(path, progress)
    document = Document(path, tolerant=tolerant)
    columns = Columns()
    workers = workers_for(source.size, source.format != "plain") if helpers and not tolerant and _is_local(path) else 0
    ahead = Ahead(team_for(path, workers)) if workers else None
    large = source.size >= PAYS_PACKED_BYTES
    if large:
        hold()
    # Decoded events hold no cycles, and there are hundreds of thousands of them: collecting garbage only costs time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        # With the other cores at work already, a thread that unpacks would only take turns with this one.
        for count, part in enumerate(document.batches(source.blocks(background=not ahead), ahead), start=1):
            if isinstance(part, Chunk):
                columns.merge(part)
            else:
                columns.add(part)
            if large and count % _PARTS_BETWEEN == 0:
                release()
        if keep is not None:
            columns.prune(keep)
    except NotATrace:
        if source.truncated and source.size and not document.events:
            raise InputRefused(
                f"{path}: damaged {source.format} data before the first event", hint="copy it again"
            ) from None
        raise
    except CommprofError:
        raise
    except (OSError, EOFError) as error:
        raise InputRefused(f"{path}: {' '.join(str(error).split())}", hint="copy it again") from None
    finally:
        if ahead is not None:
            ahead.close()
        if collecting:
            gc.enable()
        if large:
            give_back()
    rank = _rank_trace(path, source.size, document, columns, manifest, source.truncated)
    if source.bad_checksum:
        rank.warnings.append(f"{path}: its checksum is wrong: something in it may be damaged")
    if large or document.events > _MANY_EVENTS:
        give_back()
    return rank


def _is_local(path: str) -> bool:
    """Whether several processes may read the file, each on its own."""
    return "://" not in path


def _rank_trace(
    path: str, size: int, document: Document, columns: Columns, manifest: Manifest | None, cut: bool
) -> RankTrace:
    metadata = document.metadata
    distributed = Distributed(metadata)
    device = columns.device()
    facts = FileFacts(
        path=path,
        bytes=size,
        events=document.events,
        device_events=len(device),
        events_ignored=columns.ignored,
        truncated=document.truncated or cut,
        host=text_or_none(metadata.get("host_name")) or (manifest.host if manifest else None),
        repaired=columns.repaired,
        skipped=columns.skipped,
    )
    facts.skipped["bad_event"] += document.bad_events
    facts.skipped["bad_metadata"] += document.bad_metadata + distributed.bad
    base, bad_base = _base_ns(metadata)
    facts.skipped["bad_metadata"] += bad_base
    warnings = decide_rank(facts, metadata, manifest.rank if manifest else None, distributed.rank)
    names, counts = device_facts(metadata)
    return RankTrace(
        file=facts,
        names=list(columns.names),
        base_ns=base,
        device=device,
        runtime=columns.runtime(),
        operators=columns.spans(Table.OPERATOR),
        annotations=columns.spans(Table.ANNOTATION),
        metadata=metadata,
        world_size=distributed.world_size or (manifest.world_size if manifest else None),
        backend=distributed.backend or (manifest.backend if manifest else None),
        groups=_groups(distributed.groups, manifest),
        device_names=names,
        sm_counts=counts,
        warnings=warnings,
        flight=manifest.flight if manifest else (),
        cuda_graphs=manifest.cuda_graphs if manifest else (),
    )


def _base_ns(metadata: dict[str, Any]) -> tuple[int, bool]:
    """``baseTimeNanoseconds``: what must be added to every time of the file; and whether it was unreadable."""
    value = metadata.get("baseTimeNanoseconds", 0)
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, float) and abs(value) < 1 << 53 and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
        return value, False
    return 0, True


def _groups(in_file: tuple[ProcessGroup, ...], manifest: Manifest | None) -> tuple[ProcessGroup, ...]:
    """The groups of the file in their order, with the members that only the manifest knows, then its other groups."""
    if manifest is None:
        return in_file
    told = {
        group.name: ProcessGroup(group.name, group.description or "", len(group.ranks) or None, group.ranks or None)
        for group in manifest.groups
    }
    names = {group.name for group in in_file}
    merged = [
        told[group.name] if group.ranks is None and group.name in told and told[group.name].ranks else group
        for group in in_file
    ]
    return (*merged, *(group for name, group in told.items() if name not in names))
