"""Peaks of machines, how they are chosen, and what a group of some shape can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.analysis.hardware import ceiling, choose_hardware
from commprof.analysis.hardware_table import NAMED
from commprof.errors import InputRefused, UsageError

H100 = NAMED["dgx-h100"]


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("NVIDIA H100 80GB HBM3", 450.0),
        ("NVIDIA H100 PCIe", 64.0),
        ("NVIDIA H200", 450.0),
        ("NVIDIA A100-SXM4-80GB", 300.0),
        ("NVIDIA A100-PG509-200", 300.0),
        ("NVIDIA A100 80GB PCIe", 32.0),
        ("NVIDIA A100-PCIE-40GB", 32.0),
        ("Tesla V100-SXM2-32GB", 150.0),
        ("NVIDIA B200", 900.0),
        ("NVIDIA GB200", 900.0),
        ("AMD Instinct MI300X", 448.0),
    ],
)
def test_gpus_are_recognised_by_name(name: str, gbps: float) -> None:
    found = choose_hardware(None, [name, name])

    assert found is not None
    assert found.link_gbps == gbps
    assert found.source
    assert found.nic_gbps is None  # a GPU does not tell the network


@pytest.mark.parametrize(
    "names",
    [[], [None], ["NVIDIA GeForce RTX 4090"], ["NVIDIA H100 NVL"], ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"]],
    ids=["none", "unnamed", "not in the table", "bridged", "mixed"],
)
def test_unknown_or_mixed_devices_give_no_claim(names: list[str | None]) -> None:
    assert choose_hardware(None, names) is None


@pytest.mark.parametrize(
    ("per_host", "low", "high"),
    [
        ([8], 450.0, 450.0),
        # One GPU on each of two hosts: its share of the adapters, and n = M leaves nothing to a hierarchy.
        ([1, 1], 50.0, 50.0),
        # Four on each of two: 4 x 50, times ((8-1)/8) / ((2-1)/2) = 1.75.
        ([4, 4], 200.0, 350.0),
        # Whole hosts: 8 x 50 = 400; 1.875 times that lies above NVLink's 450.
        ([8, 8], 400.0, 450.0),
        # 32 whole hosts: ((256-1)/256) / ((32-1)/32) = 1.0282.
        ([8] * 32, 400.0, 400 * (255 / 256) / (31 / 32)),
        # Unequal hosts: the one with the fewest members decides.
        ([8, 2], 100.0, 180.0),
    ],
)
def test_the_ceiling_of_a_ring_follows_the_shape_of_the_group(per_host: list[int], low: float, high: float) -> None:
    found = ceiling(H100, "all_reduce", sum(per_host), per_host)

    assert found is not None
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_the_factor_for_hierarchies_is_that_of_the_nccl_issue() -> None:
    machine = NAMED["dgx-h100"]

    found = ceiling(machine, "all_gather", 16, [8, 8])

    assert found is not None
    assert (15 / 16) / (1 / 2) == 1.875
    assert found.high == min(450.0, 400 * 1.875)


def test_all_to_all_is_bound_by_what_leaves_the_host() -> None:
    found = ceiling(H100, "all_to_all", 16, [8, 8])

    # Of 15 parts for others 8 leave the host, through 50 GB/s for each GPU.
    assert found is not None
    assert found.low == found.high == pytest.approx(50 * 15 / 8)


@pytest.mark.parametrize(
    ("hardware", "members", "per_host"),
    [(None, 8, [8]), (H100, 8, None), (H100, 1, [1]), (H100, None, [8]), (NAMED["h100"], 16, [8, 8])],
    ids=["unknown hardware", "unknown hosts", "one rank", "unknown size", "unknown network"],
)
def test_nothing_is_claimed_where_something_is_not_known(
    hardware: object, members: int | None, per_host: list[int] | None
) -> None:
    assert ceiling(hardware, "all_reduce", members, per_host) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["75", "75 GB/s", "75GB/s", " 75.0 gb/s "])
def test_a_stated_peak_holds_for_every_group(asked: str) -> None:
    stated = choose_hardware(asked, ["NVIDIA H100 80GB HBM3"])

    found = ceiling(stated, "all_reduce", 16, None)

    assert found is not None
    assert (found.low, found.high) == (75.0, 75.0)
    assert "stated by the user" in found.source


@pytest.mark.parametrize(
    "text",
    ['name = "ours"\nlink_gbps = 200\nnic_gbps = 12.5\nnics = 2\ngpus = 4\n',
     '{"name": "ours", "link_gbps": 200, "nic_gbps": 12.5, "nics": 2, "gpus": 4}'],
    ids=["TOML", "JSON"],
)  # fmt: skip
def test_a_machine_can_be_described_in_a_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_text(text)

    found = choose_hardware(str(path), [])

    # Two adapters of 12.5 GB/s for four GPUs: a whole host has 25 GB/s, two hosts twice 7/8 of that at best.
    assert found is not None
    top = ceiling(found, "all_reduce", 8, [4, 4])
    assert top is not None
    assert (top.low, top.high) == (25.0, pytest.approx(43.75))
    assert "machine" in top.source


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("link_gbps = -1\n", "link_gbps is -1"),
        ("link_gbps = true\n", "link_gbps is True"),
        ("speed = 3\n", "unknown key 'speed'"),
        ("nics = 1.5\n", "nics is 1.5"),
        ("what is this", "not a description of hardware"),
        ("{", "not a description of hardware"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_text(text)

    with pytest.raises(InputRefused) as caught:
        choose_hardware(str(path), [])

    assert reason in caught.value.message


def test_a_name_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputRefused) as caught:
        choose_hardware("dgx-z9", [])

    assert caught.value.hint is not None
    assert "dgx-h100" in caught.value.hint
    with pytest.raises(UsageError):
        choose_hardware("0", [])
