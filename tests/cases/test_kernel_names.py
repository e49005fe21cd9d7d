"""C049 to C052, C057, C058, C060 to C062: one table decides what a kernel is, for every family in use.

Names come from the sources of the libraries, by family and era.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]

NCCL_ARGS = "(ncclDevKernelArgsStorage<4096ul>)"
COLLECTIVES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send_recv",
}


def nccl_names() -> dict[str, str]:
    """Kernels of NCCL and RCCL of all generations, with the operation that the name tells."""
    names: dict[str, str] = {}
    for word, op in COLLECTIVES.items():
        if word == "SendRecv":
            names["ncclSendRecvKernel_copy_i8(ncclColl)"] = op
            names["ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"] = op
            names[f"ncclDevKernel_SendRecv{NCCL_ARGS}"] = op
            names["ncclDevKernel_SendRecv"] = op
            continue
        for middle in ("Ring", "Tree", "RingLL", "TreeLL", "RingLL128"):  # up to 2.7
            names[f"nccl{word}{middle}Kernel_sum_f32(ncclColl)"] = op
        names[f"nccl{word}RingLLKernel_copy_i8(ncclColl)"] = op
        for debug in ("", "Debug"):  # 2.8 to 2.18, and RCCL
            names[f"ncclKernel{debug}_{word}_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"] = op
        names[f"ncclKernel_{word}_TREE_LL_Sum_half(ncclWorkElem)"] = op
        copies = word in ("AllGather", "Broadcast")
        types = [""] if copies else ["_Sum_u8", "_Sum_u64", "_Sum_f16", "_Sum_bf16", "_Sum_f64", "_Sum_f8e4m3"]
        for kind in types:  # from 2.19
            names[f"ncclDevKernel_{word}{kind}_RING_LL{NCCL_ARGS}"] = op
            names[f"void ncclDevKernel_{word}{kind}_RING_LL{NCCL_ARGS}"] = op
    names["ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"] = "all_reduce"
    names[f"ncclDevKernel_AllReduce_Sum_f32_TREE_LL{NCCL_ARGS}"] = "all_reduce"
    names[f"ncclDevKernel_AllGatherV_RING_LL{NCCL_ARGS}"] = "all_gather"
    return names


def symmetric_names() -> dict[str, str]:
    """Symmetric kernels: 2.27 and, renamed, from 2.28."""
    names: dict[str, str] = {}
    for prefix in ("ncclSymDevKernel", "ncclSymkDevKernel"):
        for algorithm in ("LL", "LLMC", "ST", "STMC", "TmaST", "TmaSTMC", "RailRing_LsaSTMC"):
            names[f"{prefix}_AllGather_{algorithm}"] = "all_gather"
        for algorithm in ("AGxLL_R", "AGxLLMC_R", "RSxLD_AGxST", "RSxLDMC_AGxSTMC", "RSxTmaLD_AGxTmaST"):
            names[f"{prefix}_AllReduce_{algorithm}_sum_bf16"] = "all_reduce"
        for algorithm in ("LL", "LD", "LDMC", "TmaLD", "RailA2A_LsaLD", "RailA2A_LsaLDMC"):
            names[f"{prefix}_ReduceScatter_{algorithm}_sum_f32"] = "reduce_scatter"
    names["ncclSymkDevKernel_ReduceScatter_LDMC_avg_f16"] = "reduce_scatter"
    names["ncclSymkDevKernel_AllGather_GinHier_MCRing"] = "all_gather"
    return names


UNKNOWN_OPERATION = [
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernelDebug_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "void rcclGenericKernel<1, false>(ncclDevComm*, channelMasks, ncclWork*)",
    "rcclGenericKernel<2, true>",
    "mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "mscclKernel_Sum_float_Simple_true",
]

OTHER_LIBRARIES = {
    # PyTorch symmetric memory
    "void c10d::symmetric_memory::(anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(...)": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(...)": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(...)": "all_reduce",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)": "all_reduce",
    "multimem_all_reduce_kernel<c10::BFloat16, 16, 8>": "all_reduce",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16, 8>(...)": "all_reduce",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(...)": "all_gather",
    # vLLM, SGLang, aiter
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(...)": "all_reduce",
    "void vllm::cross_device_reduce_2stage<half, 4>(...)": "all_reduce",
    "void sglang::cross_device_reduce_1stage<float, 2>(...)": "all_reduce",
    "void aiter::cross_device_reduce_2stage_write_mode<half, 8>(...)": "all_reduce",
    # DeepEP, first and second version
    "void deep_ep::intranode::dispatch<8, 768, 8192>(...)": "all_to_all",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(...)": "all_to_all",
    "void deep_ep::internode::dispatch<false, 2, false, 8192, 7>(...)": "all_to_all",
    "void deep_ep::internode::combine<false, 2, __nv_bfloat16>(...)": "all_to_all",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(...)": "all_to_all",
    "void deep_ep::internode_ll::combine<false, 7168, 11>(...)": "all_to_all",
    "void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(...)": "all_to_all",
    "deep_ep::intranode::notify_dispatch<8>": "barrier",
    "void deep_ep::internode::notify_dispatch<false, 2>(...)": "barrier",
    "void deep_ep::intranode::cached_notify_dispatch<8>(...)": "barrier",
    "void deep_ep::intranode::cached_notify_combine<8>(...)": "barrier",
    "void deep_ep::internode::cached_notify<false>(...)": "barrier",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void deep_ep::elastic::dispatch_impl<8, 7168>(...)": "all_to_all",
    "void deep_ep::elastic::combine_impl<8, 7168>(...)": "all_to_all",
    "void deep_ep::elastic::hybrid_dispatch_impl<8>(...)": "all_to_all",
    "void deep_ep::elastic::hybrid_combine_impl<8>(...)": "all_to_all",
    "void deep_ep::elastic::barrier_impl<8>(...)": "barrier",
    "void deep_ep::elastic::pp_send_impl<8>(...)": "send",
    "void deep_ep::elastic::pp_recv_impl<8>(...)": "recv",
    # MSCCL++
    "void mscclpp::collective::allreducePacket<float>(...)": "all_reduce",
    "void mscclpp::collective::allreduceFullmesh<half>(...)": "all_reduce",
    "void mscclpp::collective::allgatherFullmesh2<false>(...)": "all_gather",
    "mscclpp::collective::alltoallvKernel": "all_to_all",
    # oneCCL
    "oneccl_allreduce_pcie": "all_reduce",
    # Ascend
    "hcom_allReduce__428_0_1": "all_reduce",
    "hcom_allGather__428_1_1": "all_gather",
    "hcom_reduceScatter__428_2_1": "reduce_scatter",
    "hcom_alltoallv__428_3_1": "all_to_all",
    "hcom_broadcast__428_4_1": "broadcast",
    "allreduceAicpuKernel": "all_reduce",
}

COMMUNICATION_OF_ANY_OPERATION = [
    "oneccl_reduce_base<float, int>",
    "void multimem_one_shot_reduce_kernel<float, 16, 8>(...)",
    "void quickreduce::allreduce_prototype_twoshot<half, 8>(...)",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "kuserbuffers_pushrecv(int, int, int, int*, int*, int, unsigned long)",
    "void userbuffers_fp16_sum_inplace_gpu_rw<8>(...)",
    "void userbuffers_fp16_sum_inplace_gpu_mc<8>(...)",
]

FUSED = [
    "allreduce_fusion_kernel_oneshot_lamport<half, 8>",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0, __nv_bfloat16, 8>(...)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0, half, 4>(...)",
    "void aiter::allreduce_fusion_kernel_1stage<half, 8>(...)",
]

COMPUTE = [
    "ampere_sgemm_128x64_tn",
    "hipblaslt_kernel",
    "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x128x32",
    "void hipcub::detail::device_reduce_kernel<float>",
    "batch_norm_SyncBN_stats_kernel",
    "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(...)",
    "my_nccl_free_gemm",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(...)",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(...)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(...)",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float>(...)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(...)",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(...)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>(...)",
    "triton_poi_fused_add_0",
    "triton_red_fused_native_layer_norm_1",
    "flash_fwd_kernel",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>(...)",
    "split_with_sizes_copy_out_contiguous_no_cast_kernel",
    "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float>(...)",
    "void oneRankReduce<RedOpPreMulSum<float>>(void*, void*, unsigned long, unsigned long, bool)",
    "acme_ring_exchange",
    "__hip_broadcast_add",
]

COPIES = [
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_copyBufferAligned",
    "__amd_rocclr_copyBufferRect",
    "__amd_rocclr_fillBuffer",
    "__amd_rocclr_fillBufferAligned",
    "MEMORY_COPY_DEVICE_TO_DEVICE",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
]


STEP_US = 1000


def one_step_each(names: Iterable[str], cat: str = "kernel") -> Trace:
    """``T0`` again and again, a step for each name, whose kernel stands in the place of ``AR`` without arguments."""
    trace = Trace()
    for number, name in enumerate(names):
        at = STEP_US * number
        trace.step(number, at, at + STEP_US)
        trace.gemm(at, at + 600)
        trace.device_event(cat, name, at + 500, at + 900, stream=20)
    return trace


def beside_communication(names: Iterable[str]) -> Trace:
    """``T0`` again and again, a step for each name, whose kernel stands in the place of ``G``."""
    trace = Trace()
    for number, name in enumerate(names):
        at = STEP_US * number
        trace.step(number, at, at + STEP_US)
        trace.kernel(name, at, at + 600)
        trace.all_reduce(at + 500, at + 900)
    return trace


Read = Callable[[Trace], Run]


@pytest.fixture
def read(run_analyze: Analyze, tmp_path: Path) -> Read:
    """The report of a trace."""

    def run(trace: Trace) -> Run:
        found = run_analyze(trace.write(tmp_path / "rank0.json"))
        assert found.code == 0, found.stderr
        return found

    return run


def splits(run: Run, names: Iterable[str], *keys: str) -> dict[str, tuple[int, ...]]:
    """These parts of the step of each name, in ns."""
    (row,) = run.report["ranks"]
    return {name: tuple(step[key] for key in keys) for name, step in zip(names, row["steps"], strict=True)}


def calls_by_name(run: Run, names: Iterable[str]) -> dict[str, Any]:
    """The call in the step of each name; none where its kernel was taken for something else."""
    by_step = {call["step"]: call for call in run.report["collectives"]}
    return {name: by_step.get(f"ProfilerStep#{number}") for number, name in enumerate(names)}


def assert_communication(run: Run, names: dict[str, str | None]) -> None:
    """Each is communication known by its name, of this operation (``None``: of any); all else of it is unknown."""
    assert splits(run, names, "compute_ns", "comm_ns", "exposed_comm_ns") == dict.fromkeys(
        names, (600_000, 400_000, 300_000)
    )
    calls = calls_by_name(run, names)
    assert {name: call["op"] for name, call in calls.items() if names[name]} == {n: op for n, op in names.items() if op}
    for call in calls.values():
        assert (call["kind_source"], call["fused"], call["duration_ns"]) == ("name", False, 400_000)
        unknown = ("size_bytes", "algbw_gbps", "busbw_gbps", "busbw_at_least_gbps", "dtype")
        assert {key: call[key] for key in unknown} == dict.fromkeys(unknown)
    assert run.report["coverage"]["comm_without_metadata"] == len(names)


def test_c049_c051_nccl_names_of_every_generation(read: Read) -> None:
    names = nccl_names()

    assert_communication(read(one_step_each(names)), {**names})


def test_c050_symmetric_kernels(read: Read) -> None:
    names = symmetric_names()

    assert_communication(read(one_step_each(names)), {**names})


def test_c051_prefix_and_case_change_nothing(read: Read) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    names = [name.lower(), f"void {name}", f"  {name}", f"void  {name}"]

    assert_communication(read(one_step_each(names)), dict.fromkeys(names, "all_reduce"))


def test_c052_generic_kernels_are_communication_of_unknown_kind(read: Read) -> None:
    run = read(one_step_each(UNKNOWN_OPERATION))

    assert_communication(run, dict.fromkeys(UNKNOWN_OPERATION, "unknown"))
    assert run.report["coverage"]["unknown_collective"] == len(UNKNOWN_OPERATION)


def test_c057_communication_of_other_libraries(read: Read) -> None:
    assert_communication(read(one_step_each(OTHER_LIBRARIES)), {**OTHER_LIBRARIES})


def test_c057_c060_communication_whose_operation_is_open(read: Read) -> None:
    names: dict[str, str | None] = dict.fromkeys(COMMUNICATION_OF_ANY_OPERATION)

    assert_communication(read(one_step_each(names)), names)


def test_c060_mtia_rows_are_communication(read: Read) -> None:
    names: dict[str, str | None] = {"hccl::allreduce": "all_reduce", "hccl::all_gather": "all_gather"}

    assert_communication(read(one_step_each(names, "mtia_ccp_events")), names)


@pytest.mark.parametrize("name", FUSED)
def test_c058_fused_kernels_are_compute_in_a_row_of_their_own(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel(name, 0, 100)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code in (0, 3)  # whether fused kernels alone are "communication recognised" is not defined
    (row,) = run.report["ranks"]
    whole = row["whole"]
    assert (whole["compute_ns"], whole["fused_ns"], whole["comm_ns"]) == (100_000, 100_000, 0)
    assert whole["overlap_ratio"] is None
    (call,) = run.report["collectives"]
    assert (call["fused"], call["duration_ns"], call["op"]) == (True, 100_000, "all_reduce")
    assert run.report["coverage"]["fused_calls"] == 1


def test_c058_fused_kernels_hide_communication_beside_them(read: Read) -> None:
    run = read(beside_communication(FUSED))

    assert splits(run, FUSED, "compute_ns", "fused_ns", "overlap_ns") == dict.fromkeys(
        FUSED, (600_000, 600_000, 100_000)
    )
    assert [call["fused"] for call in run.report["collectives"]] == [True, False] * len(FUSED)


def test_c055_c061_names_that_only_look_like_communication(read: Read) -> None:
    run = read(beside_communication(COMPUTE))

    assert splits(run, COMPUTE, "compute_ns", "comm_ns", "fused_ns") == dict.fromkeys(COMPUTE, (600_000, 400_000, 0))
    assert len(run.report["collectives"]) == len(COMPUTE)


def test_c062_copies_by_the_name_of_a_kernel(read: Read) -> None:
    trace = one_step_each(COPIES)
    for number in range(len(COPIES)):
        trace.all_reduce(STEP_US * number, STEP_US * number + 10)

    run = read(trace)

    assert splits(run, COPIES, "copy_ns", "exposed_copy_ns", "compute_ns", "comm_ns") == dict.fromkeys(
        COPIES, (400_000, 300_000, 600_000, 10_000)
    )
