"""The hook's logic on a fake profiler and a fake clock."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from commprof.capture import Capture
from commprof.capture.engine import Whereabouts
from commprof.errors import UsageError
from commprof.manifest import ClockSample, read_manifests
from tests.capture.fake import EPOCH, FakeEngine, files_of, manifest_of, warnings_of

TRACE = "rank-00000.pt.trace.json.gz"
MANIFEST = "rank-00000.manifest.json"


def run(out: Path, engine: FakeEngine, loop: int, step_ns: int = 1000, **options: Any) -> Capture:
    """A loop of ``loop`` steps of ``step_ns`` each under the hook."""
    capture = Capture(out, _engine=engine, **options)
    with capture:
        for _ in range(loop):
            engine.now += step_ns
            capture.step()
    return capture


def train_until(capture: Capture, step: int, error: BaseException) -> None:
    """A loop that raises ``error`` in step ``step``."""
    with capture:
        for _ in range(step):
            capture.step()
        raise error


def test_defaults_record_steps_5_to_8(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    # C183: at most 5 active steps with no arguments.
    engine = FakeEngine()

    run(folder, engine, loop=12)

    assert engine.opened() == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]
    assert [c for c in engine.calls if c in ("prepare", "start", "stop", "export")] == [
        "prepare",
        "start",
        "stop",
        "export",
    ]
    assert files_of(folder) == [MANIFEST, TRACE]
    manifest = manifest_of(folder)
    assert manifest["recorded_steps"] == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]
    assert (manifest["partial"], manifest["reason"], manifest["cut_step"]) == (False, None, None)
    assert warnings_of(caplog) == []


def test_window_follows_its_options_c193(folder: Path) -> None:
    # C193: wait 2, warm-up 1, active 3 records steps 3, 4, 5.
    engine = FakeEngine()

    run(folder, engine, loop=8, skip=2, warmup=1, steps=3)

    assert engine.opened() == ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]


def test_the_profiler_is_untouched_outside_the_window(folder: Path) -> None:
    engine = FakeEngine()
    capture = Capture(folder, skip=3, warmup=2, steps=1, _engine=engine)

    capture.start()
    at: dict[int, list[str]] = {}
    for i in range(9):
        before = len(engine.calls)
        capture.step()
        at[i] = engine.calls[before:]
    capture.stop()

    # The call that ends step 2 starts step 3, the first of the warm-up; the one that ends step 5 closes
    # the window.
    assert at[0] == at[1] == at[3] == at[6] == at[7] == []
    assert at[2] == ["whereabouts", "prepare"]
    assert at[4] == ["start", "open ProfilerStep#5"]
    assert at[5][-1] == "export"


def test_no_skip_and_no_warmup_records_from_the_first_step(folder: Path) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=2, skip=0, warmup=0, steps=2)

    assert engine.opened() == ["ProfilerStep#0", "ProfilerStep#1"]


def test_too_many_steps_are_cut_c184(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=40, skip=0, warmup=0, steps=1000)

    assert len(engine.opened()) == 20
    assert warnings_of(caplog) == ["commprof: steps=1000 is cut to 20 (max_steps=1000 records them all)"]


def test_the_limit_on_steps_can_be_raised_c184(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=40, skip=0, warmup=0, steps=30, max_steps=30)

    assert len(engine.opened()) == 30
    assert warnings_of(caplog) == []


def test_step_times_leave_out_the_hook_and_give_both_medians(folder: Path) -> None:
    # Steps take 100, 110, 120, ... ns by the clock; steps 5 to 8 are recorded.
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    with capture:
        for i in range(12):
            engine.now += 100 + 10 * i
            capture.step()

    manifest = read_manifests(folder)[0]
    assert manifest.steps.duration_ns == tuple(100 + 10 * i for i in range(12))
    assert manifest.steps.start_ns[:3] == (EPOCH, EPOCH + 100, EPOCH + 210)
    # Recorded: 150 160 170 180. Outside, without steps 0 and 1: 120 130 140 190 200 210.
    assert manifest.profiled_step_ns == 165
    assert manifest.unprofiled_step_ns == 165
    assert manifest.clock.start_ns == EPOCH + sum(100 + 10 * i for i in range(5))
    assert manifest.clock.stop_ns == EPOCH + sum(100 + 10 * i for i in range(9))


def test_export_time_is_kept_out_of_the_steps(folder: Path) -> None:
    engine = FakeEngine()
    slow = engine.export

    def export(path: Path) -> None:
        engine.now += 5_000_000
        slow(path)

    engine.export = export  # type: ignore[method-assign]

    run(folder, engine, loop=10, step_ns=100)

    manifest = read_manifests(folder)[0]
    assert manifest.export_ns == 5_000_000
    assert set(manifest.steps.duration_ns) == {100}


def test_a_loop_too_short_c192(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=2, skip=5, warmup=1, steps=3)

    message = "no step recorded: at least 9 steps needed, the loop had 2"
    assert warnings_of(caplog) == [f"commprof: {message} (skip=5, warmup=1, steps=3)"]
    assert files_of(folder) == [MANIFEST]
    assert manifest_of(folder)["trace"] is None
    assert manifest_of(folder)["reason"] == message


@pytest.mark.parametrize("loop", [4, 5])
def test_a_loop_that_ends_in_warmup_or_before_the_first_recorded_step_writes_no_trace(
    folder: Path, caplog: pytest.LogCaptureFixture, loop: int
) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=loop)

    assert files_of(folder) == [MANIFEST]
    assert "stop" in engine.calls
    assert "export" not in engine.calls
    assert len(warnings_of(caplog)) == 1


def test_a_loop_that_ends_inside_the_window_is_partial(folder: Path) -> None:
    engine = FakeEngine()

    run(folder, engine, loop=7)

    manifest = manifest_of(folder)
    assert manifest["recorded_steps"] == ["ProfilerStep#5", "ProfilerStep#6"]
    assert manifest["cut_step"] == "ProfilerStep#7"
    assert (manifest["partial"], manifest["reason"]) == (True, "the loop ended after 2 of 4 steps")


def test_an_exception_comes_out_unchanged_though_the_export_fails_c190(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine(fail={"export": RuntimeError("no trace for you")})
    engine.content = b""
    mistake = ValueError("loss is nan")
    capture = Capture(folder, _engine=engine)

    with pytest.raises(ValueError, match="loss is nan") as caught:
        train_until(capture, 6, mistake)

    assert caught.value is mistake
    assert caught.value.__context__ is None
    assert len(warnings_of(caplog)) == 1
    assert "RuntimeError: no trace for you" in warnings_of(caplog)[0]
    assert engine.waited is False  # a collective may be stuck on the device


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_leaving_the_window_by_an_exception_marks_the_file_partial_c196_c199(
    folder: Path, error: BaseException
) -> None:
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    with pytest.raises(type(error)) as caught:
        train_until(capture, 6, error)

    assert caught.value is error
    assert files_of(folder) == [MANIFEST, TRACE]
    manifest = manifest_of(folder)
    assert (manifest["partial"], manifest["reason"]) == (True, f"{type(error).__name__} in step 6")
    assert (manifest["recorded_steps"], manifest["cut_step"]) == (["ProfilerStep#5"], "ProfilerStep#6")


def test_an_exception_after_the_window_leaves_the_capture_whole(folder: Path) -> None:
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    with pytest.raises(ValueError, match="late"):
        train_until(capture, 10, ValueError("late"))

    assert manifest_of(folder)["partial"] is False
    assert len(manifest_of(folder)["steps"]["duration_ns"]) == 10


def test_an_exception_before_the_window_is_told_in_the_manifest_alone(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    capture = Capture(folder, _engine=FakeEngine())

    with pytest.raises(ValueError, match="early"):
        train_until(capture, 0, ValueError("early"))

    assert manifest_of(folder)["reason"] == "no step recorded: ValueError in step 0"
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("method", ["whereabouts", "prepare", "start", "open ProfilerStep#6", "close", "stop"])
def test_whatever_fails_in_the_hook_is_one_warning(folder: Path, caplog: pytest.LogCaptureFixture, method: str) -> None:
    engine = FakeEngine(fail={method: RuntimeError("broken")})

    run(folder, engine, loop=12)

    assert len(warnings_of(caplog)) == 1
    assert "RuntimeError: broken" in warnings_of(caplog)[0]
    assert TRACE not in files_of(folder)
    # Without a rank there is no name for a file; else the manifest tells.
    assert [m.partial for m in (read_manifests(folder) if folder.exists() else [])] == [True] * (
        method != "whereabouts"
    )


def test_facts_that_cannot_be_read_cost_no_trace(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={"facts": RuntimeError("broken")})

    run(folder, engine, loop=12)

    assert files_of(folder) == [MANIFEST, TRACE]
    assert manifest_of(folder)["notes"] == ["facts of the run not read: RuntimeError: broken"]
    assert warnings_of(caplog) == []


def test_a_full_disk_leaves_no_partial_file_c194(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={"export": OSError(errno.ENOSPC, "No space left on device")})

    run(folder, engine, loop=12)

    assert files_of(folder) == [MANIFEST]
    assert len(warnings_of(caplog)) == 1
    assert "No space left on device" in warnings_of(caplog)[0]
    assert "No space left on device" in manifest_of(folder)["reason"]
    assert "raw file" not in warnings_of(caplog)[0]


def test_a_file_that_the_profiler_cut_short_is_not_taken_for_a_trace_c194(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Kineto does not report a failed write: the file just ends.
    engine = FakeEngine()
    engine.content = b'{"traceEvents": [{"ph": "X", "na'

    run(folder, engine, loop=12)

    assert files_of(folder) == [MANIFEST]
    assert len(warnings_of(caplog)) == 1


def test_a_failed_export_keeps_the_raw_file_c204(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={"export": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")})

    run(folder, engine, loop=12)

    assert files_of(folder) == [MANIFEST]
    assert len(warnings_of(caplog)) == 1
    raw = Path(warnings_of(caplog)[0].rpartition("the raw file is ")[2])
    assert raw.read_bytes() == engine.content
    raw.unlink()
    raw.parent.rmdir()


def test_a_folder_that_cannot_be_made_costs_one_warning_and_keeps_the_trace(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    capture = Capture(folder / "x", _engine=(engine := FakeEngine()))
    folder.write_text("in the way")

    with capture:
        for _ in range(12):
            capture.step()

    assert len(warnings_of(caplog)) == 1
    raw = Path(warnings_of(caplog)[0].rpartition("its trace is ")[2])
    assert raw.read_bytes() == engine.content
    raw.unlink()
    raw.parent.rmdir()


@pytest.mark.parametrize("out", ["s3://bucket/run", "gs://b/r", "https://host/x", "file:///runs/x"])
def test_a_url_is_refused_before_the_first_step_c203(folder: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    folder.mkdir()
    monkeypatch.chdir(folder)

    with pytest.raises(UsageError, match="is a URL"):
        Capture(out, _engine=FakeEngine())

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 0},
        {"skip": -1},
        {"warmup": 1.5},
        {"ranks": "some"},
        {"ranks": []},
        {"ranks": [-1]},
        {"ranks": 3},
        {"ranks": [True]},
    ],
)
def test_options_without_sense_are_refused_before_the_first_step(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Capture(folder, _engine=FakeEngine(), **options)


@pytest.mark.parametrize("model", ["x", 3, [], {}, ["x"], {"net": nn.Linear(1, 1), "head": "x"}, object(), nn.Linear])
def test_what_is_no_model_is_refused_before_the_first_step(folder: Path, model: Any) -> None:
    with pytest.raises(UsageError, match=r"model is .* not a torch\.nn\.Module or a list or dict of them"):
        Capture(folder, model=model, _engine=FakeEngine())

    assert files_of(folder) == []


@pytest.mark.parametrize(
    "model", [None, nn.Linear(1, 1), [nn.Linear(1, 1)], (nn.Linear(1, 1), None), {"net": nn.ModuleList()}]
)
def test_a_model_is_a_module_or_several(folder: Path, model: Any, caplog: pytest.LogCaptureFixture) -> None:
    run(folder, FakeEngine(), loop=10, model=model)

    assert warnings_of(caplog) == []
    assert files_of(folder) == [MANIFEST, TRACE]


def test_without_torch_the_constructor_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(UsageError, match=r'pip install "commprof\[torch\]"'):
        Capture(folder)


def test_only_chosen_ranks_write_c189(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engines = [FakeEngine(Whereabouts(rank=r, source="process group", world_size=4)) for r in range(4)]

    for engine in engines:
        run(folder / "all", engine, loop=10)
        run(folder / "two", FakeEngine(engine.where), loop=10, ranks=[0, 3])

    assert [m.rank for m in read_manifests(folder / "all")] == [0, 1, 2, 3]
    assert files_of(folder / "two") == [
        f"rank-0000{r}.{kind}" for r in (0, 3) for kind in ("manifest.json", "pt.trace.json.gz")
    ]
    assert {m.world_size for m in read_manifests(folder / "two")} == {4}
    assert warnings_of(caplog) == []


def test_a_rank_that_was_not_chosen_never_touches_the_profiler_c189(folder: Path) -> None:
    engine = FakeEngine(Whereabouts(rank=1, source="process group", world_size=4))

    run(folder, engine, loop=10, ranks=[0])
    run(folder, engine, loop=2, ranks=[0])

    assert set(engine.calls) <= {"whereabouts", "stop"}
    assert files_of(folder) == []


@pytest.mark.parametrize("loop", [3, 10])
def test_a_choice_of_ranks_that_records_nothing_is_one_warning(
    loop: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Also where the loop ends before the window begins.
    run(folder, FakeEngine(), loop=loop, ranks=[5])

    (warning,) = warnings_of(caplog)
    assert "ranks=[5]: no rank records" in warning
    assert files_of(folder) == []


def test_an_active_profiler_comes_first_c197(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.busy = True

    run(folder, engine, loop=12)

    assert warnings_of(caplog) == ["commprof: another profiler was active in step 4, nothing is recorded"]
    assert not {"prepare", "start", "stop", "export"} & set(engine.calls)
    assert manifest_of(folder)["reason"] == "another profiler was active in step 4"


def test_a_profiler_that_starts_inside_the_window_ends_ours_first_c197(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    with capture:
        for i in range(12):
            if i == 7:
                assert engine.on_rival is not None
                engine.on_rival()
                assert engine.calls[-1] == "export"
            capture.step()

    assert engine.opened() == ["ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7"]
    assert engine.calls.count("stop") == 1
    assert manifest_of(folder)["recorded_steps"] == ["ProfilerStep#5", "ProfilerStep#6"]
    assert manifest_of(folder)["cut_step"] == "ProfilerStep#7"
    assert len(warnings_of(caplog)) == 1


def test_a_profiler_that_starts_in_the_warmup_ends_ours_c197(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    with capture:
        for i in range(12):
            if i == 4:
                assert engine.on_rival is not None
                engine.on_rival()
                assert engine.calls[-1] == "stop"
            capture.step()

    assert engine.opened() == []
    assert files_of(folder) == [MANIFEST]
    assert warnings_of(caplog) == ["commprof: another profiler was started in step 4, nothing is recorded"]


def test_step_and_stop_out_of_place_are_one_warning_each_c198(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)

    capture.step()
    capture.step()
    with capture:
        for _ in range(10):
            capture.step()
    calls = list(engine.calls)
    capture.step()
    capture.stop()
    capture.start()

    assert [w.split("(")[0] for w in warnings_of(caplog)] == ["commprof: step", "commprof: stop", "commprof: start"]
    assert engine.calls == calls
    assert engine.opened() == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]


def test_rank_source_is_stated_and_a_group_that_is_gone_is_remembered_c198(folder: Path) -> None:
    engine = FakeEngine(Whereabouts(rank=2, source="process group", world_size=4))
    capture = Capture(folder, _engine=engine)

    with capture:
        for i in range(12):
            if i == 7:  # destroy_process_group()
                engine.where = Whereabouts(rank=0, source="default", world_size=1)
            capture.step()

    manifest = manifest_of(folder, rank=2)
    assert (manifest["rank"], manifest["rank_source"], manifest["world_size"]) == (2, "process group", 4)


def test_a_second_capture_does_not_overwrite_the_first_c185(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = FakeEngine(), FakeEngine()
    first.content, second.content = b'{"run": 1}', b'{"run": 2}'

    run(folder, first, loop=10)
    run(folder, second, loop=10)

    assert files_of(folder) == [
        "rank-00000.2.manifest.json",
        "rank-00000.2.pt.trace.json.gz",
        MANIFEST,
        TRACE,
    ]
    assert gzip.decompress((folder / TRACE).read_bytes()) == first.content
    assert gzip.decompress((folder / "rank-00000.2.pt.trace.json.gz").read_bytes()) == second.content
    assert [m.trace for m in read_manifests(folder)] == ["rank-00000.2.pt.trace.json.gz", TRACE]
    assert len(warnings_of(caplog)) == 1


def test_a_long_export_against_the_timeout_of_the_group_c188(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for timeout_s, expected in ((8, 1), (60, 0)):
        where = Whereabouts(rank=0, source="process group", world_size=2, timeout_ns=timeout_s * 10**9)
        engine = FakeEngine(where)
        engine.facts_export = engine.export  # type: ignore[attr-defined]

        def export(path: Path, engine: FakeEngine = engine) -> None:
            engine.now += 5 * 10**9
            engine.facts_export(path)  # type: ignore[attr-defined]

        engine.export = export  # type: ignore[method-assign]
        caplog.clear()

        run(folder / str(timeout_s), engine, loop=10)

        assert len(warnings_of(caplog)) == expected
        assert manifest_of(folder / str(timeout_s))["export_ns"] == 5 * 10**9
        assert all("rank 0" in w and "5.00 s" in w and "8.00 s" in w for w in warnings_of(caplog))


def test_a_logger_that_raises_does_not_reach_the_training(folder: Path) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("logging is broken")

    logger, broken = logging.getLogger("commprof"), Broken()
    logger.addFilter(broken)
    try:
        run(folder, FakeEngine(), loop=2)
    finally:
        logger.removeFilter(broken)

    assert files_of(folder) == [MANIFEST]


def test_environment_and_cores_are_stored_and_not_set_c202(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", "1")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    before = dict(os.environ)

    run(folder, FakeEngine(), loop=10)

    stored = manifest_of(folder)["environment"]
    assert stored["TORCH_NCCL_ENABLE_TIMING"] == "1"
    assert stored["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "AWS_SECRET_ACCESS_KEY" not in json.dumps(manifest_of(folder))
    assert dict(os.environ) == before
    assert manifest_of(folder)["cores"] >= 1


def test_exactly_one_exit_handler_while_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    monkeypatch.setattr("atexit.register", held.append)
    monkeypatch.setattr("atexit.unregister", held.remove)
    capture = Capture(folder, _engine=FakeEngine())

    capture.start()
    during = len(held)
    capture.stop()

    assert (during, len(held)) == (1, 0)


def test_thrown_away_inside_the_window_it_writes_when_the_process_ends_c196(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    monkeypatch.setattr("atexit.register", held.append)
    monkeypatch.setattr("atexit.unregister", held.remove)
    engine = FakeEngine()
    capture = Capture(folder, _engine=engine)
    capture.start()
    for _ in range(6):
        capture.step()

    del capture
    after_del = (list(engine.calls), files_of(folder))
    held[0]()

    assert "stop" not in after_del[0]
    assert after_del[1] == []
    assert files_of(folder) == [MANIFEST, TRACE]
    assert manifest_of(folder)["reason"] == "the process ended in step 6"


def test_a_successful_capture_is_one_line_of_rank_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 0):
        run(folder, FakeEngine(Whereabouts(rank=rank, source="process group", world_size=2)), loop=12)

    assert capsys.readouterr().err == f"commprof: captured to {folder}; to analyse: commprof analyze {folder}\n"


def test_a_partial_capture_promises_nothing_and_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, FakeEngine(), loop=7)

    assert capsys.readouterr().err == f"commprof: captured to {folder}, but the loop ended after 2 of 4 steps\n"


def test_the_command_can_be_copied_whatever_the_folder_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my run's größe"

    run(folder, FakeEngine(), loop=12)

    said = capsys.readouterr().err.strip()
    assert shlex.split(said.partition("; to analyse: ")[2]) == ["commprof", "analyze", str(folder)]


def test_a_loop_that_never_counts_is_asked_about_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder, FakeEngine(), loop=0)

    (warning,) = warnings_of(caplog)
    assert warning.endswith("the loop had 0 (is capture.step() called after every iteration?)")


def test_the_first_of_the_listed_ranks_tells_where_the_capture_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(4):
        run(folder, FakeEngine(Whereabouts(rank=rank, source="process group", world_size=4)), loop=12, ranks=[3, 2])

    assert capsys.readouterr().err.count("commprof: captured") == 1


def test_clock_samples_are_taken_before_and_after_the_loop(folder: Path) -> None:
    engine = FakeEngine(Whereabouts(rank=4, source="process group", world_size=8))
    for moment in ("before", "after"):
        engine.samples[moment] = (
            ClockSample(moment=moment, reference=0, at_ns=1, offset_ns=2, round_trip_ns=3, rounds=4),  # type: ignore[arg-type]
        )

    run(folder, engine, loop=12)

    assert [sample["moment"] for sample in manifest_of(folder, 4)["clock_samples"]] == ["before", "after"]
    assert engine.closed == 1


def test_clocks_that_cannot_be_compared_cost_a_note(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={"clocks before": ConnectionError("rank 0 does not answer")})

    run(folder, engine, loop=12)

    assert manifest_of(folder)["partial"] is False
    assert manifest_of(folder)["notes"] == [
        "clocks before the loop not compared: ConnectionError: rank 0 does not answer"
    ]
    assert warnings_of(caplog) == []
