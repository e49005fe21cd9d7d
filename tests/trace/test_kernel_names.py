"""C049 to C062 and their kind: what kernels are by their names, for every family and era, and what they are not.

Names stand as the libraries' sources and public traces have them.
"""

from __future__ import annotations

import pytest

from commprof.trace.kernel_names import own_name, rule_for
from commprof.trace.kernel_rules import LIMITS, LOCAL_AND_COMMUNICATION

ARGS = "(ncclDevKernelArgsStorage<4096ul>)"


def kind(name: str) -> tuple[str, str]:
    """Kind and operation of a kernel; ``unnamed`` where no rule knows it."""
    found = rule_for(name)
    return ("unnamed", "unknown") if found is None else (found[0].kind, found[1])


# NCCL from 2.19: what its generator emits, by release.


def generated() -> list[tuple[str, str]]:
    """Every kernel of NCCL 2.30 (40 names) with its operation."""
    types = ["u8", "u32", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"]
    names = [
        ("AllGather_RING_LL", "all_gather"),
        ("AllGatherV_RING_LL", "all_gather"),
        ("Broadcast_RING_LL", "broadcast"),
        ("SendRecv", "send_recv"),
        ("Generic", "unknown"),
    ]
    for dtype in types:
        names += [(f"AllReduce_Sum_{dtype}_{algorithm}_LL", "all_reduce") for algorithm in ("RING", "TREE")]
        names += [(f"Reduce_Sum_{dtype}_RING_LL", "reduce"), (f"ReduceScatter_Sum_{dtype}_RING_LL", "reduce_scatter")]
    return [(f"ncclDevKernel_{name}", operation) for name, operation in names]


@pytest.mark.parametrize("form", ["{}", "{}" + ARGS, "void {}" + ARGS, "{}.kd", "{}" + ARGS + " [clone .kd]", "  {}"])
def test_c049_c051_every_kernel_that_nccl_generates(form: str) -> None:
    names = generated()

    found = [kind(form.format(name)) for name, _ in names]

    assert len(names) == 41  # 40 of 2.29 and later, where Generic is counted apart
    assert found == [("comm", operation) for _, operation in names]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", "all_reduce"),
        ("_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsE", "reduce_scatter"),
        ("ncclDevKernelDebug_Generic_2" + ARGS, "unknown"),
        ("void rcclGenericKernel<1, false>(ncclDevComm*, channelMasks, ncclWork*) [clone .kd]", "unknown"),
        ("ncclKernelDebug_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_AllReduce_RING_SIMPLE_Sum_f32_0_1_4_Specialized(ncclDevKernelArgs*)", "all_reduce"),
        ("ncclReduceScatterTreeLL128Kernel_prod_f16(ncclColl)", "reduce_scatter"),
    ],
)
def test_c049_c052_other_spellings(name: str, operation: str) -> None:
    assert kind(name) == ("comm", operation)


