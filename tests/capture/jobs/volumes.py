"""Bytes per rank and step that each job must send, derived by hand from the sizes of its model.

``S * f`` of the bandwidth table: all-reduce ``2(n-1)/n`` of the tensor, all-gather ``(n-1)/n`` of the gathered output,
reduce-scatter ``(n-1)/n`` of the input, all-to-all ``(n-1)/n`` of the send buffer, the others once. All elements have
four bytes. ``w`` is the width of the model, ``v`` its vocabulary, ``s`` the length of a sequence, ``b`` the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

BYTES = 4
WIDTH, LAYERS, VOCABULARY, LENGTH, BATCH = 256, 4, 512, 64, 2
PIPELINE_MICROBATCHES = 4
EXPERT_BATCH = 4

# Layer norms 2 x 2w, qkv 3w w + 3w, projection w w + w, feed-forward 4w w + 4w and w 4w + w.
LAYER = 12 * WIDTH**2 + 13 * WIDTH
# Tokens v w, positions s w, the last layer norm 2w, head v w without bias.
ROOT = 2 * VOCABULARY * WIDTH + LENGTH * WIDTH + 2 * WIDTH
PARAMETERS = LAYERS * LAYER + ROOT
ACTIVATION = BATCH * LENGTH * WIDTH * BYTES


def part(n: int) -> Fraction:
    """(n-1)/n."""
    return Fraction(n - 1, n)


def ddp(ranks: int, parameters: int = PARAMETERS) -> Fraction:
    """One all-reduce of all gradients; the model has no buffers to broadcast."""
    return 2 * part(ranks) * parameters * BYTES


def zero1(ranks: int) -> Fraction:
    """DDP's, then every parameter broadcast once by the rank that updates it."""
    return ddp(ranks) + PARAMETERS * BYTES


def fsdp(ranks: int, layer: int = LAYER, layers: int = LAYERS) -> Fraction:
    """Gathered for the forward pass: all. For the backward pass: the layers, for the root is kept. Reduced: all.

    ``layer`` is the number of parameters of a layer on the ranks of one group. No unit needs padding.
    """
    whole = layers * layer + ROOT
    return part(ranks) * BYTES * (whole + layers * layer + whole)


def hsdp(replicas: int, shards: int, layers: int = LAYERS) -> Fraction:
    """FSDP's inside a replica, then the all-reduce of each shard over the replicas."""
    shard = Fraction(layers * LAYER + ROOT, shards)
    return fsdp(shards, layers=layers) + 2 * part(replicas) * shard * BYTES


def tensor(ranks: int, layers: int = LAYERS) -> Fraction:
    """Two all-reduces of an activation in each layer forward, two backward."""
    return layers * 4 * 2 * part(ranks) * ACTIVATION


def tensor_sequence(ranks: int) -> Fraction:
    """Per layer two gathers and two reduce-scatters forward, the same backward (nothing is gathered twice).

    Around the layers: the head gathers its input (scattered backward) and the logits, b s v; the embeddings' gradient
    is gathered. Gradients of layer norms are partial sums: AdamW reads each three times, and each time it is reduced.
    """
    gathered = (LAYERS * 4 + 2) * ACTIVATION + BATCH * LENGTH * VOCABULARY * BYTES
    scattered = (LAYERS * 4 + 1) * ACTIVATION
    norms = (2 * LAYERS + 1) * 2 * WIDTH * BYTES
    return part(ranks) * (gathered + scattered) + 3 * 2 * part(ranks) * norms


def tensor_in_fsdp(data: int, ranks: int, layers: int = LAYERS) -> Fraction:
    """Tensor parallelism's, and FSDP's on what a rank of a tensor-parallel group holds.

    Split: qkv, the weight of the projection, both feed-forward weights and the first bias. Whole: the layer norms (4w)
    and the biases of the projection and of the second feed-forward layer (2w). FSDP shares out rows: those of qkv
    (weight and bias, w + 1) are padded until every rank has as many; the rows of the others are enough here.
    """
    rows = 3 * WIDTH // ranks
    padding = -rows % data * (WIDTH + 1)
    layer = (12 * WIDTH**2 + 7 * WIDTH) // ranks + 6 * WIDTH + padding
    return tensor(ranks, layers) + fsdp(data, layer, layers)


def pipeline(stages: int = 2, replicas: int = 1) -> Fraction:
    """Over each border of two stages an activation and its gradient per microbatch, counted where sent and received.

    With replicas DDP sums the gradients of a stage over them once per step; together the stages are the whole model.
    """
    messages = Fraction((stages - 1) * 2 * 2 * PIPELINE_MICROBATCHES * ACTIVATION, stages)
    return messages + ddp(replicas) / stages


def experts(ranks: int) -> Fraction:
    """Tokens to their expert and back, forward and backward; who sends more than others receives less than others.

    Before it the numbers of tokens, 8 bytes per rank. DDP reduces all but the experts; each layer has a router.
    """
    router = (WIDTH + 1) * ranks
    dense = LAYERS * (LAYER - (8 * WIDTH**2 + 5 * WIDTH) + router) + ROOT
    tokens = EXPERT_BATCH * LENGTH * WIDTH * BYTES
    return ddp(ranks, dense) + part(ranks) * LAYERS * (4 * tokens + 8 * ranks)


def zero_deepspeed(ranks: int) -> Fraction:
    """Stages 1 and 2: gradients all-reduced, parameters gathered; one number says whether any overflowed."""
    return ddp(ranks) + part(ranks) * PARAMETERS * BYTES + 2 * part(ranks) * BYTES


def zero3_deepspeed(ranks: int) -> Fraction:
    """What DeepSpeed gathers of what it does not keep on every rank, with the configuration of the job.

    Small: up to 2,000 elements, so all biases and layer norms. These stay on every rank during the step and are
    gathered after the optimizer, each by itself. Large, four weights per layer, both embeddings and the head: gathered
    for the forward pass once each, ahead of use and as far ahead as 1,000,000 gathered elements allow.

    Released after use, unless the look-ahead has passed over the next use while the parameter was there. That happens
    where the forward pass enters the last layer, with the four weights of it (12 w w = 786,432 elements) gathered and
    all before released: 213,568 are left, and the look-ahead takes the head (v w = 131,072), passes over what the
    backward pass needs first (the head and the last layer, all there or on the way, so they are kept) and takes the
    last weight of the layer before. The backward pass gathers the rest in its order, so that these five are gathered
    once and the other large ones twice.

    No parameter needs padding on 2 or 4 ranks. Gradients: all scattered. The norm of the gradients: eight bytes.
    """
    small = 13 * LAYERS * WIDTH + 2 * WIDTH
    kept = 12 * WIDTH**2 + VOCABULARY * WIDTH
    gathered = 2 * (PARAMETERS - small) - kept + small
    return part(ranks) * BYTES * (gathered + PARAMETERS) + 2 * part(ranks) * 8


FACTOR = {
    "all_reduce": lambda n: 2 * part(n),
    "all_gather": part,
    "reduce_scatter": part,
    "all_to_all": part,
}


def sent(calls: Iterable[dict[str, Any]], groups: Iterable[dict[str, Any]]) -> Fraction:
    """Sum of ``S * f`` over recorded calls."""
    size = {group["name"]: len(group["ranks"]) for group in groups}
    once = Fraction(1)
    return sum(
        (call["size"] * FACTOR.get(call["op"], lambda n: once)(size[call["group"]]) for call in calls), Fraction(0)
    )
