"""What the manifest says about the model: sizes, FSDP units, meshes, placements, stages; on a fake group of 8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH = 16
LINEAR = WIDTH * WIDTH + WIDTH  # elements of one Linear(16, 16)


class Net(nn.Module):
    """Three layers of 272 elements, a running mean of 16, and a scale that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(WIDTH, dtype=torch.float64), requires_grad=False)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


def counted(model: Any) -> Any:
    from commprof.capture.parameters import count_parameters

    return count_parameters([("", model)])


def mesh(*shape: int, names: tuple[str, ...]) -> Any:
    return dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)


def test_elements_bytes_and_dtypes() -> None:
    model = Net()
    model.layers[2].weight = model.layers[0].weight  # shared: counts once

    found = counted(model)

    trained = 2 * LINEAR + WIDTH
    assert (found.count, found.bytes) == (trained + WIDTH, 4 * trained + 8 * WIDTH)
    assert found.by_dtype == {"float32": trained, "float64": WIDTH}
    assert (found.trainable_count, found.trainable_bytes) == (trained, 4 * trained)
    assert (found.local_count, found.local_bytes) == (found.count, found.bytes)
    assert (found.buffer_count, found.buffer_bytes) == (WIDTH, 4 * WIDTH)


def test_fsdp2_counts_the_whole_and_what_the_rank_holds() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from commprof.capture.fsdp_units import describe_fsdp

    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    plane = mesh(2, 4, names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (model[0], model[1]):
        fully_shard(layer, mesh=plane, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=plane, mp_policy=policy)

    found, units = counted(model), describe_fsdp([("", model)])

    assert (found.count, found.local_count) == (3 * LINEAR, 3 * LINEAR // 4)
    assert sorted(unit.module for unit in units) == ["", "0", "1"]  # the root holds what is left: layer 2
    assert {(unit.count, unit.bytes, unit.gradient_bytes) for unit in units} == {(LINEAR, 2 * LINEAR, 4 * LINEAR)}
    assert {(unit.dtype, unit.reduce_dtype) for unit in units} == {("bfloat16", "float32")}
    assert {(unit.shard_size, unit.replicate_size) for unit in units} == {(4, 2)}
    assert {unit.module: unit.reshard_after_forward for unit in units}["0"] is False


def test_fsdp1_counts_the_whole_and_what_the_rank_holds() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    from commprof.capture.fsdp_units import describe_fsdp

    for use_orig_params in (False, True):
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        cpu = torch.device("cpu")
        inner = FullyShardedDataParallel(layers[0], device_id=cpu, use_orig_params=use_orig_params)
        model = FullyShardedDataParallel(
            nn.Sequential(inner, *layers[1:]), device_id=cpu, use_orig_params=use_orig_params
        )

        found, units = counted(model), describe_fsdp([("", model)])

        assert (found.count, found.local_count) == (3 * LINEAR, 3 * LINEAR // 8)
        assert [(u.kind, u.count, u.bytes, u.shard_size) for u in units] == [
            ("fsdp1", 2 * LINEAR, 8 * LINEAR, 8),
            ("fsdp1", LINEAR, 4 * LINEAR, 8),
        ]
        assert all(unit.reshard_after_forward for unit in units)


def test_mesh_and_plan_of_tensor_parallel_under_fsdp() -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    from commprof.capture.fsdp_units import describe_fsdp
    from commprof.capture.inventory import take_inventory
    from commprof.capture.layout import describe_meshes, describe_placements

    plane = mesh(4, 2, names=("dp", "tp"))
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16)) for _ in "ab"])
    for layer in model:
        parallelize_module(layer, plane["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=plane["dp"])

    (found,) = (m for m in describe_meshes(take_inventory(model).meshes) if m.names == ("dp", "tp"))
    plan = describe_placements([("", model)])

    assert (found.shape, found.ranks) == ((4, 2), tuple(range(8)))
    assert all(found.groups)
    weights = {row.placements[1]: row.parameters for row in plan if row.pattern == "*.*.weight"}
    assert weights == {"Shard(dim=0)": 2, "Shard(dim=1)": 2}
    assert sum(row.parameters for row in plan) == 8
    assert {row.mesh for row in plan} == {("dp", "tp")}
    (unit,) = describe_fsdp([("", model)])
    # Per layer on this rank: weights 32 x 16 / 2 twice, bias 32 / 2, and the second bias whole.
    assert unit.count == 2 * (256 + 256 + 16 + 16)
    assert counted(model).count == 2 * (2 * 512 + 32 + 16)


def test_pipeline_stages_and_schedule() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    from commprof.capture.inventory import take_inventory
    from commprof.capture.layout import describe_pipeline

    stage = PipelineStage(nn.Linear(WIDTH, WIDTH), 0, 8, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=5)

    found = take_inventory(None)
    pipeline = describe_pipeline(found.stages, found.schedules)

    assert pipeline is not None
    assert [(s.index, s.stages, s.count) for s in pipeline.stages] == [(0, 8, LINEAR)]
    assert (pipeline.schedule, pipeline.microbatches) == ("ScheduleGPipe", 5)
    assert schedule is not None


def test_without_a_model_the_one_that_an_optimizer_trains_is_found() -> None:
    from commprof.capture.inventory import take_inventory
    from commprof.capture.layout import describe_optimizers

    bystander, model = nn.Linear(2, 2), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    found = take_inventory(None)

    roots = [id(module) for _, module in found.modules]
    assert id(model) in roots
    assert id(model[0]) not in roots
    assert id(bystander) not in roots
    assert [(o.name, o.count) for o in describe_optimizers([optimizer])] == [("SGD", 16)]


def test_several_models_keep_the_names_that_the_user_gave() -> None:
    from commprof.capture.inventory import take_inventory

    critic, painter = nn.Linear(2, 2), nn.Linear(3, 3)

    assert [name for name, _ in take_inventory({"critic": critic, "painter": painter}).modules] == ["critic", "painter"]
    assert [name for name, _ in take_inventory([critic, painter]).modules] == ["0", "1"]
