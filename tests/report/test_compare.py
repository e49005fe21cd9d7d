"""``commprof compare``: differences against noise, and runs that cannot be compared (C217, C218)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from commprof.report.compare_findings import finding_rows
from commprof.report.compare_view import changed, words
from tests.builders.command import call, strict_json
from tests.builders.kineto import Trace


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")


def run_of(exposed: list[int], world: int = 2, rank: int = 0) -> Trace:
    """One step for each given exposed time in µs: 10 ms of compute, then an all-reduce."""
    trace = Trace(rank=rank, world_size=world)
    start = 0
    for number, length in enumerate(exposed):
        trace.step(number, start, start + 10_000 + length)
        trace.gemm(start, start + 10_000)
        trace.all_reduce(start + 10_000, start + 10_000 + length)
        start += 10_000 + length
    return trace


def spread(mean: int, deviation: int) -> list[int]:
    """Ten values with this mean; their sample standard deviation is ``deviation`` within 0.1 %."""
    off = round(deviation * (9 / 10) ** 0.5)
    return [mean + off, mean - off] * 5


@pytest.mark.parametrize(("deviation", "said"), [(2000, "within noise"), (100, "slower by 1.00 ms (20.0 %)")])
def test_c217_a_difference_counts_only_above_noise(deviation: int, said: str, tmp_path: Path) -> None:
    # 2 sqrt(s^2/10 + s^2/10) is 1.79 ms for s = 2 ms and 0.09 ms for s = 0.1 ms; the difference is 1 ms.
    # The last of eleven steps is open and counts nowhere when steps are joined by launches; here all are closed.
    base = run_of(spread(5000, deviation)).write(tmp_path / "base" / "rank0.json")
    new = run_of(spread(6000, deviation)).write(tmp_path / "new" / "rank0.json")

    code, out, errors = call("compare", base, new, "--no-html", "--json", tmp_path / "c.json")

    comparison = strict_json((tmp_path / "c.json").read_bytes())
    (row,) = [row for row in comparison["split"] if row["key"] == "exposed_comm"]
    assert (code, errors) == (0, "")
    assert (row["base_ns"], row["new_ns"], row["change_ns"]) == (5_000_000, 6_000_000, 1_000_000)
    assert row["words"] == said
    assert said in out


def test_c218_other_numbers_of_ranks_are_not_comparable(tmp_path: Path) -> None:
    base = run_of([100, 100], world=4).write(tmp_path / "base" / "rank0.json")
    new = run_of([100, 100], world=8).write(tmp_path / "new" / "rank0.json")

    code, out, errors = call(
        "compare", base, new, "-o", tmp_path / "c.html", "--json", tmp_path / "c.json", "--max-slowdown", "5%"
    )

    comparison = strict_json((tmp_path / "c.json").read_bytes())
    assert code == 3
    assert (comparison["comparable"], comparison["split"]) == (False, [])
    assert "4 ranks" in errors
    assert "8 ranks" in errors
    assert len(errors.splitlines()) == 1
    assert "Not comparable" in out
    assert "Not comparable" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("15%", 0)])
def test_a_gate_on_the_slowdown_of_a_step(limit: str, code: int, tmp_path: Path) -> None:
    # 11 ms steps become 12 ms steps: 9.1 % slower, without noise.
    base = run_of([1000] * 4).write(tmp_path / "base" / "rank0.json")
    new = run_of([2000] * 4).write(tmp_path / "new" / "rank0.json")

    got, _, errors = call("compare", base, new, "--no-html", "--max-slowdown", limit)

    assert got == code
    assert ("max-slowdown: 9.1 % of the base step is above the limit of 5.0 %" in errors) is (code == 1)


def test_a_slowdown_within_noise_passes_the_gate(tmp_path: Path) -> None:
    base = run_of([0, 4000] * 4).write(tmp_path / "base" / "rank0.json")
    new = run_of([1000, 5000] * 4).write(tmp_path / "new" / "rank0.json")

    code, out, _ = call("compare", base, new, "--no-html", "--max-slowdown", "1%")

    assert code == 0
    assert "within noise" in out


@pytest.mark.parametrize("value", ["nan", "80", "-1", "x"])
def test_an_impossible_gate_is_refused_before_reading(value: str, tmp_path: Path) -> None:
    code, _, errors = call("compare", tmp_path / "a.json", tmp_path / "b.json", "--max-slowdown", value)

    assert code == 2
    assert "max-slowdown" in errors


def test_reports_kept_as_json_can_be_compared_with_traces(tmp_path: Path) -> None:
    base = run_of([1000] * 3).write(tmp_path / "base" / "rank0.json")
    new = run_of([2000] * 3).write(tmp_path / "new" / "rank0.json")
    kept = tmp_path / "kept.json"
    assert call("analyze", base, "--no-html", "--no-calls", "--json", kept)[0] == 0

    _, direct, _ = call("compare", base, new, "--no-html")
    code, out, _ = call("compare", kept, new, "--no-html")

    assert code == 0
    assert out == direct


def test_traces_of_other_ranks_are_not_comparable(tmp_path: Path) -> None:
    base = run_of([1000] * 3, rank=0).write(tmp_path / "base" / "rank0.json")
    new = run_of([1000] * 3, rank=1).write(tmp_path / "new" / "rank1.json")

    code, _, errors = call("compare", base, new, "--no-html")

    assert code == 3
    assert "other ranks" in errors


def test_the_page_holds_the_numbers_and_loads_nothing(tmp_path: Path) -> None:
    base = run_of([1000] * 3).write(tmp_path / "base" / "rank0.json")
    new = run_of([2000] * 3).write(tmp_path / "<b>new" / "rank0.json")

    first, second = tmp_path / "one.html", tmp_path / "two.html"
    for path in (first, second):
        assert call("compare", base, new, "-o", path)[0] == 0

    page = first.read_text()
    assert page == second.read_text()
    assert "slower by 1.00 ms (9.1 %)" in page
    assert "<b>new" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


def test_one_step_leaves_noise_unknown() -> None:
    row = changed([100.0], [150.0])

    assert (row["noise_ns"], row["significant"], row["change_ns"]) == (None, None, 50)
    assert words(row) == "slower by 50 ns (50.0 %), one step only"


def test_what_was_not_measured_has_no_difference() -> None:
    row = changed([None, 100.0], [150.0, 150.0])

    assert set(row.values()) == {None}
    assert words(row) == "n/a"


def finding(
    identity: str, ns: int | None, *, ranks: tuple[int, ...] = (0,), cause: str | None = None, severity: str = "high",
    title: str = "",
) -> dict[str, Any]:  # fmt: skip
    """One finding of a report, as far as a comparison looks at it."""
    return {
        "id": identity, "title": title or identity, "severity": severity, "charged_ns": ns, "recoverable_ns": None,
        "cause": cause, "ranks": list(ranks),
    }  # fmt: skip


def test_a_finding_about_another_rank_says_both_ranks() -> None:
    base = {"findings": [finding("straggler", 5_000_000, ranks=(1,), cause="host", title="Rank 1 is late")]}
    new = {"findings": [finding("straggler", 2_000_000, ranks=(3,), cause="input", title="Rank 3 is late")]}

    (row,) = finding_rows(base, new)

    assert (row["status"], row["base_ns"], row["new_ns"]) == ("in both", 5_000_000, 2_000_000)
    assert row["changed"] == "now rank 3, was rank 1; cause now input, was host"


def test_findings_of_one_id_find_their_own_again() -> None:
    """Two late ranks before, the second of which is gone; the first was listed last and is the same in both."""
    base = {
        "findings": [
            finding("straggler", 9, ranks=(2,), cause="host"),
            finding("straggler", 5, ranks=(1,), cause="slow-device"),
        ]
    }
    new = {"findings": [finding("straggler", 4, ranks=(1,), cause="slow-device")]}

    rows = finding_rows(base, new)

    assert [(row["status"], row["base_ns"], row["new_ns"], row["changed"]) for row in rows] == [
        ("gone", 9, None, None),
        ("in both", 5, 4, None),
    ]


def test_statements_are_no_findings_that_come_and_go() -> None:
    """An entry without cost never counts; one that fell below the limit is still there, with what it costs now."""
    statement = finding("not-communication", None, severity="info")
    base = {"findings": [finding("host-bound", 800), statement]}
    new = {"findings": [finding("host-bound", 20, severity="info"), finding("copy-bound", 3, severity="info")]}

    rows = finding_rows(base, new)

    assert [(row["id"], row["status"], row["base_ns"], row["new_ns"]) for row in rows] == [
        ("host-bound", "in both", 800, 20)
    ]


def test_ranks_on_which_a_finding_was_merely_seen_are_no_difference() -> None:
    base = {"findings": [finding("ddp-tail-bucket", 5, ranks=(0, 2), cause="tail", title="The last 4 buckets, 2.5 ms")]}
    new = {"findings": [finding("ddp-tail-bucket", 6, ranks=(1,), cause="tail", title="The last 3 buckets, 2.9 ms")]}

    (row,) = finding_rows(base, new)

    assert row["changed"] is None


def test_one_capture_of_several_is_chosen_for_each_side(tmp_path: Path) -> None:
    """Captures a and b of one rank in one folder: ``--only`` twice compares them, once it takes the same for both."""
    run_of([1000] * 4).write(tmp_path / "runs" / "rank0.a.json")
    run_of([2000] * 4).write(tmp_path / "runs" / "rank0.b.json")
    both = (tmp_path / "runs", tmp_path / "runs")

    apart = call("compare", *both, "--no-html", "--only", "*.a.json", "--only", "*.b.json")
    same = call("compare", *both, "--no-html", "--only", "*.a.json")
    thrice = call("compare", *both, "--no-html", *["--only", "*"] * 3)

    assert "slower by 1.00 ms (9.1 %)" in apart[1]
    assert "takes as long as before" in same[1]
    assert (apart[0], same[0], thrice[0]) == (0, 0, 2)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("other", [None, "rank*.json"])
def test_the_choice_of_a_capture_is_told_for_the_run_that_needs_it(
    side: int, other: str | None, tmp_path: Path
) -> None:
    """One of the two runs holds two captures; the pattern of the hint, for both runs, would refuse the other one."""
    for name in ("it's/rank0.json", "demo/rank0.json"):
        run_of([1000] * 4).write(tmp_path / "several" / name)
    run_of([2000] * 4).write(tmp_path / "one" / "rank0.json")
    given = [tmp_path / "one", tmp_path / "one"]
    given[side] = tmp_path / "several"
    chosen = [] if other is None else ["--only", other, "--only", other]

    code, _, errors = call("compare", *given, "--no-html", *chosen)
    words = shlex.split(errors.rpartition("(two captures lie there; ")[2].strip().removesuffix(")"))
    options = [words[at + 1] for at, word in enumerate(words) if word == "--only"]

    assert (code, len(errors.splitlines())) == (2, 1)
    assert "commprof compare" not in errors
    assert len(options) == 4
    for pair in (options[:2], options[2:]):
        assert pair[1 - side] == (other or "*")
        assert call("compare", *given, "--no-html", "--only", pair[0], "--only", pair[1])[0] == 0


def test_the_bottleneck_is_told_where_it_is_another_one(tmp_path: Path) -> None:
    # 10 ms of compute beside 0.1 ms of exposed communication, then beside 5 ms: 1 % and 33 % of the step.
    base = run_of([100] * 4).write(tmp_path / "base" / "rank0.json")
    new = run_of([5000] * 4).write(tmp_path / "new" / "rank0.json")

    changed_ = call("compare", base, new, "--no-html")[1]
    same = call("compare", base, base, "--no-html")[1]

    assert "Bottleneck: compute, now communication." in changed_
    assert "Bottleneck" not in same


def test_a_run_on_cpus_is_not_compared_with_one_on_accelerators_without_a_name(tmp_path: Path) -> None:
    on_gpu = run_of([100, 100]).write(tmp_path / "gpu" / "rank0.json")
    trace = Trace(backend="gloo")
    for number in (0, 1):
        trace.step(number, 1000 * number, 1000 * number + 1000)
        trace.cpu_op("aten::mm", 1000 * number, 1000 * number + 500)
        trace.annotation("gloo:all_reduce", 1000 * number + 600, 1000 * number + 700, tid=201)
    on_cpu = trace.write(tmp_path / "cpu" / "rank0.json")

    code, out, errors = call("compare", on_gpu, on_cpu, "--no-html")

    assert code == 3
    assert "one ran on accelerators, the other on CPUs" in errors
    assert "Not comparable" in out
