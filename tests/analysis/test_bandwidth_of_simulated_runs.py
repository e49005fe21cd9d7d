"""Latency and bandwidth fitted to a simulated run are those of the simulated network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commprof.analysis.run import analyze
from commprof.synth import Cluster, Link, preset, write_run


def test_the_fit_gives_back_the_network_of_the_simulation(tmp_path: Path) -> None:
    # Two hosts with two GPUs and two adapters each: a ring uses both adapters of a host.
    network = Cluster(gpus_per_host=2, nics_per_host=2, nic=Link(latency_ns=5_000, bytes_per_s=50_000_000_000))
    scenario = replace(
        preset("ddp"), inner=4, cluster=network, contention_permille=0, noise_permille=0, steps=3, layers=4,
        hidden=1024, bucket_cap=4 << 20, first_bucket=1 << 16, coarse=False,
    )  # fmt: skip
    folder = write_run(scenario, tmp_path / "run", seed=3, causes=False).folder
    machine = tmp_path / "machine.toml"
    machine.write_text('name = "ours"\nlink_gbps = 300\nnic_gbps = 50\nnics = 2\ngpus = 2\n')

    analysis = analyze(folder, jobs=1, hardware=str(machine))

    (found,) = analysis.bandwidth.values()
    # Fixed cost, and 5 us for each of the four hops of a binary tree of four ranks, up and down.
    assert found.fit.kind == "line"
    assert found.fit.alpha_ns == pytest.approx(scenario.comm_base_ns + 4 * 5_000, abs=2)
    assert found.fit.beta_gbps == pytest.approx(100.0, rel=1e-4)
    size = 10_000_000
    assert found.predict(size) == (pytest.approx(25_000 + size * 1.5 / 100, rel=1e-4), False)
    # Against 2 x 50 GB/s: a ring cannot pass them, ((4-1)/4) / ((2-1)/2) = 1.5 times is for hierarchies.
    assert found.ceiling is not None
    assert (found.ceiling.low, found.ceiling.high) == (100.0, 150.0)
    assert found.efficiency is not None
    assert 0.8 < found.efficiency < 1.0
