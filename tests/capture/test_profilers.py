"""The hook beside other profilers, in this process: there is one session, and the user's own comes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commprof.capture import Capture
from tests.capture.fake import files_of, manifest_of, warnings_of
from tests.capture.real import names_in, trace_of

torch = pytest.importorskip("torch")
autograd_profiler = torch.autograd.profiler
profile, schedule, ProfilerActivity = torch.profiler.profile, torch.profiler.schedule, torch.profiler.ProfilerActivity

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*Profiler clears events.*:UserWarning")]

WINDOW: dict[str, Any] = {"skip": 1, "warmup": 1, "steps": 4}
ENTRIES = ("_prepare_trace", "_start_trace")


def work() -> None:
    x = torch.ones(4, 4)
    torch.tanh(x.matmul(x))


def loop(capture: Capture, steps: int, each: Callable[[int], None] = lambda i: None) -> None:
    with capture:
        for i in range(steps):
            work()
            each(i)
            capture.step()


def own(event_names: list[str]) -> list[str]:
    """The names without the profiler's bookkeeping."""
    return [name for name in event_names if name.startswith("aten::")]


@pytest.fixture(autouse=True)
def _leaves_the_profiler_as_it_was() -> object:
    before = [getattr(autograd_profiler.profile, name) for name in ENTRIES]
    yield
    assert [getattr(autograd_profiler.profile, name) for name in ENTRIES] == before
    assert not autograd_profiler._is_profiler_enabled


def test_only_what_analysis_needs_is_recorded_c183(folder: Path) -> None:
    loop(Capture(folder), 12)

    trace = trace_of(folder)
    categories = {event.get("cat") for event in trace["traceEvents"]}
    assert trace["record_shapes"] == 1
    assert "with_stack" not in trace
    assert "profile_memory" not in trace
    assert not {"python_function", "cpu_instant_event"} & categories
    assert names_in(trace).count("aten::tanh") == 4


def test_stacks_on_request(folder: Path) -> None:
    loop(Capture(folder, with_stack=True, **WINDOW), 8)

    assert "python_function" in {event.get("cat") for event in trace_of(folder)["traceEvents"]}


def test_inside_an_active_profile_the_hook_does_nothing_c197(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as alone:
        for _ in range(8):
            work()

    with profile(activities=[ProfilerActivity.CPU]) as users:
        loop(Capture(folder, **WINDOW), 8)

    assert own([e.name for e in users.events()]) == own([e.name for e in alone.events()])
    assert warnings_of(caplog) == ["commprof: another profiler was active in step 1, nothing is recorded"]
    assert files_of(folder) == ["rank-00000.manifest.json"]


def test_a_profile_inside_the_window_is_complete_c197(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[str]] = []

    def second(i: int) -> None:
        if i == 4:
            with profile(activities=[ProfilerActivity.CPU]) as users:
                work()
            seen.append(own([e.name for e in users.events()]))

    loop(Capture(folder, **WINDOW), 8, second)

    with profile(activities=[ProfilerActivity.CPU]) as alone:
        work()
    assert seen == [own([e.name for e in alone.events()])]
    assert len(warnings_of(caplog)) == 1
    assert manifest_of(folder)["reason"] == "another profiler was started in step 4"
    assert manifest_of(folder)["recorded_steps"] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert names_in(trace_of(folder)).count("aten::tanh") == 3


@pytest.mark.parametrize("warmup", [2, 3, 5, 6])
def test_a_profile_that_warms_up_before_the_window_is_complete_c197(
    folder: Path, caplog: pytest.LogCaptureFixture, warmup: int
) -> None:
    # Its warm-up begins in step 0; it records before, inside or after our window, steps 2 to 5.
    seen: list[list[str]] = []
    users = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=warmup, active=2, repeat=1),
        on_trace_ready=lambda p: seen.append(own([e.name for e in p.events()])),
    )
    with profile(activities=[ProfilerActivity.CPU]) as alone:
        work()
        work()

    with users:
        loop(Capture(folder, **WINDOW), 10, lambda i: users.step())

    assert seen == [own([e.name for e in alone.events()])]
    assert warnings_of(caplog) == ["commprof: another profiler was active in step 1, nothing is recorded"]


