"""From a scenario to the program of each pipeline stage: schedule x layers x tensor parallel x data parallel."""

from __future__ import annotations

from commprof.synth.dataparallel import EDP_STREAM, Block, Bucketed, DataParallel, FullShard
from commprof.synth.program import COMPUTE_STREAM, Builder, Comm, Program
from commprof.synth.scenario import Scenario
from commprof.synth.schedule import Action, schedule
from commprof.synth.transformer import Kernel, Layer

TP_STREAM, EP_STREAM = 20, 32
_SEND_F, _RECV_F, _SEND_B, _RECV_B = 36, 37, 38, 39
_TOKENS_PER_EXPERT_CHOICE = 2  # experts per token
MAIN_THREAD, AUTOGRAD_THREAD = 0, 1


def build_programs(scenario: Scenario) -> list[Program]:
    """One program per pipeline stage, in order of stages."""
    return [StageBuilder(scenario, stage).build() for stage in range(scenario.pp)]


class StageBuilder:
    """Writes the program of one pipeline stage."""

    def __init__(self, scenario: Scenario, stage: int) -> None:
        self.scenario, self.stage = scenario, stage
        self.builder = Builder(scenario.steps)
        self.layer = Layer(scenario)
        self.chunks = [self._layers_of(chunk) for chunk in range(scenario.chunks)]
        blocks = [(n, block) for layers in self.chunks for n in layers for block in self.layer.blocks]
        experts = [block for block in blocks if self._is_expert(block)]
        dense = [block for block in blocks if not self._is_expert(block)]
        self.data_parallel: list[DataParallel] = [self._strategy(dense)]
        if experts:
            self.data_parallel.append(
                Bucketed(scenario, self.builder, self.layer, experts, axis="outer", stream=EDP_STREAM)
            )
        self._alone = scenario.inner * scenario.outer == 1

    def build(self) -> Program:
        """The whole run of this stage."""
        scenario, builder = self.scenario, self.builder
        builder.host("", 0, slot="start")
        for k in range(scenario.steps):
            builder.step = k
            builder.begin(f"ProfilerStep#{scenario.first_step + k}")
            self._step()
            builder.end()
        builder.step = -1
        builder.sync("cudaDeviceSynchronize")
        return builder.program

    def _step(self) -> None:
        scenario, builder = self.scenario, self.builder
        builder.host(
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            scenario.loader_ns,
            slot="loader",
            op="user_annotation",
        )
        nbytes = scenario.batch * scenario.sequence * 8
        builder.copy("Memcpy HtoD (Pinned -> Device)", "aten::copy_", 2_000 + nbytes // 25, nbytes)
        builder.host("", 0, slot="pause")
        actions = schedule(scenario.schedule, self.stage, scenario.pp, scenario.microbatches, scenario.chunks)
        for action in actions:
            if action.forward:
                self._forward(action)
            else:
                self._backward(action)
        builder.thread = MAIN_THREAD
        torch_zero = scenario.strategy == "zero1-torch"
        builder.begin(f"Optimizer.step#{'ZeroRedundancyOptimizer' if torch_zero else 'AdamW'}.step")
        for part in self.data_parallel:
            part.optimizer()
        for part in self.data_parallel:
            part.after_optimizer()
        builder.end()
        builder.begin("Optimizer.zero_grad#AdamW.zero_grad")
        builder.end()
        if scenario.sync_each_step:
            builder.copy("Memcpy DtoH (Device -> Pageable)", "aten::_local_scalar_dense", 2_000, 4)
            builder.sync("cudaStreamSynchronize", [COMPUTE_STREAM])

    # passes

    def _forward(self, action: Action) -> None:
        builder = self.builder
        builder.thread = MAIN_THREAD
        ddp = self.scenario.strategy in ("ddp", "zero1-torch") and not self._alone
        marked = self._mark("Forward", action)
        self._receive(action)
        if ddp:
            builder.begin("DistributedDataParallel.forward")
        for n in self.chunks[action.chunk]:
            for part in self.data_parallel:
                part.forward_begin(n)
            for block in self.layer.blocks:
                self._block_forward(n, block, action)
        if ddp:
            builder.end()
        self._send(action)
        if marked:
            builder.end()

    def _mark(self, what: str, action: Action) -> bool:
        """PyTorch's GPipe schedule marks its passes, its 1F1B schedules do not."""
        marked = self.scenario.pp > 1 and self.scenario.schedule == "gpipe"
        if marked:
            self.builder.begin(f"{what} {action.microbatch}")
        return marked

    def _backward(self, action: Action) -> None:
        builder = self.builder
        builder.thread = AUTOGRAD_THREAD
        last = action.microbatch == self.scenario.microbatches - 1
        marked = self._mark("Backward", action)
        self._receive(action)
        for n in reversed(self.chunks[action.chunk]):
            for part in self.data_parallel:
                part.backward_begin(n)
            for block in reversed(self.layer.blocks):
                builder.begin("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op")
                self._block_backward(n, block, action)
                builder.end()
                for part in self.data_parallel:
                    part.gradients_ready((n, block), last=last)
        self._send(action)
        if marked:
            builder.end()
        if action.chunk == 0:
            for part in self.data_parallel:
                part.backward_end(last=last)
        builder.thread = MAIN_THREAD

    def _block_forward(self, n: int, block: str, action: Action) -> None:
        scenario = self.scenario
        kernels = self.layer.forward(block, self._extra())
        if self._is_expert((n, block)):
            key = self._traffic_key(n, action)
            self._all_to_all(key, "forward", n)
            self._kernels(kernels, load=key)
            self._all_to_all(key, "forward", n, transposed=True)
            return
        if scenario.sequence_parallel:
            self._tensor_parallel("all_gather", "forward", n)
        self._kernels(kernels)
        self._tensor_parallel("reduce_scatter" if scenario.sequence_parallel else "all_reduce", "forward", n)

    def _block_backward(self, n: int, block: str, action: Action) -> None:
        scenario = self.scenario
        before, weight = self.layer.backward(block, self._extra())
        if self._is_expert((n, block)):
            key = self._traffic_key(n, action)
            self._all_to_all(key, "backward", n)
            self._kernels(before + weight, load=key)
            self._all_to_all(key, "backward", n, transposed=True)
            return
        if scenario.sequence_parallel:
            # The gradient comes in scattered, and the input is gathered again for the weight product.
            self._tensor_parallel("all_gather", "backward", n)
            self._tensor_parallel("all_gather", "backward", n)
        self._kernels(before)
        closing = "reduce_scatter" if scenario.sequence_parallel else "all_reduce"
        if scenario.async_tp and scenario.tp > 1:
            self._tensor_parallel(closing, "backward", n, beside=weight)
        else:
            self._tensor_parallel(closing, "backward", n)
            self._kernels(weight)

    # communication

    def _tensor_parallel(self, op: str, phase: str, n: int, *, beside: list[Kernel] | None = None) -> None:
        scenario, builder = self.scenario, self.builder
        if scenario.tp == 1:
            return
        full = self.layer.activation
        share = full // scenario.tp
        sizes = {"all_reduce": (full, full), "all_gather": (share, full), "reduce_scatter": (full, share)}[op]
        comm = Comm(op, "tp", *sizes, "BFloat16", phase=phase, layer=n)
        # From PyTorch 2.8 on a blocking collective runs on the caller's own stream.
        own_stream = beside is not None or scenario.era != "2.13"
        stream = TP_STREAM if own_stream else COMPUTE_STREAM
        builder.wait(stream, COMPUTE_STREAM)
        builder.communicate(comm, stream=stream, asynchronous=beside is not None)
        if beside:
            self._kernels(beside)
        builder.wait(COMPUTE_STREAM, stream)

    def _all_to_all(self, key: tuple[int, ...], phase: str, n: int, *, transposed: bool = False) -> None:
        if self.scenario.inner == 1:
            return
        builder = self.builder
        total = self.layer.activation * _TOKENS_PER_EXPERT_CHOICE
        comm = Comm(
            "all_to_all", "inner", total, total, "BFloat16", phase=phase, layer=n,
            traffic=key if self.scenario.imbalance_permille else None, transposed=transposed,
        )  # fmt: skip
        builder.wait(EP_STREAM, COMPUTE_STREAM)
        builder.communicate(comm, stream=EP_STREAM)
        builder.wait(COMPUTE_STREAM, EP_STREAM)

    def _neighbour(self, action: Action, *, coming: bool) -> int | None:
        """The stage that this action's input comes from or its output goes to, ``None`` at the ends of the model."""
        scenario = self.scenario
        virtual = action.chunk * scenario.pp + self.stage
        other = virtual - 1 if action.forward == coming else virtual + 1
        if scenario.pp == 1 or not 0 <= other < scenario.pp * scenario.chunks:
            return None
        return other % scenario.pp

    def _receive(self, action: Action) -> None:
        peer = self._neighbour(action, coming=True)
        if peer is not None:
            stream = _RECV_F if action.forward else _RECV_B
            if not self.scenario.early_receives:
                self.builder.wait(stream, COMPUTE_STREAM)
            self._point_to_point("recv", peer, stream, action)
            self.builder.wait(COMPUTE_STREAM, stream)

    def _send(self, action: Action) -> None:
        peer = self._neighbour(action, coming=False)
        if peer is not None:
            stream = _SEND_F if action.forward else _SEND_B
            self.builder.wait(stream, COMPUTE_STREAM)
            self._point_to_point("send", peer, stream, action)

    def _point_to_point(self, op: str, peer: int, stream: int, action: Action) -> None:
        elements = self.layer.activation // (self.scenario.tp if self.scenario.sequence_parallel else 1)
        phase = "forward" if action.forward else "backward"
        virtual = action.chunk * self.scenario.pp + self.stage
        boundary = virtual if (op == "send") == action.forward else virtual - 1
        comm = Comm(
            op, "pp", elements, elements, "BFloat16", phase=phase, peer=peer, layer=boundary,
            microbatch=action.microbatch,
        )  # fmt: skip
        self.builder.communicate(comm, stream=stream)

    # pieces

    def _kernels(self, kernels: list[Kernel], *, load: tuple[int, ...] | None = None) -> None:
        for kernel in kernels:
            unequal = load if self.scenario.imbalance_permille else None
            self.builder.compute(kernel.name, kernel.op, kernel.work_ns, load=unequal)

    def _layers_of(self, chunk: int) -> list[int]:
        scenario = self.scenario
        size = scenario.layers // (scenario.pp * scenario.chunks)
        first = (chunk * scenario.pp + self.stage) * size
        return list(range(first, first + size))

    def _extra(self) -> int:
        last = self.stage == self.scenario.pp - 1
        return self.scenario.last_stage_extra_permille if last else 0

    def _is_expert(self, block: Block) -> bool:
        """Every second layer is a mixture of experts."""
        return self.scenario.experts and block[1] == "mlp" and block[0] % 2 == 1

    def _traffic_key(self, n: int, action: Action) -> tuple[int, ...]:
        return (self.builder.step, n, action.microbatch)

    def _strategy(self, blocks: list[Block]) -> DataParallel:
        scenario, builder, layer = self.scenario, self.builder, self.layer
        if scenario.strategy in ("fsdp", "hsdp", "zero3"):
            return FullShard(scenario, builder, layer, blocks)
        if scenario.strategy == "none":
            return DataParallel(scenario, builder, layer, blocks)
        return Bucketed(scenario, builder, layer, blocks)
