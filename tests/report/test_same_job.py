"""``commprof compare`` tells two different jobs from one job with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commprof.report.same_job import other_job, warning
from tests.builders.command import call, strict_json
from tests.builders.kineto import Trace

MB = 1_000_000


def report(
    *sizes: int, op: str = "all_reduce", role: str = "dp", strategy: str = "ddp", degree: int = 4, steps: int = 2
) -> dict[str, Any]:
    """A rank that makes calls of these sizes in every step."""
    names = [f"ProfilerStep#{number}" for number in range(steps)]
    return {
        "strategy": {"name": strategy, "parts": [{"kind": role, "name": strategy, "degree": degree}]},
        "per_step": [{"steps": [name], "rows": 1} for name in names],
        "groups": [{"group_id": 0, "op": op, "role": role, "bytes": steps * sum(sizes)}],
        "collectives": [
            {"group_id": 0, "op": op, "step": name, "size_bytes": size} for name in [*names, None] for size in sizes
        ],
    }


@pytest.mark.parametrize(
    "new",
    [
        report(25 * MB, 25 * MB, 50 * MB),
        report(*[MB] * 100),
        report(100 * MB, steps=7),
        report(50 * MB),
        report(*[100 * MB] * 3),
        report(96 * MB),
    ],
    ids=["buckets", "tiny buckets", "more steps", "half the precision", "three micro-steps", "unused parameters"],
)
def test_other_settings_are_one_job(new: dict[str, Any]) -> None:
    base = report(100 * MB)

    found = other_job(base, new)

    assert found == []
    assert warning(found) is None


def test_another_amount_of_gradients_is_another_model() -> None:
    found = other_job(report(100 * MB), report(70 * MB, 70 * MB))

    assert found == ["per step and rank the base has 100 MB of gradients, the new run 140 MB"]


def test_prefetching_and_what_is_kept_gathered_is_one_job() -> None:
    base = report(100 * MB, op="reduce_scatter", strategy="fsdp")
    new = report(100 * MB, op="reduce_scatter", strategy="zero3")
    new["groups"].append({"group_id": 0, "op": "all_gather", "role": "dp", "bytes": 900 * MB})
    new["collectives"] += [{"group_id": 0, "op": "all_gather", "step": "ProfilerStep#0", "size_bytes": 900 * MB}]

    assert other_job(base, new) == []


def test_another_strategy_or_degree_is_told_by_name() -> None:
    base = report(100 * MB)

    strategy = other_job(base, report(100 * MB, op="reduce_scatter", strategy="fsdp"))
    degree = other_job(base, report(100 * MB, degree=2))

    assert strategy == ["the base is DDP over 4 ranks, the new run FSDP over 4 ranks"]
    assert degree == ["the base is DDP over 4 ranks, the new run DDP over 2 ranks"]


def test_without_a_known_strategy_the_operations_decide() -> None:
    base, new = report(90 * MB, strategy="unknown"), report(50 * MB, op="all_to_all", strategy="unknown")

    # 10 of 100 MB and 40 of 90 MB are of an operation that the other has too: at most a tenth is common.
    base["groups"].append({"group_id": 0, "op": "all_to_all", "role": "unknown", "bytes": 20 * MB})
    found = other_job(base, new)

    assert found == ["the collectives hardly match (the base sends mostly by all-reduce, the new run by all-to-all)"]
    assert other_job(base, report(10 * MB, strategy="unknown")) == []


def run_of(path: Path, elements: int, calls: int) -> Path:
    """Three steps of 1 ms, each with some all-reduces of equal size after compute."""
    trace = Trace()
    for number in range(3):
        at = 1000 * number
        trace.step(number, at, at + 1000)
        trace.gemm(at, at + 500)
        for call_number in range(calls):
            start = at + 500 + 50 * call_number
            trace.all_reduce(start, start + 40, args={"In msg nelems": elements, "Out msg nelems": elements})
    return trace.write(path / "rank0.json")


def test_the_warning_stands_in_every_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, same = run_of(tmp_path / "base", 4_000_000, 2), run_of(tmp_path / "same", 1_000_000, 8)
    other = run_of(tmp_path / "other", 3_300_000, 2)
    outputs = ("-o", tmp_path / "c.html", "--json", tmp_path / "c.json")

    code, out, _ = call("compare", base, other, *outputs)
    gated, _, refused = call("compare", base, other, "--no-html", "--max-slowdown", "5%")
    alike, quiet, _ = call("compare", base, same, "--no-html", "--json", tmp_path / "same.json")

    comparison = strict_json((tmp_path / "c.json").read_bytes())
    said = (
        "Not comparable as one job: per step and rank the base has 32.0 MB of gradients, the new run 26.4 MB. "
        "What differs below is between two jobs, and not the effect of a change."
    )
    assert (code, comparison["same_job"], comparison["warning"]) == (0, False, said)
    assert " ".join(out.split()).startswith(said)
    assert said in (tmp_path / "c.html").read_text(encoding="utf-8")
    assert (gated, "different jobs" in refused) == (3, True)
    assert (alike, strict_json((tmp_path / "same.json").read_bytes())["warning"]) == (0, None)
    assert "Not comparable" not in quiet