COMMUNICATION = {
    # MSCCL++ and what SGLang makes of it
    "void mscclpp::collective::allreducePacket<float>(...)": "all_reduce",
    "void sglang::allreduce_LL_1node<__half>(...)": "all_reduce",
    "void allreduce_LL_2node<__nv_bfloat16>(...)": "all_reduce",
    # aiter
    "void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*, ...)": "all_gather",
    "void aiter::allgather_vec<_Float16, 4>(...)": "all_gather",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(...)": "reduce_scatter",
    "void aiter::cross_device_reduce_2stage_write_mode<half, 8>(...)": "all_reduce",
    # TensorRT-LLM, FlashInfer, PyTorch inside a node
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true>(...)": "all_reduce",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(...)": "all_reduce",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshot_allreduce_kernel<8, __nv_bfloat16>(...)": "all_reduce",
    "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<8, half>(...)": "all_reduce",
    "void c10d::intra_node_comm::hybridCubeMeshAllReduceKernel<true>(...)": "all_reduce",
    "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(...)": "all_reduce",
    "tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel(...)": "all_to_all",
    "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<__nv_bfloat16>(...)": "all_to_all",
    "void tensorrt_llm::kernels::moeAllToAllKernel<4, false>(...)": "all_to_all",
    # DeepEP and its forks
    "void deep_ep::intranode::dispatch<8, 768, 8192>(...)": "all_to_all",
    "void deep_ep::legacy::internode::combine<true, 2>(...)": "all_to_all",
    "void uccl::internode_ll::dispatch<false, true, 7168>(...)": "all_to_all",
    "void primus_turbo::deep_ep::intranode::combine<8>(...)": "all_to_all",
    "void hybrid_ep::dispatch_kernel<unsigned char, 8>(...)": "all_to_all",
    "void hybrid_ep::combine_kernel<8>(...)": "all_to_all",
    "dispatch_impl": "all_to_all",
    "void deep_ep::elastic::engram_fetch_impl<8>(...)": "unknown",
    "dispatch(NcclEpArgs)": "all_to_all",
    "void nccl_ep::combine<__nv_bfloat16>(...)": "all_to_all",
    # MORI, pplx
    "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16, false>(...)": "all_to_all",
    "EpCombineInterNodeV1Kernel_bf16": "all_to_all",
    "void a2a_dispatch_send_kernel<true, 16, 8>(...)": "all_to_all",
    "void a2a_combine_recv_kernel<16>(...)": "all_to_all",
    # symmetric memory
    "void c10d::symmetric_memory::multimem_one_shot_reduce_kernel<float, 16, 8>(...)": "all_reduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(...)": "all_reduce",
    "void c10d::nvshmem_extension::allToAllV(...)": "all_to_all",
    "void c10d::nvshmem_extension::allToAllV_2d<true>(...)": "all_to_all",
    # user buffers
    "void userbuffers_fp16_sum_inplace_gpu_rw<8>(...)": "all_reduce",
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(...)": "all_gather",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<8, __nv_fp8_e4m3>(...)": "reduce_scatter",
    "void userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<4>(...)": "reduce_scatter",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": "send",
    "kuserbuffers_pullrecv(int, int, int*, int*)": "recv",
    "kuserbuffers_pushsendrecv(int*, int*, int4*, int4*, int, int, int, int*, int*, int)": "send_recv",
    # NVSHMEM, rocSHMEM
    "void alltoall_on_stream_kernel<float>(...)": "all_to_all",
    "void fcollect_on_stream_kernel<int>(...)": "all_gather",
    "void nvshmemi_broadcast_on_stream_kernel<int>(...)": "broadcast",
    "rma_entrypoint_blocking(...)": "unknown",
    "AlltoAllGda(...)": "all_to_all",
    # oneCCL, HCCL
    "oneccl_allreduce_pcie": "all_reduce",
    "oneccl_reduce_base<float, int>": "unknown",
    "hcom_reduceScatter__428_2_1": "reduce_scatter",
    "hccl::all_gather": "all_gather",
    "allreduceAicpuKernel": "all_reduce",
}


@pytest.mark.parametrize(("name", "operation"), COMMUNICATION.items(), ids=list(COMMUNICATION))
def test_c057_c060_communication_of_all_families(name: str, operation: str) -> None:
    assert kind(name) == ("comm", operation)


SIGNALS = [
    "void deep_ep::intranode::notify_dispatch<8>(...)",
    "void uccl::internode::cached_notify<false>(...)",
    "deep_ep::internode_ll::clean_low_latency_buffer<96>(...)",
    "void deep_ep::intranode::barrier<8>(int**, int)",
    "void deep_ep::elastic::barrier_impl<8>(...)",
    "hybrid_ep::device_sync_kernel(unsigned int*, unsigned int*)",
    "EpCombineSyncBarrier_bf16",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
    "wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
    "void c10d::nvshmem_extension::exchangeSplitAndOffset<false>(...)",
    "exchangeSplitAndOffset_2d",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "sync_all_on_stream_kernel_block()",
    "nvshmemi_signal_wait_until_on_stream_kernel(unsigned long*, int, unsigned long)",
    "barrier_all_intra_node_atomic_cas_block",
    "kernel_local_copy_and_barrier_all",
    "wait_signal",
    "wait_geq_kernel(unsigned long long const*, unsigned long long)",
    "_spin_wait_signal_kernel",
    "rocshmem_barrier_all_kernel(...)",
    "__amd_rocclr_streamOpsWait.kd",
]


@pytest.mark.parametrize("name", SIGNALS)
def test_kernels_that_only_signal_or_wait(name: str) -> None:
    assert kind(name) == ("sync", "barrier")


FUSED = {
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0, half, 4>(...)": "all_reduce",
    "void tensorrt_llm::kernels::moefinalize_allreduce_fusion_kernel_oneshot_lamport<half, 8>(...)": "all_reduce",
    "void lamport_style_one_shot_all_reduce_norm_kernel<8, __nv_bfloat16, 8, false>(...)": "all_reduce",
    "void flashinfer::mnnvl::oneshotAllreduceFusionKernel<8, __nv_bfloat16>(...)": "all_reduce",
    "void tensorrt_llm::kernels::mnnvl::rmsNormLamport<__nv_bfloat16, 1024>(...)": "all_reduce",
    "void userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm<half, 1024>(...)": "all_reduce",
    "void aiter::allreduce_fusion_kernel_1stage<half, 8>(...)": "all_reduce",
    "kernel_consumer_gemm_persistent": "unknown",
    "ag_gemm_kernel": "all_gather",
    "gemm_rs_producer_persistent": "reduce_scatter",
    "void cutlass::device_kernel<bytedance::flux::GemmRS<...>>(...)": "reduce_scatter",
    "gemm_ar_kernel": "all_reduce",
}


