"""Files of hosts in their two forms, and which groups cross hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.analysis.hosts import crosses_hosts, ranks_per_host, read_hosts
from commprof.errors import InputRefused
from tests.builders.command import call


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("0 a\n1 a\n2 b\n", {0: "a", 1: "a", 2: "b"}),
        ("# two hosts\n0-1 a\n\n2-3: b  # the second\n", {0: "a", 1: "a", 2: "b", 3: "b"}),
        ("node1 slots=2\nnode2 slots=1 max_slots=4\n", {0: "node1", 1: "node1", 2: "node2"}),
        ("node1\nnode2\n", {0: "node1", 1: "node2"}),
    ],
    ids=["a rank a line", "ranges", "hostfile", "one rank each"],
)
def test_both_forms_are_read(text: str, hosts: dict[int, str], tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)

    assert read_hosts(str(path)) == hosts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no host"),
        ("# nothing\n", "names no host"),
        ("0 a\nb\n", "line 2 names no rank"),
        ("0 a\n0 b\n", "rank 0 is on a and on b"),
        ("3-1 a\n", "line 1: 3-1 is no range"),
        ("a slots=two\n", "line 1: 'slots=two' is not understood"),
        ("a b c\n", "'b' is not understood"),
        ("0-99999999 a\n", "no range of ranks"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_line(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)

    with pytest.raises(InputRefused) as caught:
        read_hosts(str(path))

    assert reason in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="cannot be read"):
        read_hosts(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("ranks", "crosses"),
    [((0, 1), False), ((0, 2), True), ((0, 1, 9), None), ((0, 2, 9), True), ((), None), (None, None)],
)
def test_two_known_hosts_are_a_yes_and_a_no_needs_all(ranks: tuple[int, ...] | None, crosses: bool | None) -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}

    assert crosses_hosts(ranks, hosts) is crosses


def test_ranks_are_counted_by_host() -> None:
    hosts = {0: "a", 1: "a", 2: "b"}

    assert ranks_per_host([0, 1, 2], hosts) == [2, 1]
    assert ranks_per_host([0, 5], hosts) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0 a\n1 a\n", ""),
        ("0 a\n1 a\n7 b\n", "it names rank 7, and the run has 2 ranks"),
        ("0 a\n5-9 b\n", "it names ranks 5, 6, 7, 8 and 1 more, and the run has 2 ranks; it has no host for rank 1"),
    ],
)
def test_a_file_of_another_run_is_said_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)

    code, _, errors = call("analyze", "fixtures/ddp-two-ranks", "--no-html", "--hosts", path)

    assert code == 0
    assert errors == (f"commprof: warning: {path}: {line}\n" if line else "")
