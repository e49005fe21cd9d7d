"""Data parallelism as hooks around the passes of a stage: DDP and ZeRO-1/2 buckets, FSDP2, HSDP and ZeRO-3.

Rules that decide what is on the timeline, as in PyTorch 2.13 (``torch/nn/parallel/distributed.py``,
``torch/distributed/fsdp/_fully_shard``): a bucket closes when it reaches its cap and so overshoots it, buckets are
reduced strictly in index order, FSDP2 gathers on its own stream, each gather waits for the copy-out of the one
before, and one reduce-scatter at a time is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from commprof.synth.program import COMPUTE_STREAM, DTYPE_BYTES, Builder, Comm
from commprof.synth.scenario import Scenario
from commprof.synth.transformer import ADAM, Layer

DP_STREAM, EDP_STREAM = 24, 28
GATHER_STREAM, SCATTER_STREAM, REPLICATE_STREAM = 44, 48, 52
_COPY_OUT = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**)"
_CHUNK_CAT = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(float**)"

Block = tuple[int, str]


def padded(elements: int, parts: int) -> int:
    """``elements`` rounded up to a multiple of ``parts``."""
    return -(-elements // parts) * parts


class DataParallel:
    """Nothing to synchronise; the base of the strategies. Layers are numbered over the whole model."""

    def __init__(self, scenario: Scenario, builder: Builder, layer: Layer, blocks: list[Block]) -> None:
        self.scenario, self.builder, self.layer, self.blocks = scenario, builder, layer, blocks
        self.elements = {block: sum(layer.tensors(block[1])) for block in blocks}

    def forward_begin(self, layer: int) -> None:
        """Before the first kernel of a layer's forward pass."""

    def backward_begin(self, layer: int) -> None:
        """Before the first kernel of a layer's backward pass."""

    def gradients_ready(self, block: Block, *, last: bool) -> None:
        """After the kernels that finish the gradients of ``block``; ``last``: in the last microbatch."""

    def backward_end(self, *, last: bool) -> None:
        """After a microbatch's backward pass of the whole stage."""

    def optimizer(self) -> None:
        """The optimizer's kernel over what this rank updates."""
        elements = max(1, sum(self.elements.values()) // self.shards())
        self.builder.compute(ADAM, "aten::_fused_adamw_", self.layer.optimizer_ns(elements))

    def after_optimizer(self) -> None:
        """After the optimizer's kernels."""

    def shards(self) -> int:
        """Over how many ranks optimizer state is split."""
        return 1


@dataclass(slots=True)
class Bucket:
    """A DDP bucket: its elements, and the tensors of each block that it still misses."""

    index: int
    elements: int = 0
    missing: dict[Block, int] = field(default_factory=dict)
    filled: dict[Block, int] = field(default_factory=dict)


def assign_buckets(
    tensors: list[tuple[Block, int]], first_bytes: int, cap_bytes: int, bytes_per_element: int
) -> list[Bucket]:
    """Put tensors, in the given order, into buckets; a bucket closes when it holds at least its cap."""
    buckets = [Bucket(0)]
    for block, elements in tensors:
        limit = first_bytes if len(buckets) == 1 else cap_bytes
        if buckets[-1].elements * bytes_per_element >= limit:
            buckets.append(Bucket(len(buckets)))
        bucket = buckets[-1]
        bucket.elements += elements
        bucket.missing[block] = bucket.missing.get(block, 0) + 1
    return buckets


class Bucketed(DataParallel):
    """DDP, ZeRO-1 and ZeRO-2: gradients are reduced in buckets beside the backward pass."""

    def __init__(
        self,
        scenario: Scenario,
        builder: Builder,
        layer: Layer,
        blocks: list[Block],
        *,
        axis: str = "dp",
        stream: int = DP_STREAM,
    ) -> None:
        super().__init__(scenario, builder, layer, blocks)
        self.axis, self.stream = axis, stream
        degree = {"dp": scenario.inner * scenario.outer, "outer": scenario.outer}[axis]
        self.degree = degree
        self.sharded = scenario.strategy in ("zero1", "zero2")
        self.dtype = "Float"
        self.buckets = self._assign()
        self._next = 0

    def _assign(self) -> list[Bucket]:
        """Buckets in the order in which they are reduced.

        Normally they are rebuilt in the order in which gradients became ready. With ``find_unused`` they keep the
        first layout: filled in the order of the parameters, then reversed, so that the small one comes last.
        """
        scenario = self.scenario
        order = [(block, n) for block in self.blocks for n in self.layer.tensors(block[1])]
        if scenario.bucket_order == "backward" and not scenario.find_unused:
            order.reverse()
        found = assign_buckets(order, scenario.first_bucket, scenario.bucket_cap, DTYPE_BYTES[self.dtype])
        if scenario.find_unused and scenario.bucket_order == "backward":
            found.reverse()
        for index, bucket in enumerate(found):
            bucket.index = index
        return found

    def _syncs(self, last: bool) -> bool:
        """Whether this microbatch's gradients are reduced: always in ZeRO-2, else in the last one (``no_sync``)."""
        if self.degree == 1 or not self.blocks:
            return False
        every = self.scenario.strategy == "zero2" or not self.scenario.accumulate
        return last or (every and self.scenario.pp == 1)

    def gradients_ready(self, block: Block, *, last: bool) -> None:
        if block not in self.elements or not self._syncs(last):
            return
        for bucket in self.buckets:
            if block in bucket.missing:
                bucket.filled[block] = bucket.missing.pop(block)
        if self.scenario.overlap:
            self._launch_ready()

    def _launch_ready(self) -> None:
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self._reduce(self.buckets[self._next])
            self._next += 1

    def _reduce(self, bucket: Bucket) -> None:
        op = "reduce_scatter" if self.sharded else "all_reduce"
        full = padded(bucket.elements, self.degree) if self.sharded else bucket.elements
        out = full // self.degree if self.sharded else full
        comm = Comm(op, self.axis, full, out, self.dtype, bucket=bucket.index)
        self.builder.wait(self.stream, COMPUTE_STREAM)
        self.builder.communicate(comm, stream=self.stream)
        if self.scenario.block_after_comm:
            self.builder.sync("cudaStreamSynchronize", [self.stream])

    def backward_end(self, *, last: bool) -> None:
        if not self._syncs(last):
            return
        self._launch_ready()
        self._next = 0
        for bucket in self.buckets:
            bucket.missing, bucket.filled = bucket.filled, {}
        if self.scenario.find_unused and self.axis == "dp":
            used = sum(len(self.layer.tensors(block[1])) for block in self.blocks)
            self.builder.wait(self.stream, COMPUTE_STREAM)
            self.builder.communicate(Comm("all_reduce", self.axis, used, used, "Int"), stream=self.stream)
        self.builder.wait(COMPUTE_STREAM, self.stream)

    def shards(self) -> int:
        return self.degree if self.scenario.strategy.startswith("zero") else 1

    def after_optimizer(self) -> None:
        builder = self.builder
        if self.degree == 1 or not self.scenario.strategy.startswith("zero"):
            return
        builder.wait(self.stream, COMPUTE_STREAM)
        if self.sharded:
            for bucket in self.buckets:
                full = padded(bucket.elements, self.degree)
                comm = Comm("all_gather", self.axis, full // self.degree, full, "BFloat16", phase="optimizer")
                builder.communicate(comm, stream=self.stream)
        else:
            share = -(-sum(self.elements.values()) // self.degree)
            for root in range(self.degree):
                comm = Comm("broadcast", self.axis, share, share, self.dtype, phase="optimizer", root=root)
                builder.communicate(comm, stream=self.stream)
        builder.wait(COMPUTE_STREAM, self.stream)


class FullShard(DataParallel):
    """FSDP2, HSDP and ZeRO-3: parameters are gathered layer by layer, gradients reduce-scattered."""

    def __init__(self, scenario: Scenario, builder: Builder, layer: Layer, blocks: list[Block]) -> None:
        super().__init__(scenario, builder, layer, blocks)
        self.hybrid = scenario.strategy == "hsdp"
        self.torch = scenario.strategy != "zero3"
        self.axis = "inner" if self.hybrid else "dp"
        self.degree = scenario.inner
        self.order = sorted({layer for layer, _ in blocks})
        self.unit = padded(layer.parameters(), self.degree)
        self.gather_stream = GATHER_STREAM if self.torch else DP_STREAM
        self.scatter_stream = SCATTER_STREAM if self.torch else DP_STREAM
        self._gathered: dict[int, int] = {}
        self._copied_out: int | None = None
        self._scattered: int | None = None

    def forward_begin(self, layer: int) -> None:
        self._range("pre_forward", layer)
        self._gather(layer, "forward")
        following = layer + 1
        ahead = self.scenario.prefetch == "explicit" or (self.scenario.prefetch == "implicit" and not self.torch)
        if ahead and following in self.order:
            self._prefetch(following, "forward")
        self._unshard(layer)
        self._end()

    def backward_begin(self, layer: int) -> None:
        self._range("pre_backward", layer)
        self._gather(layer, "backward")
        following = layer - 1
        if self.scenario.prefetch != "none" and following in self.order:
            self._prefetch(following, "backward")
        self._unshard(layer)
        self._end()

    def gradients_ready(self, block: Block, *, last: bool) -> None:
        layer, name = block
        if name != self.layer.blocks[0] or self.degree * self.scenario.outer == 1:
            return
        builder = self.builder
        self._range("post_backward_reduce", layer)
        if self._scattered is not None:
            builder.wait_for(COMPUTE_STREAM, self._scattered)
        if self.degree > 1:
            builder.wait(self.scatter_stream, COMPUTE_STREAM)
            if self.torch:
                cat_ns = self.layer.copy_ns(self.unit * 2)
                builder.compute(_CHUNK_CAT, "fsdp::chunk_cat", cat_ns, stream=self.scatter_stream)
            comm = Comm("reduce_scatter", self.axis, self.unit, self.unit // self.degree, "BFloat16", layer=layer)
            self._scattered = self._communicate(comm, self.scatter_stream)
        if self.hybrid and self.scenario.outer > 1:
            share = self.unit // self.degree
            builder.wait(REPLICATE_STREAM, self.scatter_stream if self.degree > 1 else COMPUTE_STREAM)
            self._communicate(Comm("all_reduce", "outer", share, share, "BFloat16", layer=layer), REPLICATE_STREAM)
        self._end()

    def backward_end(self, *, last: bool) -> None:
        self._scattered = None
        self.builder.wait(COMPUTE_STREAM, self.scatter_stream)
        self.builder.wait(COMPUTE_STREAM, REPLICATE_STREAM)

    def shards(self) -> int:
        return self.degree

    def _prefetch(self, layer: int, phase: str) -> None:
        if self.torch:
            self.builder.begin(f"FSDP::{phase}_prefetch for layers.{layer}")
        self._gather(layer, phase)
        if self.torch:
            self.builder.end()

    def _gather(self, layer: int, phase: str) -> None:
        if self.degree == 1 or layer in self._gathered:
            return
        builder, stream = self.builder, self.gather_stream
        if self.torch:
            builder.begin(f"FSDP::all_gather (layers.{layer})")
        if self.scenario.prefetch == "none" or not self.torch:
            # Without FSDP2's own streams a gather starts once the layers before its announcement are done.
            builder.wait(stream, COMPUTE_STREAM)
        elif self._copied_out is not None:
            builder.wait_for(stream, self._copied_out)
        comm = Comm("all_gather", self.axis, self.unit // self.degree, self.unit, "BFloat16", phase=phase, layer=layer)
        self._gathered[layer] = self._communicate(comm, stream)
        if self.torch:
            builder.end()

    def _unshard(self, layer: int) -> None:
        gathered = self._gathered.pop(layer, None)
        if gathered is None:
            return
        builder = self.builder
        builder.wait_for(COMPUTE_STREAM, gathered)
        if self.torch:
            builder.begin(f"FSDP::all_gather_copy_out (layers.{layer})")
            copy_ns = self.layer.copy_ns(self.unit * 2)
            self._copied_out = builder.compute(_COPY_OUT, "fsdp::split_with_sizes_copy", copy_ns)
            builder.end()

    def _communicate(self, comm: Comm, stream: int) -> int:
        index = self.builder.communicate(comm, stream=stream)
        if self.scenario.block_after_comm:
            self.builder.sync("cudaStreamSynchronize", [stream])
        return index

    def _range(self, what: str, layer: int) -> None:
        if self.torch:
            self.builder.begin(f"FSDP::{what} (layers.{layer})")

    def _end(self) -> None:
        if self.torch:
            self.builder.end()
