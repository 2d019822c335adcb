"""Element-wise kernels in the blocks: c = a + b, a * b, relu(a).

8 columns of all blocks are a *group*. A row has two groups: of the first, a and c lie in even banks and b in odd ones,
of the second the other way round. So a group reads one parity, then the other, and writes with both rows open; rows
are turned under the accesses of the other parity, once for two groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Item, command
from wordline.compiler.kernel.symbols import IntLike, linear
from wordline.compiler.kernels.hbm2_pim.state import EVEN, ODD, ChannelState
from wordline.errors import WordlineError
from wordline.isa.hbm2_pim.crf_program import operation
from wordline.isa.instruction import Instr
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim

U16 = npt.NDArray[np.uint16]
Operation = Literal["add", "mul", "relu"]
COLUMNS = 8
"""Columns of a group."""
FIRST, SECOND, RESULT = 0, 8, 16
"""Columns of a row: operands of the group that has a in this parity's banks, of the other one, results."""


@dataclass(frozen=True, slots=True)
class ElementwisePlan:
    """Vectors of ``elements``, in every pseudo-channel in the order row, group, column, block, lane."""

    operation: Operation
    elements: int
    channels: int
    first_row: int
    rows: int
    blocks: int
    lanes: int
    columns: int

    @property
    def row_elements(self) -> int:
        """Elements of one row of all banks of a pseudo-channel."""
        return 2 * COLUMNS * self.blocks * self.lanes


def plan_elementwise(machine: Machine, operation: Operation, elements: int, first_row: int = 0) -> ElementwisePlan:
    """Spread ``elements`` evenly.

    Raises:
        WordlineError: "bad-shape" for less than one element, "capacity" if they do not fit.
    """
    if elements < 1:
        raise WordlineError("bad-shape", f"there are {elements} elements", remedy="give a positive number")
    blocks, lanes = machine.organisation.banks // 2, machine.section("pim", Pim).lanes
    channels = machine.organisation.channels
    rows = ceil_div(elements, channels * 2 * COLUMNS * blocks * lanes)
    # One more: the kernel opens the row after the last one, which costs nothing.
    if first_row + rows + 1 > machine.section("pim", Pim).reserved_row:
        raise WordlineError(
            "capacity",
            f"{elements} elements need {rows} rows of every bank from row {first_row} on",
            where=f"machine {machine.name}",
            remedy="use a machine with more pseudo-channels",
        )
    return ElementwisePlan(operation, elements, channels, first_row, rows, blocks, lanes, machine.organisation.columns)


def pack_operands(plan: ElementwisePlan, a: npt.ArrayLike, b: npt.ArrayLike | None = None) -> U16:
    """The bank image of the rows from ``first_row`` up: uint16 [rows][channel][bank][column][lane].

    ``a``, ``b``: fp16 bits [elements].
    """
    image = np.zeros((plan.rows, plan.channels, 2 * plan.blocks, plan.columns, plan.lanes), np.uint16)
    for number, operand in enumerate((a, b)):
        if operand is None:
            continue
        shaped = _shaped(plan, operand)
        for group, column in enumerate((FIRST, SECOND)):
            parity = (group + number) % 2
            image[:, :, parity::2, column : column + COLUMNS] = shaped[:, :, group]
    return image


def _shaped(plan: ElementwisePlan, vector: npt.ArrayLike) -> U16:
    """[rows, channels, group, block, column, lane] of a vector."""
    padded = np.zeros(plan.channels * plan.rows * plan.row_elements, np.uint16)
    source = np.asarray(vector, dtype=np.uint16)
    padded[: source.size] = source
    shape = (plan.channels, plan.rows, 2, COLUMNS, plan.blocks, plan.lanes)
    return padded.reshape(shape).transpose(1, 0, 2, 4, 3, 5)


def unpack_result(plan: ElementwisePlan, image: npt.ArrayLike) -> U16:
    """c, fp16 bits [elements], from the bank image after the kernel."""
    rows = np.asarray(image, dtype=np.uint16).reshape(
        plan.rows, plan.channels, 2 * plan.blocks, plan.columns, plan.lanes
    )
    groups = np.stack([rows[:, :, parity::2, RESULT : RESULT + COLUMNS] for parity in (EVEN, ODD)], axis=2)
    flat: U16 = groups.transpose(1, 0, 2, 4, 3, 5).reshape(-1)[: plan.elements]
    return flat


def crf_program(plan: ElementwisePlan) -> list[Instr]:
    """Both groups of a row, as often as there are rows."""
    program: list[Instr] = []
    for file, own, other in (("GRF_A0", "EVEN_BANK", "ODD_BANK"), ("GRF_B0", "ODD_BANK", "EVEN_BANK")):
        program.append(operation("FILL", relu=int(plan.operation == "relu"), dst=file, a=own))
        if plan.operation != "relu":
            program.append(operation(plan.operation.upper(), aam=1, dst=file, a=file, b=other))
        program.append(operation("NOP", n=COLUMNS - 1))
    if plan.rows > 1:
        program.append(operation("JUMP", target=0, count=plan.rows - 1))
    return [*program, operation("EXIT")]


def elementwise(plan: ElementwisePlan, state: ChannelState) -> tuple[Item, ...]:
    """The kernel, over all rows. Starts in any mode and ends in PIM mode, which ``state`` keeps track of."""
    b = Builder()
    b.extend(state.start(crf_program(plan)))
    b.emit("ACT", bank=EVEN, row=plan.first_row)
    with b.loop(plan.rows) as index:
        row = linear(plan.first_row) + linear(index)
        _access(b, "PIMRD", EVEN, row, FIRST, ((2, "PRE", ODD, row), (6, "ACT", ODD, row)))
        if plan.operation != "relu":
            _access(b, "PIMRD", ODD, row, FIRST)
        _access(b, "PIMWR", EVEN, row, RESULT)
        _access(b, "PIMRD", ODD, row, SECOND)
        if plan.operation != "relu":
            _access(b, "PIMRD", EVEN, row, SECOND)
        _access(b, "PIMWR", ODD, row, RESULT, ((3, "PRE", EVEN, row), (7, "ACT", EVEN, row + 1)))
    return b.take()


def _access(
    b: Builder, name: str, parity: int, row: IntLike, column: int, turns: tuple[tuple[int, str, int, IntLike], ...] = ()
) -> None:
    """The 8 columns of a group, with row commands for the other parity after some of them."""
    done = 0
    for after, turn, bank, target in turns:
        b.extend([command(name, None, {"parity": parity}, row=row, column=column + done, count=after - done)])
        if turn == "ACT":
            b.emit("ACT", bank=bank, row=target)
        else:
            b.emit("PRE", bank=bank)
        done = after
    b.extend([command(name, None, {"parity": parity}, row=row, column=column + done, count=COLUMNS - done)])
