"""``commprof check``: exit codes and lines, at and around the limits (C214, C215, C216)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import call, strict_json
from tests.builders.kineto import Trace, t0


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No pyproject.toml of this checkout may decide what these tests see.
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., tuple[int, str, Any]]:
    """``check(TRACE, *options)``: exit code, standard error, report (``None`` where none was written)."""

    def run(trace: Trace, *options: str) -> tuple[int, str, Any]:
        path, out = trace.write(tmp_path / "rank0.json"), tmp_path / "report.json"
        out.unlink(missing_ok=True)
        code, _, errors = call("check", path, "--no-html", "--json", out, *options)
        return code, errors, strict_json(out.read_bytes()) if out.exists() else None

    return run


def hidden(permille: int) -> Trace:
    """1000 µs of communication in a step of 2000, so many of them hidden behind compute."""
    trace = Trace()
    trace.step(1, 0, 2000)
    trace.gemm(0, permille)
    trace.all_reduce(0, 1000)
    return trace


@pytest.mark.parametrize(("permille", "code"), [(800, 0), (799, 1), (801, 0)])
def test_c214_exactly_at_the_limit_passes_and_the_report_is_written(
    permille: int, code: int, check: Callable[..., Any]
) -> None:
    got, errors, report = check(hidden(permille), "--min-overlap", "0.8")

    assert got == code
    assert report["checks"][0]["value"] == permille / 1000
    assert report["checks"][0]["ok"] is (code == 0)
    assert ("min-overlap: 79.9 % of communication time is below the limit of 80.0 %" in errors) is (code == 1)


@pytest.mark.parametrize("pattern", ["", ".*", "gemm|", "^"])
@pytest.mark.parametrize("verb", [["analyze"], ["check", "--max-exposed", "1"], ["compare", "no.json"]])
def test_a_pattern_that_makes_every_kernel_communicate_is_refused(verb: list[str], pattern: str) -> None:
    # The path does not exist: had it been read first, the message would be about it.
    code, _, err = call(*verb, "no.json", "--comm-pattern", pattern)

    assert (code, len(err.splitlines())) == (2, 1)
    assert f"--comm-pattern {pattern!r}: matches every kernel" in err


@pytest.mark.parametrize("option", ["--max-exposed", "--max-straggler-wait", "--min-overlap"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "80", "101%", "-1%", "1.0001", "x", "", "5ms", "0,5"])
def test_c215_an_impossible_share_is_refused_before_reading(option: str, value: str, tmp_path: Path) -> None:
    # The path does not exist: had it been read first, the message would be about it.
    code, _, errors = call("check", tmp_path / "nothing.json", option, value)

    assert code == 2
    assert "nothing.json" not in errors
    assert len(errors.splitlines()) == 1
    assert option.removeprefix("--") in errors


@pytest.mark.parametrize(
    ("permille", "limit", "code"), [(850, "0.15", 0), (850, "7.5%", 0), (700, "15%", 0), (698, "15%", 1)]
)
def test_exposed_communication_as_a_share_of_step_time(
    permille: int, limit: str, code: int, check: Callable[..., Any]
) -> None:
    got, _, report = check(hidden(permille), "--max-exposed", limit)

    assert report["checks"][0]["value"] == (1000 - permille) / 2000
    assert got == code


def test_c216_a_limit_on_what_the_trace_does_not_hold_cannot_be_answered(check: Callable[..., Any]) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)

    code, errors, report = check(trace, "--min-overlap", "0.8")

    assert code == 3
    assert report["checks"] == [
        {
            "limit": "min-overlap",
            "key": "overall.overlap_ratio",
            "sign": ">=",
            "threshold": 0.8,
            "value": None,
            "ok": None,
        }
    ]
    assert "min-overlap" in errors
    assert len([line for line in errors.splitlines() if line.startswith("commprof: ") and "warning" not in line]) == 1


def test_an_exceeded_limit_decides_even_if_another_cannot_be_answered(check: Callable[..., Any]) -> None:
    code, errors, _ = check(t0(), "--max-exposed", "10%", "--max-straggler-wait", "5%")

    assert code == 1
    assert "max-exposed: 30.0 % of step time is above the limit of 10.0 %" in errors
    assert "max-straggler-wait: this trace cannot answer it" in errors


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("overall.idle_ns<=100us", 0),
        ("overall.idle_ns<100us", 1),
        ("overall.idle_ns<=99999", 1),
        ("ranks[0].mean.compute_ns>=0.6ms", 0),
        ("ranks[*].steps[*].idle_ns<=99.9us", 1),
        ("ranks[rank=0].mean.comm_share<=30%", 0),
        ("groups[op=all_reduce].calls>=1", 0),
        ("groups[op=all_gather].calls>=1", 3),
        ("coverage.device_events>2", 1),
        ("findings.input-bound.share_of_step<=2%", 0),
        ("ranks[7].mean.idle_ns<=1", 3),
        ("ranks[0].mean.idel_ns<=1", 2),
        ("nothing.there<=1", 2),
        ("ranks[0].mean<=1", 2),
        ("findings.no-such<=1", 2),
        ("overall.idle_ns", 2),
        ("overall.idle_ns<=5%", 2),
        ("overall.comm_share<=80", 2),
        ("overall.comm_share<=5ms", 2),
        ("overall..idle_ns<=5", 2),
    ],
)
def test_any_number_of_the_report_can_be_limited(limit: str, code: int, check: Callable[..., Any]) -> None:
    got, errors, _ = check(t0(), "--limit", limit)

    assert got == code, errors
    assert "Traceback" not in errors


def test_the_project_sets_limits_and_the_command_line_replaces_them(check: Callable[..., Any]) -> None:
    Path("pyproject.toml").write_text('[tool.commprof]\nmax-exposed = "10%"\nlimit = ["overall.idle_ns<=1ms"]\n')

    from_project, errors, report = check(t0())
    replaced, _, _ = check(t0(), "--max-exposed", "30%")

    assert from_project == 1
    assert [row["limit"] for row in report["checks"]] == ["max-exposed", "overall.idle_ns"]
    assert "max-exposed" in errors
    assert replaced == 0


def test_a_bad_limit_of_the_project_names_its_file(check: Callable[..., Any]) -> None:
    Path("pyproject.toml").write_text("[tool.commprof]\nmax-exposed = 15\n")

    code, errors, report = check(t0())

    assert code == 2
    assert report is None
    assert "pyproject.toml" in errors


def test_no_limit_at_all_is_a_usage_error(check: Callable[..., Any]) -> None:
    code, errors, report = check(t0())

    assert (code, report) == (2, None)
    assert "no limit" in errors


def test_annotations_for_github_on_request(check: Callable[..., Any]) -> None:
    _, plain, _ = check(t0(), "--max-exposed", "10%")
    _, errors, _ = check(t0(), "--max-exposed", "10%", "--github")

    assert "::error" not in plain
    assert (
        "::error title=commprof check::max-exposed: 30.0 %25 of step time is above the limit of 10.0 %25"
        in errors.splitlines()
    )


def test_a_key_that_no_report_has_is_refused_and_a_row_that_this_one_lacks_cannot_be_answered(
    check: Callable[..., tuple[int, str, Any]],
) -> None:
    code, errors, _ = check(t0(), "--limit", "overall.nope<=5")
    other, _, _ = check(t0(), "--limit", "collectives[0].exposed_by_step.ProfilerStep#99<=5")

    assert code == 2
    assert "limit on overall.nope: the report has no 'nope' there" in errors
    assert other == 3
