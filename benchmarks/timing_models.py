"""Speed of timing whole models: what ``python -m benchmarks.timing_speed --models`` measures."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy import MACHINE as CHIP
from benchmarks.accuracy import text_tokens
from benchmarks.speed import PROMPT, device_decoder
from wordline.cli.cache import cached_artifact
from wordline.cli.model_package import packaged_model
from wordline.cli.models import import_model
from wordline.compiler.arguments import POSITION, argument_memory
from wordline.compiler.pipeline import compile_graph
from wordline.machines import load_machine
from wordline.runtime import DeviceSpec, Residency, open_device
from wordline.sim.timing import TimingModel

MODEL, CARD, CONTEXT = "Llama-2-7B", "gddr6-aim-card", 4096


@dataclass(frozen=True)
class Seconds:
    """Wall time and CPU time of this process."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def median(times: list[Seconds]) -> Seconds:
    return Seconds(statistics.median(t.wall for t in times), statistics.median(t.cpu for t in times))


class Step:
    """A decode step of :data:`MODEL` for contexts up to :data:`CONTEXT`, compiled without weights."""

    def __init__(self, report: Callable[[str], None]) -> None:
        compiled = compile_graph(import_model(MODEL, None, report).graph, load_machine(CARD), CONTEXT, report)
        self._memory = argument_memory(compiled.lowered.kv, compiled.weight_rows, CONTEXT)
        self._image = compiled.generated.program.to_bytes()
        self.load()

    def load(self) -> None:
        """Start again with nothing known of earlier submissions."""
        self._timing = TimingModel(load_machine(CARD))
        self._slot = self._timing.load(self._image)

    def run(self, context: int) -> int:
        """Cycles of one step that attends over ``context`` tokens."""
        memory: npt.NDArray[np.int32] = self._memory.copy()
        memory[POSITION] = context - 1
        return self._timing.run(self._slot, 0, memory).cycles


@dataclass(frozen=True)
class StepSpeed:
    """Seconds of timing one step: the first time after loading, and again; and all contexts in turn, if measured."""

    cycles: int
    first: Seconds
    again: Seconds
    contexts: Seconds | None


def step_speed(step: Step, calls: int, sweep: bool) -> StepSpeed:
    """Medians over ``calls``; the sweep times every context from 1 to :data:`CONTEXT` once, from nothing."""
    first, again = [], []
    for _ in range(calls):
        step.load()
        first.append(timed(lambda: step.run(CONTEXT)))
    for _ in range(calls):
        again.append(timed(lambda: step.run(CONTEXT)))
    cycles = step.run(CONTEXT)
    step.load()
    all_contexts = timed(lambda: [step.run(context) for context in range(1, CONTEXT + 1)]) if sweep else None
    return StepSpeed(cycles, median(first), median(again), all_contexts)


@dataclass(frozen=True)
class CombinedSpeed:
    """Milliseconds a token of decoding SmolLM2 on the simulated chip, with cycles and values and with values only.

    The best turns of each, since what else the computer does can only slow them down; ``timing_cpu_ms`` is the CPU time
    that cycles add, the difference of the medians.
    """

    both_ms: float
    values_ms: float
    both_cpu_ms: float
    values_cpu_ms: float
    timing_cpu_ms: float

    @property
    def overhead(self) -> float:
        """What timing adds, as a part of the time without it: CPU time, which other work disturbs least."""
        return self.both_cpu_ms / self.values_cpu_ms - 1


def combined_speed(threads: int, turns: int, tokens: int, report: Callable[[str], None]) -> CombinedSpeed | None:
    """Both in turns of some tokens, in one process; one more turn before warms up. None: the model is not installed."""
    path = packaged_model()
    if path is None:
        return None
    os.environ["WORDLINE_THREADS"] = str(threads)
    artifact = cached_artifact(path, load_machine(CHIP), None, report)
    residency = Residency(open_device(DeviceSpec("sim", artifact.machine)))
    prompt = text_tokens(artifact, PROMPT)
    decoders = [device_decoder(artifact, residency, prompt, timing=timing) for timing in (True, False)]
    seen: list[list[Seconds]] = [[], []]
    for turn in range(turns + 1):
        for times, decode in zip(seen, decoders, strict=True):
            spent = timed(lambda decode=decode: decode(tokens))  # type: ignore[misc]
            if turn:
                times.append(spent)

    def best(times: list[Seconds], kind: str) -> float:
        return min(getattr(t, kind) for t in times) / tokens * 1e3

    both, values = seen
    return CombinedSpeed(
        best(both, "wall"),
        best(values, "wall"),
        best(both, "cpu"),
        best(values, "cpu"),
        (median(both).cpu - median(values).cpu) / tokens * 1e3,
    )
