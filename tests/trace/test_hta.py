"""What HTA gets from us is what it would have read itself, and one line says when it is not there."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import commprof
from commprof.errors import InputRefused
from tests.builders.command import call, strict_json
from tests.builders.kineto import Trace

needs_hta = pytest.mark.skipif(find_spec("hta") is None, reason="HTA (traceinsight) is not installed")


def two_ranks(folder: Path) -> Path:
    """Two ranks, two steps of 1000 µs: compute 600, communication 400 of which 100 (rank 0) or 200 (rank 1) hidden."""
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for number in (1, 2):
            t = 1000 * (number - 1)
            trace.step(number, t, t + 1000)
            trace.gemm(t + 10, t + 610, launch=t + 2)
            trace.all_reduce(t + 510 - 100 * rank, t + 910 - 100 * rank, launch=t + 5)
        trace.write(folder / f"rank{rank}.json")
    return folder


def test_without_hta_one_line_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether it is installed or not, here it is not.
    for name in [name for name in sys.modules if name == "hta" or name.startswith("hta.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hta", None)
    trace = commprof.load(two_ranks(tmp_path))

    with pytest.raises(InputRefused, match="traceinsight is not installed"):
        trace.to_hta()
    code, _, errors = call("analyze", tmp_path, "--no-html", "--hta")
    assert code == 2
    assert len(errors.splitlines()) == 1


@needs_hta
@pytest.mark.filterwarnings("ignore")
def test_overlap_by_hta_of_our_columns(tmp_path: Path) -> None:
    theirs = commprof.load(two_ranks(tmp_path)).to_hta()

    table = theirs.get_comm_comp_overlap(visualize=False)

    assert dict(zip(table["rank"], table["comp_comm_overlap_pctg"], strict=True)) == {0: 25.0, 1: 50.0}


@needs_hta
@pytest.mark.filterwarnings("ignore")
def test_links_and_iterations_are_as_hta_makes_them(tmp_path: Path) -> None:
    theirs = commprof.load(two_ranks(tmp_path)).to_hta()

    frame = theirs.t.get_trace(0)
    names = theirs.t.symbol_table.get_sym_table()
    kernels = frame[frame["stream"] >= 0]
    launches = frame.loc[kernels["index_correlation"]]
    assert len(kernels) == 4
    assert {names[code] for code in launches["name"]} == {"cudaLaunchKernel"}
    assert list(launches["correlation"]) == list(kernels["correlation"])
    assert list(launches["index_correlation"]) == list(kernels["index"])
    assert list(kernels["iteration"]) == [1, 1, 2, 2]
    assert float(kernels["ts"].min()) == 10.0


@needs_hta
@pytest.mark.filterwarnings("ignore")
def test_a_critical_path_by_hta_of_our_columns(tmp_path: Path) -> None:
    # In whole microseconds, so that HTA's own parser floors nothing.
    from hta.trace_analysis import TraceAnalysis

    folder = two_ranks(tmp_path)
    own = TraceAnalysis(
        trace_files={rank: str(folder / f"rank{rank}.json") for rank in (0, 1)}, include_last_profiler_step=True
    )
    expected, _ = own.critical_path_analysis(0, "ProfilerStep", 1)

    graph, found = commprof.load(folder).to_hta().critical_path_analysis(0, "ProfilerStep", 1)

    assert found
    assert dict(graph.summary()) == dict(expected.summary())
    assert set(graph.summary().index) >= {"cpu_bound", "gpu_communication_bound"}


@needs_hta
@pytest.mark.filterwarnings("ignore")
def test_the_appendix_is_labelled_and_strict(tmp_path: Path) -> None:
    out, page = tmp_path / "report.json", tmp_path / "report.html"

    code, _, errors = call("analyze", two_ranks(tmp_path / "run"), "-o", page, "--json", out, "--hta")

    appendix: dict[str, Any] = strict_json(out.read_bytes())["hta"]
    assert code == 0, errors
    assert appendix["source"] == "HTA"
    assert [row["comp_comm_overlap_pctg"] for row in appendix["overlap"]] == [25.0, 50.0]
    assert appendix["critical_path"] is None
    assert "Appendix: what HTA says" in page.read_text()


@needs_hta
@pytest.mark.traces
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["ddp-resnet50-a100", "ddp-resnet-mi300x", "dlrm-8rank-v100", "sampled-2of128", "tiny-allreduce-v100"]
)
def test_overlap_of_real_traces_equals_ours_to_two_decimals(name: str, public_traces: Path) -> None:
    theirs = commprof.load(public_traces / name).to_hta().get_comm_comp_overlap(visualize=False)

    ours = {
        rank.rank: round(100 * rank.devices[0].whole.overlap / rank.devices[0].whole.comm, 2)
        for rank in commprof.analyze(public_traces / name, jobs=1).ranks
    }
    assert dict(zip(theirs["rank"], theirs["comp_comm_overlap_pctg"], strict=True)) == ours
