"""What a search may choose from: every combination of the open choices that is worth a try, legal or not.

Nothing is listed twice: what makes no difference for a shape (a group larger than its rows, a chunk larger than its
input, padding where every group begins a row anyway) is listed as the plain choice has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from wordline.compiler.choices import WHOLE, AttentionChoice, Cuts, GemvChoice, GemvShape, HeadShape, plain_gemv
from wordline.compiler.gemv_plan import placed, plan_stages
from wordline.compiler.integers import ceil_div
from wordline.compiler.kernels.attention.shape import ONE_ROUND, ROUNDS
from wordline.machines import Machine

SCORE_CUTS: tuple[Cuts, ...] = (WHOLE, (8, 16), (4, 8, 16), (2, 4, 8, 16), ONE_ROUND[0], ROUNDS[0])
WEIGH_CUTS: tuple[Cuts, ...] = (WHOLE, (8, 16), (12, 16), (8, 14, 16), ONE_ROUND[1], ROUNDS[1])
"""Divisions of the pages: few parts and many, the first ones short where another engine waits for them, or the last."""


def gemv_candidates(machine: Machine, shape: GemvShape) -> list[GemvChoice]:
    """Every choice that differs from the others, in a fixed order."""
    return list(dict.fromkeys(_gemv_candidates(machine, shape)))


def _gemv_candidates(machine: Machine, shape: GemvShape) -> Iterator[GemvChoice]:
    plain = plain_gemv(machine)
    columns = ceil_div(shape.k, machine.bank_unit.lanes)
    for exponent in range(machine.organisation.channels.bit_length()):
        parts = 1 << exponent
        if columns % parts:
            yield replace(plain, parts=parts)
            continue
        rows = placed(machine, shape, replace(plain, parts=parts)).total_rows
        for chunk in _chunks(machine, columns // parts):
            groups = _groups(machine, rows, chunk)
            for order, group, padded, stages in product(("outputs", "inputs"), groups, (False, True), (0, 1, 2)):
                choice = GemvChoice(group, chunk, order, parts, padded, stages)  # type: ignore[arg-type]
                yield _distinct(machine, shape, choice)


def _chunks(machine: Machine, columns: int) -> list[int]:
    """The whole buffer; chunks of equal size, as few as there can be and one more; half of the buffer."""
    most = machine.buffer.columns
    if columns <= most // 2:
        return [most]
    fewest = ceil_div(columns, most)
    sizes = (most, ceil_div(columns, fewest), ceil_div(columns, fewest + 1), max(1, most // 2))
    return list(dict.fromkeys(sizes))


def _groups(machine: Machine, rows: int, chunk: int) -> list[int]:
    """All accumulators; as many as end with a DRAM row; groups of equal size; half of the accumulators."""
    most, row = machine.bank_unit.accumulators, machine.organisation.columns
    aligned = next((group for group in range(most, 0, -1) if group * chunk % row == 0), most)
    sizes = (most, aligned, ceil_div(rows, ceil_div(rows, most)), max(1, most // 2))
    return list(dict.fromkeys(sizes))


def _distinct(machine: Machine, shape: GemvShape, choice: GemvChoice) -> GemvChoice:
    """The same program, as it is listed."""
    stream = placed(machine, shape, choice)
    if choice.chunk >= stream.columns:
        choice = replace(choice, chunk=machine.buffer.columns)
    if choice.order == "inputs" and stream.slices == 1:
        choice = replace(choice, order="outputs")
    if choice.group >= stream.total_rows:
        choice = replace(choice, group=machine.bank_unit.accumulators)
    unpadded = replace(choice, padded=False)
    if all(group[0].position % stream.row_columns == 0 for group in placed(machine, shape, unpadded).groups()):
        choice = unpadded
    if choice.stages and _stages(machine, shape, choice) == _stages(machine, shape, replace(choice, stages=0)):
        choice = replace(choice, stages=0)
    return choice


def _stages(machine: Machine, shape: GemvShape, choice: GemvChoice) -> list[int]:
    return plan_stages(machine, placed(machine, shape, choice))


def attention_candidates(machine: Machine, heads: HeadShape) -> list[AttentionChoice]:
    """Every number of groups with every division of the pages, in a fixed order."""
    channels = machine.organisation.channels
    found = []
    for groups in (1 << i for i in range(channels.bit_length())):
        found += [AttentionChoice(groups, *cuts) for cuts in product(SCORE_CUTS, WEIGH_CUTS)]
        # One query head after the other only where there are several, and one pass adds up their parts.
        if heads.group > 1 and channels // groups <= machine.vector_unit.max_operands:
            found += [AttentionChoice(groups, cuts, query_by_query=True) for cuts in SCORE_CUTS]
    return found
