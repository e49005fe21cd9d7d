"""Remake the example reports under ``reports/examples``: a real gloo run and a fixture, with a screenshot.

    python reports/make.py

Needs torch for the real run, and chromium with chromedriver for the screenshot (left alone where they are missing).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import commprof
from commprof.capture.jobs.launch import launch

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "reports" / "examples"
CHROMIUM = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


def main() -> None:
    """Write ``gloo-ddp.html``, ``fixture-ddp.html`` and ``report.png``."""
    EXAMPLES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "gloo-ddp"
        job = ["-m", "commprof.capture.jobs.ddp", "--out", str(folder), "--rendezvous", "{rendezvous}"]
        launch(job, 2)
        _report(folder, EXAMPLES / "gloo-ddp.html")
    _report(ROOT / "fixtures" / "ddp-two-ranks", EXAMPLES / "fixture-ddp.html")
    _screenshot(EXAMPLES / "gloo-ddp.html", EXAMPLES / "report.png")


def _report(source: Path, target: Path) -> None:
    analysis = commprof.analyze(source)
    # A report of this machine should not show where on it the run lay.
    analysis.path = source.name
    commprof.write_report(analysis, html=target)


def _screenshot(page: Path, picture: Path) -> None:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        print("no chromium: the screenshot stays as it is")
        return
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for argument in (*CHROMIUM, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        browser = webdriver.Chrome(options=options, service=Service(driver))
        try:
            size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            time.sleep(3)
            browser.save_screenshot(str(picture))
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
