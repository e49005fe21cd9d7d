"""What the report knows is told to a person too: parts that once stood in the JSON alone."""

from __future__ import annotations

from typing import Any

import pytest

from commprof.report import summary
from commprof.report.charts import calls, findings, hero, quality, split, stragglers, strategy, waiting
from commprof.report.html import render_html
from tests.report import sample_view
from tests.report.test_html import Page

Json = dict[str, Any]


def test_a_formula_says_what_it_was_filled_in_with_and_what_its_letters_mean(report: Json) -> None:
    report["strategy"]["evidence"].append("ddp: 5 all-reduces")
    report["strategy"]["alternatives"] = {"fsdp": ["fsdp", "zero3"]}
    report["strategy"]["parts"][0]["assumed"] = "P bg = 131072000 B, the sum of the all-reduces"

    found = strategy.strategy(report)

    assert found is not None
    assert found["evidence"][-2:] == ["DDP: 5 all-reduces", "FSDP is the likelier; in a trace it looks like ZeRO-3"]
    assert found["symbols"] == "N ranks of the group, P parameters, bg bytes of a gradient element"
    assert found["parts"][0]["assumed"] == "P bg = 131 MB, the sum of the all-reduces"


def test_late_hosts_and_cheap_overlap_have_columns_where_there_is_any(report: Json) -> None:
    plain = split.split_table(report)
    for rank in report["ranks"]:
        for step in rank["steps"]:
            step.update(idle_host_ns=400_000, overlap_thin_ns=0)

    found = split.split_table(report)

    assert plain["extra"] == []
    assert [column["term"] for column in found["extra"]] == ["host-bound"]
    assert found["rows"][0]["extra"] == ["400 µs"]


def test_the_whole_capture_is_a_row_of_its_own_without_a_share_of_step_time(report: Json) -> None:
    rows = split.split_table(report)["rows"]

    # Two ranks of three steps each, and after each rank's steps its capture.
    assert [row["step"] for row in rows].index("whole capture") == 3
    assert (rows[3]["share"], len(rows)) == ("", 8)


def test_what_the_capture_cost_and_was_set_to_is_told(report: Json) -> None:
    report["input"]["capture"].update(
        profiled_step_ns=23_000_000, unprofiled_step_ns=22_000_000, cores={"0": 1, "1": 4}, environment={"A": "1"}
    )

    told = dict(quality.quality(report)["coverage"])

    assert told["A step while it was recorded"] == "23.0 ms"
    assert told["A step before that, without the profiler"] == "22.0 ms"
    assert told["CPU cores of a rank"] == "1 to 4"
    assert told["Settings of the process"] == "A=1"


def test_more_columns_of_calls_wait_until_they_are_asked_for(view: Json) -> None:
    view["report"]["collectives"][0]["phase"] = "backward"

    columns = {column["key"]: column for column in calls.calls(view["report"])["columns"]}  # type: ignore[index]
    page = Page(render_html(view))

    assert columns["phase"]["more"]
    assert not columns["exposed_ns"]["more"]
    assert "module" not in columns, "no call has one"
    heads = [attributes for tag, attributes in page.elements if tag == "th" and "col-" in attributes.get("class", "")]
    assert [("hidden" in head) for head in heads] == [column["more"] for column in columns.values()]


def test_where_the_time_sits_is_said_where_communication_is_to_blame(report: Json) -> None:
    headline = {"where": "All of it sits in all-reduce."}

    assert hero.sits({**report, "verdict": {"bottleneck": "straggler"}}, headline) == "All of it sits in all-reduce."
    assert hero.sits({**report, "verdict": {"bottleneck": "input"}}, headline) is None


def test_one_rank_alone_says_how_much_of_its_time_the_host_was_late(view: Json) -> None:
    report = view["report"]
    report["ranks"] = report["ranks"][:1]
    report["overall"].update(exposed_host_ns=0, idle_host_ns=1_000_000)

    bar = hero.hero(view)["bar"]

    assert {part.kind: part.details for part in bar["parts"] if part.kind in ("exposed", "idle")} == {
        "exposed": (),
        "idle": ("1.00 ms of it while the host was late",),
    }


