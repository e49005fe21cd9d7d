"""A small decoder-only transformer and a sequence that it can learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as f


@dataclass(frozen=True)
class Shape:
    """Size of a model and of a rank's batch."""

    vocabulary: int = 512
    length: int = 64
    width: int = 256
    layers: int = 4
    heads: int = 4
    batch: int = 2


def feed_forward(width: int) -> nn.Module:
    """Two linear layers, four times as wide between them."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, both behind a layer norm and around a residual.

    The output of ``qkv`` is laid out by head, so that its rows can be shared out over ranks; the shape of x
    may be a part of the sequence, that of qkv(x) is not.
    """

    def __init__(self, width: int, heads: int, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.head_width = width // heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = feed_forward(width) if mlp is None else mlp

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x))
        batch, length, _ = qkv.shape
        query, key, value = qkv.view(batch, length, -1, 3, self.head_width).permute(3, 0, 2, 1, 4)
        attended = f.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp(self.mlp_norm(x))


class Embeddings(nn.Module):
    """Tokens of shape (batch, length) to vectors, each with its place in the sequence."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions[: tokens.shape[1]]


class Transformer(nn.Module):
    """Tokens of shape (batch, length) to logits of shape (batch, length, vocabulary).

    ``mlp`` makes the feed-forward part of each layer.
    """

    def __init__(self, shape: Shape, mlp: Callable[[int], nn.Module] = feed_forward) -> None:
        super().__init__()
        self.embeddings = Embeddings(shape.vocabulary, shape.length, shape.width)
        self.layers = nn.ModuleList(Block(shape.width, shape.heads, mlp(shape.width)) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def sequences(batch: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """Token sequences of shape (batch, length + 1): from a random start, each token decides the next one."""
    tokens = torch.empty(batch, length + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(vocabulary, (batch,), generator=generator)
    for i in range(length):
        tokens[:, i + 1] = (5 * tokens[:, i] + 3) % vocabulary
    return tokens
