"""Cycles of vector passes, by the rule of ``docs/device-programs.md`` with the constants of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from wordline.compiler.kernel.symbols import Register
from wordline.compiler.vector.passes import PassItem, PassLoop, PassSpec
from wordline.isa.gddr6_aim.vector import FIRST_RESULT, OP_BY_NAME
from wordline.machines.machine import Machine

Sizes = Callable[[Register], int]


def unknown_size(register: Register) -> int:
    """The ``sizes`` of code whose extents are all numbers.

    Raises:
        KeyError: always; a register has no value here.
    """
    raise KeyError(register.name)


def pass_cycles(machine: Machine, spec: PassSpec, sizes: Sizes = unknown_size) -> int:
    """Cycles from the start of a pass to the start of the next one, extents taken from ``sizes``."""
    unit = machine.vector_unit
    lines = -(-prod(max(0, extent.evaluate(sizes)) for extent in spec.shape) // unit.lanes)
    transfers = max(len(spec.operands) * lines, lines if spec.result is not None else 0)
    depth: dict[int, int] = {}
    for slot, operation in enumerate(spec.operations):
        start = max((depth.get(source, 0) for source in operation.sources), default=0)
        depth[FIRST_RESULT + slot] = start + unit.latency_of(OP_BY_NAME[operation.op].latency)
    return max(1, transfers + max(depth.values(), default=0) + unit.pass_overhead)


def passes_cycles(machine: Machine, items: Iterable[PassItem], sizes: Sizes = unknown_size) -> int:
    """Cycles of passes and loops in sequence.

    Args:
        machine: whose vector unit runs them.
        items: passes and loops.
        sizes: value of each register that an extent or a trip count names; registers of the loops themselves may
            appear in addresses only.
    """
    total = 0
    for item in items:
        if isinstance(item, PassLoop):
            total += max(0, item.count.evaluate(sizes)) * passes_cycles(machine, item.body, sizes)
        else:
            total += pass_cycles(machine, item, sizes)
    return total