def test_copies_that_would_read_as_zero_have_no_place(report: Json) -> None:
    mean = {"duration_ns": 1_000_000, "exposed_copy_ns": 500}

    assert summary.copies_tell([mean])
    assert not summary.copies_tell([{**mean, "exposed_copy_ns": 499}])


def test_strategy_and_bubble_fit_a_line_each(report: Json) -> None:
    assert summary.volume(report) == "DDP, each rank sends 131 MB per step, 131 MB by formula"
    assert summary.bubble(report) == ("0.290 to 0.320 of the pipeline's time, ideal 0.273; 4 stages, 8 micro-batches")
    assert summary.volume({**report, "strategy": None}) is None
    report["strategy"]["measured_bytes_per_step"] = None
    assert summary.volume(report) == "DDP"
    assert summary.bubble({**report, "pipeline": None}) is None


def test_lost_calls_and_drifting_clocks_are_named(report: Json) -> None:
    report["matching"]["clock_drifts_ppb"] = {"0": 0, "1": 12}
    report["matching"]["unmatched_calls"] = [
        {"reason": "extra-call", "group_id": 0, "op": "all_reduce", "seq": 7, "present": [0], "absent": [1]}
    ]

    found = waiting.matching(report)
    clocks = waiting.waiting(report)["clocks"]["rows"]  # type: ignore[index]

    assert found is not None
    assert found["lost"] == ["all_reduce, number 7: on ranks 0, not on 1; some members made one call more"]
    assert [row["offset"] for row in clocks] == ["0 ns", "−4.20 µs, drift 12 ns a second"]


def test_a_late_rank_is_drawn_although_it_exposes_the_least() -> None:
    report = sample_view.many_ranks_view(600)["report"]
    least = min(report["ranks"], key=lambda rank: rank["mean"]["exposed_comm_ns"])["rank"]
    without = split.split_chart(report)
    report["stragglers"] = [{"rank": least}]

    found = split.split_chart(report)

    assert without is not None
    assert found is not None
    texts = [chart["variants"][0]["texts"][0] for chart in (without, found)]
    assert [any(text.startswith(f"rank {least}<") for text in each) for each in texts] == [False, True]
    assert "the late ones among them" in found["note"]


def test_remarks_about_next_to_no_time_keep_their_title_and_lose_their_advice(report: Json) -> None:
    remark = {**report["findings"][2], "severity": "info"}
    report["findings"] = [{**remark, "charged_ns": 21_000, "share_of_step": 0.00095}, {**remark, "share_of_step": 0.01}]

    found = findings.findings(report, "step time", set(), {})

    assert found is not None
    assert [row["number"] for row in found["info"]] == [2]
    assert [(row["number"], row["charged"]) for row in found["minor"]] == [(1, "21.0 µs")]
    assert found["below"] == "0.1 % of step time"


def test_a_late_rank_without_effect_is_told_and_not_accused(view: Json) -> None:
    late = {**view["report"]["stragglers"][0], "rank": 3, "why_not_named": "the run would not end earlier without it"}
    view["report"]["late_but_harmless"] = [late]

    text = " ".join(Page(render_html(view)).text.split())

    assert "Late, but not named: rank 3 (slow device, 720 µs per step). The run would not end" in text


@pytest.mark.parametrize(("host", "name"), [("host0", "host0, ranks 0–3"), ("node7", "host node7, ranks 0–3")])
def test_a_host_that_is_called_host_is_not_called_so_twice(host: str, name: str) -> None:
    row = {"rank": None, "host": host, "role": None, "members": [0, 1, 2, 3]}

    assert stragglers.late_name(row) == name


def test_a_stage_on_one_host_is_called_by_its_stage() -> None:
    row = {"rank": None, "host": "host0", "role": "pipeline stage 2", "members": [2]}

    assert stragglers.late_name(row) == "pipeline stage 2, rank 2"
