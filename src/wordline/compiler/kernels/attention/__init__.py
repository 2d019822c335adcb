"""Decode attention over the paged KV cache: append, scores, softmax, weighted sum of V, one batch of KV heads at a
time.

Channels compute the scores of their own pages (`score`), the vector unit makes them probabilities in place
(`softmax`), the channels multiply them with V (`weigh`), and the vector unit adds the channels' parts and divides by
the sum (`merge`). The work of one batch on the vector unit overlaps with the next one's on the channels."""

from wordline.compiler.kernels.attention.append import append
from wordline.compiler.kernels.attention.score import score
from wordline.compiler.kernels.attention.shape import AttentionShape, head_batches, partial_bytes
from wordline.compiler.kernels.attention.vector import merge, softmax
from wordline.compiler.kernels.attention.weigh import weigh

__all__ = ["AttentionShape", "append", "head_batches", "merge", "partial_bytes", "score", "softmax", "weigh"]
