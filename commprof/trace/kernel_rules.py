"""The one table that says what a kernel is by its name, by vendor and era; data alone.

Patterns see a name in lower case. Those of ``own`` rules see the kernel's own qualified name without arguments, so that
a word in a template argument decides nothing; ``@`` is the beginning of an identifier there. Names of NCCL come from
its generators (all tags from 2.7 to 2.30), the others from the sources of the libraries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NameRule:
    """Kernels of one family: ``kind`` is ``comm``, ``sync`` (communication that only waits), ``fused``, ``copy`` or
    ``compute``; ``operation`` is fixed, or ``None`` where the name tells. ``limit`` is a key of :data:`LIMITS`."""

    family: str
    kind: str
    pattern: re.Pattern[str]
    operation: str | None = None
    whole: bool = False
    limit: str | None = None


LIMITS = {
    "stream-waits": "A library in use waits in memory operations of a stream (cuStreamWaitValue). They leave no event, "
    "so that such a wait shows as idle time.",
    "receive-hooks": "DeepEP in its low-latency mode may transfer between two of its kernels, with receive hooks and "
    "RDMA by the network card alone: that leaves no event.",
    "proxy": "A library in use moves data by a proxy thread or the network card when its kernel has ended: that leaves "
    "no event.",
    "copy-engine": "User buffers may move data by copy engine while their kernels only signal: peer copies on their "
    "streams count as communication.",
}
"""What leaves no event when a library is used: the text of a note, by key."""

_ID = r"(?:^|::)"


def _own(family: str, kind: str, pattern: str, operation: str | None = None, limit: str | None = None) -> NameRule:
    return NameRule(family, kind, re.compile(pattern.replace("@", _ID)), operation, limit=limit)


def _whole(family: str, kind: str, pattern: str, operation: str | None = None, limit: str | None = None) -> NameRule:
    return NameRule(family, kind, re.compile(pattern), operation, True, limit)


NCCL_FAMILY = "NCCL, RCCL"
USER_BUFFERS = "TransformerEngine user buffers"
SYMMETRIC_MEMORY = "PyTorch symmetric memory"

_LOCAL = (
    _whole(
        "copy under another name",
        "copy",
        r"^(?:__amd_rocclr_(?:copy|fill)|memory_copy_|(?:fill|copy)buffer|memcpy|memset)",
    ),
    _own("bookkeeping of ROCm", "compute", r"^__amd_rocclr_(?!streamopswait)"),
    _own("local pre-multiplication of NCCL", "compute", r"@onerankreduce"),
    # A kernel that the compiler makes is named after all that it fuses, collectives beside it too.
    _own("compiled", "compute", r"^triton_(?:poi|per|red|tem|unk|for|mix|mm|bmm|convolution|split_scan)_"),
    _own("PyTorch native", "compute", r"^(?:at|at_cuda_detail|c10|at_cuda)::|^(?:cub|thrust|hipcub|rocprim)::"),
    _own(
        "bookkeeping of communication libraries",
        "compute",
        r"@(?:nvshmem|rocshmem)\w*(?:init|finalize)|@kuserbuffers_(?:inc|dummy)|layout::get_dispatch_layout"
        r"|@moea2a(?:prepare|sanitize|mapping|gate)\w*|@moealltoallmemset\w*|_epilogue_impl$"
        r"|@epcombinesync(?!barrier)|@epdispatchcopytostaging|lowprecisionpreprocess",
    ),
)  # fmt: skip

_FUSED = (
    _own(
        "fused all-reduce",
        "fused",
        r"all_?reduce\w*?(?:fusion|norm|residual|rms|gemm|matmul)\w*$|(?:gemm|matmul|norm|moe)\w*?all_?reduce\w*$"
        r"|rmsnorm_?lamport|userbuffers\w*norm",
        "all_reduce",
    ),
    _whole(
        "GEMM with all-gather",
        "fused",
        r"all_gather_(?:scaled_)?matmul|(?<![a-z0-9])(?:ag|allgather|all_gather)_?gemm|ag_?gemm(?![a-z])",
        "all_gather",
    ),
    _whole(
        "GEMM with reduce-scatter",
        "fused",
        r"matmul_reduce_scatter|(?<![a-z0-9])gemm_?(?:rs|reduce_?scatter)(?![a-z])",
        "reduce_scatter",
    ),
    _whole("GEMM with all-reduce", "fused", r"(?<![a-z0-9])gemm_?(?:ar|all_?reduce)(?![a-z])", "all_reduce"),
    _own(
        "GEMM of Flux or Triton-distributed",
        "fused",
        r"@kernel_consumer_\w*gemm|@gemm_?(?:a2a|all_?to_?all)(?![a-z])",
        "unknown",
        "stream-waits",
    ),
)

_COMM = (
    _own("stream memory operations of ROCm", "sync", r"^__amd_rocclr_streamopswait", "barrier"),
    _own(NCCL_FAMILY, "comm", r"@(?:nccl|rccl)[a-z0-9]*kernel"),
    _own("MSCCL", "comm", r"@mscclkernel", "unknown"),
    _own("MSCCL++", "comm", r"^mscclpp::|@allreduce_ll_\dnode", limit="proxy"),
    _own(
        f"{SYMMETRIC_MEMORY}, signals",
        "sync",
        r"symmetric_memory::\w*(?:barrier|signal)\w*|@(?:put|wait)_signal_kernel"
        r"|@exchangesplitandoffset\w*",
        "barrier",
        "stream-waits",
    ),
    _own(
        SYMMETRIC_MEMORY,
        "comm",
        r"@(?:one|two)_shot_(?:all_reduce|reduce_scatter|all_gather)"
        r"|@multimem_(?:one_shot|all_reduce|reduce|all_gather|reduce_scatter)",
        limit="stream-waits",
    ),
    _own(f"{SYMMETRIC_MEMORY}, all-to-all", "comm", r"@(?:all_to_all_v|alltoallv)\w*", "all_to_all", "proxy"),
    _own("aiter", "comm", r"@reduce_scatter_cross_device_store", "reduce_scatter"),
    _own("aiter", "comm", r"@allgather_(?:vec|lastdim|naive)", "all_gather"),
    _own(
        "vLLM, SGLang, aiter custom all-reduce",
        "comm",
        r"@cross_device_reduce|quickreduce::|@allreduce_prototype",
        "all_reduce",
    ),
    _own(
        "TensorRT-LLM, FlashInfer, PyTorch intra-node all-reduce",
        "comm",
        r"@\w*(?:one|two)_?shot\w*_?all_?reduce|@hybridcubemeshallreduce|trtllm_\w*all_?reduce\w*$",
        "all_reduce",
    ),
    _own(
        "TensorRT-LLM, FlashInfer expert exchange",
        "comm",
        r"@moea2a(?:dispatch|combine)\w*|@moealltoall\w*",
        "all_to_all",
    ),
    _own(
        "DeepEP synchronisation",
        "sync",
        r"(?:deep_ep|intranode|internode|internode_ll)::(?:\w+::)*(?:cached_)?(?:notify|barrier|clean_low_latency)\w*$"
        r"|hybrid_ep::device_sync\w*$|@barrier_impl$",
        "barrier",
    ),
    _own("DeepEP, low latency", "comm", r"internode_ll::(?:dispatch|combine)$", "all_to_all", "receive-hooks"),
    _own(
        "DeepEP",
        "comm",
        r"(?:deep_ep|hybrid_ep|intranode|internode)::(?:\w+::)*(?:hybrid_)?(?:dispatch|combine)(?:_kernel|_impl)?$"
        r"|@(?:hybrid_)?(?:dispatch|combine)_impl$",
        "all_to_all",
    ),
    _own("DeepEP, remote fetch", "comm", r"@engram_fetch\w*_impl$", "unknown", "receive-hooks"),
    _own("DeepEP pipeline send", "comm", r"@pp_send_impl$", "send"),
    _own("DeepEP pipeline receive", "comm", r"@pp_recv_impl$", "recv"),
    _own("MORI synchronisation", "sync", r"@ep(?:dispatch|combine)\w*barrier", "barrier", "proxy"),
    _own("MORI", "comm", r"@ep(?:dispatch|combine)(?:intra|inter|lowlatency)\w*", "all_to_all", "proxy"),
    _own("pplx", "comm", r"@a2a_(?:dispatch|combine)_(?:send|recv)_kernel", "all_to_all", "proxy"),
    _own("NCCL-EP", "comm", r"^(?:nccl_ep::)?(?:dispatch|combine)$", "all_to_all", "receive-hooks"),
    _own("oneCCL", "comm", r"@oneccl_(?=\w*(?:all|broadcast|scatter|gather|send|recv))"),
    _own("oneCCL", "comm", r"@oneccl(?:_|$)|^oneccl::", "unknown"),
    _own(
        "HCCL", "comm",
        r"^hcom_|^hccl(?:::|_)|@(?:allreduce|allgather|reducescatter|alltoallv?|broadcast|scatter|reduce)aicpukernel",
    ),
    _own(USER_BUFFERS, "comm", r"@k?userbuffers_", limit="copy-engine"),
    _own(
        "Flux and Triton-distributed signals",
        "sync",
        r"(?:^|::|_)(?:wait_signal|barrier_all)|@wait_(?:eq|ge|geq)\w*(?:signal|_kernel)|wait_kernel_signal",
        "barrier",
        "stream-waits",
    ),
    _own(
        "NVSHMEM, rocSHMEM synchronisation",
        "sync",
        r"@(?:nv|roc)shmem\w*(?:barrier|sync|wait|quiet)|@(?:barrier|sync|quiet|signal_wait)\w*_on_stream_kernel",
        "barrier",
        "proxy",
    ),
    _own("NVSHMEM all-gather", "comm", r"@(?:nvshmem\w*_)?f?collect\w*_on_stream_kernel", "all_gather", "proxy"),
    _own(
        "NVSHMEM, rocSHMEM",
        "comm",
        r"@(?:nv|roc)shmem|@alltoallv?gda|@rma_entrypoint"
        r"|@(?:alltoall|broadcast|reducescatter|reduce|rdxn|signal_op)\w*_on_stream_kernel",
        limit="proxy",
    ),
)  # fmt: skip

# What speaks of communication without being known: it stays unnamed, so that the report lists it.
SUSPICIOUS = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|(?<![a-z0-9])(?:a2a|p2p|peer|remote)(?![a-z0-9])"
    r"|(?<![a-z])[nr]ccl|shmem|send_?recv|cross_device|signal"
)

_COMPUTE = (
    _whole(
        "matrix multiplication",
        "compute",
        r"gemm|gemv|cutlass|cublas|_tn_|_nt_|_nn_|^cijk_|hipblas|rocblas|tensile|wgmma|mma_|matmul|"
        r"_s\d{4,}|nvjet|xmma|splitk",
    ),
    _whole("convolution", "compute", r"cudnn|conv|winograd|implicit|dgrad|wgrad|miopen|cask|fft|scudnn|nhwc|nchw"),
    _whole("attention", "compute", r"flash|fmha|attention|attn|rope|rotary|paged"),
    _whole(
        "PyTorch native",
        "compute",
        r"at::|at_cuda|c10::|elementwise|vectorized|unrolled|reduce_kernel|multi_tensor|cunn_|index|"
        r"softmax|norm|dropout|embedding|philox|distribution|nll_loss|cross_entropy|pool|catarray|"
        r"transpose|tensor_kernel|bn_|copy|fill|arange|topk|sort|gather|scatter|chunk_cat|cast",
    ),
    _whole("compiled", "compute", r"triton|^fused_|_fused_|torchinductor|nvfuser|kernel_cuda_|cudacodegen"),
    _whole(
        "libraries",
        "compute",
        r"cub::|thrust::|fbgemm|split_embedding|ck::|ck_tile|xetla|onednn|dnnl|apex|adam|sgd|lamb|"
        r"deep_gemm|layout::get_dispatch_layout|epilogue_impl|permute",
    ),
)

LOCAL_AND_COMMUNICATION = (*_LOCAL, *_FUSED, *_COMM)
"""Asked first, in this order: fused kernels come before the families whose words they contain."""

COMPUTE_BY_NAME = _COMPUTE
"""Asked last: what computes, in so far as its name says so."""
