"""How a GEMV goes through the banks: which choices are legal, what they cost to first order, in which stages results
come.

With K split over runs of channels, a run's part of the input may fit the buffer that all of K would have to pass
through again and again; with inputs outermost, every part of the input passes through it once. The price of both is a
read-out of every partial sum and the additions on the vector unit. All but the last stage's additions are done while
the banks compute, so stages end the later the smaller they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from wordline.compiler.choices import GemvChoice, GemvShape, Illegal, Order, plain_gemv
from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.scratch import ELEMENT_BYTES
from wordline.compiler.layout import WeightStream, place_weights
from wordline.compiler.vector.cost import PassCost
from wordline.isa.controller.vector import OP_BY_NAME
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class GemvCost:
    """Cycles of a GEMV on one channel by what takes them.

    Attributes:
        macs: columns multiplied and accumulated.
        turns: row turns.
        visits: register-mode visits beyond the row turns under which they hide, with their commands.
        additions: of the partial sums, as far as the banks are done before them.
    """

    macs: int
    turns: int
    visits: int
    additions: int

    @property
    def cycles(self) -> int:
        return self.macs + self.turns + self.visits + self.additions


def placed(machine: Machine, shape: GemvShape, choice: GemvChoice) -> WeightStream:
    """The stream of a shape by itself, from row 0 on."""
    return place_weights(machine, [""] * len(shape.outputs), shape.outputs, shape.k, 0, choice)


def illegal(machine: Machine, shape: GemvShape, choice: GemvChoice) -> Illegal | None:
    """Why ``choice`` cannot be made for ``shape``, None if it can."""
    o, unit = machine.organisation, machine.vector_unit
    columns = ceil_div(shape.k, machine.bank_unit.lanes)
    if not 1 <= choice.group <= machine.bank_unit.accumulators:
        return Illegal(f"a bank has {machine.bank_unit.accumulators} accumulators", "bank_unit.accumulators")
    if not 1 <= choice.chunk <= machine.buffer.columns:
        return Illegal(f"the buffer holds {machine.buffer.columns} columns", "buffer.columns")
    if o.channels % choice.parts or columns % choice.parts:
        return Illegal(
            f"{o.channels} channels and {columns} columns of K are not divided by {choice.parts}",
            "equal parts of whole columns",
        )
    stream = placed(machine, shape, choice)
    if not stream.partial:
        return None
    if shape.read_out:
        return Illegal("logits go to the host as the banks read them out", "nothing is added to logits")
    if not unit.present:
        return Illegal("there is no vector unit to add partial sums", "vector_unit.present")
    operands = choice.parts + (stream.slices > 1)
    if operands > unit.max_operands:
        return Illegal(f"an addition of {operands} operands", f"vector_unit.max_operands is {unit.max_operands}")
    rows = stream.total_rows
    live = rows
    if stream.slices > 1:  # the additions of a stage run beside the read-outs of the next
        ends = [0, *plan_stages(machine, stream)]
        live = max(ends[i] - ends[max(0, i - 2)] for i in range(1, len(ends)))
    needed = (columns + live + ELEMENT_BYTES["f32"] // ELEMENT_BYTES["bf16"] * rows) * o.column_bytes
    if needed > machine.scratch.bytes_per_channel:
        return Illegal(
            f"input, partial sums and sums take {needed} bytes of each channel's scratch", "scratch.bytes_per_channel"
        )
    return None


def legal_parts(machine: Machine, shape: GemvShape) -> list[GemvChoice]:
    """The plain choice with every number of parts, a power of two, that K may be split into."""
    choices = [plain_gemv(machine, parts=1 << i) for i in range(machine.organisation.channels.bit_length())]
    return [choice for choice in choices if illegal(machine, shape, choice) is None]


def gemv_cost(machine: Machine, shape: GemvShape, choice: GemvChoice) -> GemvCost:
    """First-order cost of a legal choice."""
    t = machine.timing
    stream = placed(machine, shape, choice)
    rows, stages = stream.total_rows, plan_stages(machine, stream)
    under_turn = t.nRCDRDMAC
    visits = 0
    before, buffered = 0, (-1, 0)  # rows to be read out, the chunk in the buffer
    for group in stream.groups():
        for index, chunk in enumerate(group):
            registers = 0 if index else before + chunk.rows
            if buffered != (chunk.first_column, chunk.columns):
                buffered = (chunk.first_column, chunk.columns)
                registers += chunk.columns
            if registers:
                # A visit where a row ends anyway begins when the next one is being opened.
                hidden = under_turn if chunk.position % stream.row_columns == 0 else 0
                visits += max(0, 2 * t.nMODCH + registers * t.nCCDS - hidden)
        before = group[0].rows
    # The last group's rows are read out under row turns, but for the last stage.
    inside = len([end for end in stages if end > stages[-1] - before]) - 1
    visits += inside * max(0, 2 * t.nMODCH - under_turn) + before * t.nCCDS + t.nMODCH
    macs, turns = rows * stream.columns * t.nCCDL, (stream.dram_rows - 1) * _turn_cycles(machine)
    additions = _additions_after_banks(machine, stream, stages, macs + turns + visits) if stream.partial else 0
    return GemvCost(macs, turns, visits, additions)


def _additions_after_banks(machine: Machine, stream: WeightStream, stages: Sequence[int], banks: int) -> int:
    """For how long the vector unit adds partial sums when the banks, which take ``banks`` cycles, are done."""
    end = first = 0
    for stage in stages:
        delivered = banks * stage // stages[-1]
        end = max(end, delivered) + _addition(machine, stream, stage - first).cycles
        first = stage
    return end - banks


CLEAR = 0.98
"""What takes less scratch, rounds less and wastes no rows is left only for what costs less than this part of it: the
model is of first order."""
VARIANTS: tuple[tuple[Order, bool], ...] = (("outputs", True), ("inputs", False), ("inputs", True))
"""Orders, and whether groups are padded, that are tried beside the plain ones."""


@cache
def first_choice(machine: Machine, shape: GemvShape) -> GemvChoice:
    """What the cost model chooses: a number of parts, the smaller one where two cost the same; inputs outermost or
    groups padded if that is clearly faster.
    """

    def cost(choice: GemvChoice) -> int:
        return gemv_cost(machine, shape, choice).cycles

    plain = legal_parts(machine, shape)
    best = min(plain, key=cost)
    variants = [replace(choice, order=order, padded=padded) for choice in plain for order, padded in VARIANTS]
    legal = [choice for choice in variants if illegal(machine, shape, choice) is None]
    other = min(legal, key=cost)
    return other if cost(other) < CLEAR * cost(best) else best


def plan_stages(machine: Machine, stream: WeightStream) -> list[int]:
    """The results before which the stages of a stream end, in order.

    One stage unless there are partial sums. Then the last slice's stages are as long as can be added up while the banks
    compute what comes after them; the last is the shortest that ends with a row turn. Of several slices each has
    stages whose results take at most a part in 16 of the scratch.
    """
    ends = _last_slice_stages(machine, stream)
    if stream.slices == 1:
        return ends
    rows = stream.total_rows
    most = machine.scratch.bytes_per_channel // 16 // machine.organisation.column_bytes
    step = max(1, most // stream.group) * stream.group
    inside = [*range(step, rows, step), rows]
    if stream.choice.stages == 0:
        ends = sorted({*ends, *(end for end in inside if end < ends[0])})
    return [
        *(slice_ * rows + end for slice_ in range(stream.slices - 1) for end in inside),
        *((stream.slices - 1) * rows + end for end in ends),
    ]


def _last_slice_stages(machine: Machine, stream: WeightStream) -> list[int]:
    total = stream.total_rows
    ends = [total]
    if not stream.partial or stream.choice.stages == 1:
        return ends
    # A stage ends with a group of accumulators or inside the last group.
    last_group = (total - 1) // stream.group * stream.group
    allowed = [*range(stream.group, last_group, stream.group), *range(max(1, last_group), total)]
    last_columns = stream.columns % stream.chunk or stream.chunk
    begin = total - ceil_div(stream.row_columns, last_columns)
    columns = stream.columns if stream.slices == 1 else last_columns
    row_cycles = columns * (machine.timing.nCCDL + _turn_cycles(machine) / stream.row_columns)
    row_addition = _addition(machine, stream, 1).port
    while before := [row for row in allowed if row <= begin]:
        end = before[-1]
        ends.insert(0, end)
        hidden = int((total - end) * row_cycles / row_addition)
        begin = next((row for row in before if row >= end - hidden), end)
        begin = min(begin, end - 1) if end > hidden else 0
        if len(ends) == stream.choice.stages:
            break
    return ends


def _turn_cycles(machine: Machine) -> int:
    t = machine.timing
    return t.nRTP + t.nRP + t.nRCDRDMAC - t.nCCDL


def _addition(machine: Machine, stream: WeightStream, rows: int) -> PassCost:
    """Adding the partial sums of ``rows`` local rows in one pass."""
    unit = machine.vector_unit
    lines = ceil_div(stream.part_channels * rows * stream.banks, unit.lanes)
    operands = stream.parts + (stream.slices > 1)
    depth = (operands - 1) * unit.latency_of(OP_BY_NAME["add"].latency)
    return PassCost(operands * lines, depth, unit.pass_overhead)
