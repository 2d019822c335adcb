"""Cycles of vector passes, by the rule of ``docs/device-programs.md`` with the constants of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.passes import PassItem, PassLoop, PassSpec
from wordline.compiler.kernel.symbols import Register
from wordline.isa.controller.vector import FIRST_RESULT, OP_BY_NAME
from wordline.machines.machine import Machine

Sizes = Callable[[Register], int]


def unknown_size(register: Register) -> int:
    """The ``sizes`` of code whose extents are all numbers.

    Raises:
        KeyError: always; a register has no value here.
    """
    raise KeyError(register.name)


@dataclass(frozen=True, slots=True)
class PassCost:
    """Cycles of passes by what takes them: elements through the ports, the depth of the operations, starting a pass."""

    port: int = 0
    latency: int = 0
    overhead: int = 0

    @property
    def cycles(self) -> int:
        """All together."""
        return self.port + self.latency + self.overhead

    def __add__(self, other: PassCost) -> PassCost:
        return PassCost(self.port + other.port, self.latency + other.latency, self.overhead + other.overhead)

    def __mul__(self, times: int) -> PassCost:
        return PassCost(self.port * times, self.latency * times, self.overhead * times)


def pass_cost(machine: Machine, spec: PassSpec, sizes: Sizes = unknown_size) -> PassCost:
    """What makes up the time from the start of a pass to the start of the next one, extents taken from ``sizes``."""
    unit = machine.vector_unit
    lines = ceil_div(prod(max(0, extent.evaluate(sizes)) for extent in spec.shape), unit.lanes)
    transfers = max(len(spec.operands) * lines, lines if spec.result is not None else 0)
    depth: dict[int, int] = {}
    for slot, operation in enumerate(spec.operations):
        start = max((depth.get(source, 0) for source in operation.sources), default=0)
        depth[FIRST_RESULT + slot] = start + unit.latency_of(OP_BY_NAME[operation.op].latency)
    latency = max(depth.values(), default=0)
    return PassCost(transfers, latency, max(unit.pass_overhead, 1 - transfers - latency))


def passes_cost(machine: Machine, items: Iterable[PassItem], sizes: Sizes = unknown_size) -> PassCost:
    """Cycles of passes and loops in sequence.

    Args:
        machine: whose vector unit runs them.
        items: passes and loops.
        sizes: value of each register that an extent or a trip count names; registers of the loops themselves may
            appear in addresses only.
    """
    total = PassCost()
    for item in items:
        if isinstance(item, PassLoop):
            total += passes_cost(machine, item.body, sizes) * max(0, item.count.evaluate(sizes))
        else:
            total += pass_cost(machine, item, sizes)
    return total


def passes_cycles(machine: Machine, items: Iterable[PassItem], sizes: Sizes = unknown_size) -> int:
    """Cycles of passes and loops in sequence, see :func:`passes_cost`."""
    return passes_cost(machine, items, sizes).cycles
