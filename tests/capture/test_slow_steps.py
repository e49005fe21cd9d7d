"""The step after a slow one is recorded, at most three times."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commprof.capture import Capture
from commprof.capture.engine import Whereabouts
from commprof.capture.slow_steps import SlowSteps
from commprof.errors import UsageError
from commprof.manifest import Manifest, SlowStep, read_manifests, write_manifest
from tests.builders.command import Run
from tests.builders.kineto import Trace
from tests.capture.fake import FakeEngine, files_of, manifest_of

MANIFEST, TRACE = "rank-00000.manifest.json", "rank-00000.pt.trace.json.gz"


def run(out: Path, durations: list[int], engine: FakeEngine | None = None, **options: Any) -> FakeEngine:
    engine = engine or FakeEngine()
    with Capture(out, _engine=engine, **options) as capture:
        for duration in durations:
            engine.now += duration
            capture.step()
    return engine


def steady(count: int, slow: tuple[int, ...] = (), normal: int = 100, long: int = 151) -> list[int]:
    return [long if i in slow else normal for i in range(count)]


def test_the_step_after_a_slow_one_is_recorded_beside_the_window(folder: Path) -> None:
    engine = run(folder, steady(30, slow=(20,)), slow_step=1.5)

    assert engine.opened() == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8, 21)]
    assert files_of(folder) == [MANIFEST, TRACE, "slow-step-21"]
    assert files_of(folder / "slow-step-21") == [MANIFEST, TRACE]
    main, slow = manifest_of(folder), manifest_of(folder / "slow-step-21")
    assert main["recorded_steps"] == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]
    assert main["slow_steps"] == [
        {
            "step": 20,
            "duration_ns": 151,
            "median_ns": 100,
            "recorded": "ProfilerStep#21",
            "folder": "slow-step-21",
        }
    ]
    assert (slow["recorded_steps"], slow["partial"]) == (["ProfilerStep#21"], False)
    assert len(main["steps"]["duration_ns"]) == 30


def test_at_most_three_are_recorded_and_all_are_listed(folder: Path) -> None:
    engine = run(folder, steady(60, slow=(20, 30, 40, 50)), slow_step=1.5)

    assert engine.opened()[4:] == ["ProfilerStep#21", "ProfilerStep#31", "ProfilerStep#41"]
    listed = [(slow["step"], slow["recorded"]) for slow in manifest_of(folder)["slow_steps"]]
    assert listed == [(20, "ProfilerStep#21"), (30, "ProfilerStep#31"), (40, "ProfilerStep#41"), (50, None)]


def test_without_the_option_nothing_of_it_happens(folder: Path) -> None:
    engine = run(folder, steady(30, slow=(20,)))

    assert len(engine.opened()) == 4
    assert manifest_of(folder)["slow_steps"] == []


def test_a_slow_step_before_the_window_is_recorded_and_the_window_too(folder: Path) -> None:
    engine = run(folder, steady(40, slow=(12,)), slow_step=1.5, skip=20, warmup=0, steps=2)

    assert engine.opened() == ["ProfilerStep#13", "ProfilerStep#20", "ProfilerStep#21"]
    assert manifest_of(folder)["partial"] is False


def test_the_window_comes_first(folder: Path) -> None:
    # The last step before the warm-up is slow; the profiler is made ready for the window then.
    engine = run(folder, steady(40, slow=(19,)), slow_step=1.5, skip=20, warmup=1, steps=2)

    assert engine.opened() == ["ProfilerStep#21", "ProfilerStep#22"]
    assert [(s["step"], s["recorded"]) for s in manifest_of(folder)["slow_steps"]] == [(19, None)]


def test_steps_inside_the_window_are_not_judged(folder: Path) -> None:
    engine = run(folder, [100] * 12 + [400, 400] + [100] * 10, slow_step=1.5, skip=11, warmup=1, steps=2)

    assert engine.opened() == ["ProfilerStep#12", "ProfilerStep#13"]


def test_a_loop_that_ends_as_the_recording_begins_leaves_the_window_whole(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = run(folder, steady(21, slow=(20,)), slow_step=1.5)

    assert engine.calls[-1] == "stop"
    assert files_of(folder) == [MANIFEST, TRACE]
    assert manifest_of(folder)["partial"] is False
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_a_failure_in_the_slow_recording_leaves_the_window_whole(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine(fail={"open ProfilerStep#21": RuntimeError("broken")})

    run(folder, steady(40, slow=(20, 30)), engine, slow_step=1.5)

    assert manifest_of(folder)["partial"] is False
    assert files_of(folder) == [MANIFEST, TRACE]
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_rank_that_was_not_chosen_records_no_slow_step(folder: Path) -> None:
    engine = FakeEngine(Whereabouts(rank=1, source="process group", world_size=4))

    run(folder, steady(40, slow=(20,)), engine, slow_step=1.5, ranks=[0])

    assert engine.opened() == []
    assert files_of(folder) == []


def test_all_ranks_that_see_the_same_slow_step_share_a_folder(folder: Path) -> None:
    for rank in range(2):
        run(
            folder,
            steady(30, slow=(20,)),
            FakeEngine(Whereabouts(rank=rank, source="default", world_size=2)),
            slow_step=2,
        )
        run(folder / "x", steady(30, (20,), long=200), FakeEngine(Whereabouts(rank, "default", 2)), slow_step=2)

    assert [m.slow_steps for m in read_manifests(folder)] == [(), ()]
    assert [m.rank for m in read_manifests(folder / "x" / "slow-step-21")] == [0, 1]


def test_the_report_is_about_the_window_and_names_the_other_recordings(
    folder: Path, run_analyze: Callable[..., Run]
) -> None:
    for place in (folder, folder / "slow-step-21"):
        place.mkdir()
        trace = Trace(0, 1)
        trace.step(0, 0, 1000)
        trace.gemm(0, 600)
        trace.write(place / TRACE)
        found = SlowStep(step=20, duration_ns=2_000_000, median_ns=1_000_000, folder="slow-step-21")
        missed = SlowStep(step=30, duration_ns=2_000_000, median_ns=1_000_000)
        manifest = Manifest(
            rank=0, rank_source="default", world_size=1, host="h", trace=TRACE, slow_steps=(found, missed)
        )
        write_manifest(place, manifest)

    whole, slow = run_analyze(folder), run_analyze(folder / "slow-step-21")

    assert [len(run.report["input"]["files"]) for run in (whole, slow)] == [1, 1]
    assert whole.notes("slow-step") == [
        "Step 20 took 2.00 ms, the median before it was 1.00 ms; the step after it is recorded in slow-step-21.",
        "Slow steps that no recording follows: 30.",
    ]


@pytest.mark.parametrize("factor", [1, 0.5, -2, True, "1.5", float("nan"), float("inf")])
def test_a_factor_without_sense_is_refused(folder: Path, factor: Any) -> None:
    with pytest.raises(UsageError, match="slow_step"):
        Capture(folder, slow_step=factor, _engine=FakeEngine())


def test_the_median_runs_along_and_forgets() -> None:
    slow = SlowSteps(1.5)

    # 7 steps until there is a median of 5 after the first two; then the level rises for good.
    seen = [slow.observe(i, 100) for i in range(7)]
    rise = [slow.observe(7 + i, 200) is not None for i in range(60)]

    assert seen == [None] * 7
    # The middle of 5 old and k new steps is an old one while k < 5 (of an even number the upper one counts).
    assert rise == [True] * 5 + [False] * 55


def test_only_the_last_hundred_steps_count() -> None:
    slow = SlowSteps(1.5)
    for i in range(302):
        slow.observe(i, 100 if i < 200 else 1000)

    assert slow.observe(302, 1500) is not None
    assert slow.observe(303, 1499) is None
