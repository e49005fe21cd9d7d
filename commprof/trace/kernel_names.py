"""The one table that says what a kernel is by its name, by vendor and era.

It is asked last: a user's pattern, metadata and the operator that launched a kernel go before. Only the operation is
ever read from a name. The algorithm and protocol in NCCL's names are those of a stub (one kernel is compiled per
operation and dispatches to the one that runs), so they are never stated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from commprof.trace.operations import operation_of


@dataclass(frozen=True, slots=True)
class NameRule:
    """Kernels of one family: ``kind`` is ``comm``, ``sync`` (communication that only waits), ``fused``, ``copy`` or
    ``compute``; ``operation`` is fixed, or ``None`` where the name tells."""

    family: str
    kind: str
    pattern: re.Pattern[str]
    operation: str | None = None


def _rule(family: str, kind: str, pattern: str, operation: str | None = None) -> NameRule:
    return NameRule(family, kind, re.compile(pattern), operation)


# Patterns see the name in lower case. ``(?<![a-z0-9_])`` keeps ``my_nccl_free_gemm`` out.
RULES = (
    _rule(
        "copy under another name",
        "copy",
        r"^(?:__amd_rocclr_(?:copy|fill)|memory_copy_|(?:fill|copy)buffer|memcpy|memset)",
    ),
    _rule("local pre-multiplication of NCCL", "compute", r"onerankreduce"),
    # Fused compute and communication come before the families whose words they contain.
    _rule(
        "TensorRT-LLM and FlashInfer fused all-reduce",
        "fused",
        r"allreduce_fusion|allreduce_rms|rmsnormlamport|moe\w*allreduce",
        "all_reduce",
    ),
    _rule(
        "async tensor parallel, Flux, Triton-distributed GEMM",
        "fused",
        r"all_gather_(?:scaled_)?matmul|matmul_reduce_scatter|ag_gemm|gemm_rs|gemm_ar|gemm_allreduce|"
        r"allgather_gemm|gemm_reduce_scatter",
    ),
    _rule("NCCL, RCCL", "comm", r"(?<![a-z0-9_])(?:nccl[a-z0-9]*kernel|rccl[a-z0-9]*kernel)"),
    _rule("MSCCL", "comm", r"(?<![a-z0-9_])mscclkernel", "unknown"),
    _rule("MSCCL++", "comm", r"mscclpp::"),
    _rule(
        "PyTorch symmetric memory",
        "comm",
        r"(?<![a-z0-9])(?:one|two)_shot_(?:all_reduce|reduce_scatter|all_gather)|"
        r"multimem_(?:one_shot_)?(?:all_reduce|reduce|all_gather|reduce_scatter)|multimem_one_shot",
    ),
    _rule(
        "PyTorch symmetric memory, all-to-all",
        "comm",
        r"all_to_all_v(?:dev|_)\w*|alltoallv?kernel",
        "all_to_all",
    ),
    _rule(
        "vLLM, SGLang, aiter custom all-reduce",
        "comm",
        r"cross_device_reduce|quickreduce|allreduce_prototype|twoshot_allreduce|oneshot_allreduce|"
        r"oneshotallreduce|twoshotallreduce",
        "all_reduce",
    ),
    _rule(
        "TensorRT-LLM all-reduce",
        "comm",
        r"trtllm_\w*allreduce|(?:one|two)shotallreducekernel|lamport_?(?:all_?reduce)",
        "all_reduce",
    ),
    _rule(
        "DeepEP synchronisation",
        "sync",
        r"deep_ep::\S*?(?:(?:cached_)?notify\w*|barrier\w*|clean_low_latency_buffer)",
        "barrier",
    ),
    _rule("DeepEP", "comm", r"deep_ep::\S*?(?:dispatch|combine)(?![a-z_]*(?:layout|epilogue))", "all_to_all"),
    _rule("DeepEP 2 synchronisation", "sync", r"(?<![a-z0-9_])barrier_impl", "barrier"),
    _rule(
        "DeepEP 2",
        "comm",
        r"(?<![a-z0-9_])(?:hybrid_)?(?:dispatch|combine)_impl|(?<![a-z0-9_])engram_fetch\w*_impl",
        "all_to_all",
    ),
    _rule("DeepEP 2 pipeline send", "comm", r"(?<![a-z0-9_])pp_send_impl", "send"),
    _rule("DeepEP 2 pipeline receive", "comm", r"(?<![a-z0-9_])pp_recv_impl", "recv"),
    _rule("NCCL-EP", "comm", r"^(?:void )?(?:nccl_ep::)?(?:dispatch|combine)(?:<.*>)?(?:\(.*\))?$", "all_to_all"),
    _rule("oneCCL", "comm", r"oneccl_(?=\w*(?:all|broadcast|scatter|gather|send|recv))"),
    _rule("oneCCL", "comm", r"(?<![a-z0-9_])oneccl[_:]", "unknown"),
    _rule(
        "HCCL",
        "comm",
        r"(?<![a-z0-9_])(?:hcom_|hccl(?:::|_))|(?:allreduce|allgather|reducescatter|alltoallv?|"
        r"broadcast)aicpukernel",
    ),
    _rule("TransformerEngine user buffers", "comm", r"(?<![a-z0-9])k?userbuffers_"),
    _rule(
        "Flux and Triton-distributed signals",
        "sync",
        r"(?<![a-z0-9])(?:wait_signal|barrier_all|wait_eq\w*signal|wait_kernel_signal)",
        "barrier",
    ),
    _rule(
        "NVSHMEM synchronisation",
        "sync",
        r"nvshmem\w*(?:barrier|sync|wait)|rocshmem\w*(?:barrier|sync|wait)",
        "barrier",
    ),
    _rule("NVSHMEM, rocSHMEM", "comm", r"(?<![a-z0-9])(?:nvshmem|rocshmem)|alltoallv?gda"),
    # What computes, in so far as its name says so.
    _rule(
        "matrix multiplication",
        "compute",
        r"gemm|gemv|cutlass|cublas|_tn_|_nt_|_nn_|^cijk_|hipblas|rocblas|tensile|wgmma|mma_|matmul|"
        r"_s\d{4,}|nvjet|xmma|splitk",
    ),
    _rule("convolution", "compute", r"cudnn|conv|winograd|implicit|dgrad|wgrad|miopen|cask|fft|scudnn|nhwc|nchw"),
    _rule("attention", "compute", r"flash|fmha|attention|attn|rope|rotary|paged"),
    _rule(
        "PyTorch native",
        "compute",
        r"at::|at_cuda|c10::|elementwise|vectorized|unrolled|reduce_kernel|multi_tensor|cunn_|index|"
        r"softmax|norm|dropout|embedding|philox|distribution|nll_loss|cross_entropy|pool|catarray|"
        r"transpose|tensor_kernel|bn_|copy|fill|arange|topk|sort|gather|scatter|chunk_cat|cast",
    ),
    _rule("compiled", "compute", r"triton|^fused_|_fused_|torchinductor|nvfuser|kernel_cuda_|cudacodegen"),
    _rule(
        "libraries",
        "compute",
        r"cub::|thrust::|fbgemm|split_embedding|ck::|ck_tile|xetla|onednn|dnnl|apex|adam|sgd|lamb|"
        r"deep_gemm|layout::get_dispatch_layout|epilogue_impl|permute",
    ),
)


@lru_cache(maxsize=65536)
def rule_for(name: str) -> tuple[NameRule, str] | None:
    """The first rule that names the kernel, and the operation (``unknown`` where there is none)."""
    lower = name.lower()
    for rule in RULES:
        match = rule.pattern.search(lower)
        if match is not None:
            if rule.kind == "compute" or rule.kind == "copy":
                return rule, "unknown"
            return rule, rule.operation or _operation_in(lower[match.start() :])
    return None


def _operation_in(name: str) -> str:
    """The operation in a kernel's own name, without its template and function arguments."""
    head = re.split(r"[<(]", name, maxsplit=1)[0]
    if "pushsend" in head:
        return "send"
    if "pushrecv" in head:
        return "recv"
    return operation_of(head.replace("::", "_"))
