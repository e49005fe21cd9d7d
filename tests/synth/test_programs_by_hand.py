"""One run per program, small enough to work out on paper; times in µs.

In every run the copy of the batch is launched at 0.4 and takes 2 (2.16 where the batch has 500 rows), a layer
takes 100 forward and 200 backward, the optimizer 50.
"""

from __future__ import annotations

from commprof.synth import Fault
from commprof.synth.waiting import call_truth
from tests.synth.by_hand import LAYER_BYTES, round_job, rows, run, truth


def split(window):
    keys = ("compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    return (window.end - window.start, *(window.split[key] for key in keys))


def test_ddp_hides_the_first_bucket_and_exposes_the_tail() -> None:
    # Two ranks: factor 2(n-1)/n = 1, so a bucket of 481,600 B at 4.816 GB/s takes 100.
    timeline = run(round_job(4_816_000_000, layers=2))

    device = rows(timeline)
    known = truth(timeline)

    assert device == [
        ("copy", "0.4", "2.4"),
        ("mm", "2.4", "102.4"),
        ("mm", "102.4", "202.4"),
        ("mm", "202.4", "402.4"),
        ("all_reduce", "402.4", "502.4"),  # beside the backward pass of layer 0
        ("mm", "402.4", "602.4"),
        ("all_reduce", "602.4", "702.4"),  # nothing left to hide it
        ("_fused_adamw_", "702.4", "752.4"),
    ]
    # The window opens with the first compute kernel: 752.4 - 2.4 = 750 = 650 compute + 100 exposed.
    assert split(known.steps[0]) == (750_000, 650_000, 200_000, 100_000, 100_000, 0, 0)
    assert [e.exposed for e in known.exposure.values()] == [0, 100_000]


def test_ddp_without_sync_reduces_only_in_the_last_microbatch() -> None:
    timeline = run(round_job(4_816_000_000, microbatches=2))

    device = rows(timeline)

    # forward, backward, forward, backward, bucket, optimizer
    assert [(name, end) for name, _, end in device[1:]] == [
        ("mm", "102.4"), ("mm", "302.4"), ("mm", "402.4"), ("mm", "602.4"), ("all_reduce", "702.4"),
        ("_fused_adamw_", "752.4"),
    ]  # fmt: skip


def test_ddp_that_looks_for_unused_parameters_reduces_a_bitmap_as_well() -> None:
    timeline = run(round_job(4_816_000_000, find_unused=True))

    device = rows(timeline)

    # The bitmap has one 4-byte integer per tensor: 6 x 4 B at 4.816 GB/s is 4.98 ns, rounded up to 5.
    assert device[3:5] == [("all_reduce", "302.4", "402.4"), ("all_reduce", "402.4", "402.405")]


def test_zero1_gathers_after_the_optimizer() -> None:
    # Two ranks: factor 1/2. 481,600 B / 2 at 2.408 GB/s is 100; the bf16 parameters half of that.
    timeline = run(round_job(2_408_000_000, strategy="zero1", steps=2))

    device = rows(timeline)
    known = truth(timeline)

    assert device == [
        ("copy", "0.4", "2.4"),
        ("mm", "2.4", "102.4"),
        ("mm", "102.4", "302.4"),
        ("reduce_scatter", "302.4", "402.4"),
        ("_fused_adamw_", "402.4", "452.4"),
        ("all_gather", "452.4", "502.4"),
        ("copy", "502.4", "504.4"),
        ("mm", "504.4", "604.4"),
        ("mm", "604.4", "804.4"),
        ("reduce_scatter", "804.4", "904.4"),
        ("_fused_adamw_", "904.4", "954.4"),
        ("all_gather", "954.4", "1004.4"),
    ]
    # 502 = 100 + 200 + 50 compute + 100 + 50 exposed + 2 copy of the next batch.
    assert split(known.steps[0]) == (502_000, 350_000, 150_000, 0, 150_000, 2_000, 0)


def test_zero1_of_torch_broadcasts_from_every_owner() -> None:
    # All-reduce 481,600 B: 100. Each of two ranks owns 60,200 elements: 240,800 B of fp32 broadcast in 50.
    timeline = run(round_job(4_816_000_000, strategy="zero1-torch"))

    device = rows(timeline)

    assert device[3:] == [
        ("all_reduce", "302.4", "402.4"),
        ("_fused_adamw_", "402.4", "452.4"),
        ("broadcast", "452.4", "502.4"),
        ("broadcast", "502.4", "552.4"),
    ]


def test_zero2_reduces_in_every_microbatch() -> None:
    timeline = run(round_job(2_408_000_000, strategy="zero2", microbatches=2))

    device = rows(timeline)

    # The second forward waits for the reduction of the first microbatch.
    assert device[3:9] == [
        ("reduce_scatter", "302.4", "402.4"),
        ("mm", "402.4", "502.4"),
        ("mm", "502.4", "702.4"),
        ("reduce_scatter", "702.4", "802.4"),
        ("_fused_adamw_", "802.4", "852.4"),
        ("all_gather", "852.4", "902.4"),
    ]


def test_zero3_gathers_one_layer_ahead_on_one_stream() -> None:
    # A layer in bf16: 240,800 B x 1/2 at 2.408 GB/s is 50, gathered or scattered.
    timeline = run(round_job(2_408_000_000, strategy="zero3", layers=2))

    device = rows(timeline)
    known = truth(timeline)

    assert device == [
        ("copy", "0.4", "2.4"),
        ("all_gather", "2.4", "52.4"),
        ("all_gather", "52.4", "102.4"),
        ("mm", "52.4", "152.4"),
        ("mm", "152.4", "252.4"),
        ("all_gather", "252.4", "302.4"),
        ("all_gather", "302.4", "352.4"),
        ("mm", "302.4", "502.4"),
        ("reduce_scatter", "502.4", "552.4"),
        ("mm", "502.4", "702.4"),
        ("reduce_scatter", "702.4", "752.4"),
        ("_fused_adamw_", "752.4", "802.4"),
    ]
    # The window opens at 52.4; exposed are the gather before backward and the last scatter.
    assert split(known.steps[0]) == (750_000, 650_000, 250_000, 150_000, 100_000, 0, 0)


def test_fsdp_copies_out_before_each_pass() -> None:
    # A local copy of 240,800 B reads and writes: 2 + 481,600 B / 2500 GB/s = 2 + 0.192 (floor of 0.19264).
    timeline = run(round_job(2_408_000_000, strategy="fsdp"))

    device = rows(timeline)
    known = truth(timeline)

    assert device == [
        ("copy", "0.4", "2.4"),
        ("all_gather", "1.4", "51.4"),  # its own stream, launched 1 after the copy
        ("split_with_sizes_copy", "51.4", "53.592"),
        ("mm", "53.592", "153.592"),
        ("all_gather", "53.592", "103.592"),  # waits for the copy-out before it, runs beside forward
        ("split_with_sizes_copy", "153.592", "155.784"),
        ("mm", "155.784", "355.784"),
        ("chunk_cat", "355.784", "357.976"),
        ("reduce_scatter", "357.976", "407.976"),
        ("_fused_adamw_", "407.976", "457.976"),
    ]
    # 3 x 2.192 + 100 + 200 + 50 = 356.576 compute, 50 hidden, 50 exposed.
    assert split(known.steps[0]) == (406_576, 356_576, 100_000, 50_000, 50_000, 0, 0)


def test_hsdp_reduces_the_shard_over_the_replicas() -> None:
    timeline = run(round_job(2_408_000_000, strategy="hsdp", inner=2, outer=2))

    device = rows(timeline)

    # As FSDP up to the scatter; then half a layer (120,400 B, factor 1) is all-reduced in 50.
    assert device[8:] == [
        ("reduce_scatter", "357.976", "407.976"),
        ("all_reduce", "407.976", "457.976"),
        ("_fused_adamw_", "457.976", "507.976"),
    ]


TP = {"strategy": "none", "tp": 2, "inner": 1, "batch": 500}  # 500 x 100 activations: 100,000 B in bf16


def test_tensor_parallel_stops_for_each_all_reduce() -> None:
    # 100,000 B, factor 1, 10 GB/s: 10. Each half layer takes 50 forward, 100 backward.
    timeline = run(round_job(10_000_000_000, **TP))

    device = rows(timeline)
    known = truth(timeline)

    assert device == [
        ("copy", "0.4", "2.56"),
        ("mm", "2.56", "52.56"),
        ("all_reduce", "52.56", "62.56"),
        ("mm", "62.56", "112.56"),
        ("all_reduce", "112.56", "122.56"),
        ("mm", "122.56", "222.56"),
        ("all_reduce", "222.56", "232.56"),
        ("mm", "232.56", "332.56"),
        ("all_reduce", "332.56", "342.56"),
        ("_fused_adamw_", "342.56", "392.56"),
    ]
    assert split(known.steps[0]) == (390_000, 350_000, 40_000, 0, 40_000, 0, 0)


def test_async_tensor_parallel_hides_it_behind_the_weight_product() -> None:
    timeline = run(round_job(10_000_000_000, async_tp=True, **TP))

    device = rows(timeline)
    known = truth(timeline)

    assert device[5:] == [
        ("mm", "122.56", "172.56"),
        ("all_reduce", "172.56", "182.56"),
        ("mm", "172.56", "222.56"),
        ("mm", "222.56", "272.56"),
        ("all_reduce", "272.56", "282.56"),
        ("mm", "272.56", "322.56"),
        ("_fused_adamw_", "322.56", "372.56"),
    ]
    assert split(known.steps[0]) == (370_000, 350_000, 40_000, 20_000, 20_000, 0, 0)


def test_sequence_parallel_gathers_and_scatters() -> None:
    # 100,000 B, factor 1/2, 10 GB/s: 5 each; backward gathers the gradient and the input again.
    timeline = run(round_job(10_000_000_000, sequence_parallel=True, **TP))

    device = rows(timeline)

    assert device[1:11] == [
        ("all_gather", "2.56", "7.56"),
        ("mm", "7.56", "57.56"),
        ("reduce_scatter", "57.56", "62.56"),
        ("all_gather", "62.56", "67.56"),
        ("mm", "67.56", "117.56"),
        ("reduce_scatter", "117.56", "122.56"),
        ("all_gather", "122.56", "127.56"),
        ("all_gather", "127.56", "132.56"),
        ("mm", "132.56", "232.56"),
        ("reduce_scatter", "232.56", "237.56"),
    ]


# Two stages of one layer, two microbatches; a message takes 10 whatever its size (200 B at 1 TB/s add 1 ns).
PIPE = {"strategy": "none", "inner": 1, "pp": 2, "layers": 2, "microbatches": 2, "comm_base_ns": 9_999}


def test_1f1b_pipeline_waits_for_the_last_stage() -> None:
    timeline = run(round_job(1_000_000_000_000, schedule="1f1b", **PIPE))

    first, last = rows(timeline, 0), rows(timeline, 1)
    known = truth(timeline, 0)

    assert first == [
        ("copy", "0.4", "2.4"),
        ("mm", "2.4", "102.4"),
        ("send", "102.4", "112.4"),
        ("mm", "102.4", "202.4"),
        ("send", "202.4", "422.4"),  # the last stage takes it after its first backward pass
        ("recv", "202.4", "422.4"),
        ("mm", "422.4", "622.4"),
        ("recv", "622.4", "732.4"),
        ("mm", "732.4", "932.4"),
        ("_fused_adamw_", "932.4", "982.4"),
    ]
    assert last == [
        ("copy", "0.4", "2.4"),
        ("recv", "2.4", "112.4"),
        ("mm", "112.4", "212.4"),
        ("mm", "212.4", "412.4"),
        ("send", "412.4", "422.4"),
        ("recv", "412.4", "422.4"),
        ("mm", "422.4", "522.4"),
        ("mm", "522.4", "722.4"),
        ("send", "722.4", "732.4"),
        ("_fused_adamw_", "722.4", "772.4"),
    ]
    # Stage 0: 980 = 650 compute + 220 + 110 exposed; the first send runs beside the second forward pass.
    assert split(known.steps[0]) == (980_000, 650_000, 340_000, 10_000, 330_000, 0, 0)


def test_gpipe_pipeline_runs_all_forward_passes_first() -> None:
    timeline = run(round_job(1_000_000_000_000, schedule="gpipe", **PIPE))

    first, last = rows(timeline, 0), rows(timeline, 1)

    assert [row for row in last if row[0] == "mm"] == [
        ("mm", "112.4", "212.4"),
        ("mm", "222.4", "322.4"),  # its input was asked for at 212.4
        ("mm", "322.4", "522.4"),
        ("mm", "522.4", "722.4"),
    ]
    # The gradients leave stage 1 at 522.4 and 722.4; stage 0 asks for the second when it is done with the first.
    assert [row for row in first if row[0] == "mm"][2:] == [("mm", "532.4", "732.4"), ("mm", "742.4", "942.4")]


def test_expert_parallel_sends_tokens_there_and_back() -> None:
    # Top 2 of 500 x 100 activations: 200,000 B, factor 1/2, 10 GB/s: 10. Layer 1 has the experts.
    scenario = round_job(10_000_000_000, experts=True, inner=2, layers=2, batch=500)
    timeline = run(scenario)

    device = rows(timeline)

    assert device[1:7] == [
        ("mm", "2.56", "52.56"),
        ("mm", "52.56", "102.56"),
        ("mm", "102.56", "152.56"),
        ("all_to_all", "152.56", "162.56"),
        ("mm", "162.56", "212.56"),
        ("all_to_all", "212.56", "222.56"),
    ]


def test_a_late_rank_makes_the_other_wait() -> None:
    # Rank 1 pauses 30 before its first kernel, so its bucket is ready 30 later; 100 of transfer follow.
    scenario = round_job(4_816_000_000, faults=(Fault("host-pause", 1, 30_000),))
    timeline = run(scenario)

    known = call_truth(timeline, timeline.calls[0])

    # Rank 0: copy to 2.4, 300 of compute. Rank 1: CPU 1 + 30, its first kernel is launched at 31.4.
    assert rows(timeline, 0)[3] == ("all_reduce", "302.4", "431.4")
    assert rows(timeline, 1)[3] == ("all_reduce", "331.4", "431.4")
    assert known.waits == {0: 29_000, 1: 0}
    assert (known.transfer_ns, known.last, known.skew_ns) == (100_000, 1, 29_000)


def test_a_bucket_is_as_long_as_a_layer() -> None:
    timeline = run(round_job(4_816_000_000))

    sizes = {call.comm.size_bytes for call in timeline.calls}

    assert sizes == {LAYER_BYTES}
