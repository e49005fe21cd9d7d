"""The HTML report in a real browser, opened from disk with the network off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commprof.report.html import write_html
from tests.report import sample_parts, sample_view

pytestmark = pytest.mark.browser

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium without any network."""
    if not (_CHROMIUM and _DRIVER) and os.environ.get("CI") != "true":
        pytest.skip("no chromium and chromedriver")
    assert _CHROMIUM, "CI must have chromium"
    assert _DRIVER, "CI must have chromedriver"
    webdriver = pytest.importorskip("selenium.webdriver")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=service.Service(_DRIVER))
    driver.set_page_load_timeout(120)
    driver.set_script_timeout(120)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Any:
    """``opened(view)``: the browser with the report of ``view`` open and quiet; fails on any console message."""

    waiting = pytest.importorskip("selenium.webdriver.support.wait")

    def drawn(page: Any) -> bool:
        return bool(page.execute_script("return document.documentElement.dataset.charts === 'drawn'"))

    def show(view: dict[str, Any]) -> Any:
        browser.get_log("browser")
        write_html(view, tmp_path / "report.html")
        browser.get((tmp_path / "report.html").as_uri())
        waiting.WebDriverWait(browser, 60).until(drawn)
        messages = browser.get_log("browser")
        assert messages == []
        return browser

    return show


def count(browser: Any, selector: str) -> int:
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def box(browser: Any, selector: str) -> dict[str, float]:
    script = "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return {w: b.width, h: b.height}"
    return dict(browser.execute_script(script, selector))


def press(browser: Any, selector: str, key: str) -> None:
    script = "document.querySelector(arguments[0]).dispatchEvent(new KeyboardEvent('keydown', {key: arguments[1]}))"
    browser.execute_script(script, selector, key)


def test_c206_charts_and_tables_show_from_disk_with_the_network_off(opened: Any) -> None:
    browser = opened(sample_view.sample_view())

    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")

    assert loaded == []
    assert count(browser, "#chart-split .barlayer .point path") == 2 * 5, "five pieces for each of two ranks"
    assert count(browser, "#chart-timeline .scatterlayer .js-fill") >= 4, "compute, copies, hidden and exposed"
    assert box(browser, "#chart-split")["h"] > 100
    assert box(browser, "#chart-timeline")["h"] > 100
    assert count(browser, "#calls tbody tr") == 30, "five calls, three steps, two ranks"
    assert count(browser, ".exposure-table:not([hidden]) tbody tr") == 2
    assert count(browser, ".bar .part") == 4


def test_c206_the_page_cannot_fetch_anything(opened: Any) -> None:
    browser = opened(sample_view.sample_view())

    outcome = browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.com/').then(() => done('loaded'), () => done('refused'))"
    )

    refusals = browser.get_log("browser")
    assert outcome == "refused"
    assert any("Content Security Policy" in entry["message"] for entry in refusals)


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_tables(browser: Any, tmp_path: Path) -> None:
    write_html(sample_view.sample_view(), tmp_path / "report.html")
    # As in a browser from before May 2023.
    removed = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": "delete window.DecompressionStream"}
    )

    try:
        browser.get((tmp_path / "report.html").as_uri())
        pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(browser, 60).until(
            lambda page: page.execute_script("return document.documentElement.dataset.charts === 'none'")
        )
        said = browser.execute_script("return document.getElementById('chart-split').textContent")
        rows = count(browser, "#calls tbody tr")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", removed)

    assert "too old" in said
    assert rows > 0
    assert browser.get_log("browser") == []


def test_c207_a_script_in_a_kernel_name_does_not_run(opened: Any) -> None:
    browser = opened(sample_view.hostile_view())

    press(browser, "#chart-timeline", "ArrowRight")

    # An alert would block the next call with an exception.
    assert sample_view.HOSTILE in browser.execute_script("return document.getElementById('tip').textContent")
    assert sample_view.HOSTILE in browser.execute_script("return document.querySelector('#calls tbody').textContent")
    assert count(browser, "img") == 0
    assert browser.get_log("browser") == []


def test_on_a_phone_the_table_of_calls_shows_which_how_long_and_why_without_scrolling(opened: Any) -> None:
    browser = opened(sample_parts.full_view())
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    shown = (
        "return [...document.querySelectorAll('#calls thead button')].filter((b) => b.offsetWidth)"
        ".map((b) => b.textContent)"
    )
    wide = "const frame = document.querySelector('#collectives .scroll'); return frame.scrollWidth - frame.clientWidth"

    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        narrow, too_wide = browser.execute_script(shown), browser.execute_script(wide)
        browser.execute_script("document.getElementById('calls-all').click()")
        every = browser.execute_script(shown)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    assert narrow == ["Rank", "Step", "Operation", "Size", "Exposed", "Cause"]
    assert too_wide <= 0
    assert {"Duration", "All waiting", "Start", "Group", "Type"} <= set(every)


def test_the_table_of_collectives_sorts_and_filters(opened: Any) -> None:
    browser = opened(sample_view.sample_view())
    first = "return [...document.querySelectorAll('#calls tbody tr:first-child td')].map((cell) => cell.textContent)"
    click = "document.querySelectorAll('#calls thead button')[arguments[0]].click()"
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#calls thead button')].map((b) => b.textContent)"
    )

    by_exposed = browser.execute_script(first)
    browser.execute_script(click, titles.index("Size"))
    browser.execute_script(click, titles.index("Size"))
    by_size_rising = browser.execute_script(first)
    browser.execute_script(
        "const filter = document.getElementById('calls-filter'); filter.value = 'broadcast #5';"
        "filter.dispatchEvent(new Event('input'))"
    )

    assert by_exposed[titles.index("Exposed")] == "4.45 ms"
    assert by_size_rising[titles.index("Size")] == "4.10 kB"
    assert count(browser, "#calls th[aria-sort='ascending']") == 1
    assert count(browser, "#calls tbody tr") == 2
    assert browser.execute_script("return document.getElementById('calls-count').textContent") == "2 calls"


