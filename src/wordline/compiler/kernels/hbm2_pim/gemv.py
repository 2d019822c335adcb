"""GEMV in the blocks: y = W x with one scalar of x for all lanes, so that every lane has an output of its own.

A *tile* is 8 inputs: one write loads them into SRF_M, then each of the 8 blocks multiplies a column of 16 weights, 16
outputs, with one of them. The outputs of a *pass* stay in the register files: up to 1024 of a pseudo-channel in GRF_A
(a narrow pass, 128 for each of 2, 4, 6 or 8 registers, as many columns a scalar) or 2048 in both files (a wide pass,
GRF_A from even and GRF_B from odd banks, tiles of 128 columns). Rows are read in turn from even and odd banks, and each
is opened while the other parity is read; what is left between two tiles is the turn to the registers' row and the write
of the scalars.

The matrix is spread over pseudo-channels by outputs and by inputs. An accumulator therefore sums few products in fp16;
the host adds the partial sums of the input groups in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Address, Item, command
from wordline.compiler.kernel.symbols import IntLike, linear
from wordline.compiler.kernels.hbm2_pim.state import EVEN, ODD, ChannelState
from wordline.errors import WordlineError
from wordline.isa.hbm2_pim.crf_program import operation
from wordline.isa.instruction import Instr
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim, Timing
from wordline.numerics import fp16

TILE_INPUTS = 8
"""Inputs of a tile: the multiplier scalars of one write."""
REGISTERS = 8
"""Registers of a file, each an accumulator of 16 outputs a block."""
MAX_ACCUMULATION = 256
"""Most products that an fp16 accumulator sums, unless asked otherwise (docs/hbm2-pim.md, "Accuracy")."""
U16 = npt.NDArray[np.uint16]
BANK = ("EVEN_BANK", "ODD_BANK")
FILE = ("GRF_A0", "GRF_B0")


@dataclass(frozen=True, slots=True)
class Pass:
    """Outputs of a pseudo-channel from ``first`` on over some of its tiles: ``registers`` of each of ``files``.

    Weights lie from ``row`` up; ``result`` is the place of the first partial sum among those of the pseudo-channel.
    """

    first: int
    files: int
    registers: int
    first_tile: int
    tiles: int
    row: int
    result_row: int
    result: int


@dataclass(frozen=True, slots=True)
class GemvPlan:
    """Where a matrix [m, k] lies: pseudo-channel go * input_groups + gk has outputs of group go, inputs of group gk.

    ``outputs`` and ``tiles`` (of 8 inputs) are those of one pseudo-channel, padding of the last ones included.
    """

    m: int
    k: int
    channels: int
    output_groups: int
    input_groups: int
    outputs: int
    tiles: int
    passes: tuple[Pass, ...]
    rows: int
    blocks: int
    lanes: int
    columns: int

    def pass_outputs(self, part: Pass) -> int:
        """Outputs of a pass, padding included."""
        return part.files * part.registers * self.blocks * self.lanes

    @property
    def accumulation(self) -> int:
        """Products that an fp16 accumulator sums."""
        return TILE_INPUTS * max(part.tiles for part in self.passes)

    @property
    def result_bytes(self) -> int:
        """Bytes of scratch that a pseudo-channel's partial sums take."""
        return 2 * sum(map(self.pass_outputs, self.passes))

    @property
    def input_bytes(self) -> int:
        """Bytes of scratch that a pseudo-channel's inputs take, 32 a tile."""
        return 32 * self.tiles


def plan_gemv(
    machine: Machine, m: int, k: int, first_row: int = 0, max_accumulation: int = MAX_ACCUMULATION
) -> GemvPlan:
    """The spread over pseudo-channels that takes the fewest cycles by :func:`estimated_cycles`.

    Args:
        machine: whose pseudo-channels.
        m, k: outputs and inputs.
        first_row: the first row of every bank that may be used.
        max_accumulation: most products that an fp16 accumulator sums; a pseudo-channel with more inputs reads out
            partial sums of parts of them.

    Raises:
        WordlineError: "bad-shape" for a size below 1 or a ``max_accumulation`` below one tile, "capacity" if no spread
            fits the rows of a bank.
    """
    if m < 1 or k < 1:
        raise WordlineError("bad-shape", f"a matrix of {m} x {k} has no elements", remedy="give positive sizes")
    if max_accumulation < TILE_INPUTS:
        raise WordlineError(
            "bad-shape", f"an accumulator sums {TILE_INPUTS} products or more, not {max_accumulation} at most"
        )
    channels = machine.organisation.channels
    most = max_accumulation // TILE_INPUTS
    splits = [groups for groups in range(1, channels + 1) if channels % groups == 0]
    plans = [_spread(machine, m, k, groups, first_row, most) for groups in splits]
    fitting = [plan for plan in plans if first_row + plan.rows <= machine.section("pim", Pim).reserved_row]
    if not fitting:
        raise WordlineError(
            "capacity",
            f"the matrix {m} x {k} needs {min(plan.rows for plan in plans)} rows of every bank from row {first_row} on",
            where=f"machine {machine.name}",
            remedy="use a machine with more pseudo-channels",
        )
    return min(fitting, key=lambda plan: estimated_cycles(machine, plan))


