"""Decode attention over the paged KV cache: scores, softmax, weighted sum of V, the step's K and V appended on the way.

The channels are divided into groups, each with the pages of its own KV heads, and work on one head of every group at a
time, a round: channels compute the scores of their own pages (`score`), the vector unit makes them probabilities in
place (`vector`), the channels multiply them with V (`weigh`), and the vector unit adds the channels' parts and divides
by the sum. The vector unit's work on one round overlaps with the next one's on the channels."""

from wordline.compiler.kernels.attention.shape import AttentionShape, first_choice, illegal_groups
from wordline.compiler.kernels.attention.tasks import AttentionSteps, Step

__all__ = ["AttentionShape", "AttentionSteps", "Step", "first_choice", "illegal_groups"]
