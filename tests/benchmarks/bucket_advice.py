"""Does the advice on DDP's bucket size hold? Simulated jobs on slow networks, swept over bucket caps.

``python -m tests.benchmarks.bucket_advice`` runs each job with PyTorch's default buckets, lets the analysis advise from
that trace alone, and then simulates the job with every cap of the sweep and with the advised layout. Two figures per
job: the advised step against the best of the sweep, and the share of the sweep's gain over the default that it gets.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from commprof.analysis.run import analyze
from commprof.synth.cluster import Cluster, Link
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.run import write_run
from commprof.synth.scenario import Scenario
from commprof.synth.truth import step_ns

RECORD = Path(__file__).resolve().parents[2] / "reports" / "records" / "bucket-advice.md"
MIB = 1 << 20
SWEEP = (1, 2, 4, 8, 16, 25, 50, 100, 200)
"""Caps in MiB, for all buckets alike."""


@dataclass(frozen=True, slots=True)
class Result:
    """Step times of one job in ns: by default, by cap of the sweep, and as advised (no caps: nothing to change)."""

    name: str
    default: int
    sweep: dict[int, int]
    first: int | None
    cap: int | None
    advised: int
    predicted_gain: int

    @property
    def best(self) -> int:
        return min(self.sweep.values())

    @property
    def above_best(self) -> float:
        """By what share the advised step is longer than the best of the sweep."""
        return self.advised / self.best - 1

    @property
    def share_of_gain(self) -> float | None:
        """Share of the sweep's gain over the default; ``None`` where the sweep gains less than one percent."""
        gain = self.default - self.best
        return (self.default - self.advised) / gain if gain > 0.01 * self.default else None


def jobs() -> list[Scenario]:
    """Eight jobs: two models, four networks each, from one that hides nearly all to one that hides little."""
    out = []
    for hidden, layers, batch in ((512, 12, 24), (1024, 12, 24)):
        for gigabytes in (2, 4, 8, 16):
            cluster = Cluster(gpus_per_host=1, nics_per_host=1, nic=Link(20_000, gigabytes * 1_000_000_000))
            out.append(
                Scenario(
                    name=f"{layers} layers of {hidden}, {gigabytes} GB/s",
                    inner=4,
                    layers=layers,
                    hidden=hidden,
                    coarse=False,
                    batch=batch,
                    sequence=2048,
                    steps=5,
                    noise_permille=10,
                    contention_permille=80,
                    cluster=cluster,
                )
            )
    return out


def measure(scenario: Scenario, seed: int) -> Result:
    """Advise from the default run, then sweep."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(scenario, Path(folder) / "run", seed=seed, causes=False, calls=False)
        (advice,) = analyze(Path(folder) / "run", jobs=1).bucket_advice
    sweep = {cap: _step(replace(scenario, bucket_cap=cap * MIB, first_bucket=cap * MIB), seed) for cap in SWEEP}
    best, default = advice.best, _step(scenario, seed)
    if best == advice.current:
        return Result(scenario.name, default, sweep, None, None, default, 0)
    advised = _step(replace(scenario, bucket_cap=best.cap, first_bucket=best.first), seed)
    return Result(scenario.name, default, sweep, best.first // MIB, best.cap // MIB, advised, advice.gain)


def _step(scenario: Scenario, seed: int) -> int:
    found = step_ns(simulate(make_plan(scenario, seed)))
    assert found is not None
    return found


def record(results: list[Result]) -> str:
    lines = [
        "# Advice on bucket sizes",
        "",
        "Remade by `python -m tests.benchmarks.bucket_advice`.",
        "",
        "Each job ran in the simulator with PyTorch's default buckets (1 MiB, then 25 MiB). From that trace alone the "
        "analysis advised a layout; the job was then simulated with it and with every cap of a sweep. Step times in "
        "ms. The last two columns: the advised step against the best of the sweep, and how much of what the sweep "
        "gains over the default the advice gains.",
        "",
        "| job | default | " + " | ".join(f"{cap} MiB" for cap in SWEEP) + " | advised | step | above best | of gain |",
        "| --- " * (len(SWEEP) + 6) + "|",
    ]
    for row in results:
        advised = f"{row.cap} MiB" if row.first == row.cap else f"{row.first}, then {row.cap} MiB"
        advised = "no change" if row.cap is None else advised
        share = row.share_of_gain
        lines.append(
            f"| {row.name} | {row.default / 1e6:.2f} | "
            + " | ".join(f"{row.sweep[cap] / 1e6:.2f}" for cap in SWEEP)
            + f" | {advised} | {row.advised / 1e6:.2f} | {row.above_best:+.1%} | "
            + ("no gain in the sweep" if share is None else f"{share:.0%}")
            + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(jobs()))
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    results = [measure(scenario, options.seed) for scenario in jobs()[: options.jobs]]
    text = record(results)
    print(text)
    if not options.no_record:
        RECORD.write_text(text, encoding="utf-8")
    bad = [row for row in results if row.above_best > 0.05 or (row.share_of_gain or 1.0) < 0.5]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