def _spread(machine: Machine, m: int, k: int, output_groups: int, first_row: int, most_tiles: int) -> GemvPlan:
    organisation, pim = machine.organisation, machine.section("pim", Pim)
    blocks = organisation.banks // 2
    register_outputs = blocks * pim.lanes
    input_groups = organisation.channels // output_groups
    outputs = ceil_div(m, output_groups)
    tiles = ceil_div(ceil_div(k, input_groups), TILE_INPUTS)
    parts = ceil_div(tiles, most_tiles)
    row, first, result = first_row + first_row % 2, 0, 0
    passes: list[Pass] = []
    while first < outputs:
        registers = ceil_div(outputs - first, register_outputs)
        files = 2 if registers > REGISTERS else 1
        # An instruction takes 8 triggers: 4 scalars of a half tile have to be whole instructions.
        registers = min(REGISTERS, registers + registers % 2)
        for number in range(parts):
            begin, end = (tiles * at // parts for at in (number, number + 1))
            # Of a narrow pass, a tile is a row in banks of either parity, and two tiles share two rows.
            rows = (end - begin) * 2 if files == 2 else ceil_div(end - begin, 2) * 2
            passes.append(Pass(first, files, registers, begin, end - begin, row, row + rows, result))
            row += rows + 2
            result += files * registers * register_outputs
        first += files * registers * register_outputs
    return GemvPlan(
        m,
        k,
        organisation.channels,
        output_groups,
        input_groups,
        outputs,
        tiles,
        tuple(passes),
        row - first_row,
        blocks,
        pim.lanes,
        organisation.columns,
    )


def estimated_cycles(machine: Machine, plan: GemvPlan) -> int:
    """Cycles of the kernel besides what is the same for every spread."""
    t = machine.section("timing", Timing)
    gap = t.nRD2PRE + t.nRP + t.nRCDWR + t.nWR2RDL
    total = 0
    for part in plan.passes:
        columns = TILE_INPUTS * part.registers * part.files
        total += part.tiles * ((columns - 1) * t.nCCDL + gap)
        total += part.files * part.registers * (t.nCCDL + plan.blocks * t.nCCDS)
    return total


def pack_weights(plan: GemvPlan, weights: npt.ArrayLike) -> U16:
    """The bank image of rows ``passes[0].row`` up: uint16 [rows][channel][bank][column][lane].

    ``weights``: fp16 bits [m, k].
    """
    source = np.asarray(weights, dtype=np.uint16)
    base = plan.passes[0].row
    image = np.zeros(
        (plan.passes[-1].result_row + 2 - base, plan.channels, 2 * plan.blocks, plan.columns, plan.lanes), np.uint16
    )
    inputs = plan.tiles * TILE_INPUTS
    for channel in range(plan.channels):
        go, gk = divmod(channel, plan.input_groups)
        own = source[go * plan.outputs : (go + 1) * plan.outputs, gk * inputs : (gk + 1) * inputs]
        for part in plan.passes:
            size = plan.pass_outputs(part)
            block = np.zeros((size, inputs), np.uint16)
            given = own[part.first : part.first + size]
            block[: given.shape[0], : given.shape[1]] = given
            # [file, register, block, lane, tile, scalar]
            shaped = block.reshape(part.files, part.registers, plan.blocks, plan.lanes, plan.tiles, TILE_INPUTS)
            shaped = shaped[..., part.first_tile : part.first_tile + part.tiles, :]
            for tile in range(part.tiles):
                for scalar in range(TILE_INPUTS):
                    for file in range(part.files):
                        row, parity = _place(part, tile, scalar, file)
                        column = scalar % 4 * REGISTERS
                        image[row - base, channel, parity::2, column : column + part.registers] = shaped[
                            file, :, :, :, tile, scalar
                        ].swapaxes(0, 1)
    return image


def _place(part: Pass, tile: int, scalar: int, file: int) -> tuple[int, int]:
    """(row, parity) of the weights of a scalar: its number follows from the row, odd rows have scalars 4 to 7."""
    half = scalar // 4
    if part.files == 2:
        return part.row + 2 * tile + half, file
    # Narrow: one row of even banks and its neighbour of odd banks; the next tile has the two others of the pair.
    return part.row + tile // 2 * 2 + half, (tile + half) % 2


def pack_input(plan: GemvPlan, x: npt.ArrayLike) -> U16:
    """What the scratch of each pseudo-channel holds of x (fp16 bits [k]): uint16 [channels, tiles, 16]."""
    padded = np.zeros(plan.input_groups * plan.tiles * TILE_INPUTS, np.uint16)
    source = np.asarray(x, dtype=np.uint16)
    padded[: source.size] = source
    scalars = padded.reshape(plan.input_groups, plan.tiles, TILE_INPUTS)
    image = np.zeros((plan.channels, plan.tiles, 2 * TILE_INPUTS), np.uint16)
    image[:, :, :TILE_INPUTS] = np.tile(scalars, (plan.output_groups, 1, 1))
    return image


def combine(plan: GemvPlan, partial: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """y, float32 [m], from the partial sums that the scratch holds (uint16 [channels, outputs...]).

    The host adds the input groups, and the parts of each, in ascending order, rounding to float32.
    """
    sums = fp16.to_float(partial).reshape(plan.output_groups, plan.input_groups, -1)
    chunks = []
    for first in dict.fromkeys(part.first for part in plan.passes):
        parts = [part for part in plan.passes if part.first == first]
        places = [slice(part.result, part.result + plan.pass_outputs(part)) for part in parts]
        terms = [sums[:, group, place] for group in range(plan.input_groups) for place in places]
        chunks.append(reduce(lambda a, b: np.add(a, b, dtype=np.float32), terms))
    flat: npt.NDArray[np.float32] = np.concatenate(chunks, axis=1)[:, : plan.outputs].reshape(-1)[: plan.m]
    return flat


def crf_program(part: Pass) -> list[Instr]:
    """The program of a pass: the first tile starts the sums, a loop adds the others, NOP lets them out."""
    return _wide_program(part) if part.files == 2 else _narrow_program(part)


def _wide_program(part: Pass) -> list[Instr]:
    program: list[Instr] = []
    for half in (0, 1):
        for parity in (EVEN, ODD):
            times = 4
            if half == 0:
                program.append(operation("MUL", aam=1, dst=FILE[parity], a=BANK[parity], b="SRF_M0"))
                times = 3
            program.append(operation("MAC", aam=1, dst=FILE[parity], a=BANK[parity], b="SRF_M0"))
            program.append(operation("JUMP", target=len(program) - 1, count=times - 1))
    if part.tiles > 1:
        first = len(program)
        for _ in (0, 1):
            for parity in (EVEN, ODD):
                program += [operation("MAC", aam=1, dst=FILE[parity], a=BANK[parity], b="SRF_M0")] * 4
        program.append(operation("JUMP", target=first, count=part.tiles - 2))
    return [*program, operation("NOP", n=2 * REGISTERS - 1), operation("EXIT")]


def _narrow_program(part: Pass) -> list[Instr]:
    """Of the first burst, the columns of scalar 0 start the sums one by one, and what is left of an instruction of 8
    triggers adds one by one too. Registers and scalars of all others come from the column address.
    """
    registers = part.registers
    if registers == REGISTERS:
        start = operation("MUL", aam=1, dst=FILE[0], a=BANK[EVEN], b="SRF_M0")
        program = [start, _sweep(EVEN), _again(1, 2), _sweep(ODD), _again(3, 3)]
        return _looped(program, part)
    columns = [(scalar, register) for scalar in range(4) for register in range(registers)]
    program = [_single("MUL", scalar, register) for scalar, register in columns[:registers]]
    swept, rest = divmod(3 * registers, REGISTERS)
    program += [_sweep(EVEN)] * swept
    program += [_single("MAC", scalar, register) for scalar, register in columns[len(columns) - rest :]]
    program += [_sweep(ODD)] * (4 * registers // REGISTERS)
    return _looped(program, part)


def _looped(program: list[Instr], part: Pass) -> list[Instr]:
    """A narrow pass after its first tile: the loop over the others, and NOP."""
    half = 4 * part.registers // REGISTERS
    if part.tiles > 1:
        again = operation("JUMP", target=len(program), count=part.tiles - 2)
        program = [*program, *[_sweep(EVEN)] * half, *[_sweep(ODD)] * half, again]
    return [*program, operation("NOP", n=part.registers - 1), operation("EXIT")]


def _again(entry: int, times: int) -> Instr:
    return operation("JUMP", target=entry, count=times)


def _sweep(parity: int) -> Instr:
    return operation("MAC", aam=1, dst=FILE[0], a=BANK[parity], b="SRF_M0")


def _single(name: str, scalar: int, register: int) -> Instr:
    return operation(name, dst=f"GRF_A{register}", a=BANK[EVEN], b=f"SRF_M{scalar}")


def gemv(plan: GemvPlan, state: ChannelState, x: Address, y: Address) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The kernel: inputs from scratch (:func:`pack_input`), partial sums to scratch, output by output.

    Starts in any mode and ends in single-bank mode, which ``state`` keeps track of. The first part of what it returns
    does not need the inputs yet.
    """
    b = Builder()
    early: tuple[Item, ...] = ()
    for part in plan.passes:
        b.extend(state.start(crf_program(part)))
        b.emit("ACT", bank=EVEN, row=part.row)
        early = early or b.take()
        _tiles(b, part, x + 32 * part.first_tile)
        _let_out(b, part)
    b.extend(state.single())
    for part in plan.passes:
        _read(b, plan, part, y + 2 * part.result)
    return early, b.take()


def _tiles(b: Builder, part: Pass, x: Address) -> None:
    if part.files == 2:
        with b.loop(part.tiles) as tile:
            row = linear(part.row) + linear(tile) * 2
            b.extend([command("WRSRF", None, {"parity": ODD}, source=x + linear(tile) * 32)])
            for half in (0, 1):
                _stream(b, EVEN, row + half, row + half)
                _stream(b, ODD, row + half, row + half + 1)
        return
    pairs, last = divmod(part.tiles, 2)
    if pairs:
        with b.loop(pairs) as pair:
            row = linear(part.row) + linear(pair) * 2
            _narrow(b, part.registers, x + linear(pair) * 64, row, row + 1, row + 1)
            _narrow(b, part.registers, x + linear(pair) * 64 + 32, row + 1, row, row + 2)
    if last:
        row = linear(part.row + 2 * pairs)
        _narrow(b, part.registers, x + 64 * pairs, row, row + 1, linear(part.result_row))


def _narrow(b: Builder, registers: int, source: Address, even: IntLike, odd: IntLike, after: IntLike) -> None:
    b.extend([command("WRSRF", None, {"parity": ODD}, source=source)])
    if registers == REGISTERS:
        _stream(b, EVEN, even, odd)
        _stream(b, ODD, odd, after)
    else:
        _sparse(b, registers, EVEN, even, odd)
        _sparse(b, registers, ODD, odd, after)


def _sparse(b: Builder, registers: int, parity: int, row: IntLike, ahead: IntLike) -> None:
    """As :func:`_stream`, with the first columns of every 8 only."""
    for scalar in range(4):
        b.extend([command("PIMRD", None, {"parity": parity}, row=row, column=REGISTERS * scalar, count=registers)])
        if scalar == 0:
            b.emit("PRE", bank=1 - parity)
        elif scalar == 2:
            b.emit("ACT", bank=1 - parity, row=ahead)


def _stream(b: Builder, parity: int, row: IntLike, ahead: IntLike) -> None:
    """The 32 columns of a row; banks of the other parity get row ``ahead`` opened meanwhile.

    Their precharge comes after 4 columns, when the write of the scalars has been recovered from.
    """
    for first, count in ((0, 4), (4, 12), (16, 16)):
        b.extend([command("PIMRD", None, {"parity": parity}, row=row, column=first, count=count)])
        if first == 0:
            b.emit("PRE", bank=1 - parity)
        elif first == 4:
            b.emit("ACT", bank=1 - parity, row=ahead)


def _let_out(b: Builder, part: Pass) -> None:
    """GRF_A to even banks, GRF_B to odd ones; even banks have the row open already."""
    if part.files == 1:
        b.extend([command("PIMWR", None, {"parity": EVEN}, row=part.result_row, column=0, count=part.registers)])
        return
    b.emit("PRE", bank=ODD)
    b.extend([command("PIMWR", None, {"parity": EVEN}, row=part.result_row, column=0, count=4)])
    b.emit("ACT", bank=ODD, row=part.result_row)
    b.extend([command("PIMWR", None, {"parity": EVEN}, row=part.result_row, column=4, count=4)])
    b.extend([command("PIMWR", None, {"parity": ODD}, row=part.result_row, column=0, count=REGISTERS)])


def _read(b: Builder, plan: GemvPlan, part: Pass, y: Address) -> None:
    """Columns in an order that changes the bank group with each."""
    order = [*range(0, plan.blocks, 2), *range(1, plan.blocks, 2)]
    for file in range(part.files):
        for block in order:
            b.emit("ACT", bank=2 * block + file, row=part.result_row)
    for file in range(part.files):
        with b.loop(part.registers) as register:
            for block in order:
                place = (file * part.registers * plan.blocks + block) * 2 * plan.lanes
                target = y + linear(register) * (plan.blocks * 2 * plan.lanes) + place
                b.emit("RD", bank=2 * block + file, row=part.result_row, column=register, count=1, target=target)