@pytest.mark.parametrize(("name", "operation"), FUSED.items(), ids=list(FUSED))
def test_c058_compute_and_communication_in_one(name: str, operation: str) -> None:
    assert kind(name) == ("fused", operation)


COMPUTE = [
    # words of communication in what only computes
    "triton_poi_fused_all_reduce_0",
    "triton_red_fused__to_copy_add_all_gather_into_tensor_native_layer_norm_wait_tensor_3",
    "triton_per_fused_reduce_scatter_tensor_sum_2",
    "void at::native::(anonymous namespace)::reduce_kernel<512, 1, at::native::ReduceOp<float, nccl>>(...)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<ncclDevKernel_AllReduce>>(...)",
    "void cub::DeviceReduceKernel<cub::Policy, allreduce_op>(...)",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4>(cutlass::gemm_array_params)",
    "void cutlass::gemm::kernel::gemm_array_strided_batched_arch90<float>(...)",
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>, 4, 3>(flash::Flash_fwd_params)",
    "void flashinfer::MergeStatesKernel_combine<8>(...)",
    "void vllm::moe::topkGatingSoftmax<8, 256>(...)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(...)",
    "void deep_ep::elastic::combine_reduce_epilogue_impl<8>(...)",
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<8>(...)",
    "tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*, int*, int*, int, unsigned int*)",
    "__amd_rocclr_streamOpsWrite.kd",
    "__amd_rocclr_gwsInit",
    "kuserbuffers_inc(int*)",
    "kuserbuffers_dummy()",
    "nvshmemi_init_array_kernel(...)",
    "EpCombineSync_bf16",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(...)",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(...)",
    "hipblaslt_kernel",
    "void hipcub::DeviceScanKernel<rccl>(...)",
    "batch_norm_SyncBN_stats_kernel",
    "Cijk_Ailk_Bljk_SB_MT64x64x16_SE_1LDSB0_barrier",
    "void dispatch_bfloat16_softmax_kernel<1024>(...)",
    "void fbgemm_gpu::permute_pooled_embs_kernel<float>(...)",
    "void mma_sync_gemm<128>(...)",
    "void oneRankReduce<RedOpPreMulSum<float>>(void*, void*, unsigned long, unsigned long, bool)",
    "void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, float>>(...)",
    "void index_broadcast_add_kernel<float>(...)",
    "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float>(...)",
]


@pytest.mark.parametrize("name", COMPUTE)
def test_c055_c061_compute_with_words_of_communication(name: str) -> None:
    assert kind(name) == ("compute", "unknown")


SUSPICIOUS = [
    "void block_all_reduce_sum_f32_f32_kernel<256>(float*, float*, int)",
    "void acme_allgather_copy<float>(...)",
    "my_p2p_push_kernel",
    "void llm::peer_reduce_scatter_v2<8>(...)",
    "remote_copy_kernel",
    "void acme::nccl_like_gather<float>(...)",
    "shmem_put_block_kernel",
    "acme_ring_exchange",
]


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_c081_words_of_communication_without_a_rule_stay_visible(name: str) -> None:
    # They count as compute, but as a name that no rule knows, so that a large one is listed.
    assert kind(name) == ("unnamed", "unknown")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void ns::kernel<float, 8>(int*, ns::T<2>)", "ns::kernel"),
        ("ns::(anonymous namespace)::kernel(int)", "ns::kernel"),
        ("std::enable_if<(true), void>::type a::b<int>(c<d>)", "a::b"),
        ("kernel [clone .kd]", "kernel"),
        ("_ZN2ns6kernelIfEEvPT_", "ns::kernel"),
        ("_ZN12_GLOBAL__N_16kernelEv", "kernel"),
        ("_Z6kernelPf", "kernel"),
        ("void kernel<(ns::Kind)3, true>(x)", "kernel"),
        ("void f<&g<int>>(h)", "f"),
        ("", ""),
        ("operator<", "operator"),
    ],
)
def test_the_own_name_of_a_kernel(name: str, own: str) -> None:
    assert own_name(name) == own


def test_every_limit_of_the_table_has_its_words() -> None:
    assert {rule.limit for rule in LOCAL_AND_COMMUNICATION if rule.limit} <= set(LIMITS)
