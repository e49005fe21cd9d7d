"""200 runs with faults: ``python -m tests.benchmarks.capture_faults [--runs N] [--seed S] [--record FILE]``.

Each run is a process of its own, forked from one that has imported torch: DDP in a gloo group of one rank,
14 steps under the hook, and one fault. Whatever it is, the training must end with the parameters that it
has without the hook, or with its own error; it must end in time; and no file under a final name may be
half a file.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import contextlib
import gc
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile

from commprof.capture import Capture
from commprof.capture.torch_engine import TorchEngine

STEPS = 14
LIMIT_S = 60.0
OUTCOMES = {"killed": {-signal.SIGKILL}, "interrupted": {3}, "terminated": {-signal.SIGTERM}}


def train(hooks: Callable[[Any], contextlib.AbstractContextManager[Any]], each: Callable[[int], None]) -> str:
    """A digest of the parameters."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with hooks(model) as step:
        for index in range(STEPS):
            each(index)
            model(torch.randn(16, 64)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step()
    parts = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@contextlib.contextmanager
def no_hook(model: Any) -> Iterator[Callable[[], None]]:
    yield lambda: None


def one_hook(out: Path, **options: Any) -> Callable[[Any], Any]:
    @contextlib.contextmanager
    def hooks(model: Any) -> Iterator[Callable[[], None]]:
        with Capture(out, model=model, **options) as capture:
            yield capture.step

    return hooks


def two_hooks(out: Path) -> Callable[[Any], Any]:
    @contextlib.contextmanager
    def hooks(model: Any) -> Iterator[Callable[[], None]]:
        with Capture(out, model=model) as first, Capture(out / "second", skip=2, steps=6) as second:
            yield lambda: both(first, second)

    return hooks


def both(first: Capture, second: Capture) -> None:
    first.step()
    second.step()


def nothing(index: int) -> None:
    pass


def nested(index: int, at: int) -> None:
    """A profiler of the user's own, over one step."""
    if index == at:
        with profile(activities=[ProfilerActivity.CPU]) as users:
            torch.ones(3).add(1)
        if not any(event.name == "aten::add" for event in users.events()):
            raise RuntimeError("the user's own profile is not complete")


def failing(kind: type[BaseException]) -> Callable[..., None]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise kind("made to fail")

    return fail


def run(fault: str, folder: Path, rng: random.Random) -> str:
    """What the forked process does; returns the digest."""
    out = folder / "run"
    if fault == "read-only folder":
        out = folder / "read-only" / "run"
    elif fault == "disk full":
        out = folder / "small" / "run"
    elif fault == "local disk full":
        tempfile.tempdir = str(folder / "small")
    elif fault == "a file in the way":
        out.write_text("mine")
        return train(one_hook(out / "deeper"), nothing)
    elif fault == "exporter raises":
        TorchEngine.export = failing(rng.choice([OSError, RuntimeError, UnicodeError, MemoryError]))  # type: ignore[method-assign]
    elif fault == "hook raises":
        method = rng.choice(["prepare", "start", "stop", "whereabouts", "facts", "open_step", "clock_samples"])
        setattr(TorchEngine, method, failing(rng.choice([OSError, RuntimeError, KeyError, AttributeError])))
    elif fault == "two hooks":
        return train(two_hooks(out), nothing)
    elif fault == "nested profiler":
        at = rng.randrange(STEPS)
        return train(one_hook(out), lambda index: nested(index, at))
    elif fault == "training fails":
        at = rng.randrange(STEPS)
        return train(one_hook(out), lambda index: failing(ValueError)() if index == at else None)
    return train(one_hook(out), nothing)


def child(fault: str, folder: Path, seed: int) -> None:
    """Runs in the forked process, and never comes back."""
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        store = dist.FileStore(str(folder / "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        (folder / "ready").touch()
        (folder / "digest").write_text(run(fault, folder, random.Random(seed)))
        code = 0
    except ValueError as error:
        code = 4 if "made to fail" in str(error) else 1
    except KeyboardInterrupt:
        code = 3
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def watch(pid: int, fault: str, folder: Path, rng: random.Random, usual_s: float) -> int | None:
    """The exit code (negative: by signal) of the child, ``None`` if it hangs; sends the signals."""
    sent = {
        "killed": signal.SIGKILL,
        "interrupted": signal.SIGINT,
        "terminated": signal.SIGTERM,
    }.get(fault)
    until = time.monotonic() + LIMIT_S
    while sent and not (folder / "ready").exists() and time.monotonic() < until:
        time.sleep(0.002)
    if sent:
        time.sleep(rng.random() * usual_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sent)
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def half_files(folder: Path) -> list[str]:
    """Files under a final name that are not whole."""
    broken = []
    for path in folder.rglob("rank-*"):
        if path.name.startswith(".") or path.is_dir() or path.suffix not in (".gz", ".json"):
            continue
        if "commprof-" in str(path.relative_to(folder)):
            continue  # the local folder of the profiler's own file
        try:
            data = path.read_bytes()
            json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        except (OSError, EOFError, ValueError):
            broken.append(path.name)
    return broken


@contextlib.contextmanager
def prepared(fault: str, folder: Path) -> Iterator[None]:
    """Mounts that a fault needs: a file system of 64 kB, one that cannot be written."""
    mounts = []
    try:
        if fault in ("disk full", "local disk full"):
            (folder / "small").mkdir()
            mounts.append((["-o", "size=64k"], folder / "small"))
        elif fault == "read-only folder":
            (folder / "read-only").mkdir()
            mounts.append((["-o", "ro"], folder / "read-only"))
        for options, place in mounts:
            subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(place)], check=True)
        if fault in ("disk full", "local disk full"):
            (folder / "small" / "ballast").write_bytes(b"x" * 60_000)
        yield
    finally:
        for _, place in mounts:
            subprocess.run(["umount", str(place)], check=False)


FAULTS = (
    "killed", "interrupted", "terminated", "disk full", "local disk full", "read-only folder", "a file in the way",
    "exporter raises", "hook raises", "two hooks", "nested profiler", "training fails",
)  # fmt: skip


def verdict(fault: str, code: int | None, folder: Path, expected: str) -> str | None:
    """What went wrong, ``None`` for nothing."""
    digest = (folder / "digest").read_text() if (folder / "digest").exists() else None
    if code is None:
        return "hangs"
    wanted = {4} if fault == "training fails" else OUTCOMES.get(fault, set()) | {0}
    if code not in wanted:
        return f"ended with {code}: {(folder / 'log').read_text(errors='replace')[-300:]}"
    if code == 0 and digest != expected:
        return "other parameters"
    broken = half_files(folder)
    return f"half files: {broken}" if broken else None


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Not a TemporaryDirectory: the child, which runs its exit handlers, would remove it."""
    scratch = tempfile.mkdtemp(prefix="fault-")
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def one(fault: str, seed: int, expected: str, usual_s: float) -> str | None:
    rng = random.Random(seed)
    with scratch_folder() as scratch, prepared(fault, Path(scratch)):
        pid = os.fork()
        if pid == 0:
            child(fault, Path(scratch), seed)
        return verdict(fault, watch(pid, fault, Path(scratch), rng, usual_s), Path(scratch), expected)


def baseline() -> str:
    """The digest without the hook, from a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        pid = os.fork()
        if pid == 0:
            dist.init_process_group("gloo", store=dist.FileStore(f"{scratch}/store", 1), rank=0, world_size=1)
            Path(scratch, "digest").write_text(train(no_hook, nothing))
            os._exit(0)
        os.waitpid(pid, 0)
        return Path(scratch, "digest").read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=FAULTS)
    parser.add_argument("--tally", type=Path, help="keep the outcomes in this file and add to those in it")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    gc.freeze()  # the children look at their live objects; those of torch itself need not be among them
    expected = baseline()
    begin = time.monotonic()
    if (wrong := one("none", 0, expected, 0)) is not None:
        raise SystemExit(f"without a fault: {wrong}")
    usual = time.monotonic() - begin
    runs: list[tuple[str, int, str | None]] = []
    if options.tally and options.tally.exists():
        runs = [tuple(row) for row in json.loads(options.tally.read_text())]
    for number in range(options.seed, options.seed + options.runs):
        fault = options.only or FAULTS[number % len(FAULTS)]
        wrong = one(fault, number, expected, usual)
        runs.append((fault, number, wrong))
        if wrong is not None:
            print(f"{fault}, seed {number}: {wrong}", file=sys.stderr)
    if options.tally:
        options.tally.write_text(json.dumps(runs))
    counts = collections.Counter(fault for fault, _, _ in runs)
    failures = [fault for fault, _, wrong in runs if wrong is not None]
    lines = ["| fault | runs | wrong |", "| --- | --- | --- |"]
    lines += [f"| {fault} | {number} | {failures.count(fault)} |" for fault, number in counts.items()]
    lines += ["", f"{len(runs)} runs, {len(failures)} wrong."]
    print("\n".join(lines))
    if options.record:
        head = (
            "# Runs with faults\n\nRemade by `python -m tests.benchmarks.capture_faults` (as root: it mounts small "
            "and read-only file systems). Right is a run that ends in time, with the parameters of the training "
            "without the hook or with its own error or signal, and leaves no half file under a final name. Signals "
            "come at a random moment of the run.\n\n"
        )
        options.record.write_text(head + "\n".join(lines) + "\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
