"""A small decoder-only transformer and a sequence that it can learn."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, both behind a layer norm and around a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = f.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Tokens of shape (batch, length) to logits of shape (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
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
