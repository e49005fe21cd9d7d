"""The parts of the HTML report before they meet a template."""

from __future__ import annotations

from typing import Any

import pytest

from commprof.report.charts import exposure, findings, groups, hero, quality, split, timeline, wording
from commprof.report.charts.payload import Strings, json_for_script
from tests.report import sample_view


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([0, 1], "0, 1"),
        ([0, 1, 2, 3, 4, 5, 7], "0–5, 7"),
        ([9, 3, 1, 2, 8], "1–3, 8, 9"),
    ],
)
def test_rank_ranges(ranks: list[int], text: str) -> None:
    assert wording.rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (None, "n/a"),
        (7, "7"),
        ("plain µ name", "plain µ name"),
        ("a\x01b", "a\N{REPLACEMENT CHARACTER}b"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("right to left \u202e", "right to left \N{REPLACEMENT CHARACTER}"),
        ("lone surrogate \ud800", "lone surrogate \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_clean_gives_one_safe_line(raw: object, shown: str) -> None:
    assert wording.clean(raw) == shown


def test_clean_keeps_both_ends_of_a_long_name() -> None:
    text = wording.clean("a" * 100 + "b" * 100, 40)

    assert len(text) == 40
    assert text == "a" * 29 + "…" + "b" * 10


def test_shares_say_of_what_and_null_is_n_a() -> None:
    assert wording.share_of(0.3, "step time") == "30.0 % of step time"
    assert wording.share_of(None, "step time") == "n/a"
    assert wording.ratio(3, 0) is None
    assert wording.ratio(None, 3) is None


def test_json_for_script_is_strict_and_holds_no_markup() -> None:
    text = json_for_script({"a": float("nan"), "b": float("-inf"), "c": "</script><!-- & \u2028"})

    assert text == '{"a":null,"b":null,"c":"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028"}'


def test_average_split_weighs_ranks_by_their_steps() -> None:
    times = dict.fromkeys(("comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"), 0)
    one = {"mean": {"steps": 1, "duration_ns": 100, "compute_ns": 100, **times}}
    three = {"mean": {"steps": 3, "duration_ns": 200, "compute_ns": 160, **times, "idle_ns": 40}}

    average = hero.average_split({"ranks": [one, three, {"mean": None}]})

    # (100 + 3 * 200) / 4, (100 + 3 * 160) / 4, 3 * 40 / 4
    assert average is not None
    assert (average["duration_ns"], average["compute_ns"], average["idle_ns"]) == (175.0, 145.0, 30.0)
    assert hero.average_split({"ranks": [{"mean": None}]}) is None


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ({"ranks": [0], "missing_ranks": [], "world_size": 1}, "rank 0 of 1"),
        ({"ranks": [0], "missing_ranks": [1], "world_size": 2}, "rank 0 of 2; rank 1 missing"),
        ({"ranks": [0, 1], "missing_ranks": [], "world_size": None}, "ranks 0, 1"),
        (
            {"ranks": [0, 1, 2, 3, 4, 5, 7], "missing_ranks": [6], "world_size": 8},
            "ranks 0–5, 7 of 8; rank 6 missing",
        ),
    ],
)
def test_c213_ranks_line(run: dict[str, Any], line: str) -> None:
    assert hero.ranks_line(run) == line


def test_the_pieces_of_a_bar_add_up_to_its_step() -> None:
    for rank in sample_view.sample_view()["report"]["ranks"]:
        for row in [*rank["steps"], rank["mean"]]:
            assert sum(split.pieces(row)) == row["duration_ns"]


def test_the_split_chart_holds_the_times_in_the_unit_of_its_axis() -> None:
    chart = split.split_chart(sample_view.sample_view()["report"])

    # Rank 0, step 4, by hand: 15.85 ms compute, 5.95 of it beside communication, 4.92 exposed, 0.22 copies, 1.01 idle.
    assert chart is not None
    assert [values[0] for values in chart["variants"][1]["values"]] == [9.9, 5.95, 4.92, 0.22, 1.01]
    assert chart["variants"][1]["texts"][2][0] == "rank 0<br>Exposed communication: 4.92 ms, 22.4 % of step time"


