"""Whether K of a GEMV is split over runs of channels, and in which stages its results are delivered.

With K split, a run's part of the input may fit the buffer that all of K would have to pass through again and again; the
price is a read-out of every part and the additions on the vector unit. All but the last stage's additions are done
while the banks compute, so stages end the later the smaller they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        additions: of the parts, as far as the banks are done before them.
    """

    macs: int
    turns: int
    visits: int
    additions: int

    @property
    def cycles(self) -> int:
        return self.macs + self.turns + self.visits + self.additions


def legal_parts(machine: Machine, outputs: Sequence[int], k: int) -> list[int]:
    """Numbers of runs of channels that K may be split over.

    One vector pass can add the parts, a part has whole columns, and input, parts and sums fit the scratch.
    """
    columns = ceil_div(k, machine.bank_unit.lanes)
    most = machine.vector_unit.max_operands if machine.vector_unit.present else 1
    channels = machine.organisation.channels
    splits = [1 << i for i in range(1, most.bit_length()) if channels % (1 << i) == 0 and columns % (1 << i) == 0]

    def scratch(parts: int) -> int:
        rows = place_weights(machine, [""] * len(outputs), outputs, k, 0, parts=parts).total_rows
        column = machine.organisation.column_bytes
        return (columns + (1 + ELEMENT_BYTES["f32"] // ELEMENT_BYTES["bf16"]) * rows) * column

    return [1, *(parts for parts in splits if scratch(parts) <= machine.scratch.bytes_per_channel)]


def gemv_cost(machine: Machine, outputs: Sequence[int], k: int, parts: int) -> GemvCost:
    """First-order cost of matrices [M_i, K] that share their input, K split in ``parts``."""
    t = machine.timing
    stream = place_weights(machine, [""] * len(outputs), outputs, k, 0, parts=parts)
    rows = stream.total_rows
    groups = ceil_div(rows, stream.group)
    chunks = ceil_div(stream.columns, stream.buffer_columns)
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
        0 if parts == 1 else _addition(machine, stream, last).cycles,
    )


def choose_parts(machine: Machine, outputs: Sequence[int], k: int) -> int:
    """The number of parts that costs least; the smaller one where two cost the same."""
    return min(legal_parts(machine, outputs, k), key=lambda parts: gemv_cost(machine, outputs, k, parts).cycles)


def plan_stages(machine: Machine, stream: WeightStream) -> list[int]:
    """The local rows before which the stages of a stream end, in order.

    One stage unless K is split. Each stage is as long as can be added up while the banks compute what comes after it;
    the last is the shortest that ends with a row turn.
    """
    total = stream.total_rows
    ends = [total]
    # A stage ends with a group of accumulators or inside the last group.
    last_group = (total - 1) // stream.group * stream.group
    allowed = [*range(stream.group, last_group, stream.group), *range(max(1, last_group), total)]
    if stream.parts == 1:
        return ends
    last_columns = stream.columns % stream.buffer_columns or stream.buffer_columns
    begin = total - ceil_div(stream.row_columns, last_columns)
    row_cycles = stream.columns * (machine.timing.nCCDL + _turn_cycles(machine) / stream.row_columns)
    row_addition = _addition(machine, stream, 1).port
    while before := [row for row in allowed if row <= begin]:
        end = before[-1]
        ends.insert(0, end)
        hidden = int((total - end) * row_cycles / row_addition)
        begin = next((row for row in before if row >= end - hidden), end)
        begin = min(begin, end - 1) if end > hidden else 0
    return ends


def _turn_cycles(machine: Machine) -> int:
    t = machine.timing
    return t.nRTP + t.nRP + t.nRCDRDMAC - t.nCCDL


def _addition(machine: Machine, stream: WeightStream, rows: int) -> PassCost:
    """Adding the parts of ``rows`` local rows in one pass."""
    unit = machine.vector_unit
    lines = ceil_div(stream.part_channels * rows * stream.banks, unit.lanes)
    depth = (stream.parts - 1) * unit.latency_of(OP_BY_NAME["add"].latency)
    return PassCost(stream.parts * lines, depth, unit.pass_overhead)
