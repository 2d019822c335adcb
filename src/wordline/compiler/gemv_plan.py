"""How a GEMV goes through the banks: which choices are legal, what they cost to first order, in which stages results
come.

With K split over runs of channels, a run's part of the input may fit the buffer that all of K would have to pass
through again and again; with inputs outermost, every part of the input passes through it once. The price of both is a
read-out of every partial sum and the additions on the vector unit. All but the last stage's additions are done while
the banks compute, so stages end the later the smaller they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.choices import GemvChoice, GemvShape, Illegal, plain_gemv
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
    live = rows * (1 + (stream.slices > 1))  # the additions of a slice run beside the read-outs of the next
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
    rows = stream.total_rows
    groups = ceil_div(rows, stream.group)
    chunks = ceil_div(stream.columns, stream.chunk)
    fills = groups * chunks if chunks > 1 else 1
    filled = groups * stream.columns if chunks > 1 else stream.columns
    stages = plan_stages(machine, stream)
    # Read-outs of a group share the visit of the next fill, if there is one.
    visits = fills + (groups if chunks == 1 else 1) + len(stages) - 1
    beyond_turn = max(0, 2 * t.nMODCH - t.nRCDRDMAC)
    last = rows if len(stages) == 1 else rows - stages[-2]
    return GemvCost(
        rows * stream.columns * t.nCCDL,
        (stream.dram_rows - 1) * _turn_cycles(machine),
        visits * beyond_turn + (filled + 2 * rows) * t.nCCDS,
        0 if not stream.partial else _addition(machine, stream, last).cycles,
    )


def first_choice(machine: Machine, shape: GemvShape) -> GemvChoice:
    """What the cost model chooses; the smaller number of parts where two cost the same."""
    return min(legal_parts(machine, shape), key=lambda choice: gemv_cost(machine, shape, choice).cycles)


def plan_stages(machine: Machine, stream: WeightStream) -> list[int]:
    """The results before which the stages of a stream end, in order.

    One stage unless there are partial sums. Then every slice but the last is one, and of the last slice each stage is
    as long as can be added up while the banks compute what comes after it; the last is the shortest that ends with a
    row turn.
    """
    rows = stream.total_rows
    before = [slice_ * rows for slice_ in range(1, stream.slices)]
    start = (stream.slices - 1) * rows
    return [*before, *(start + end for end in _last_slice_stages(machine, stream))]


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
