"""Character-level transformer with explicit initial randomness."""

import math
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import check_choice
from feature_alignment.models.initialisation import SCHEMES, check_sizes, draw_normal, new_linear

INITS = ("nanogpt", *SCHEMES)
OUTPUTS = ("every_position", "last_position")


class CausalAttention(nn.Module):
    """Causal self-attention with separate query, key and value layers, so each can be measured."""

    def __init__(self, n_embd: int, n_head: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.n_head = n_head
        self.query, self.key, self.value, self.projection = (
            new_linear(n_embd, n_embd, **options) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, T, d) to (n, T, d); position t sees positions up to t."""
        n, length, d = x.shape
        q, k, v = (
            layer(x).view(n, length, self.n_head, -1).transpose(1, 2)  # (n, head, T, d/head)
            for layer in (self.query, self.key, self.value)
        )
        # Written out: the fused operation would round differently.
        scores = q @ k.transpose(2, 3) / math.sqrt(d // self.n_head)  # (n, head, T, T)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(dim=3)
        return self.projection((weights @ v).transpose(1, 2).reshape(n, length, d))


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm x), then the same with 4d GELU units."""

    def __init__(self, n_embd: int, n_head: int, options: dict[str, Any]) -> None:
        super().__init__()
        bias, dtype = options["bias"], options["dtype"]
        self.norm1 = nn.LayerNorm(n_embd, bias=bias, dtype=dtype)
        self.attention = CausalAttention(n_embd, n_head, options)
        self.norm2 = nn.LayerNorm(n_embd, bias=bias, dtype=dtype)
        self.expand = new_linear(n_embd, 4 * n_embd, **options)
        self.contract = new_linear(4 * n_embd, n_embd, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, T, d) to (n, T, d)."""
        x = x + self.attention(self.norm1(x))
        return x + self.contract(nn.functional.gelu(self.expand(self.norm2(x))))


class GPT(nn.Module):
    """Decoder-only transformer on characters with nanoGPT's layout, without dropout.

    The initialisation `nanogpt` draws weight matrices from N(0, 0.02²), those of the residual
    projections from N(0, 0.02²/(2·n_layer)), and sets biases to zero. Under the schemes of
    `new_linear`, embeddings are drawn from N(0, 1), as in `nn.Embedding`, and so is a tied readout.
    Layers have names such as "blocks.0.attention.query" and "readout".

    Source: Beaglehole et al. 2024, Appendix J and Figure 2D (nanoGPT, 3 layers, no dropout).

    Args:
        vocabulary: V, the number of characters.
        n_layer: number of blocks.
        n_head: heads of each block, a divisor of n_embd.
        n_embd: d, size of a token's vector.
        block_size: longest sequence.
        generator: CPU generator of the initial weights.
        bias: whether linear layers (except the readout) and layer norms have biases.
        tie_weights: whether the readout's weight is the token embedding's.
        outputs: "every_position" for (n, T, V), or "last_position" for (n, V), the kernels' (n, c).
        init: one of `INITS`.

    Raises:
        ValueError: if a size is below 1, the heads do not divide the width, or a name is unknown.
    """

    def __init__(
        self,
        vocabulary: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        block_size: int,
        generator: torch.Generator,
        bias: bool = False,
        tie_weights: bool = True,
        outputs: str = "every_position",
        init: str = "nanogpt",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_sizes(vocabulary=vocabulary, n_layer=n_layer, n_head=n_head)
        check_sizes(n_embd=n_embd, block_size=block_size)
        if n_embd % n_head:
            raise ValueError(f"n_head: {n_head} heads do not divide n_embd = {n_embd} evenly.")
        check_choice("init", init, INITS)
        check_choice("outputs", outputs, OUTPUTS)
        scheme = "pytorch" if init == "nanogpt" else init
        drawing: dict[str, Any] = {"scheme": scheme, "generator": generator, "dtype": dtype}
        options = {"bias": bias, **drawing}
        self.outputs = outputs
        self.token_embedding = _new_embedding(vocabulary, n_embd, generator, dtype)
        self.position_embedding = _new_embedding(block_size, n_embd, generator, dtype)
        self.blocks = nn.Sequential(*(Block(n_embd, n_head, options) for _ in range(n_layer)))
        self.norm = nn.LayerNorm(n_embd, bias=bias, dtype=dtype)
        self.readout = new_linear(n_embd, vocabulary, bias=False, **drawing)
        if tie_weights:
            self.readout.weight = self.token_embedding.weight
        if init == "nanogpt":
            for name, parameter in self.named_parameters():  # a tied weight comes once
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                elif name.endswith(("projection.weight", "contract.weight")):
                    draw_normal(parameter, 0.02 / math.sqrt(2 * n_layer), generator)
                elif parameter.ndim == 2:
                    draw_normal(parameter, 0.02, generator)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next character: integers (n, T) → (n, T, V), or (n, V) for the last one.

        Raises:
            ValueError: if the sequences are longer than block_size.
        """
        length, limit = tokens.shape[1], self.position_embedding.num_embeddings
        if length > limit:
            raise ValueError(f"sequences of {length} characters; block_size allows {limit}.")
        positions = torch.arange(length, device=tokens.device).expand_as(tokens)
        x = self.token_embedding(tokens) + self.position_embedding(positions)  # (n, T, d)
        x = self.norm(self.blocks(x))
        if self.outputs == "last_position":
            x = x[:, -1]  # (n, d)
        return self.readout(x)


def _new_embedding(
    number: int, d: int, generator: torch.Generator, dtype: torch.dtype
) -> nn.Embedding:
    # From given values, since the constructor would draw from PyTorch's global generator.
    embedding = nn.Embedding.from_pretrained(torch.empty(number, d, dtype=dtype), freeze=False)
    draw_normal(embedding.weight, 1, generator)
    return embedding
