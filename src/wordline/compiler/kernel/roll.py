"""Loop rolling: runs of commands that repeat with constant steps become counted loops.

Kernels write their commands out plainly; this turns e.g. 32 bursts whose row and accumulator advance by one into one
loop of one burst."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wordline.compiler.kernel.ir import Address, Command, Item, Loop, Operand
from wordline.compiler.kernel.symbols import Linear, Register, linear
from wordline.isa.affine import STRIDE_RANGE

MAX_TERMS = 2
"""Register terms an operand can carry (instruction-set rule)."""


def _form(operand: Operand) -> Linear | None:
    if isinstance(operand, Linear):
        return operand
    return operand.offset if isinstance(operand, Address) else None


def _step(first: Command, second: Command) -> tuple[int, ...] | None:
    """How much each operand of ``second`` is ahead of ``first``; None when they differ in more than constants."""
    if (
        first.name != second.name
        or first.fields != second.fields
        or first.target != second.target
        or first.target is not None
    ):
        return None
    steps = []
    for (key_a, a), (key_b, b) in zip(first.operands, second.operands, strict=False):
        form_a, form_b = _form(a), _form(b)
        if key_a != key_b or type(a) is not type(b) or form_a is None or form_b is None or form_a.terms != form_b.terms:
            return None
        if isinstance(a, Address) and isinstance(b, Address) and a.buffer is not b.buffer:
            return None
        step = form_b.imm - form_a.imm
        # Bursts of different length are different work: rolling them would only obscure the program.
        if step and (
            key_a == "count" or len(form_a.terms) >= MAX_TERMS or not STRIDE_RANGE[0] <= step <= STRIDE_RANGE[1]
        ):
            return None
        steps.append(step)
    return tuple(steps)


def _advance(command: Command, steps: Sequence[int], register: Register) -> Command:
    operands: list[tuple[str, Operand]] = []
    for (key, operand), step in zip(command.operands, steps, strict=True):
        if step and isinstance(operand, (Linear, Address)):
            operand = operand + linear(register) * step
        operands.append((key, operand))
    return Command(command.name, tuple(operands), command.target, command.fields)


def _repeats(commands: Sequence[Command], at: int, period: int) -> tuple[int, list[tuple[int, ...]]]:
    """How often ``commands[at:at+period]`` repeats with the same steps each time, and the steps."""
    steps: list[tuple[int, ...]] = []
    count = 1
    while at + (count + 1) * period <= len(commands):
        previous = at + (count - 1) * period
        found = []
        for i in range(period):
            step = _step(commands[previous + i], commands[previous + period + i])
            if step is None or (steps and step != steps[i]):
                return count, steps
            found.append(step)
        steps = found
        count += 1
    return count, steps


def roll(commands: Sequence[Command], fresh: Callable[[], Register]) -> tuple[Item, ...]:
    """``commands`` with repeating runs as loops over registers from ``fresh``; the order of execution is unchanged."""
    items: list[Item] = []
    at = 0
    while at < len(commands):
        best_saved, best_period, best_count, best_steps = 0, 1, 1, list[tuple[int, ...]]()
        for period in range(1, (len(commands) - at) // 2 + 1):
            count, steps = _repeats(commands, at, period)
            saved = (count - 1) * period - 1
            if saved > best_saved:
                best_saved, best_period, best_count, best_steps = saved, period, count, steps
        if best_count == 1:
            items.append(commands[at])
            at += 1
            continue
        register = fresh()
        body = tuple(_advance(commands[at + i], best_steps[i], register) for i in range(best_period))
        items.append(Loop(register, Linear(best_count), body))
        at += best_period * best_count
    return tuple(items)