def test_a_rank_without_the_chosen_step_leaves_a_gap() -> None:
    report = sample_view.sample_view()["report"]
    del report["ranks"][1]["steps"][0]

    chart = split.split_chart(report)

    assert chart is not None
    step_4 = next(variant for variant in chart["variants"] if variant["name"] == "ProfilerStep#4")
    assert all(values[1] is None for values in step_4["values"])


def test_exposure_is_a_mean_over_the_closed_steps() -> None:
    report = sample_view.sample_view()["report"]

    found = exposure.exposure(report, "step time")

    # All-reduce, exposed: 4.8 ms on rank 0, 4.522 ms on rank 1; broadcast 0.12 ms on both; four steps of 22 ms counted.
    assert found is not None
    by_op = found["tables"][0]
    assert [row["name"] for row in by_op["rows"]] == ["all_reduce", "broadcast"]
    assert [row["exposed"] for row in by_op["rows"]] == ["4.66 ms", "120 µs"]
    assert [row["calls"] for row in by_op["rows"]] == ["4", "1"]
    assert by_op["rows"][0]["share"] == "21.2 % of step time"
    assert [table["by"] for table in found["tables"]] == ["op", "group", "stream"]
    assert found["tables"][1]["rows"][0]["name"] == "default_pg (0)"


def test_c212_groups_show_total_hidden_and_exposed_with_calls_and_bytes() -> None:
    report = sample_view.sample_view()["report"]

    found = groups.groups(report)

    # 4 buckets x 3 steps x 2 ranks; 131,072,000 bytes a step.
    assert found is not None
    row = found["rows"][0]
    assert (row["op"], row["calls"], row["bytes"], row["members"]) == ("all_reduce", "24", "786 MB", "2 ranks: 0, 1")
    assert found["bandwidth"] is False


def test_stretches_are_relative_to_the_start_of_the_step() -> None:
    view = sample_view.sample_view()

    entry = timeline.timeline(view)["entries"][0]  # type: ignore[index]

    # The copy runs 40-260 us after the step's start, before any kernel; idle time surrounds it.
    assert entry["stretches"]["copy"] == [40_000, 260_000]
    assert entry["stretches"]["idle"][:4] == [0, 40_000, 260_000, 300_000]
    assert entry["shares"] is None


@pytest.mark.parametrize(("listed", "kept"), [([[0, 30], [60, 90]], False), ([[0, 90]], True)])
def test_shares_are_kept_only_where_the_stretches_are_not_exact(listed: list[list[int]], kept: bool) -> None:
    view = sample_view.window_view()
    entry = view["timeline"][0]
    entry.update(exposed=[], exposed_copy=[], idle=listed)
    entry["shares"] = {"exposed": [0, 0], "exposed_copy": [0, 0], "idle": [30, 30]}

    drawn = timeline.timeline(view)

    assert drawn is not None
    expected = {"exposed": [0, 0], "copy": [0, 0], "idle": [30, 30]}
    assert drawn["entries"][0]["shares"] == (expected if kept else None)


def test_segments_are_clipped_to_the_step() -> None:
    view = sample_view.window_view()
    segment = view["timeline"][0]["lanes"][0]["segments"][0]
    segment.update(start_ns=-500, end_ns=2_000_000_000)

    drawn = timeline.timeline(view)

    assert drawn is not None
    lane = next(
        lane for lane in drawn["entries"][0]["lanes"] if lane["kind"] == view["timeline"][0]["lanes"][0]["kind"]
    )
    assert (lane["start"][0], lane["end"][0]) == (0, 1_000_000)


