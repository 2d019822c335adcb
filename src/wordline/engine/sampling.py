"""Choosing the next token on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError


@dataclass(frozen=True)
class Sampling:
    """How to choose: ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 restrict nothing."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "0 (greedy) or a positive number"),
            ("top-k", self.top_k, self.top_k >= 0, "0 (all tokens) or a positive whole number"),
            ("top-p", self.top_p, 0 < self.top_p <= 1, "a number above 0, up to 1 (all tokens)"),
            ("seed", self.seed, 0 <= self.seed < 1 << 64, "a whole number from 0, below 2^64"),
        )
        for name, value, good, wanted in checks:
            if not good:
                raise WordlineError("bad-sampling", f"{name} is {value}", remedy=f"give {wanted}")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken: then the device chooses and no logits travel."""
        return self.temperature == 0


class Sampler:
    """Draws tokens; the same seed and logits give the same tokens."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(sampling.seed))

    def pick(self, logits: npt.NDArray[np.float32]) -> int:
        """A token, from logits [vocab]. Restricts to the top k, then to the smallest set of probability top p.

        Raises:
            WordlineError: "bad-logits" if there is a NaN among them.
        """
        if np.isnan(logits).any():
            raise WordlineError(
                "bad-logits", "the device returned logits that are not numbers", remedy="check the model's weights"
            )
        if self.sampling.greedy:
            return int(np.argmax(logits))
        # Stable sort: equal logits keep the order of their ids, so that the draw is reproducible everywhere.
        order = np.argsort(-logits, kind="stable")
        if 0 < self.sampling.top_k < order.size:
            order = order[: self.sampling.top_k]
        kept = logits[order].astype(np.float64)
        if np.isfinite(kept[0]):
            with np.errstate(over="ignore"):  # a tiny temperature: to minus infinity, probability 0
                weights = np.exp((kept - kept[0]) / self.sampling.temperature)
        else:
            weights = (kept == kept[0]).astype(np.float64)
        cumulative = np.cumsum(weights / weights.sum())
        if self.sampling.top_p < 1:
            keep = int(np.searchsorted(cumulative, self.sampling.top_p)) + 1
            cumulative = cumulative[:keep]
        draw = self._random.random() * cumulative[-1]
        return int(order[min(int(np.searchsorted(cumulative, draw, side="right")), cumulative.size - 1)])
