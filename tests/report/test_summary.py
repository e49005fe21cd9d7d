"""The figures of terminal and Markdown: whose step the findings are of, and what they leave out."""

from __future__ import annotations

from typing import Any

from commprof.report.charts.accounting import left_out
from commprof.report.charts.findings import step_ranges
from commprof.report.summary import causes_title, findings_title


def report(ranks: int, findings: list[tuple[str, int]], unexplained: int) -> dict[str, Any]:
    return {
        "ranks": [{"windows": "launch", "rank": rank} for rank in range(ranks)],
        "findings": [{"severity": severity, "charged_ns": ns, "recoverable_ns": ns} for severity, ns in findings],
        "accounting": {
            "ranks": [1],
            "steps": 2,
            "duration_ns": 36_000_000,
            "parts": [{"name": "compute", "ns": 5}, {"name": "unexplained-exposed", "ns": 2 * unexplained}],
        },
    }


def test_findings_of_several_ranks_say_whose_step_they_are_shares_of() -> None:
    found = report(2, [("high", 9)], 0)

    title = findings_title(found)

    assert title == "What costs time per step, and what to change (rank 1, which loses the most; its step: 18.0 ms)"
    assert "rank" not in findings_title(report(1, [("high", 9)], 0))
    # No row of the table of ranks has this mean: it is of another rank in every step.
    found["accounting"]["ranks"] = [0, 1]
    assert findings_title(found).endswith(" (the rank that loses the most in each step; its step: 18.0 ms)")


def test_one_rank_has_no_mean_over_ranks() -> None:
    assert causes_title(report(2, [("high", 9)], 0), "Why") == "Why: mean over ranks, per step"
    assert causes_title(report(1, [("high", 9)], 0), "Why") == "Why, per step"


def test_what_is_not_shown_is_counted() -> None:
    found = report(2, [("high", 9), ("low", 5), ("info", 3), ("info", 0)], 252_000_000)

    assert left_out(found, 1, "in the report") == (
        "and 1 more in the report, 1 small or uncertain finding, "
        "252 ms of exposed communication that no finding explains"
    )
    assert left_out(report(2, [("high", 9)], 0), 1, "below") is None


def test_what_no_finding_explains_is_told_by_kind() -> None:
    found = report(1, [("high", 9)], 3_000_000)
    found["accounting"]["parts"].append({"name": "unexplained-idle", "ns": 2 * 4_000_000})

    text = left_out(found, 1, "below")

    assert text == "and 3.00 ms of exposed communication and 4.00 ms of idle time that no finding explains"


def test_a_finding_that_gives_nothing_back_is_a_small_one() -> None:
    found = report(2, [("high", 9), ("low", 5)], 0)
    found["findings"][1]["recoverable_ns"] = 0

    text = left_out(found, 1, "below")

    assert text == "and 1 small or uncertain finding"


def test_what_rounding_leaves_is_no_time_to_look_for() -> None:
    found = report(1, [("high", 9)], 5_000)
    # 5 µs of a step are 0.05 % of 10 ms, 0.1 % in print, and less of any longer step.
    steps = found["accounting"]["steps"]

    found["accounting"]["duration_ns"] = steps * 10_000_000
    visible = left_out(found, 1, "below")
    found["accounting"]["duration_ns"] = steps * 10_000_001
    rounded = left_out(found, 1, "below")

    assert (visible, rounded) == ("and 5.00 µs of exposed communication that no finding explains", None)


def test_numbered_steps_in_a_row_are_one_range() -> None:
    names = [f"ProfilerStep#{number}" for number in (3, 4, 5, 7, 10)]

    assert step_ranges(names) == "ProfilerStep#3–5, ProfilerStep#7, ProfilerStep#10"
    assert step_ranges(["window"]) == "window"
    assert step_ranges(["a007", "a008", "b1", "c2"]) == "a007, a008, b1, c2"
