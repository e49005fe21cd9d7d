"""What must hold in every report, whatever was read: the accounting identities, with ``==``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Json = dict[str, Any]


def check_identities(report: Json) -> None:
    """All identities of the split and of the exposure of single calls that hold within one report."""
    for rank in report["ranks"]:
        check_split(rank["whole"])
        for step in rank["steps"]:
            check_split(step)
        for before, after in zip(rank["steps"], rank["steps"][1:], strict=False):
            assert before["end_ns"] <= after["start_ns"], "windows overlap"
        check_mean(rank)
    if report["collectives"] is not None:
        check_calls(report)
    check_rollups(report)


def check_split(split: Json) -> None:
    """The split of one window accounts for every nanosecond once."""
    parts = split["compute_ns"] + split["exposed_comm_ns"] + split["exposed_copy_ns"] + split["idle_ns"]
    assert parts == split["duration_ns"] == split["end_ns"] - split["start_ns"]
    assert split["overlap_ns"] + split["exposed_comm_ns"] == split["comm_ns"]
    assert 0 <= split["exposed_copy_ns"] <= split["copy_ns"]
    assert 0 <= split["fused_ns"] <= split["compute_ns"]
    lengths = [value for key, value in split.items() if key.endswith("_ns") and key not in ("start_ns", "end_ns")]
    assert all(length is None or length >= 0 for length in lengths)
    assert split["overlap_ratio"] == (split["overlap_ns"] / split["comm_ns"] if split["comm_ns"] else None)
    assert split["comm_share"] == (split["exposed_comm_ns"] / split["duration_ns"] if split["duration_ns"] else None)
    unknown = [split[key] is None for key in ("exposed_host_ns", "exposed_blocking_ns", "idle_host_ns")]
    assert all(unknown) or not any(unknown)
    if split["exposed_host_ns"] is not None:
        assert split["exposed_host_ns"] + split["exposed_blocking_ns"] == split["exposed_comm_ns"]
        assert 0 <= split["exposed_host_ns"] <= split["exposed_comm_ns"]
        assert 0 <= split["idle_host_ns"] <= split["idle_ns"]


def check_mean(rank: Json) -> None:
    """The mean is that of the closed windows (of all where none is closed), each key rounded to 1 ns."""
    mean = rank["mean"]
    if mean is None:
        assert not rank["steps"]
        return
    if rank.get("micro_steps"):  # then the mean is over optimizer steps, several windows each
        return
    used = [step for step in rank["steps"] if not step["open"]] or rank["steps"]
    assert mean["steps"] == len(used)
    for key in (
        "duration_ns",
        "compute_ns",
        "comm_ns",
        "overlap_ns",
        "exposed_comm_ns",
        "copy_ns",
        "idle_ns",
    ):
        assert abs(2 * (mean[key] * len(used) - sum(step[key] for step in used))) <= len(used), key
    comm = sum(step["comm_ns"] for step in used)
    exposed = sum(step["exposed_comm_ns"] for step in used)
    assert mean["overlap_ratio"] == ((comm - exposed) / comm if comm else None)
    total = sum(step["duration_ns"] for step in used)
    assert mean["comm_share"] == (exposed / total if total else None)


def check_calls(report: Json) -> None:
    """The exposed parts of the calls add up to the exposed communication of each window and of the whole."""
    exposed: dict[tuple[int, int], int] = defaultdict(int)
    by_step: dict[tuple[int, int, str], int] = defaultdict(int)
    for call in report["collectives"]:
        if call["fused"]:
            continue
        where = call["rank"], call["device"]
        assert 0 <= call["sole_ns"] <= call["exposed_ns"] <= call["touched_ns"] <= call["duration_ns"]
        assert sum(call["exposed_by_step"].values()) <= call["exposed_ns"]
        if call["exposed_wait_ns"] is not None:
            assert call["exposed_wait_ns"] + call["exposed_transfer_ns"] == call["exposed_ns"]
        exposed[where] += call["exposed_ns"]
        for step, part in call["exposed_by_step"].items():
            by_step[*where, step] += part
    for rank in report["ranks"]:
        where = rank["rank"], rank["device"]
        assert exposed[where] == rank["whole"]["exposed_comm_ns"]
        for step in rank["steps"]:
            assert by_step[*where, step["name"]] == step["exposed_comm_ns"]


def check_rollups(report: Json) -> None:
    """Rows of one roll-up add up to the figure that they divide."""
    steps: dict[tuple[int, str], Json] = defaultdict(lambda: defaultdict(int))
    for rank in report["ranks"]:
        for step in rank["steps"]:
            for key in ("exposed_comm_ns", "idle_ns"):
                steps[rank["rank"], step["name"]][key] += step[key]
    exposed: dict[tuple[int, str, str], int] = defaultdict(int)
    for row in report["exposure"] or []:
        exposed[row["rank"], row["step"], row["by"]] += row["exposed_ns"]
    for (rank, step, by), total in exposed.items():
        assert total == steps[rank, step]["exposed_comm_ns"], (rank, step, by)
    check_host_bound(report)
    idle: dict[tuple[int, str], int] = defaultdict(int)
    for row in report["idle"] or []:
        idle[row["rank"], row["step"]] += row["idle_ns"]
    for (rank, step), total in idle.items():
        assert total == steps[rank, step]["idle_ns"], (rank, step)
    if report["groups"]:
        whole = sum(rank["whole"]["exposed_comm_ns"] for rank in report["ranks"])
        assert sum(group["exposed_ns"] for group in report["groups"]) == whole


def check_host_bound(report: Json) -> None:
    """The cause ``host-bound`` holds exactly the host-bound part of exposed communication."""
    by_cause: dict[tuple[int, int, str], int] = defaultdict(int)
    for row in report["exposure"] or []:
        if row["by"] == "cause" and row["name"] == "host-bound":
            by_cause[row["rank"], row["device"], row["step"]] += row["exposed_ns"]
    for rank in report["ranks"]:
        for step in rank["steps"]:
            found = by_cause[rank["rank"], rank["device"], step["name"]]
            assert found == (step["exposed_host_ns"] or 0), (rank["rank"], step["name"])
