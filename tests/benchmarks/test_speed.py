"""The speed measurement: its arithmetic, and (with the slow tests) its bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed import BAR, BOTH, TRANSFORMERS, VALUES, Speed, measure, weight_bytes
from wordline.artifact import Artifact


def test_figures_follow_from_the_rates() -> None:
    rates = {BOTH: 60.0, VALUES: 70.0, f"{TRANSFORMERS}, threads: 2": 24.0, f"{TRANSFORMERS}, threads: 1": 30.0}
    speed = Speed(2, 3, 4, rates, rates, 32.0, 270_000_000)
    assert speed.ratio == 2.0  # against the better of the two
    assert speed.holds
    assert speed.stream_percent == pytest.approx(100 * 60 * 0.27 / 32)
    document = speed.document()
    assert (document["ratio"], document["bar"], document["holds"]) == (2.0, BAR, True)
    assert not Speed(2, 3, 4, {**rates, BOTH: 44.0}, rates, 32.0, 1).holds


def test_a_token_reads_the_matrices_once(smollm2_artifact: Artifact) -> None:
    """30 layers of 3.54 M weights and the 49152 x 576 output matrix, in bf16."""
    layer = 576 * (2 * 576 + 2 * 192) + 3 * 576 * 1536
    assert weight_bytes(smollm2_artifact) == 2 * (30 * layer + 49152 * 576)


@pytest.mark.slow
def test_simulating_is_faster_than_transformers(
    smollm2_path: Path, smollm2_artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs a computer that does little else."""
    monkeypatch.setenv("WORDLINE_THREADS", "2")
    speed = measure(smollm2_path, smollm2_artifact, threads=2, turns=6, tokens=8)
    assert speed.ratio >= BAR
    assert 0 < speed.stream_percent < 100
