"""Starting one process per rank; the processes here need no torch."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commprof.capture.jobs.launch import launch, worker_environment
from commprof.errors import WorkerDied

TELL = """
import os, pathlib, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMP_NUM_THREADS")
told = [os.environ[name] for name in names] + sys.argv[2:]
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(" ".join(told))
"""
SLEEP = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); {}; time.sleep(60)"


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """A folder in which processes leave a file each."""
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_rank_knows_itself_and_where_to_meet(pids: Path) -> None:
    launch(["-c", TELL, str(pids), "{rendezvous}"], 3)

    told = [(pids / str(rank)).read_text().split() for rank in range(3)]
    assert [words[:4] for words in told] == [[str(rank), str(rank), "3", "1"] for rank in range(3)]
    meeting = {words[4] for words in told}
    assert len(meeting) == 1
    assert not Path(meeting.pop()).parent.exists()


def test_progress_of_rank_0_is_followed() -> None:
    code = "from commprof.capture.jobs.launch import announce; print('chatter'); [announce(i + 1, 3) for i in range(3)]"
    seen: list[tuple[int, int]] = []

    launch(["-c", code], 2, progress=lambda done, total: seen.append((done, total)))

    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_rank_that_fails_ends_the_others_and_says_why(pids: Path) -> None:
    code = SLEEP.format("time.sleep(0.3); 1 / 0 if os.environ['RANK'] == '1' else None")

    with pytest.raises(WorkerDied) as died:
        launch(["-c", code, str(pids)], 3)

    assert str(died.value) == "rank 1 of 3 failed: ZeroDivisionError: division by zero (exit status 1)"
    assert died.value.exit_code == 4
    assert all(gone(int(p.name)) for p in pids.iterdir())


def test_a_rank_that_is_killed_is_told_by_its_signal() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

    with pytest.raises(WorkerDied, match=r"rank 0 of 1 failed: signal 9"):
        launch(["-c", code], 1)


def test_the_last_words_leave_out_marks_and_native_warnings() -> None:
    lines = ["[rank0]: Traceback", "[rank0]: RuntimeError: no peer", "USDT:2026 profiler_stop", "[W1130 x.cpp] leak"]
    code = f"import sys; print('\\n'.join({lines!r}), file=sys.stderr); sys.exit(5)"

    with pytest.raises(WorkerDied, match=r"^rank 0 of 1 failed: RuntimeError: no peer \(exit status 5\)$"):
        launch(["-c", code], 1)


def test_processes_that_hang_are_ended(pids: Path) -> None:
    with pytest.raises(WorkerDied, match="time limit"):
        launch(["-c", SLEEP.format("pass"), str(pids)], 2, timeout_s=1.5)

    assert all(gone(int(p.name)) for p in pids.iterdir())


def test_control_c_leaves_no_process_behind(pids: Path) -> None:
    command = ["-c", SLEEP.format("pass"), str(pids)]
    code = f"from commprof.capture.jobs.launch import launch; launch({command!r}, 2)"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while len(list(pids.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)

    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=30)

    assert parent.returncode != 0
    assert "KeyboardInterrupt" in errors
    children = [int(p.name) for p in pids.iterdir()]
    assert len(children) == 2
    assert all(gone(pid) for pid in children)


def test_variables_of_the_user_are_kept() -> None:
    environment = worker_environment(1, 2, {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_DEBUG": "INFO", "RANK": "9"})

    assert environment["GLOO_SOCKET_IFNAME"] == "eth7"
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["RANK"] == "1"


def test_a_process_ends_where_its_launcher_is_killed(tmp_path: Path) -> None:
    # Given two ranks that sleep, each with an end of a pipe in its hands,
    held = tmp_path / "held"
    os.mkfifo(held)
    reading = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    rank = (
        "import os, time; from commprof.capture.jobs.launch import follow_launcher; follow_launcher(); "
        f"os.write(os.open({str(held)!r}, os.O_WRONLY), b'x'); time.sleep(600)"
    )
    code = f"from commprof.capture.jobs.launch import launch; launch(['-c', {rank!r}], 2)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 120
    begun = b""
    while len(begun) < 2 and time.monotonic() < until:
        # Without a writer yet, a pipe reads as one at its end.
        begun += os.read(reading, 2) if select.select([reading], [], [], 1)[0] else b""
        time.sleep(0.01)
    assert begun == b"xx"

    # When nobody is left who could end them,
    parent.kill()
    parent.wait()

    # Then they end by themselves: nobody holds the pipe.
    assert select.select([reading], [], [], 120)[0] == [reading]
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_process_that_somebody_else_started_reads_nothing() -> None:
    code = "import time; from commprof.capture.jobs.launch import follow_launcher as f; f(); time.sleep(0.5); print(1)"

    ended = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=False)

    assert (ended.returncode, ended.stdout.strip()) == (0, b"1")


def test_a_process_that_follows_may_end_first() -> None:
    launch(["-c", "from commprof.capture.jobs.launch import follow_launcher; follow_launcher()"], 2)
