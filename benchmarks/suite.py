"""The cycle suite: which programs, their cycles, and how far they are from the machine's limits.

Cycles are exact: the same program on the same machine always takes the same number, so any change shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from benchmarks.programs import (
    Benchmark,
    attention_program,
    block_gemv_program,
    decode_program,
    elementwise_program,
    gemv_program,
)
from wordline.compiler.kernels.hbm2_pim.elementwise import Operation
from wordline.machines import Machine, load_machine
from wordline.sim.generation import generation_unit
from wordline.sim.limits import decode_limits, gemv_limits
from wordline.sim.shapes import known_shapes
from wordline.sim.timing import Span, TimingModel, TimingResult

CHIP, CARD = "gddr6-aim-chip", "gddr6-aim-card"
STACK, STACKS = "hbm2-pim-stack", "hbm2-pim-4stacks"
EIGHT, ONE = f"{CARD}+organisation.channels=8", f"{CARD}+organisation.channels=1"
"""What CENT gives one block of a model, and one channel."""
MAX_CONTEXT = {"SmolLM2-135M": 8192, "Qwen3-0.6B": 40960, "Llama-2-7B": 4096, "Llama-3-8B": 8192}
"""Longest context of the models that the suite uses. Source: the config.json that each is published with."""


TITLES = {
    "gemv": "matrix-vector products",
    "elementwise": "element-wise operations",
    "attention": "attention of one layer, one new token",
    "decode": "one decode step",
}
"""What each kind of case is."""


class Case(Protocol):
    """One program on one machine. ``kind`` and ``what`` name it within a machine."""

    @property
    def kind(self) -> str: ...

    @property
    def what(self) -> str: ...

    @property
    def machine(self) -> str: ...

    @property
    def vectors(self) -> float:
        """Vectors that share a row of DRAM once it is open."""
        ...

    def benchmark(self, machine: Machine) -> Benchmark:
        """The program."""
        ...

    def limits(self, machine: Machine) -> dict[str, float]:
        """Lower bounds of its time in ns, by name."""
        ...


@dataclass(frozen=True)
class Gemv:
    """A matrix [m, k] times a vector."""

    machine: str
    m: int
    k: int
    kind = "gemv"
    vectors = 1.0

    @property
    def what(self) -> str:
        return f"{self.m}x{self.k}"

    def benchmark(self, machine: Machine) -> Benchmark:
        return gemv_program(machine, self.m, self.k)

    def limits(self, machine: Machine) -> dict[str, float]:
        limits = gemv_limits(machine, self.m, self.k)
        return {"L0": limits.l0, "L2": limits.l2, "L3": limits.l3}


@dataclass(frozen=True)
class BlockGemv:
    """A matrix [m, k] times a vector where blocks of two banks compute."""

    machine: str
    m: int
    k: int
    kind = "gemv"
    vectors = 1.0

    @property
    def what(self) -> str:
        return f"{self.m}x{self.k}"

    def benchmark(self, machine: Machine) -> Benchmark:
        return block_gemv_program(machine, self.m, self.k)

    def limits(self, machine: Machine) -> dict[str, float]:
        limits = gemv_limits(machine, self.m, self.k)
        return {"L0": limits.l0, "L2": limits.l2, "L3": limits.l3}


@dataclass(frozen=True)
class Elementwise:
    """``operation`` of vectors in the banks of blocks. Its L0: every block accesses a column in every slot."""

    machine: str
    operation: Operation
    elements: int
    kind = "elementwise"
    vectors = 1.0

    @property
    def what(self) -> str:
        return f"{self.operation} {self.elements}"

    def benchmark(self, machine: Machine) -> Benchmark:
        return elementwise_program(machine, self.operation, self.elements)

    def limits(self, machine: Machine) -> dict[str, float]:
        limits = gemv_limits(machine, self.elements, 2 if self.operation == "relu" else 3)
        return {"L0": limits.l0, "L2": limits.l2}


@dataclass(frozen=True)
class Attention:
    """The attention of one layer of a model, over ``context`` tokens."""

    machine: str
    model: str
    context: int
    kind = "attention"

    @property
    def what(self) -> str:
        return f"{self.model} @{self.context}"

    @property
    def vectors(self) -> float:
        shape = known_shapes()[self.model]
        return shape.heads / shape.kv_heads

    def benchmark(self, machine: Machine) -> Benchmark:
        longest = max(MAX_CONTEXT[self.model], self.context)  # beyond what the model was made for, its shape is meant
        return attention_program(machine, known_shapes()[self.model], longest, self.context)

    def limits(self, machine: Machine) -> dict[str, float]:
        shape = known_shapes()[self.model]
        limits = decode_limits(machine, shape, 1, self.context).attention
        return {"L0": limits.l0 / shape.layers, "L2": limits.l2 / shape.layers}


@dataclass(frozen=True)
class Decode:
    """A whole decode step of a model at a context: every layer, logits, greedy next token."""

    machine: str
    model: str
    context: int
    kind = "decode"
    vectors = 1.0

    @property
    def what(self) -> str:
        return f"{self.model} @{self.context}"

    def benchmark(self, machine: Machine) -> Benchmark:
        return decode_program(machine, known_shapes()[self.model], MAX_CONTEXT[self.model], self.context)

    def limits(self, machine: Machine) -> dict[str, float]:
        limits = decode_limits(machine, known_shapes()[self.model], 1, self.context)
        return {"L0": limits.l0, "L2": limits.l2}


SHAPES = (
    (192, 576),
    (576, 576),
    (576, 1536),
    (1536, 576),
    (1024, 1024),
    (4096, 4096),
    (11008, 4096),
    (4096, 11008),
)
CASES: tuple[Case, ...] = (
    *(Gemv(CHIP, m, k) for m, k in (*SHAPES, (49152, 576))),
    *(Gemv(CARD, m, k) for m, k in (*SHAPES, (49152, 576), (4096, 32000))),
    *(Gemv(ONE, m, k) for m, k in SHAPES),
    *(Attention(CHIP, "SmolLM2-135M", context) for context in (128, 1024, 4096, 8000)),
    *(
        Attention(machine, model, context)
        for machine in (EIGHT, CARD)
        for model in ("Llama-2-7B", "Llama-3-8B")
        for context in (128, 1024, 4096, 32768)
    ),
    *(Decode(CHIP, "SmolLM2-135M", context) for context in (128, 1024, 4096, 8000)),
    *(Decode(CARD, "Qwen3-0.6B", context) for context in (128, 4096, 32768)),
    *(Decode(CARD, "Llama-2-7B", context) for context in (128, 2048, 4096)),
    *(BlockGemv(STACK, m, k) for m, k in (*SHAPES, (49152, 576))),
    *(BlockGemv(STACKS, m, k) for m, k in SHAPES),
    *(
        Elementwise(STACKS, operation, elements)
        for operation, elements in (("add", 262144), ("add", 2097152), ("mul", 2097152), ("relu", 4194304))
    ),
)


def changed(case: Case, settings: Iterable[str]) -> Case:
    """The case on its machine with ``settings`` (path=value)."""
    return dataclasses.replace(case, machine="+".join([case.machine, *settings]))  # type: ignore[type-var]


def key(case: Case) -> str:
    """The name of a case in the baseline and on the command line."""
    return f"{case.machine} {case.kind} {case.what}"


@dataclass(frozen=True)
class Entry:
    """The time of one case. ``limits_ns`` by limit; ``causes`` cycles (mean over channels, they sum to ``cycles``).

    ``kinds``: for each kind of task the channels' cycles (mean) and the busy cycles of the vector unit. ``vector_ns``:
    the vector unit's own bound, how long the program keeps it busy.
    """

    case: Case
    cycles: int
    ns: float
    limits_ns: Mapping[str, float]
    causes: Mapping[str, float]
    kinds: Mapping[str, Mapping[str, float]]
    vector_ns: float

    @property
    def percent_of_bound(self) -> float:
        """How much is reached of the larger of the tightest limit and the vector unit's bound."""
        return 100 * max(*self.limits_ns.values(), self.vector_ns) / self.ns

    def percent(self, limit: str) -> float | None:
        """How much of this limit is reached, None where it is not defined."""
        bound = self.limits_ns.get(limit)
        return None if bound is None else 100 * bound / self.ns

    def document(self, machine: Machine) -> dict[str, Any]:
        """The entry as plain data."""
        return {
            "name": key(self.case),
            "machine": {"name": machine.name, "hash": machine.hash},
            "kind": self.case.kind,
            "what": self.case.what,
            "cycles": self.cycles,
            "ns": self.ns,
            "limits_ns": dict(self.limits_ns),
            "vector_ns": self.vector_ns,
            "percent": {name: self.percent(name) for name in self.limits_ns},
            "percent_of_bound": self.percent_of_bound,
            "causes": dict(self.causes),
            "kinds": {name: dict(values) for name, values in self.kinds.items()},
        }