def test_choosing_a_step_redraws_the_split(opened: Any) -> None:
    browser = opened(sample_view.sample_view())
    shown = "return [...document.getElementById('chart-split').data.map((trace) => trace.x[0])]"

    mean = browser.execute_script(shown)
    browser.execute_script(
        "const p = document.getElementById('split-pick'); p.value = '3'; p.dispatchEvent(new Event('change'))"
    )
    last = browser.execute_script(shown)

    assert mean == [9.9, 5.95, 4.92, 0.22, 1.01]
    assert last == [9.9, 5.95, 4.92, 0.22, 1.01], "all steps of rank 0 are alike"
    assert count(browser, "#chart-split .barlayer .point path") == 2 * 5


def test_the_timeline_zooms_and_shows_a_call_chosen_in_the_table(opened: Any) -> None:
    browser = opened(sample_view.sample_view())
    spanned = "const [a, b] = document.getElementById('chart-timeline').layout.xaxis.range; return b - a"

    whole = browser.execute_script(spanned)
    browser.execute_script("document.getElementById('zoom-in').click()")
    half = browser.execute_script(spanned)
    browser.execute_script("document.querySelector('#calls tbody td button').click()")
    chosen = browser.execute_script("return document.getElementById('tip').textContent")

    assert whole == pytest.approx(22.0)
    assert half == pytest.approx(11.0)
    assert browser.execute_script(spanned) == pytest.approx(3 * 4.45)
    assert all(words in chosen for words in ("all_reduce", "52.4 MB", "4.45 ms", "Group0"))


def test_c225_overlapping_kernels_are_drawn_in_two_rows(opened: Any) -> None:
    browser = opened(sample_view.overlapping_view())

    rectangles = browser.execute_script(
        "return document.getElementById('chart-timeline').data.filter((t) => t.fill === 'toself')"
        ".flatMap((t) => t.x.flatMap((x, i) => (i % 6 === 0 ? [[x, t.x[i + 2], t.y[i]]] : [])))"
    )

    kernels = [(start, end, top) for start, end, top in rectangles if (start, end) in ((0, 100), (95, 200))]
    assert [(start, end) for start, end, _ in sorted(kernels)] == [(0, 100), (95, 200)]
    assert len({top for _, _, top in kernels}) == 2


@pytest.mark.parametrize("name", ["window_view", "cpu_view", "findings_view"])
def test_other_reports_draw_without_console_errors(opened: Any, name: str) -> None:
    browser = opened(getattr(sample_view, name)())

    assert count(browser, "#chart-split .barlayer .point path") > 0
    assert count(browser, "#chart-timeline .scatterlayer .js-fill") > 0


def test_a_thousand_ranks_stay_usable(opened: Any) -> None:
    browser = opened(sample_view.many_ranks_view(1_024))

    assert count(browser, "#chart-split .barlayer .point path") > 0
    assert count(browser, "#calls tbody tr") == 50
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1_280


def test_heat_maps_show_every_rank_and_follow_their_choice(opened: Any) -> None:
    browser = opened(sample_parts.full_view())
    shown = "return document.getElementById('chart-heat-step').data[0].z.map((row) => row[0])"

    charged = browser.execute_script(shown)
    browser.execute_script(
        "const p = document.querySelectorAll('input[name=\"heat-step\"]')[1]; p.checked = true;"
        "p.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    waited = browser.execute_script(shown)

    # Seconds: rank 1 makes rank 0 wait.
    assert charged == [30e-6, 720e-6]
    assert waited == [700e-6, 40e-6]
    assert count(browser, "#chart-heat-step .heatmaplayer image, #chart-heat-collective .heatmaplayer image") == 2


def test_charts_inside_tables_stay_inside_their_cells(opened: Any) -> None:
    browser = opened(sample_parts.full_view())

    outside = browser.execute_script(
        "return [...document.querySelectorAll('.track')].flatMap((track) => {"
        " const box = track.getBoundingClientRect();"
        " return [...track.querySelectorAll('i:not(.mark)')].filter((bar) => {"
        "  const r = bar.getBoundingClientRect(); return r.left < box.left - 2 || r.right > box.right + 2;"
        " }); }).length"
    )

    assert count(browser, ".track i.exposed") > 0
    assert outside == 0


def test_the_bar_of_the_first_screen_is_as_wide_as_the_page_and_its_findings_are_links(opened: Any) -> None:
    browser = opened(sample_parts.full_view())

    widths = browser.execute_script(
        "return [...document.querySelectorAll('.bar .part')].map((part) => part.getBoundingClientRect().width)"
    )

    assert sum(widths) == pytest.approx(box(browser, ".bar")["w"], abs=1)
    assert widths[1] / sum(widths) == pytest.approx(3.9 / 22, abs=0.005)
    assert count(browser, ".top-findings a[href='#finding-1']") == 1
    assert count(browser, "#finding-1") == 1


@pytest.mark.parametrize("name", ["findings_view", "full_view"])
def test_nothing_sticks_out_on_a_narrow_screen(name: str, opened: Any) -> None:
    browser = opened(getattr(sample_parts, name)() if hasattr(sample_parts, name) else getattr(sample_view, name)())
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        wide = browser.execute_script("return document.documentElement.scrollWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    assert wide <= 390