@pytest.mark.parametrize(("wait", "recorded"), [(2, 0), (3, 0), (4, 1), (5, 2), (7, 4)])
def test_a_profile_that_waits_is_no_obstacle_and_complete_c197(
    folder: Path, caplog: pytest.LogCaptureFixture, wait: int, recorded: int
) -> None:
    # Its warm-up begins inside step wait - 1 (its step() stands before ours); our window is steps 2 to 5.
    seen: list[list[str]] = []
    users = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=wait, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda p: seen.append(own([e.name for e in p.events()])),
    )
    with profile(activities=[ProfilerActivity.CPU]) as alone:
        work()
        work()

    with users:
        loop(Capture(folder, **WINDOW), 12, lambda i: users.step())

    assert seen == [own([e.name for e in alone.events()])]
    assert len(manifest_of(folder)["recorded_steps"]) == recorded
    assert len(warnings_of(caplog)) == (recorded < 4)


def test_the_older_profiler_inside_the_window_is_complete_c197(folder: Path) -> None:
    seen: list[list[str]] = []

    def second(i: int) -> None:
        if i == 3:
            with autograd_profiler.profile() as users:
                work()
            seen.append(own([e.name for e in users.function_events]))

    loop(Capture(folder, **WINDOW), 8, second)

    assert seen[0].count("aten::tanh") == 1
    assert names_in(trace_of(folder)).count("aten::tanh") == 2


def test_a_profile_after_the_window_is_complete(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[str]] = []

    def second(i: int) -> None:
        if i == 7:
            with profile(activities=[ProfilerActivity.CPU]) as users:
                work()
            seen.append(own([e.name for e in users.events()]))

    loop(Capture(folder, **WINDOW), 9, second)

    assert seen[0].count("aten::tanh") == 1
    assert warnings_of(caplog) == []
    assert manifest_of(folder)["partial"] is False


def test_of_two_hooks_the_second_gives_way(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    second = Capture(folder / "second", **WINDOW)

    with second:
        loop(Capture(folder / "first", **WINDOW), 8, lambda i: second.step())

    traces = [(folder / name / "rank-00000.pt.trace.json.gz").exists() for name in ("first", "second")]
    assert sorted(traces) == [False, True]
    assert len(warnings_of(caplog)) == 1


def test_a_loop_that_ends_in_warmup_leaves_the_profiler_usable(folder: Path) -> None:
    loop(Capture(folder, skip=1, warmup=3, steps=2), 3)

    with profile(activities=[ProfilerActivity.CPU]) as users:
        work()

    assert own([e.name for e in users.events()]).count("aten::tanh") == 1


def test_only_the_export_is_used_c201(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("not to be called")

    for kind in (profile, autograd_profiler.profile, torch.profiler._KinetoProfile):
        monkeypatch.setattr(kind, "key_averages", broken)
    for kind in (profile, torch.profiler._KinetoProfile):
        monkeypatch.setattr(kind, "events", broken)
    monkeypatch.setattr(autograd_profiler.profile, "function_events", property(broken))

    loop(Capture(folder, **WINDOW), 8)

    assert manifest_of(folder)["partial"] is False
    assert names_in(trace_of(folder)).count("aten::tanh") == 4


def test_no_device_is_synchronised_in_the_loop_c200(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: calls.append(1))
    monkeypatch.setattr(torch.cpu, "synchronize", lambda *a: calls.append(1))

    loop(Capture(folder, **WINDOW), 200)

    # One at the end of the window is the profiler's own, where there is a device.
    assert len(calls) <= 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, "default", 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, "environment RANK", 4)),
        ({"RANK": "2"}, (2, "environment RANK", 3)),
        ({"RANK": "two"}, (0, "default", 1)),
    ],
)
def test_rank_without_a_process_group_c198(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    expected: tuple[int, str, int],
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    loop(Capture(folder, **WINDOW), 8)

    manifest = manifest_of(folder, expected[0])
    assert (manifest["rank"], manifest["rank_source"], manifest["world_size"]) == expected
    assert manifest["groups"] == []
    assert manifest["torch_version"] == str(torch.__version__)
