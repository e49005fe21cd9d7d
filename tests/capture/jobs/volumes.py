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


def pipeline() -> Fraction:
    """At the one border of two stages: an activation forward, its gradient backward, per microbatch."""
    return Fraction(2 * PIPELINE_MICROBATCHES * ACTIVATION)


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
