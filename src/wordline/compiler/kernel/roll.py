"""Loop rolling: runs of commands that repeat with constant steps become counted loops.

Kernels write their commands out plainly; this turns e.g. 32 bursts whose row and accumulator advance by one into one
loop of one burst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import sub

from wordline.compiler.kernel.ir import Address, Command, Item, Loop, Operand
from wordline.compiler.kernel.symbols import Linear, Register, linear
from wordline.isa.affine import MAX_TERMS, STRIDE_RANGE


@dataclass(frozen=True, slots=True)
class _Form:
    """A command for comparison: ``shape`` numbers all of it but the constants of its operands, which are ``numbers``.

    ``fixed``: which of them must not differ from one repetition to the next.
    """

    shape: int
    numbers: tuple[int, ...]
    fixed: tuple[bool, ...]


def _forms(commands: Sequence[Command]) -> list[_Form]:
    """Commands that write a register or name a shared one have a shape of their own: they repeat nothing."""
    shapes: dict[object, int] = {}
    forms = []
    for index, item in enumerate(commands):
        key: list[object] = [item.name, item.fields]
        numbers, fixed = [], []
        for name, operand in item.operands:
            if isinstance(operand, Linear):
                form = operand
                key.append((name, form.terms))
            elif isinstance(operand, Address):
                form = operand.offset
                key.append((name, operand.buffer, form.terms))
            else:
                key.append(index)
                continue
            numbers.append(form.imm)
            # Bursts of different length are different work: rolling them would only obscure the program.
            fixed.append(name == "count" or len(form.terms) >= MAX_TERMS)
        if item.target is not None:
            key.append(index)
        forms.append(_Form(shapes.setdefault(tuple(key), len(shapes)), tuple(numbers), tuple(fixed)))
    return forms


def _step(first: _Form, second: _Form) -> tuple[int, ...] | None:
    """How much each operand of ``second`` is ahead of ``first``; None when they differ in more than constants."""
    if first.shape != second.shape:
        return None
    steps = tuple(map(sub, second.numbers, first.numbers))
    low, high = STRIDE_RANGE
    for step, fixed in zip(steps, first.fixed, strict=True):
        if step and (fixed or not low <= step <= high):
            return None
    return steps


def _advance(command: Command, steps: Sequence[int], register: Register) -> Command:
    operands: list[tuple[str, Operand]] = []
    for (key, operand), step in zip(command.operands, steps, strict=True):
        if step and isinstance(operand, (Linear, Address)):
            operand = operand + linear(register) * step
        operands.append((key, operand))
    return Command(command.name, tuple(operands), command.target, command.fields)


def _repeats(forms: Sequence[_Form], at: int, period: int) -> tuple[int, list[tuple[int, ...]]]:
    """How often ``forms[at:at+period]`` repeats with the same steps each time, and the steps."""
    steps: list[tuple[int, ...]] = []
    count = 1
    while at + (count + 1) * period <= len(forms):
        previous = at + (count - 1) * period
        found = []
        for i in range(period):
            step = _step(forms[previous + i], forms[previous + period + i])
            if step is None or (steps and step != steps[i]):
                return count, steps
            found.append(step)
        steps = found
        count += 1
    return count, steps


def roll(commands: Sequence[Command], fresh: Callable[[], Register]) -> tuple[Item, ...]:
    """``commands`` with repeating runs as loops over registers from ``fresh``; the order of execution is unchanged."""
    items: list[Item] = []
    forms = _forms(commands)
    at = 0
    while at < len(commands):
        best_saved, best_period, best_count, best_steps = 0, 1, 1, list[tuple[int, ...]]()
        for period in range(1, (len(commands) - at) // 2 + 1):
            count, steps = _repeats(forms, at, period)
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
