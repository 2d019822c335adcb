"""Attention as one operation: a custom torch op behind transformers' attention interface.

The exported decode step runs without a cache object, so queries and keys (after the rotary embedding) and values of the
current token alone reach the op; the cache belongs to the graph's `attention` operation.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface

IMPLEMENTATION = "wordline"
"""Value of `config._attn_implementation` that selects this attention."""

OP_NAME = "wordline.attention.default"

_IGNORED = {"position_ids", "use_cache", "dropout", "is_causal", "output_attentions", "cache_position"}
"""Arguments of attention functions that do not change a decode step."""


@torch.library.custom_op("wordline::attention", mutates_args=())  # type: ignore[untyped-decorator]
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, scale: float, window: int, extras: str
) -> torch.Tensor:
    raise NotImplementedError("wordline::attention is traced, never executed")


@_attention.register_fake  # type: ignore[untyped-decorator]
def _attention_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, scale: float, window: int, extras: str
) -> torch.Tensor:
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


def _attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls instead of its own attention: [batch, heads, 1, head] to [batch, 1, heads, head]."""
    # Refinements such as score caps or sinks change the result; the lowering reports them with the source line.
    extras = sorted(name for name, given in kwargs.items() if given is not None and name not in _IGNORED)
    if not getattr(module, "is_causal", True):
        extras.append("positions after the current one")
    if attention_mask is not None:
        extras.append("attention_mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    layer = int(module.layer_idx)
    out = torch.ops.wordline.attention(query, key, value, layer, scale, sliding_window or 0, ", ".join(extras))
    return out, None


AttentionInterface.register(IMPLEMENTATION, _attention_function)
