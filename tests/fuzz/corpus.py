"""Clean files to damage: hand-written ones, and small extracts of public traces where those are at hand."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders.kineto import t0
from tests.conftest import ROOT, traces_folder

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_EXTRACTS = {
    "a100": "ddp-resnet50-a100/rank0.json.gz",
    "mi300x": "ddp-resnet-mi300x/rank0.resnet_act_checkpoint.json.gz",
    "v100": "dlrm-8rank-v100/worker0_step_12.1694128201545.pt.trace.json.gz",
    "2021": "kineto-2021/worker0.1623143566756.pt.trace.json.gz",
    "sampled": "sampled-2of128/sampled_rank-0.json.gz",
}


@dataclass(frozen=True)
class Seed:
    """One clean trace: its name, its text as UTF-8."""

    name: str
    data: bytes


def fixture_seeds() -> list[Seed]:
    """``T0`` in three layouts and the first rank of every fixture but the damaged one."""
    seeds = [Seed(f"t0-{style}", t0().text(style).encode()) for style in ("compact", "spaced", "pretty")]
    events = json.dumps(t0().events)
    seeds.append(Seed("t0-list", events.encode()))
    for folder in sorted((ROOT / "fixtures").iterdir()):
        files = sorted(folder.glob("rank0.json*")) if folder.is_dir() and folder.name != "damaged" else []
        for file in files:
            data = file.read_bytes()
            seeds.append(Seed(folder.name, gzip.decompress(data) if file.suffix == ".gz" else data))
    return seeds


def trace_seeds() -> list[Seed]:
    """Extracts of the public traces, every event as it stands in the file; none where the traces are not at hand."""
    folder = traces_folder()
    if folder is None:
        return []
    return [Seed(name, extract(folder / file)) for name, file in _EXTRACTS.items() if (folder / file).is_file()]


def extract(path: Path, kernels: int = 14) -> bytes:
    """Some device events of a trace with their launches, operators and step marks, closed as a file again."""
    text = gzip.decompress(path.read_bytes()).decode()
    head, pieces = _pieces(text)
    events = [(piece, json.loads(piece)) for piece in pieces]
    device = [event for _, event in events if str(event.get("cat", "")).lower() in _DEVICE]
    comm = [event for event in device if "nccl" in event["name"].lower()][:3]
    chosen = (device[:kernels] + comm)[: kernels + 3]
    ids = {_id(event, "correlation") for event in chosen} | {_id(event, "External id") for event in chosen}
    kept: list[str] = []
    extra = {"ProfilerStep": 2, "M": 3, "s": 2, "python_function": 2, "operator": 4}
    for piece, event in events:
        if any(event is one for one in chosen):
            kept.append(piece)
        elif _id(event, "correlation") in ids or _id(event, "External id") in ids:
            if len(kept) < 4 * kernels:
                kept.append(piece)
        elif _wanted(event, extra):
            kept.append(piece)
    return (head + ",\n".join(kept) + "]}").encode()


def _pieces(text: str) -> tuple[str, list[str]]:
    decoder = json.JSONDecoder(strict=False)
    start = text.index("[", text.index('"traceEvents"')) + 1
    pieces, place = [], start
    while True:
        while text[place] in " \t\r\n,":
            place += 1
        if text[place] == "]":
            return text[:start], pieces
        _, end = decoder.raw_decode(text, place)
        pieces.append(text[place:end])
        place = end


def _id(event: dict[str, Any], key: str) -> object:
    args = event.get("args")
    value = args.get(key) if isinstance(args, dict) else None
    return (key, value) if value else object()


def _wanted(event: dict[str, Any], left: dict[str, int]) -> bool:
    for key in left:
        if left[key] and (str(event.get("name", "")).startswith(key) or key in (event.get("ph"), event.get("cat"))):
            left[key] -= 1
            return True
    return False
