"""The files: strict JSON, Kineto's categories and links, nesting that Perfetto accepts, the same bytes each time."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from commprof.errors import InputRefused, UsageError
from commprof.synth import PRESETS, preset, read_scenario, write_run
from commprof.synth.eras import rank_list
from commprof.synth.scenario import scenario_from_json
from tests.synth.by_hand import round_job

SMALL = round_job(4_816_000_000, layers=2)


def load(path: Path):
    def refuse(value: str):
        raise AssertionError(f"{value} in JSON")

    return json.loads(gzip.decompress(path.read_bytes()), parse_constant=refuse)


def complete(trace, *categories: str):
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]


def test_every_kernel_has_its_launch_and_its_operator(tmp_path: Path) -> None:
    written = write_run(preset("tp-pp-dp"), tmp_path / "run", seed=1, causes=False)

    trace = load(written.traces[3])

    launches = {e["args"]["correlation"]: e for e in complete(trace, "cuda_runtime")}
    operators = {e["args"]["External id"]: e for e in complete(trace, "cpu_op")}
    kernels = complete(trace, "kernel", "gpu_memcpy")
    assert len(kernels) > 100
    for kernel in kernels:
        launch, operator = launches[kernel["args"]["correlation"]], operators[kernel["args"]["External id"]]
        assert launch["ts"] < kernel["ts"]
        assert operator["ts"] <= launch["ts"]
        assert launch["ts"] + launch["dur"] <= operator["ts"] + operator["dur"] + 1e-3
        assert (operator["name"] == "record_param_comms") == ("nccl" in kernel["name"])
    assert trace["distributedInfo"]["rank"] == 3
    assert len({e["args"]["External id"] for e in complete(trace, "cpu_op", "user_annotation")}) == len(
        complete(trace, "cpu_op", "user_annotation")
    )


def test_events_of_a_thread_nest_and_kernels_of_a_stream_do_not_overlap(tmp_path: Path) -> None:
    written = write_run(preset("fsdp"), tmp_path / "run", seed=2, causes=False)

    trace = load(written.traces[0])

    rows: dict[tuple[object, object], list[tuple[int, int]]] = {}
    for event in complete(trace, "cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy"):
        start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
        rows.setdefault((event["pid"], event["tid"]), []).append((start, start + length))
    for spans in rows.values():
        stack: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            # ts near 4e12 µs is a double with steps of about 0.5 ns.
            assert not stack or end <= stack[-1] + 2
            stack.append(end)


def test_metadata_of_a_bucket(tmp_path: Path) -> None:
    written = write_run(SMALL, tmp_path / "run")

    kernel = next(e for e in complete(load(written.traces[1]), "kernel") if "nccl" in e["name"])

    assert kernel["name"].startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL(")
    args = kernel["args"]
    assert args["Collective name"] == "allreduce"
    assert (args["In msg nelems"], args["dtype"], args["Group size"]) == (120_400, "Float", 2)
    assert (args["Process Group Ranks"], args["Process Group Description"], args["Seq"]) == ("[0, 1]", "mesh_dp", 1)


def test_messages_name_both_ends_as_global_ranks(tmp_path: Path) -> None:
    written = write_run(replace(preset("pp"), tp=2), tmp_path / "run", causes=False)

    operators = [e for e in complete(load(written.traces[2]), "cpu_op") if e["name"] == "record_param_comms"]
    sends = [e["args"] for e in operators if e["args"]["Collective name"] == "send"]

    # Rank 2 is stage 1 of 4 with tp 2: its pipeline group is 0, 2, 4, 6.
    assert {s["Process Group Ranks"] for s in sends} == {"[0, 2, 4, 6]"}
    assert {(s["Dst Rank"], s["Rank"]) for s in sends} == {(0, 0), (4, 2)}


@pytest.mark.parametrize("era", ["2.13", "2.4", "2.1"])
def test_eras_differ_in_what_they_tell(tmp_path: Path, era: str) -> None:
    written = write_run(replace(SMALL, era=era), tmp_path / "run")

    trace = load(written.traces[0])
    comm = next(e for e in complete(trace, "kernel") if "nccl" in e["name"])

    assert ("Seq" in comm["args"]) == (era == "2.13")
    assert ("Collective name" in comm["args"]) == (era != "2.1")
    assert ("baseTimeNanoseconds" in trace) == (era != "2.1")
    assert isinstance(comm["ts"], int) == (era == "2.1")


def test_an_operator_shows_its_output_before_its_input(tmp_path: Path) -> None:
    # As c10d::_allgather_base_(output, input) does; the annotation around the launch shows what the rank gives.
    written = write_run(replace(preset("fsdp"), era="2.1"), tmp_path / "run", seed=2, causes=False)

    trace = load(written.traces[0])

    for name, around in (("_allgather_base_", "_all_gather_base"), ("_reduce_scatter_base_", "_reduce_scatter_base")):
        shown = [e["args"]["Input Dims"] for e in complete(trace, "cpu_op") if e["name"] == f"c10d::{name}"]
        given = [e["args"]["Input Dims"] for e in complete(trace, "user_annotation") if e["name"] == f"nccl:{around}"]
        ranks = len(written.traces)
        assert shown
        for (output, own), (only,) in zip(shown, given, strict=True):
            assert own == only
            larger, smaller = (output, own) if "gather" in name else (own, output)
            assert larger == [ranks * smaller[0]]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    scenario = preset("ep")

    one = write_run(scenario, tmp_path / "one", seed=5)
    two = write_run(scenario, tmp_path / "two", seed=5, jobs=2)
    other = write_run(scenario, tmp_path / "other", seed=6)

    def contents(run):
        return [p.read_bytes() for p in run.traces]

    assert contents(one) == contents(two)
    assert one.truth.read_text() == two.truth.read_text()
    assert contents(one) != contents(other)


def test_truth_adds_up(tmp_path: Path) -> None:
    written = write_run(preset("hsdp"), tmp_path / "run", seed=1, causes=False)

    truth = json.loads(written.truth.read_text())

    assert truth["strategy"]["parts"] == ["hsdp"]
    assert Counter(g["role"] for g in truth["groups"] if g["used"]) == {"shard": 2, "replicate": 2}
    for rank in truth["ranks"]:
        for step in [rank["whole"], *rank["steps"]]:
            parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
            assert sum(step[p] for p in parts) == step["duration_ns"]
        assert sum(rank["calls"]["exposed_ns"]) == rank["whole"]["exposed_comm_ns"]
        assert len({len(column) for column in rank["calls"].values()}) == 1
    # FSDP gathers 2 x and scatters 1 x half of the parameters in bf16, the replicas all-reduce the other half:
    # 8 layers of 12 h^2 + 4 h at h = 2048 are 402,718,720 parameters.
    sent = truth["strategy"]["bytes_per_step"]
    assert sent == {"shard": 3 * 402_718_720 * 2 / 2, "replicate": 402_718_720 * 2 / 2}


def test_truth_of_a_fault_says_what_it_cost(tmp_path: Path) -> None:
    # Rank 1 pauses 8 ms in every step, and nobody else has anything to do meanwhile.
    written = write_run(preset("host-pause"), tmp_path / "run", seed=1)

    truth = json.loads(written.truth.read_text())

    (fault,) = truth["faults"]
    assert (fault["findings"][0], fault["straggler"]["rank"], fault["straggler"]["cause"]) == ("straggler", 1, "host")
    cost = truth["step_ns"] - truth["step_ns_without"]["host-pause"]
    assert 7_000_000 < cost < 8_500_000


def test_long_lists_are_shortened_as_the_profiler_does() -> None:
    # 29 values, dots, and the last one.
    assert rank_list(range(3)) == "[0, 1, 2]"
    assert rank_list(range(40)) == "[" + ", ".join(map(str, range(29))) + ", ..., 39]"


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "mine.txt").write_text("x")

    with pytest.raises(InputRefused, match="not empty"):
        write_run(SMALL, folder)

    assert [p.name for p in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", sorted(set(PRESETS)))
def test_scenarios_go_to_json_and_back(name: str) -> None:
    scenario = preset(name)

    again = scenario_from_json(json.loads(json.dumps(scenario.to_json())))

    assert again == scenario


def test_scenario_files_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "s.json"

    for text, error in (("{", InputRefused), ("[]", InputRefused), ('{"layerz": 1}', UsageError)):
        path.write_text(text)
        with pytest.raises(error):
            read_scenario(path)