@cache
def machine_of(name: str) -> Machine:
    """A machine by name, loaded once."""
    return load_machine(name)


def measure(case: Case) -> Entry:
    """Build and time one case."""
    machine = machine_of(case.machine)
    benchmark = case.benchmark(machine)
    unit = generation_unit(machine)
    if unit is not None:
        time = unit.timing.time_program(machine, benchmark.generated.program, benchmark.memory)
        kind = {case.kind: {"channel": float(time.cycles), "vector_busy": 0.0}}
        return Entry(case, time.cycles, time.nanoseconds, case.limits(machine), time.causes, kind, 0.0)
    model = TimingModel(machine)
    result = model.run(model.load(benchmark.generated.program), 0, benchmark.memory)
    kinds = _kinds(benchmark, result)
    busy = sum(kind["vector_busy"] for kind in kinds.values()) * machine.clock.tck_ns
    return Entry(case, result.cycles, result.nanoseconds, case.limits(machine), result.causes, kinds, busy)


def _kinds(benchmark: Benchmark, result: TimingResult) -> dict[str, dict[str, float]]:
    spans = [Span(range_.stream, range_.first, range_.last, range_.kind) for range_ in benchmark.generated.provenance]
    return {time.label: {"channel": time.cycles, "vector_busy": time.vector_busy} for time in result.split(spans)}
