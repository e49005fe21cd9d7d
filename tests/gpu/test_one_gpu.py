"""Real captures of DDP, FSDP2 and a CUDA graph on one GPU, read back by the analysis; under five minutes.

A group of one rank communicates with nobody, so no kernel is communication: what is checked is the device
side of the trace, its links to the launches, and what the hook leaves alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commprof.cli.app import main
from commprof.manifest import Manifest, read_manifests
from tests.capture.real import ROOT, names_in, trace_of
from tests.oracle.identities import check_identities

pytestmark = pytest.mark.torch

STEPS = [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("gpu")
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.one_gpu", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def manifest(run: tuple[Path, dict[str, Any]], name: str) -> Manifest:
    (found,) = read_manifests(run[0] / name)
    return found


def device_events(folder: Path) -> list[dict[str, Any]]:
    return [event for event in trace_of(folder)["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy")]


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_parameters_are_equal_bit_for_bit(run: tuple[Path, dict[str, Any]], name: str) -> None:
    assert len(set(run[1][name]["digests"])) == 1


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_the_loop_waits_for_the_device_once_at_most(run: tuple[Path, dict[str, Any]], name: str) -> None:
    assert run[1][name]["waits"] <= 1  # the profiler's own, as it stops


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_kernels_streams_and_launch_links(run: tuple[Path, dict[str, Any]], name: str) -> None:
    trace = trace_of(run[0] / name)
    launched = {
        e["args"]["correlation"] for e in trace["traceEvents"] if e.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    events = device_events(run[0] / name)

    kernels = [event for event in events if event["cat"] == "kernel"]
    linked = [event for event in events if event["args"]["correlation"] in launched]

    # Each step has at least a matrix product forward and two backward per layer, but for the first's input.
    products = [k for k in kernels if re.search("gemm|cutlass|xmma|nvjet", k["name"], re.I)]
    assert len(products) >= len(STEPS) * (3 * 4 - 1)
    assert len(linked) >= 0.99 * len(events)
    assert all(event["dur"] >= 0 and "stream" in event["args"] for event in events)
    assert [n for n in names_in(trace) if n.startswith("ProfilerStep")] == STEPS
    assert "batch 5" in names_in(trace)


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_the_manifest_knows_the_device(run: tuple[Path, dict[str, Any]], name: str) -> None:
    facts, found = run[1], manifest(run, name)

    assert (found.device, found.cuda_version, found.nccl_version) == (facts["device"], facts["cuda"], facts["nccl"])
    assert found.backend == "nccl"
    assert found.pci_bus_id is None or re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0", found.pci_bus_id)
    assert list(found.recorded_steps) == STEPS
    assert found.parameters is not None
    assert found.parameters.count == facts["elements"]
    assert found.notes == ()


def test_the_manifest_knows_buckets_and_units(run: tuple[Path, dict[str, Any]]) -> None:
    elements = run[1]["elements"]

    (ddp,) = manifest(run, "ddp").ddp
    units = manifest(run, "fsdp2").fsdp

    assert sum(bucket.size_bytes for bucket in ddp.buckets) == 4 * elements
    assert sum(unit.count for unit in units) == elements
    assert {unit.kind for unit in units} == {"fsdp2"}


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_the_analysis_reads_it(run: tuple[Path, dict[str, Any]], name: str, tmp_path: Path) -> None:
    target = tmp_path / "report.json"

    assert main(["analyze", str(run[0] / name), "--json", str(target), "--no-html"]) == 0

    report = json.loads(target.read_text())
    check_identities(report)
    (rank,) = report["ranks"]
    assert rank["windows"] == "launch"
    assert [step["name"] for step in rank["steps"]] == STEPS
    assert all(step["compute_ns"] > 0 and step["comm_ns"] == 0 for step in rank["steps"])
    assert report["coverage"]["linked_device_events"] >= 0.99 * report["coverage"]["device_events"]
    assert report["input"]["devices"] == [run[1]["device"]]


def test_collectives_of_a_cuda_graph_are_noted(run: tuple[Path, dict[str, Any]]) -> None:
    (graph,) = manifest(run, "graph").cuda_graphs

    assert [(c.op, c.group_size, c.dtype, c.size_bytes) for c in graph.calls] == [
        ("all_reduce", 1, "float32", 4 * 512**2)
    ]
    replayed = [e for e in device_events(run[0] / "graph") if e["args"].get("graph node id")]
    assert len(replayed) >= 3
