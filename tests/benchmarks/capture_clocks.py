"""Clock offsets between hosts: ``python -m tests.benchmarks.capture_clocks [--record FILE]``.

Two processes train on gloo, each in a network namespace of its own (where this machine allows it, else
both in this one), and the second one's clock is wrong by a known amount, injected into the hook's clock
source. The offset that the manifest states must be right within 50 us.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from commprof.manifest import read_manifests

OFFSETS_NS = (37_000_000, -5_250_000, 1_000)
REPEATS = 5
MARK_NS = 50_000


def work(folder: Path, rank: int) -> None:
    """All captures in one process group: one training per offset and repeat."""
    import time

    import torch
    import torch.distributed as dist
    from torch import nn

    from commprof.capture import Capture
    from commprof.capture.torch_engine import TorchEngine

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    for offset in OFFSETS_NS:
        for repeat in range(REPEATS):
            skew = offset if rank else 0
            TorchEngine.unix_ns = staticmethod(lambda skew=skew: time.time_ns() - skew)  # type: ignore[method-assign]
            with Capture(folder / f"{offset}-{repeat}", model=model, skip=0, warmup=0, steps=1) as capture:
                for _ in range(3):
                    model(torch.ones(4, 64)).sum().backward()
                    capture.step()
    dist.destroy_process_group()


@contextlib.contextmanager
def namespaces() -> Iterator[tuple[list[list[str]], str, str]]:
    """Command prefixes for two namespaces with a link between them, its interface, and what they are in words."""
    names = [f"commprof-{os.getpid()}-{i}" for i in (0, 1)]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        link = ["ip", "link", "add", "cp0", "netns", names[0], "type", "veth", "peer", "name", "cp0", "netns", names[1]]
        subprocess.run(link, check=True, capture_output=True)
        for i, name in enumerate(names):
            for words in (["addr", "add", f"10.213.7.{i + 1}/24", "dev", "cp0"], ["link", "set", "cp0", "up"]):
                subprocess.run(["ip", "-n", name, *words], check=True, capture_output=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True, capture_output=True)
        yield [["ip", "netns", "exec", name] for name in names], "cp0", "two network namespaces"
    except (OSError, subprocess.CalledProcessError):
        yield [[], []], "lo", "one network namespace (no right to make others)"
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def measure() -> tuple[list[tuple[int, str, int, int]], str]:
    """Rows of offset, moment, error and round trip in ns; and where."""
    with tempfile.TemporaryDirectory() as scratch, namespaces() as (prefixes, interface, words):
        processes = []
        for rank, prefix in enumerate(prefixes):
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1"}
            environment["MASTER_ADDR"] = "10.213.7.1" if prefix else "127.0.0.1"
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
                environment.pop(name, None)
            command = [*prefix, sys.executable, "-m", "tests.benchmarks.capture_clocks", "--worker", scratch, str(rank)]
            processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        if any(process.wait(200) for process in processes):
            raise SystemExit("a process failed")
        rows = []
        for offset in OFFSETS_NS:
            for repeat in range(REPEATS):
                manifest = read_manifests(Path(scratch) / f"{offset}-{repeat}")[1]
                if len(manifest.clock_samples) != 2:
                    raise SystemExit(f"no samples: {manifest.notes}")
                rows += [(offset, s.moment, s.offset_ns - offset, s.round_trip_ns) for s in manifest.clock_samples]
        return rows, words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Path(options.worker[0]), int(options.worker[1]))
        return
    rows, words = measure()
    lines = [
        "| injected offset, ms | samples | largest error, us | shortest round trip, us |",
        "| --- | --- | --- | --- |",
    ]
    for offset in OFFSETS_NS:
        mine = [row for row in rows if row[0] == offset]
        worst, trip = max(abs(row[2]) for row in mine), min(row[3] for row in mine)
        lines.append(f"| {offset / 1e6:g} | {len(mine)} | {worst / 1000:.1f} | {trip / 1000:.1f} |")
    worst = max(abs(row[2]) for row in rows)
    lines += ["", f"Largest error {worst / 1000:.1f} us (mark: 50 us): {'met' if worst <= MARK_NS else 'NOT MET'}."]
    print("\n".join(lines))
    if options.record:
        head = (
            "# Clock offsets between hosts\n\nRemade by `python -m tests.benchmarks.capture_clocks`: two training "
            f"processes on gloo in {words}; the clock of the second is wrong by a known amount, injected into the "
            "hook's clock source. A sample before and one after each of the loops.\n\n"
        )
        options.record.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
