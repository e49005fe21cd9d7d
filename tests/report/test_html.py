"""The HTML report as text: self-contained, escaped, the same every time, and clear about what a share is a share of."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.util
import json
import math
import re
import zlib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from commprof.errors import InputRefused
from commprof.report.html import render_html, write_html
from tests.report import sample_parts, sample_view

_VIEWS = {
    "sample": sample_view.sample_view,
    "window": sample_view.window_view,
    "hostile": sample_view.hostile_view,
    "findings": sample_view.findings_view,
    "cpu": sample_view.cpu_view,
    "64 ranks": lambda: sample_view.many_ranks_view(64),
    "full": sample_parts.full_view,
}


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, the text outside scripts and styles, the scripts."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.scripts: list[tuple[dict[str, str], str]] = []
        self._silent: str | None = None
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag in ("script", "style"):
            self._silent = tag
            if tag == "script":
                self.scripts.append((found, ""))
        elif tag not in ("span", "b", "i", "a", "small", "code"):
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = None

    def handle_data(self, data: str) -> None:
        if self._silent is None:
            self.text += data
        elif self._silent == "script":
            attributes, so_far = self.scripts[-1]
            self.scripts[-1] = (attributes, so_far + data)

    def block(self, name: str) -> Any:
        """The JSON block ``data-<name>``, read by a parser that refuses NaN and infinities."""

        def refuse(word: str) -> float:
            raise ValueError(f"not strict JSON: {word}")

        text = next(code for attributes, code in self.scripts if attributes.get("id") == f"data-{name}")
        return json.loads(text, parse_constant=refuse)


def page(view: dict[str, Any]) -> Page:
    return Page(render_html(view))


@cache
def page_of(name: str) -> Page:
    """The page of one of the views above; tests only read it."""
    return page(_VIEWS[name]())


@pytest.mark.parametrize("name", _VIEWS)
def test_c206_the_file_names_nothing_to_load_from_elsewhere(name: str) -> None:
    shown = page_of(name)

    loads = [(tag, key, value) for tag, attrs in shown.elements for key, value in attrs.items()
             if key in ("src", "srcset", "data", "poster", "action", "formaction", "background", "href")]  # fmt: skip

    assert all(key == "href" and (value.startswith("#") or value == "data:,") for _, key, value in loads), loads
    assert "@import" not in render_html(_VIEWS[name]()).split("<style>")[1].split("</style>")[0]


def test_c206_plotly_is_in_the_file_once_and_only_known_scripts_may_run() -> None:
    shown = page_of("sample")

    programs = [code for attributes, code in shown.scripts if "type" not in attributes]
    packed = [code for attributes, code in shown.scripts if attributes.get("id") == "plotly-packed"]
    plotly = zlib.decompress(base64.b64decode(packed[0])).decode()
    policy = next(attrs["content"] for tag, attrs in shown.elements if tag == "meta" and "http-equiv" in attrs)

    assert (len(programs), len(packed)) == (1, 1)
    assert (plotly.count("plotly.js v"), programs[0].count("plotly.js v")) == (1, 0)
    hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in (plotly, programs[0])]
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}';")


def test_c207_hostile_names_show_as_text_and_change_no_structure() -> None:
    plain = page_of("sample")

    shown = page_of("hostile")

    assert sample_view.HOSTILE in shown.text
    assert "{{ 7*7 }}" in shown.text, "a template expression in a name is text too"
    assert sum(tag == "script" for tag, _ in shown.elements) == sum(tag == "script" for tag, _ in plain.elements)
    assert not any(tag == "img" for tag, _ in shown.elements)
    assert not any(key.startswith("on") for _, attrs in shown.elements for key in attrs)


def test_c207_hostile_names_survive_in_the_json_blocks_without_markup() -> None:
    shown = page_of("hostile")

    blocks = [code for attributes, code in shown.scripts if attributes.get("type") == "application/json"]

    assert len(blocks) == 4
    assert not any(character in code for code in blocks for character in "<>&\u2028\u2029")
    operations = next(column for column in shown.block("calls")["columns"] if column["key"] == "op")
    assert operations["texts"][0].startswith(sample_view.HOSTILE)
    assert any(text.startswith(sample_view.HOSTILE) for text in shown.block("timeline")["strings"])


@pytest.mark.parametrize("name", _VIEWS)
def test_c013_no_control_character_but_the_newline(name: str) -> None:
    source = render_html(_VIEWS[name]())

    found = re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", source)

    assert found is None, repr(source[max(0, found.start() - 40) : found.end() + 40]) if found else ""


@pytest.mark.parametrize(
    ("name", "wholes"),
    [
        ("sample", {"communication time", "step time"}),
        ("window", {"communication time", "the window"}),
        ("findings", {"communication time", "step time"}),
        ("cpu", {"communication time", "step time"}),
        ("full", {"communication time", "step time"}),
    ],
)
def test_c209_every_percentage_says_of_what(name: str, wholes: set[str]) -> None:
    shown = page_of(name)
    texts = shown.text + "\n" + "\n".join(_strings([shown.block(b) for b in ("split", "timeline", "calls")]))

    shares = re.findall(r"\d\s*%(.{0,24})", texts)

    said = {whole for rest in shares for whole in wholes if re.match(rf" of {whole}\b", rest)}
    assert said == wholes
    assert all(any(re.match(rf" of {whole}\b", rest) for whole in wholes) for rest in shares), shares


def test_c209_without_step_marks_nothing_is_called_per_step() -> None:
    shown = page_of("window")

    about_this_run = shown.text.split("Glossary\n")[0].replace("The trace has no step marks", "")

    # By hand from T0: 1000 us window, 600 compute, 400 communication of which 300 exposed, 100 idle.
    assert "600 µs" in shown.text
    assert "60.0 % of the window" in shown.text
    assert "30.0 % of the window" in shown.text
    assert "100 µs of it hide 25.0 % of communication time" in shown.text
    assert not re.search(r"\bsteps?\b(?! marks)", about_this_run), re.findall(r".*\bsteps?\b.*", about_this_run)


def test_the_first_screen_states_the_answer_and_the_average_split() -> None:
    view = sample_view.sample_view()

    shown = page(view)

    # By hand: the two ranks' exposed communication is 4.920 and 4.642 ms of a 22 ms step.
    first_screen = shown.text.split("The step of each rank")[0]
    assert view["headline"]["answer"] in first_screen
    assert "4.78 ms" in first_screen
    assert "21.7 % of step time" in first_screen
    assert "ranks 0, 1 of 2" in first_screen
    assert "Where an average step goes: mean of 2 ranks, 2 steps" in first_screen


def test_c213_missing_ranks_stand_in_the_first_lines() -> None:
    view = sample_view.many_ranks_view(8)
    report = view["report"]
    report["ranks"] = [rank for rank in report["ranks"] if rank["rank"] != 6]
    report["input"].update(ranks=[0, 1, 2, 3, 4, 5, 7], missing_ranks=[6])

    shown = page(view)

    assert "ranks 0–5, 7 of 8; rank 6 missing" in "".join(shown.text.split("Is communication")[0])


def test_c220_two_renders_differ_in_the_creation_time_alone() -> None:
    one, same, later = (sample_view.sample_view() for _ in range(3))
    later["created"] = "2027-12-31T23:59:59+00:00"

    first, second, third = render_html(one), render_html(same), render_html(later)

    assert first == second
    assert first != third
    assert first.replace(one["created"], later["created"]) == third
    assert first.count(one["created"]) == 1


def test_write_html_writes_what_render_html_returns(tmp_path: Path) -> None:
    view = sample_view.sample_view()
    target = tmp_path / "new" / "folder" / "report.html"

    write_html(view, target)

    assert target.read_text(encoding="utf-8") == render_html(view)


def test_c225_two_overlapping_kernels_of_one_stream_get_a_row_each() -> None:
    timeline = page(sample_view.overlapping_view()).block("timeline")

    lanes = [
        (lane["name"], lane["row"], lane["start"], lane["end"])
        for lane in timeline["entries"][0]["lanes"]
        if lane["kind"] == "compute"
    ]

    assert lanes == [("compute 7", 0, [0], [100_000]), ("compute 7", 1, [95_000], [200_000])]


def test_c208_a_long_timeline_is_made_coarser_and_loses_no_kernel() -> None:
    view = sample_view.window_view()
    entry = view["timeline"][0]
    kernel = dict(entry["lanes"][0]["segments"][0], duration_ns=900)
    entry.update(end_ns=200_000_000, idle=[[1_000 * i + 900, 1_000 * i + 1_000] for i in range(200_000)])
    segments = [dict(kernel, start_ns=1_000 * i, end_ns=1_000 * i + 900) for i in range(200_000)]
    entry["lanes"] = [{"kind": "compute", "stream": "7", "row": 0, "segments": segments}]

    lane = page(view).block("timeline")["entries"][0]["lanes"][0]

    assert len(lane["start"]) <= 16_000
    assert sum(lane["count"]) == 200_000
    assert sum(lane["busy"]) == 200_000 * 900


def test_c208_the_file_stays_below_10_mb_whatever_the_run() -> None:
    view = sample_view.many_ranks_view(600)
    report = view["report"]
    name = "a kernel name that fills a line and is never the same twice " * 4
    for rank in report["ranks"]:
        rank["steps"] = [dict(rank["steps"][0], name=f"ProfilerStep#{i}") for i in range(60)]
    for entry in view["timeline"]:
        segment = dict(entry["lanes"][0]["segments"][0])
        entry["lanes"] = [
            {"kind": kind, "stream": str(stream), "row": 0, "segments": [
                dict(segment, start_ns=600 * i, end_ns=600 * i + 500, duration_ns=500, label=f"{stream} {i} {name}",
                     op=f"operation {i}", group=f"group {i} {stream}", size_bytes=1_000_000 + i, exposed_ns=i)
                for i in range(1_600)]}
            for kind, stream in [("compute", i) for i in range(12)] + [("comm", i) for i in range(10)]
        ]  # fmt: skip
    call = report["collectives"][0]
    report["collectives"] = [dict(call, op=f"{name} {i}", group=f"{name} {i}", step=name) for i in range(3_000)]
    report["notes"] *= 5_000
    report["input"]["files"] *= 20

    source = render_html(view)

    assert len(source.encode()) <= 10_000_000
    assert Page(source).block("timeline")["entries"]


def test_many_ranks_are_capped_with_a_line_that_says_so() -> None:
    shown = page(sample_view.many_ranks_view(1_024))

    assert "First 512 of 1,024 ranks by exposed time; all of them in the JSON." in shown.text
    assert "First 200 of 1,024 rows by exposed time; all of them in the JSON." in shown.text
    assert "4 of 1,024 ranks are drawn." in shown.text
    assert len(shown.block("split")["variants"][0]["values"][0]) == 512


def test_more_calls_than_the_table_holds_are_announced_and_the_most_exposed_kept() -> None:
    view = sample_view.sample_view()
    call = view["report"]["collectives"][0]
    view["report"]["collectives"] = [dict(call, start_ns=i, exposed_ns=i) for i in range(5_000)]

    shown = page(view)

    exposed = next(c for c in shown.block("calls")["columns"] if c["key"] == "exposed_ns")
    assert exposed["values"] == list(range(4_999, 2_999, -1))
    assert "First 2,000 of 5,000 calls by exposed time; all of them in the JSON." in shown.text


def test_no_calls_is_said_and_leaves_no_table() -> None:
    view = sample_view.sample_view()
    view["report"]["collectives"] = None

    shown = page(view)

    assert "Single calls are not listed (--no-calls)." in shown.text
    assert shown.block("calls") is None


def test_null_is_n_a_and_never_zero_or_nan() -> None:
    view = sample_view.sample_view()
    for call in view["report"]["collectives"]:
        call.update(size_bytes=None, dtype=None, busbw_gbps=math.nan)
    view["report"]["groups"][0].update(bytes=None)

    columns = {column["key"]: column for column in page(view).block("calls")["columns"]}

    assert set(columns["size_bytes"]["texts"]) == {"n/a"}
    assert set(columns["size_bytes"]["values"]) == {None}
    assert set(columns["busbw_gbps"]["values"]) == {None}


def test_open_steps_are_marked_where_they_are_chosen_and_listed() -> None:
    shown = page_of("sample")

    names = [variant["name"] for variant in shown.block("split")["variants"]]

    assert names == ["Mean of the closed steps", "ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6 (open)"]
    assert "ProfilerStep#6 open" in shown.text


def test_cpu_runs_say_that_communication_includes_queueing_and_waiting() -> None:
    gloo, nccl = page_of("cpu"), page_of("sample")

    label = "includes queueing and waiting"

    assert label in gloo.text
    assert label not in nccl.text


def test_sections_without_data_are_left_out() -> None:
    with_findings, without = page_of("findings"), page_of("sample")

    ids = [{attrs["id"] for tag, attrs in shown.elements if tag == "section"} for shown in (with_findings, without)]

    assert ids[0] - ids[1] == {"findings"}
    assert "What to try" not in without.text


def test_c210_findings_show_time_share_cause_evidence_and_advice_in_order() -> None:
    text = page_of("findings").text.partition("What costs time")[2]

    tail, late = text.index("last gradient bucket is reduced"), text.index("Collectives are launched late")

    assert tail < late
    for words in ("13.6 % of step time", "3.00 ms charged", "Cause: tail", "52.4 MB", "lower bucket_cap_mb"):
        assert tail < text.index(words) < late
    assert "recoverable" not in text[late : text.index("The step of each rank")], "what is not known is not shown as 0"


def test_the_report_of_a_run_without_windows_still_renders() -> None:
    view = sample_view.window_view()
    report = view["report"]
    report["ranks"][0].update(steps=[], mean=None)
    report.update(collectives=[], groups=[], exposure=[])
    view["timeline"] = []

    shown = page(view)

    assert {attrs["id"] for tag, attrs in shown.elements if tag == "section"} == {"answer", "quality", "glossary"}


def test_the_glossary_holds_the_background() -> None:
    text = page_of("sample").text.split("Glossary\n")[-1]

    for words in ("reduce-scatter followed by an all-gather", "2(N-1)/N", "The total equals DDP's", "1.5 times",
                  "backward pass", "NVLink", "bubble", "faster than networks"):  # fmt: skip
        assert words in text


def test_links_inside_the_page_lead_somewhere() -> None:
    shown = page_of("findings")

    ids = [attrs["id"] for _, attrs in shown.elements if "id" in attrs]

    targets = {attrs["href"][1:] for tag, attrs in shown.elements if tag == "a"}
    assert targets <= set(ids)
    assert len(ids) == len(set(ids))


def test_without_plotly_one_line_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(InputRefused, match="plotly") as refused:
        render_html(sample_view.sample_view())

    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def _strings(data: Any) -> list[str]:
    if isinstance(data, str):
        return [html.unescape(data)]
    if isinstance(data, dict):
        return [text for value in data.values() for text in _strings(value)]
    return [text for value in data for text in _strings(value)] if isinstance(data, list) else []
