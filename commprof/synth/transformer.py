"""Kernels and parameters of a transformer layer, with durations from a simple roofline.

A matrix product takes its operations over the GPU's rate plus 2 us, everything else its bytes over the memory
bandwidth plus 2 us. Backward is a data product and a weight product for each forward product.
"""

from __future__ import annotations

from dataclasses import dataclass

from commprof.synth.scenario import Scenario

_FIXED_NS = 2_000
_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
_DGRAD = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x64_cublas"
_WGRAD = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64_cublas"
_FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_fwd_params)"
_FLASH_BW = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<128, 64, 128>(Flash_bwd_params)"
_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
_NORM_BW = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16>(int)"
_GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >(int)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >(int)"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compute kernel: name, the operator that launches it, nanoseconds at full speed."""

    name: str
    op: str
    work_ns: int


class Layer:
    """Costs of one transformer layer of a scenario on one rank.

    The layer has the blocks ``attn`` and ``mlp``, or one block ``layer`` where the scenario is coarse and
    nothing is communicated inside it.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        split = scenario.tp > 1 or scenario.experts or not scenario.coarse
        self.blocks: tuple[str, ...] = ("attn", "mlp") if split else ("layer",)
        self.activation = scenario.batch * scenario.sequence * scenario.hidden

    def tensors(self, block: str) -> list[int]:
        """Elements of the parameters of ``block`` on one rank, in order of the forward pass."""
        h, tp = self.scenario.hidden, self.scenario.tp
        attn = [2 * h, 3 * h * h // tp, h * h // tp]
        mlp = [2 * h, 4 * h * h // tp, 4 * h * h // tp]
        return {"attn": attn, "mlp": mlp, "layer": attn + mlp}[block]

    def parameters(self) -> int:
        """Elements of all parameters of the layer on one rank."""
        return sum(sum(self.tensors(block)) for block in self.blocks)

    def forward(self, block: str, extra_permille: int = 0) -> list[Kernel]:
        """Kernels of the forward pass of ``block``; ``extra_permille`` makes them longer."""
        sc = self.scenario
        if sc.coarse:
            kernels = [Kernel(_GEMM, "aten::mm", self._block_ns(block))]
        elif block == "attn":
            kernels = [
                Kernel(_NORM, "aten::native_layer_norm", self._memory_ns(2)),
                Kernel(_GEMM, "aten::addmm", self._gemm_ns(3)),
                Kernel(_FLASH, "aten::_flash_attention_forward", self._attention_ns()),
                Kernel(_GEMM, "aten::addmm", self._gemm_ns(1)),
                Kernel(_ADD, "aten::add", self._memory_ns(3)),
            ]
        else:
            kernels = [
                Kernel(_NORM, "aten::native_layer_norm", self._memory_ns(2)),
                Kernel(_GEMM, "aten::addmm", self._gemm_ns(4)),
                Kernel(_GELU, "aten::gelu", self._memory_ns(8)),
                Kernel(_GEMM, "aten::addmm", self._gemm_ns(4)),
                Kernel(_ADD, "aten::add", self._memory_ns(3)),
            ]
        return _longer(kernels, extra_permille)

    def backward(self, block: str, extra_permille: int = 0) -> tuple[list[Kernel], list[Kernel]]:
        """Kernels of the backward pass of ``block``: those up to the input's gradient, and the last weight product.

        Only the first list stands before the block's gradient can be communicated; the second may run beside it.
        """
        sc = self.scenario
        if sc.coarse:
            ns = self._block_ns(block)
            if not sc.async_tp:
                return _longer([Kernel(_DGRAD, "aten::mm", 2 * ns)], extra_permille), []
            return (
                _longer([Kernel(_DGRAD, "aten::mm", ns)], extra_permille),
                _longer([Kernel(_WGRAD, "aten::mm", ns)], extra_permille),
            )
        widths = (1, 3) if block == "attn" else (4, 4)
        middle = (
            Kernel(_FLASH_BW, "aten::_flash_attention_backward", self._attention_ns() * 5 // 2)
            if block == "attn"
            else Kernel(_GELU, "aten::gelu_backward", self._memory_ns(12))
        )
        before = [
            Kernel(_DGRAD, "aten::mm", self._gemm_ns(widths[0])),
            Kernel(_WGRAD, "aten::mm", self._gemm_ns(widths[0])),
            middle,
            Kernel(_DGRAD, "aten::mm", self._gemm_ns(widths[1])),
            Kernel(_NORM_BW, "aten::native_layer_norm_backward", self._memory_ns(4)),
        ]
        return (
            _longer(before, extra_permille),
            _longer([Kernel(_WGRAD, "aten::mm", self._gemm_ns(widths[1]))], extra_permille),
        )

    def optimizer_ns(self, elements: int) -> int:
        """One fused Adam kernel over ``elements`` parameters (four 4-byte values read, three written)."""
        fixed = self.scenario.optimizer_ns
        return fixed or _FIXED_NS + elements * 28 * 1_000_000_000 // self.scenario.cluster.memory_bytes_per_s

    def copy_ns(self, nbytes: int) -> int:
        """A local copy that reads and writes ``nbytes``."""
        return _FIXED_NS + 2 * nbytes * 1_000_000_000 // self.scenario.cluster.memory_bytes_per_s

    def _block_ns(self, block: str) -> int:
        sc = self.scenario
        if sc.layer_forward_ns:
            return sc.layer_forward_ns // len(self.blocks)
        if block == "attn":
            return self._gemm_ns(4) + self._attention_ns()
        if block == "mlp":
            return self._gemm_ns(8)
        return self._gemm_ns(12) + self._attention_ns()

    def _gemm_ns(self, width: int) -> int:
        """A product of the activations with an ``h x width h`` matrix, split over the tensor-parallel group."""
        sc = self.scenario
        operations = 2 * self.activation * sc.hidden * width // sc.tp
        return _FIXED_NS + operations * 1_000_000_000 // sc.cluster.flops_per_s

    def _attention_ns(self) -> int:
        sc = self.scenario
        operations = 4 * self.activation * sc.sequence // sc.tp
        return _FIXED_NS + operations * 1_000_000_000 // sc.cluster.flops_per_s

    def _memory_ns(self, passes: int) -> int:
        sc = self.scenario
        elements = self.activation // (sc.tp if sc.sequence_parallel else 1)
        return _FIXED_NS + passes * elements * 2 * 1_000_000_000 // sc.cluster.memory_bytes_per_s


def _longer(kernels: list[Kernel], extra_permille: int) -> list[Kernel]:
    if not extra_permille:
        return kernels
    return [Kernel(k.name, k.op, k.work_ns * (1000 + extra_permille) // 1000) for k in kernels]
