"""Findings are of the rank that loses the most, the headline is of all ranks: no reader takes one for the other."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from commprof.report import summary
from commprof.report.charts import accounting, findings, hero, stragglers
from commprof.report.glossary import GLOSSARY
from commprof.report.html import render_html
from commprof.report.limits import check_line
from commprof.report.markdown import render_markdown
from commprof.report.terminal import print_summary
from tests.report.test_html import Page

Json = dict[str, Any]
STEP = "step time"


def printed(view: Json, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_summary(view, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def alone(view: Json) -> Json:
    """The same run with the trace of rank 0 alone."""
    report = view["report"]
    report["ranks"] = [row for row in report["ranks"] if row["rank"] == 0]
    return view


def test_under_the_bar_of_one_of_several_ranks_no_share_stands(view: Json) -> None:
    # The headline's shares are means over ranks: those of rank 0 under the same words would contradict them.
    several = hero.hero(view)["bar"]
    single = hero.hero(alone(view))["bar"]

    assert several["title"] == "Where an average step goes: rank 0 of 2, which loses the most; 2 steps"
    assert [(part.time, part.share) for part in several["parts"]] == [
        ("15.8 ms", None), ("4.92 ms", None), ("220 µs", None), ("1.01 ms", None),
    ]  # fmt: skip
    assert several["parts"][0].details == ("5.95 ms of it hide communication",)
    # By hand: 4.92 of 22 ms, and 5.95 of 5.95 + 4.92 ms.
    assert single["parts"][1].share == "22.4 % of step time"
    assert single["parts"][0].details == ("5.95 ms of it hide 54.7 % of communication time",)


def test_a_share_of_a_finding_says_on_which_rank(view: Json) -> None:
    report = view["report"]

    rows = findings.findings(report, STEP, set(), {})
    bar = accounting.segments(report, STEP)

    # The tail bucket is charged 3.9 of 22 ms.
    assert rows is not None
    assert bar is not None
    assert rows["rows"][0]["share"] == "17.7 % of step time on rank 0"
    assert rows["whose"] == ("rank 0, which loses the most", "22.0 ms")
    assert bar["segments"][1]["text"] == "3.90 ms, 17.7 % of step time on rank 0: finding 1"
    page = " ".join(Page(render_html(view)).text.split())
    assert "17.7 % of step time on rank 0" in page
    assert "times and shares are of rank 0, which loses the most (its step: 22.0 ms)" in page
    for text in (printed(view), render_markdown(view)):
        assert "what to change (rank 0, which loses the most; its step: 22.0 ms)" in text
        assert "17.7 % of its step" in text


def test_where_another_rank_loses_the_most_in_each_step_no_number_is_given(view: Json) -> None:
    report = view["report"]
    report["accounting"]["ranks"] = [0, 1]

    rows = findings.findings(report, STEP, set(), {})

    assert rows is not None
    assert rows["rows"][0]["share"] == "17.7 % of step time on that rank"
    assert rows["whose"] == ("the rank that loses the most in each step", "22.0 ms")


def test_of_a_single_rank_there_is_nothing_to_tell_apart(view: Json) -> None:
    report = alone(view)["report"]

    rows = findings.findings(report, STEP, set(), {})

    assert rows is not None
    assert (rows["rows"][0]["share"], rows["whose"]) == ("17.7 % of step time", None)
    assert "loses the most" not in printed(view)


def test_a_late_rank_is_charged_with_what_the_others_wait_and_the_words_say_so(view: Json) -> None:
    report = view["report"]
    report["findings"] = [row for row in report["findings"] if row["id"] != "straggler"]

    on_terminal, page = " ".join(printed(view).split()), " ".join(Page(render_html(view)).text.split())

    assert "rank 1, slow device; charged with 720 µs per step, which each of the others waits on average" in on_terminal
    assert "720 µs charged per step, 3.3 % of step time, which each of the others waits on average" in page
    (term,) = [term for _, terms in GLOSSARY for term in terms if term.slug == "late-shares"]
    assert all(word in term.text for word in ("verdict", "charge", "finding", "max-straggler-wait"))


@pytest.mark.parametrize(("value", "ok"), [(0.22, False), (0.04, True)])
def test_the_limit_on_waiting_says_that_it_counts_all_of_it(value: float, ok: bool) -> None:
    row = {"limit": "max-straggler-wait", "key": "overall.wait_share", "sign": "<=", "threshold": 0.05, "ok": ok}

    line = check_line({**row, "value": value}, STEP)

    assert line.startswith(f"max-straggler-wait: {100 * value:.1f} % of step time ")
    assert line.endswith(": all exposed waiting for a peer, named as late or not, mean over ranks")


def test_who_is_late_without_harm_is_named_once_on_the_terminal(view: Json) -> None:
    report = view["report"]
    row = {**report["stragglers"][0], "why_not_named": "the step would not end earlier without that"}
    report["late_but_harmless"] = [row]
    report["notes"] = [{"code": "waits-cost-nothing", "message": "rank 1: told at length"}]

    text = printed(view, width=200)
    paper = render_markdown(view)
    report["stragglers"] = []
    page = Page(render_html(view)).text

    line = "Late, but not named: rank 1 (slow device, 720 µs per step): the step would not end earlier without that."
    assert line in text
    assert "told at length" not in text
    assert line in paper
    assert "Late, but not named: rank 1" in page
    assert "No rank is late" not in page
    assert stragglers.harmless({**report, "late_but_harmless": []}, STEP) is None
    assert summary.harmless_line({**report, "late_but_harmless": []}) is None
