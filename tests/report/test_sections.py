"""The sections of the report: what they show of hand-made rows, what they leave out, and how they stay small."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from commprof.report import summary
from commprof.report.charts import (
    accounting,
    appendix,
    bucket_sizes,
    buckets,
    exposure,
    findings,
    groups,
    hero,
    idle,
    pipeline,
    quality,
    stragglers,
    strategy,
    tensor,
    tracks,
    units,
    unsaid,
    waiting,
)
from commprof.report.html import render_html
from commprof.report.terminal import print_summary
from tests.report import sample_parts, sample_view
from tests.report.test_html import Page

Json = dict[str, Any]
STEP = "step time"


# The first screen.


@pytest.mark.parametrize(("cut", "told"), [((), "3 steps"), ((2,), "3 steps, 2 of them whole"), ((0, 1, 2), "3 steps")])
def test_the_header_counts_whole_steps_apart_where_the_bar_is_a_mean_over_fewer(
    view: Json, cut: tuple[int, ...], told: str
) -> None:
    for rank in view["report"]["ranks"]:
        del rank["steps"][3:]
        for number, step in enumerate(rank["steps"]):
            step["open"] = number in cut

    assert hero.hero(view)["facts"][-1] == told


@pytest.mark.parametrize(("ranks", "told"), [([0], False), ([0, 1], True)])
def test_the_summary_repeats_no_note_that_its_first_lines_say(view: Json, ranks: list[int], told: bool) -> None:
    view["report"]["input"]["ranks"] = ranks
    view["report"]["notes"] = [
        {"code": "missing-ranks", "message": "rank 2 missing"},
        {"code": "no-communication", "message": "none was found"},
        {"code": "repaired", "message": "4 events were repaired"},
    ]
    console = Console(file=io.StringIO(), width=120)

    print_summary(view, console)

    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "4 events were repaired" in text
    assert "none was found" not in text
    assert ("rank 2 missing" in text) == told


def test_the_parts_of_the_bar_add_up_to_the_step(report: Json) -> None:
    bar = accounting.segments(report, STEP)

    # 22 ms: 15.85 compute, 3.9 + 0.72 + 0.3 exposed, 0.22 copies, 0.6 + 0.41 idle.
    assert bar is not None
    assert sum(part["width"] for part in bar["segments"]) == pytest.approx(100)
    assert bar["totals"] == {"compute": 15_850_000, "exposed": 4_920_000, "copy": 220_000, "idle": 1_010_000}
    assert [(part["kind"], part["number"], part["explained"]) for part in bar["segments"]] == [
        ("compute", None, True),
        ("exposed", 1, True),
        ("exposed", 2, True),
        ("exposed", None, False),
        ("copy", None, True),
        ("idle", 3, True),
        ("idle", None, False),
    ]


def test_a_finding_with_exposed_and_idle_time_has_a_segment_of_each(report: Json) -> None:
    part = next(part for part in report["accounting"]["parts"] if part["name"] == "host-bound")
    part.update(exposed_ns=400_000, idle_ns=800_000)

    bar = accounting.segments(report, STEP)

    assert bar is not None
    assert [(s["kind"], s["time"]) for s in bar["segments"] if s["number"] == 3] == [
        ("exposed", "200 µs"),
        ("idle", "400 µs"),
    ]


def test_the_first_screen_names_three_findings_with_time_and_advice(report: Json) -> None:
    report["findings"].insert(3, sample_parts.finding("copy-bound", "Copies", "low", 500_000, 500_000))

    rows = accounting.top(report, STEP)

    assert [(row["number"], row["id"], row["time"]) for row in rows] == [
        (1, "ddp-tail-bucket", "3.90 ms"),
        (2, "straggler", "720 µs"),
        (3, "host-bound", "600 µs"),
    ]
    assert rows[0]["advice"].startswith("Make the last bucket smaller")


def test_the_first_screen_says_what_the_bar_says_and_what_of_it_could_come_back(view: Json) -> None:
    first = view["report"]["findings"][0]
    first["recoverable_ns"] = 1_900_000

    shown = hero.hero(view)

    # 3.90 ms are charged, in the bar and in the line.
    assert next(s["time"] for s in shown["bar"]["segments"] if s["number"] == 1) == "3.90 ms"
    assert [(row["charged"], row["time"]) for row in shown["top"][:2]] == [("3.90 ms", "1.90 ms"), (None, "720 µs")]


@pytest.mark.parametrize(("recoverable", "told"), [(3_900_000, False), (3_900_001, True)])
def test_the_findings_say_that_more_may_come_back_than_is_charged_where_one_promises_so(
    view: Json, recoverable: int, told: bool
) -> None:
    view["report"]["findings"][0]["recoverable_ns"] = recoverable  # charged with 3.90 ms

    page = " ".join(render_html(view).split())

    assert ("more than is charged where it also delays what others are charged with" in page) == told


def test_what_gives_nothing_back_is_not_on_the_first_screen(report: Json) -> None:
    report["findings"].insert(1, sample_parts.finding("bucket-too-large", "One bucket", "low", 0, 40_000))

    rows = accounting.top(report, STEP)

    assert [row["id"] for row in rows] == ["ddp-tail-bucket", "straggler", "host-bound"]
    assert [row.id for row in summary.top_findings(report)] == [row["id"] for row in rows]


def test_long_advice_is_cut_at_a_clause_on_the_first_screen() -> None:
    clause = "lower the size of buckets, " * 6
    text = accounting.brief(f"{clause}more messages; overlap with the optimizer (memory); and so on")

    assert text == f"{clause}more messages."
    assert accounting.brief("short; advice") == "short; advice"
    inside = f"overlap the gather (one way; {clause}another), larger sizes; more"
    assert accounting.brief(inside) == f"overlap the gather (one way; {clause}another), larger sizes."


def test_bounds_say_what_a_step_could_become(report: Json) -> None:
    found = accounting.bounds(report, STEP)

    # 22 ms; 17.08 ms without any exposed communication is 4.92 / 22 less.
    assert found is not None
    assert [(row["time"], row["gain"]) for row in found["rows"]] == [
        ("22.0 ms", None),
        ("18.1 ms", "17.7 % of step time on rank 0"),
        ("21.3 ms", "3.3 % of step time on rank 0"),
        ("17.1 ms", "22.4 % of step time on rank 0"),
    ]
    assert found["rows"][0]["name"] == "today, rank 0, which loses the most"
    # 10 µs of 22 ms would read as 0.0 %.
    report["bounds"]["all_hidden_ns"] = 21_990_000
    assert accounting.bounds(report, STEP)["rows"][-1]["gain"] is None
    report["bounds"] = {"step_ns": 5, "all_hidden_ns": None, "no_waiting_ns": None, "without_top_finding_ns": None}
    assert accounting.bounds(report, STEP) is None


def test_exposed_communication_that_hiding_would_not_give_back_is_told_beside_the_bounds(report: Json) -> None:
    # 22 ms with 3.9 + 0.72 + 0.3 ms exposed: all of it comes back.
    report["bounds"]["all_hidden_ns"] = 17_080_000
    everything = accounting.bounds(report, STEP)
    assert everything is not None
    assert everything["not_back"] is None

    # Nothing comes back, though the bar shows exposed communication.
    report["bounds"]["all_hidden_ns"] = 22_000_000
    nothing = accounting.bounds(report, STEP)
    assert nothing is not None
    assert nothing["not_back"].startswith("4.92 ms of exposed communication would not come back if it were hidden")


# Findings.


def test_findings_link_to_the_sections_that_the_page_has(report: Json) -> None:
    found = findings.findings(report, STEP, {"buckets", "exposure"}, {0: "group-0"})

    assert found is not None
    assert [link["href"] for link in found["rows"][0]["links"]] == ["buckets", "group-0"]
    assert [link["href"] for link in found["rows"][1]["links"]] == ["exposure"], "no section of late ranks on the page"
    assert [row["id"] for row in found["info"]] == ["max-connections"]


def test_a_threshold_is_shown_with_its_source(report: Json) -> None:
    found = findings.findings(report, STEP, set(), {})

    assert found is not None
    assert found["rows"][0]["threshold"] == "2.0 % of step time"
    assert found["rows"][0]["source"] == "resolution of step times, this project"
    assert found["rows"][0]["cause"]["name"] == "tail"


# Charts inside tables.


def test_an_axis_places_times_in_percent_and_marks_round_ones() -> None:
    axis = tracks.Axis(1_000_000, 11_000_000)

    assert [axis.at(ns) for ns in (0, 1_000_000, 3_500_000, 11_000_000, 99_000_000)] == [0, 0, 25, 100, 100]
    # From 0 at 1 ms: 2, 4, 6 and 8 ms; the tick of 10 ms would be cut at the end.
    assert [(tick["left"], tick["text"]) for tick in axis.ticks(1_000_000)] == [
        (0, "0"), (20, "2 ms"), (40, "4 ms"), (60, "6 ms"), (80, "8 ms"),
    ]  # fmt: skip


def test_a_call_is_exposed_where_the_rank_computes_nothing() -> None:
    axis, entry = tracks.Axis(0, 100), {"exposed": [[0, 20], [30, 50], [90, 120]]}

    found = tracks.parts_of(axis, 10, 100, entry)

    assert [(bar["kind"], bar["left"], bar["width"]) for bar in found] == [
        ("exposed", 10, 10), ("hidden", 20, 10), ("exposed", 30, 20), ("hidden", 50, 40), ("exposed", 90, 10),
    ]  # fmt: skip


def test_many_stretches_take_the_colour_of_most_of_their_time() -> None:
    # Of the first half of the call 9 of 10 ns are exposed, of the second half 1 of 10.
    axis = tracks.Axis(0, 20_000)
    exposed = [[10 * i, 10 * i + (9 if i < 1_000 else 1)] for i in range(2_000)]

    found = tracks.parts_of(axis, 0, 20_000, {"exposed": exposed})

    assert [(bar["kind"], bar["left"], bar["width"]) for bar in found] == [("exposed", 0, 50), ("hidden", 50, 50)]


def test_buckets_show_one_step_against_compute_and_all_steps_in_a_table(view: Json) -> None:
    found = buckets.buckets(view)

    assert found is not None
    chart = found["chart"]
    # The timeline shows step 5; rank 0 is first among equals.
    assert (chart["rank"], chart["step"], chart["tail"]) == (0, "ProfilerStep#5", "4.45 ms")
    assert [(row["index"], row["size"], row["lag"], row["tail"]) for row in chart["rows"]] == [
        (0, "26.2 MB", "−1.75 ms", False),
        (1, "26.2 MB", "−1.35 ms", False),
        (2, "26.2 MB", "−1.20 ms", False),
        (3, "52.4 MB", "−1.10 ms", True),
    ]
    assert [bar["kind"] for bar in chart["rows"][3]["bars"]] == ["exposed"]
    assert chart["compute"]
    assert [(row["calls"], row["queued"], row["tail"]) for row in found["rows"]] == [
        ("6", "0 ns", "0 of 6"), ("6", "0 ns", "0 of 6"), ("6", "0 ns", "0 of 6"), ("6", "300 µs", "6 of 6"),
    ]  # fmt: skip


def test_layers_show_when_they_were_needed(view: Json) -> None:
    found = units.units(view)

    assert found is not None
    assert found["chart"]["step"] == "ProfilerStep#5"
    first = found["chart"]["rows"][0]
    assert (first["name"], first["slack"], first["cause"]) == ("layers.0", "−260 µs", "not prefetched")
    assert [mark["kind"] for mark in first["marks"]] == ["launched", "needed"]
    assert found["total"] == 8


# Across ranks.


def test_few_ranks_have_a_row_each_in_both_heat_maps(report: Json) -> None:
    found = waiting.waiting(report)

    assert found is not None
    by_step, by_call = found["maps"]
    assert (by_step["rows"], by_step["columns"], by_step["late"]) == (["0", "1"], ["#4", "#5", "#6"], [1])
    assert [layer["title"] for layer in by_step["layers"]] == ["makes others wait", "waits for others"]
    assert by_step["layers"][0]["values"] == [[30_000] * 3, [720_000] * 3]
    assert by_call["layers"][0]["values"] == [[140_000] * 15, [8_000] * 15]
    assert found["note"] is None


def test_of_many_ranks_the_late_ones_keep_a_row_and_the_rest_share_their_median() -> None:
    view = sample_parts.many_waits_view(200, steps=2, calls=300)

    found = waiting.waiting(view["report"])

    assert found is not None
    by_step, by_call = found["maps"]
    assert len(by_step["rows"]) == 65
    assert by_step["rows"][by_step["late"][0]] == "66"
    assert by_step["rows"][-1] == "median of 136 others"
    assert "64 ranks that the others waited for the most" in found["note"]
    # 600 calls in 300 columns of two, whose waits add up: 50 + 50 ns of the late rank.
    assert len(by_call["columns"]) == 300
    assert by_call["layers"][0]["values"][by_call["late"][0]] == [100] * 300
    assert by_call["note"] == "Every column stands for 2 calls in a row; their waits add up."


def test_late_ranks_come_with_cause_cost_and_chain(report: Json) -> None:
    found = stragglers.stragglers(report, STEP)

    assert found is not None
    (row,) = found["rows"]
    assert (row["name"], row["kind"], row["cause"], row["charged"]) == (
        "rank 1",
        "in most steps",
        "slow device",
        "720 µs",
    )
    assert row["share"] == "3.3 % of step time"
    assert row["chain"] == ["0", "1"]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"rank": 3, "host": "a", "role": None}, "rank 3"),
        ({"rank": None, "host": "node-b", "role": None}, "host node-b"),
        ({"rank": None, "host": None, "role": "stage 3"}, "stage 3"),
        ({"rank": None, "host": None, "role": None}, "no single rank"),
    ],
)
def test_what_is_late_may_be_more_than_a_rank(row: Json, name: str) -> None:
    assert stragglers.late_name(row) == name


# Strategy, groups, and the rest.


def test_differences_close_the_gap_between_formula_and_measured(report: Json) -> None:
    found = strategy.strategy(report)

    assert found is not None
    (part,) = found["parts"]
    assert part["differences"] == [{"what": "buffer broadcasts", "bytes": "+4.10 kB"}]
    assert part["left"] is None
    report["strategy"]["parts"][0]["measured_bytes"] += 1_000
    again = strategy.strategy(report)
    assert again is not None
    assert again["parts"][0]["left"] == "+1.00 kB"


def test_faster_compute_lowers_the_ratio(report: Json) -> None:
    found = strategy.ratios(report)

    assert found is not None
    assert [value["text"] for value in found["rows"][0]["values"]] == ["1.36", "0.68", "0.34"]
    assert [value["short"] for value in found["rows"][0]["values"]] == [False, True, True]


def test_many_groups_of_one_kind_share_a_row(report: Json) -> None:
    row = report["groups"][0]
    report["groups"] = [
        dict(
            row,
            group=f"tp_{i}",
            description="tp",
            role="tp",
            group_id=i,
            ranks=[2 * i, 2 * i + 1],
            exposed_ns=1_000 * (i + 1),
        )
        for i in range(9)
    ]

    found = groups.groups(report)

    assert found is not None
    (shown,) = found["rows"]
    assert (shown["members"], shown["role"], shown["exposed"]) == ("9 groups of 2 ranks", "tensor parallel", "45.0 µs")
    assert shown["members_note"] == "0, 1; 2, 3; 4, 5; 6, 7; 8, 9; 10, 11 and 3 more"
    assert shown["each"] == "each 1.00 µs to 9.00 µs"
    assert found["anchors"] == dict.fromkeys(range(9), "group-0")


def test_causes_come_first_where_the_trace_tells_them(report: Json) -> None:
    found = exposure.exposure(report, STEP)

    assert found is not None
    assert [table["by"] for table in found["tables"]] == ["cause", "phase", "op", "group", "bucket", "module", "stream"]
    assert [(row["name"], row["exposed"]) for row in found["tables"][0]["rows"]] == [
        ("tail", "3.90 ms"), ("waiting for a peer", "720 µs"), ("not determined", "300 µs"),
    ]  # fmt: skip
    for row in report["exposure"]:
        if row["by"] in ("cause", "module"):
            row["name"] = None
    again = exposure.exposure(report, STEP)
    assert again is not None
    assert not {"cause", "module"} & {table["by"] for table in again["tables"]}


def test_idle_time_by_cause_is_a_mean_over_ranks_and_steps(report: Json) -> None:
    found = idle.idle(report, STEP)

    assert found is not None
    assert [(row["name"], row["time"], row["gaps"], row["op"]) for row in found["rows"]] == [
        ("launching", "600 µs", "14", None),
        ("input", "260 µs", "1", "enumerate(DataLoader)"),
        ("not determined", "150 µs", "3", None),
    ]


def test_the_bubble_stands_beside_the_ideal(report: Json) -> None:
    found = pipeline.pipeline(report)

    assert found is not None
    assert (found["ideal"], [row["share"] for row in found["rows"]]) == ("0.273", ["0.290", "0.300", "0.310", "0.320"])
    assert found["boundary"] == "4 × 2048 × 4096"


def test_many_notes_of_one_kind_share_a_line(report: Json) -> None:
    report["notes"] = [{"code": "truncated", "message": f"rank {i} is cut."} for i in range(9)]

    shown = quality.quality(report)["notes"]

    assert len(shown) == 4
    assert shown[3]["message"] == "rank 3 is cut. And 5 more notes of this kind; all of them in the JSON."
    assert summary.notes(report) == ["rank 0 is cut. (and 8 more notes of this kind)"]


def test_the_terminal_tells_the_story_in_about_forty_lines(view: Json) -> None:
    console = Console(width=100, file=io.StringIO(), force_terminal=False)

    print_summary(view, console)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert len(shown.splitlines()) <= 40
    for words in ("What costs time per step", "3.90 ms", "bucket_cap_mb=12", "waiting for a peer", "Rank 1 is late",
                  "data parallel", "21.4 GB/s"):  # fmt: skip
        assert words in shown


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_no_word_and_no_number(width: int, view: Json) -> None:
    console, roomy = (Console(width=columns, file=io.StringIO(), force_terminal=False) for columns in (width, 400))

    for each in (console, roomy):
        print_summary(view, each)

    shown, whole = (each.file.getvalue() for each in (console, roomy))  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    # Words too long for their column are broken, not cut; all else is there, apart from columns that are left out.
    start, end = "What costs time", "By rank"
    told, wanted = ("".join(text[text.index(start) : text.index(end)].split()) for text in (shown, whole))
    assert sorted(told) == sorted(wanted)


def test_of_many_ranks_the_terminal_shows_those_with_least_and_most_communication() -> None:
    report = sample_view.many_ranks_view(64)["report"]

    rows, rule = summary.telling_ranks(report, 8)

    # Communication lasts from `late - 50` to 900 us, late = 400 + 37 * rank modulo 300.
    late = {rank: (rank * 37) % 300 for rank in range(64)}
    order = sorted(range(64), key=lambda rank: (-late[rank], rank))
    assert [row["rank"] for row in rows] == sorted([*order[:2], *order[-2:]])
    assert rule == "the 2 with the least and the 2 with the most communication of 64; the report has all"


def test_limits_show_what_was_found() -> None:
    share = {"limit": "max-exposed", "key": "overall.comm_share", "sign": "<="}
    time = {"limit": "overall.idle_ns<=5ms", "key": "overall.idle_ns", "sign": "<="}
    rows = [
        {**share, "threshold": 0.15, "value": 0.21, "ok": False},
        {**time, "threshold": 5_000_000.0, "value": 1_010_000, "ok": True},
        {**share, "threshold": 0.05, "value": None, "ok": None},
    ]

    found = appendix.limits({"checks": rows})

    assert found is not None
    assert [(row["threshold"], row["value"], row["ok"]) for row in found["rows"]] == [
        ("<= 0.15", "0.21", "exceeded"), ("<= 5.00 ms", "1.01 ms", "kept"), ("<= 0.05", "n/a", "n/a"),
    ]  # fmt: skip


def test_figures_of_another_tool_stand_apart_under_its_name() -> None:
    tables = {"overlap": [{"rank": 0, "pctg": 14.3}], "idle": None, "failed": {"kernels": "KeyError: 'x'"}}

    found = appendix.foreign({"hta": {"source": "HTA", "version": "0.6.1", **tables}})

    assert found is not None
    assert found["name"] == "HTA 0.6.1"
    assert [(table["columns"], table["rows"]) for table in found["tables"]] == [(["rank", "pctg"], [["0", "14.3"]])]
    assert found["failed"] == ["Kernels: KeyError: 'x'"]
    assert appendix.foreign({}) is None


def test_what_the_input_does_not_give_is_said(report: Json) -> None:
    report.update(matching=None, strategy=None)
    report["input"]["hardware"] = {"name": None, "source": None}

    lines = " ".join(unsaid.unsaid(report))

    for words in ("waiting and how much is transfer", "--hardware", "parallel strategy"):
        assert words in lines
    report["groups"] = []
    assert unsaid.unsaid(report) == []


def test_nothing_hostile_in_the_new_sections_becomes_markup(view: Json) -> None:
    evil = sample_view.HOSTILE
    report = view["report"]
    for row in [*report["buckets"], *report["units"]]:
        row.update(step=evil, parameters=[evil], module=evil)
    report["stragglers"][0].update(host=evil, role=evil, evidence=[evil])
    report["strategy"].update(evidence=[evil])
    report["strategy"]["parts"][0].update(formula=evil, differences=[{"what": evil, "bytes": 1}])
    report["contention"][0].update(kernel=evil)
    report["imbalance"][0].update(step=evil)
    for row in report["waits"]:
        row.update(step=evil)
    for row in report["findings"]:
        row.update(title=evil, advice=[evil], evidence=[{"what": evil, "value": evil, "unit": evil}])

    shown = Page(render_html(view))

    assert evil in shown.text
    assert sum(tag == "script" for tag, _ in shown.elements) == 6
    assert shown.block("waiting")[0]["details"] == [evil]


def test_sections_of_empty_keys_do_not_appear() -> None:
    ids = {attrs.get("id") for tag, attrs in Page(render_html(sample_view.sample_view())).elements if tag == "section"}

    assert not ids & {"buckets", "units", "pipeline", "across", "strategy", "imbalance", "contention", "findings"}


def test_the_report_of_64_ranks_stays_small() -> None:
    source = render_html(sample_parts.many_waits_view(64, steps=4, calls=400)).encode()
    empty = render_html(sample_view.window_view()).encode()

    # What 64 ranks and 1,600 collectives add to the page, beside the plotting library.
    assert len(source) - len(empty) < 1_000_000


def test_predicted_bucket_sizes_stand_beside_the_recorded_one(report: Json) -> None:
    def layout(first: int, cap: int, tail: int) -> Json:
        sizes = {"first_bucket_bytes": first << 20, "bucket_cap_bytes": cap << 20}
        return {**sizes, "buckets": 5, "tail_ns": tail, "comm_ns": 9_000_000, "step_ns": 20_000_000}

    best = layout(2, 12, 1_000_000)
    report["bucket_advice"] = [
        {"step_ns": 22_000_000, "measured_tail_ns": 4_450_000, "current": layout(25, 25, 4_000_000), "advised": best,
         "gain_ns": 2_200_000, "extrapolated": False,
         "layouts": [layout(25, 25, 4_000_000), layout(50, 50, 8_000_000), best]},
    ]  # fmt: skip

    found = bucket_sizes.bucket_sizes(report, STEP)
    assert found is not None

    assert [(row["cap"], row["mark"], row["width"]) for row in found["rows"]] == [
        ("26.2 MB", "recorded", 50), ("bucket_cap_mb=12", "advised", 12.5), ("bucket_cap_mb=25", None, 50),
        ("bucket_cap_mb=50", None, 100),
    ]  # fmt: skip
    assert (found["measured"], found["predicted"], found["gain"]) == ("4.45 ms", "4.00 ms", "10.0 % of step time")


def test_tensor_parallel_blocks_of_all_groups_share_a_row(report: Json) -> None:
    block = {"direction": "forward", "index": 0, "ops": ["all_reduce"], "count": 4}
    report["tensor_parallel"] = [
        {**block, "group_id": group, "comm_ns": 40_000, "exposed_ns": exposed, "structural_ns": 16_000}
        for group, exposed in ((0, 20_000), (1, 40_000))
    ]

    found = tensor.tensor(report)

    # 8 calls: 80 us of communication, 60 exposed, 32 structural.
    assert found is not None
    (row,) = found["rows"]
    assert (row["calls"], row["comm"], row["exposed"], row["structural"]) == ("8", "10.0 µs", "7.50 µs", "4.00 µs")
    assert (row["exposed_width"], row["hidden_width"]) == (75, 25)
    assert found["groups"] == "2 groups"


def test_exposed_and_hidden_waiting_of_a_group_stand_apart(report: Json) -> None:
    # 900 µs of waiting, 300 of them exposed: the rest lay behind compute and cost nothing.
    report["groups"] = [
        {**report["groups"][0], "wait_ns": 900_000, "exposed_wait_ns": 300_000, "exposed_host_ns": None}
    ]

    found = groups.groups(report)

    assert found is not None
    (shown,) = found["rows"]
    assert (shown["wait"], shown["hidden_wait"]) == ("900 µs", "600 µs")
    assert shown["exposed_of"] == ["of it waiting 300 µs"]
