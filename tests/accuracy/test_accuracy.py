"""The simulated device against transformers over a text, and the arithmetic of that comparison."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import BAR, POSITIONS, Accuracy, Divergence, compare, log_softmax, measure, text_tokens
from wordline.artifact import Artifact
from wordline.errors import WordlineError


def test_smollm2_is_as_accurate_as_a_bf16_run(smollm2_path: Path, smollm2_artifact: Artifact) -> None:
    """Both bars, over the whole vocabulary at every position."""
    result = measure(smollm2_path, smollm2_artifact)
    assert result.positions == POSITIONS >= 2000
    assert 0 < result.bf16.mean_kl < 0.01  # a broken reference would make the bar meaningless
    assert result.reference_perplexity < 30
    assert result.kl_ratio <= BAR
    assert result.top1_ratio <= BAR
    assert result.holds


def test_divergence_of_known_distributions() -> None:
    """Two positions over two tokens, probabilities in quarters."""
    exact = np.log(np.array([[0.75, 0.25], [0.5, 0.5]], np.float32))
    swapped = exact[:, ::-1].copy()
    result = compare([exact], [swapped], [exact], [0, 1])
    assert result.positions == 2
    assert result.device == Divergence(0.0, 0.0, pytest.approx(4.0))
    expected = (0.75 * math.log(3) - 0.25 * math.log(3)) / 2  # the second position is symmetric
    assert result.bf16.mean_kl == pytest.approx(expected)
    assert result.bf16.top1_disagreement == 0.5
    assert result.bf16.perplexity == pytest.approx(4 / 3)
    assert result.holds


def test_blocks_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    logits = [rng.standard_normal((12, 7)).astype(np.float32) for _ in range(3)]
    tokens = rng.integers(0, 7, 12).tolist()
    whole = compare(*([part] for part in logits), tokens)
    cut = compare(*([part[:5], part[5:]] for part in logits), tokens)
    assert cut.bf16.mean_kl == pytest.approx(whole.bf16.mean_kl)
    assert cut.device == Divergence(*(pytest.approx(x) for x in vars(whole.device).values()))
    assert cut.reference_perplexity == pytest.approx(whole.reference_perplexity)


def test_streams_of_different_length_are_refused() -> None:
    block = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="shorter"):
        compare([block, block], [block, block], [block], [0, 1, 2, 0])


def test_log_softmax_survives_large_logits() -> None:
    np.testing.assert_allclose(np.exp(log_softmax(np.array([[1e4, 1e4, -1e4]], np.float32))), [[0.5, 0.5, 0.0]])


@pytest.mark.parametrize(
    ("bf16", "device", "holds"), [(0.02, 0.03, True), (0.02, 0.031, False), (0.0, 0.0, True), (0.0, 0.01, False)]
)
def test_the_bar(bf16: float, device: float, holds: bool) -> None:
    result = Accuracy(1, 1.0, Divergence(1.0, bf16, 1.0), Divergence(1.0, device, 1.0))
    assert result.holds is holds
    assert Accuracy(1, 1.0, Divergence(1.0, 0.1, 1.0), Divergence(1.51, 0.1, 1.0)).holds is False


def test_a_text_that_is_too_short_says_so(smollm2_artifact: Artifact) -> None:
    with pytest.raises(WordlineError, match=r"the text has \d+ tokens, 100000 are wanted") as caught:
        text_tokens(smollm2_artifact, 100_000)
    assert caught.value.code == "text-too-short"