def test_coarser_joins_neighbours_and_adds_up_what_they_held() -> None:
    kernel = {"label": "k", "count": 1, "duration_ns": 5, "op": "all_reduce", "group": "0", "size_bytes": 8}
    segments = [
        {**kernel, "start_ns": 0, "end_ns": 5, "exposed_ns": 1},
        {**kernel, "start_ns": 6, "end_ns": 11, "exposed_ns": 2, "op": "broadcast", "size_bytes": None},
        {**kernel, "start_ns": 40, "end_ns": 45, "exposed_ns": 4},
    ]

    joined = timeline.coarser(segments, 20)

    assert [(s["start_ns"], s["end_ns"], s["count"], s["duration_ns"]) for s in joined] == [
        (0, 11, 2, 10),
        (40, 45, 1, 5),
    ]
    assert (joined[0]["op"], joined[0]["group"], joined[0]["size_bytes"], joined[0]["exposed_ns"]) == (
        "several", "0", None, 3,
    )  # fmt: skip


def test_repairs_and_skips_are_counted_in_words_and_faulty_files_come_first() -> None:
    report = sample_view.sample_view()["report"]
    report["input"]["files"][1]["repaired"].update(raw_quote=3, clipped=1)
    report["input"]["files"][1].update(truncated=True)

    found = quality.quality(report)

    assert [file["rank"] for file in found["files"]] == ["1", "0"]
    assert [file["repaired"] for file in found["files"]] == ["3 raw quote, 1 clipped", "none"]
    assert found["files_summary"] == "2 files, 1.50 MB, 81,146 events, 4 repaired, 0 skipped, 1 truncated"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ns", "n/a"),
        (2_500_000, "ns", "2.50 ms"),
        (8_196_000, "bytes", "8.20 MB"),
        (0.05, "share of step", "5.0 % of the window"),
        (0.5, "share of communication time", "50.0 % of communication time"),
        (1_234, "calls", "1,234 calls"),
        (2.29, None, "2.29"),
        ("rank 7", None, "rank 7"),
        (True, None, "True"),
    ],
)
def test_evidence_is_shown_with_its_unit(value: Any, unit: str | None, text: str) -> None:
    assert findings.with_unit(value, unit, "window") == text


def test_one_rank_alone_shows_its_mean_and_steps_side_by_side() -> None:
    report = sample_view.sample_view()["report"]
    del report["ranks"][1]

    chart = split.split_chart(report)

    assert chart is not None
    assert chart["title"] == "Each step of rank 0"
    assert [variant["name"] for variant in chart["variants"]] == ["rank 0"]
    assert chart["figure"]["layout"]["yaxis"]["ticktext"] == [
        "Mean of the closed steps",
        "ProfilerStep#4",
        "ProfilerStep#5",
        "ProfilerStep#6 (open)",
    ]
    assert chart["variants"][0]["values"][2] == [4.92, 4.92, 4.92, 4.92]


def test_names_in_a_chart_cannot_be_read_as_its_markup() -> None:
    report = sample_view.hostile_view()["report"]
    del report["ranks"][1]

    chart = split.split_chart(report)

    assert chart is not None
    assert not any("<" in text for text in chart["figure"]["layout"]["yaxis"]["ticktext"])
    assert not any("<s" in text for texts in chart["variants"][0]["texts"] for text in texts)


def test_rows_without_work_to_speak_of_are_left_out_of_a_crowded_timeline() -> None:
    view = sample_view.window_view()
    entry = view["timeline"][0]
    segment = dict(entry["lanes"][0]["segments"][0])
    entry["lanes"] = [
        {"kind": "compute", "stream": str(i), "row": 0, "segments": [dict(segment, duration_ns=1_000 * i)]}
        for i in range(100)
    ]

    drawn = timeline.timeline(view)

    assert drawn is not None
    assert [lane["name"] for lane in drawn["entries"][0]["lanes"]] == [f"compute {i}" for i in range(60, 100)]
    assert drawn["note"] == "Up to 60 rows of a rank with the least work are left out."


def test_strings_are_stored_once_and_bounded() -> None:
    strings = Strings(most_characters=10)

    indices = [strings.add(text) for text in ("first", "first", "12345", "too much", "first", "also too much")]

    assert indices == [0, 0, 1, 2, 0, 2]
    assert strings.texts == ["first", "12345", Strings.LEFT_OUT]
