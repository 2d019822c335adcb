"""The kernels of the published HBM2-PIM figures as device programs of ours, padding and row order as described there.

A GEMV tile is 8 outputs of each of 8 blocks by 128 inputs: 8 writes of the input into GRF_A, then 64 MACs of two rows
into GRF_B; even tiles lie in even banks, odd ones in odd banks, and all registers are written through odd banks. An
element-wise kernel takes 8 columns of an operand at a time, in turn from even and odd banks, each operand in rows of
its own in the same bank. Rows of the other parity are opened ahead.
"""

from __future__ import annotations

from typing import Any

from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.isa.hbm2_pim.crf_program import assemble_crf, operation
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream

ISA = instruction_set("hbm2-pim")
CHANNELS = 64
SINGLE, ALL_BANK, PIM = range(3)
EVEN, ODD = 0, 1
BANKS = ("EVEN_BANK", "ODD_BANK")
FILES = ("GRF_A0", "GRF_B0")
#: Outputs of a tile over all pseudo-channels, inputs of a tile, elements of 8 columns over all pseudo-channels.
TILE_OUTPUTS, TILE_INPUTS, GROUP_ELEMENTS = 64 * CHANNELS, 128, 8 * 128 * CHANNELS
RESULT_ROW = 12_000


def published_gemv(outputs: int, inputs: int) -> Program:
    """GEMV with outputs and inputs padded to whole tiles."""
    tiles = -(-inputs // TILE_INPUTS)
    macs = [operation("MAC", aam=1, dst="GRF_B0", a=bank, b="GRF_A0") for bank in BANKS for _ in range(8)]
    crf = [*macs, operation("JUMP", target=0, count=(tiles - 1) // 2)]
    if tiles % 2:
        # The last tile leaves the loop in its middle: a loop over pairs, then one tile of the first half.
        crf = [*macs, operation("JUMP", target=0, count=tiles // 2 - 1), *macs[:8]] if tiles > 1 else macs[:8]
    crf += [operation("NOP", n=7), operation("EXIT")]
    code = _begin(crf)
    row = 0
    for output in range(-(-outputs // TILE_OUTPUTS)):
        if output:
            code.append(_make("MODE", mode=PIM, parity=ODD))
        for tile in range(tiles):
            code.append(_make("WRGRF", parity=ODD, file=0, first=0, count=8, source=0))
            parity = tile % 2
            for half in (0, 1):
                ahead = row + 2 if parity == ODD and half else None
                code += _reads(parity, row + half, 0, 32, ahead)
            row += 2 * (tile % 2)
        row += 2 * (tiles % 2)
        code.append(_make("PIMWR", parity=ODD, row=RESULT_ROW, column=8 * (output % 4), count=8))
    return _end(code)


def published_elementwise(name: str, elements: int) -> Program:
    """``add``, ``mul`` or ``relu`` of vectors of that length."""
    crf: list[Instr] = []
    for bank, register in zip(BANKS, FILES, strict=True):
        if name == "relu":
            crf += [operation("FILL", relu=1, dst=register, a=bank)]
        else:
            crf += [
                operation("FILL", dst=register, a=bank),
                operation(name.upper(), aam=1, dst=register, a=register, b=bank),
            ]
        crf.append(operation("NOP", n=7))
    groups = -(-elements // GROUP_ELEMENTS)
    code = _begin([*crf, operation("JUMP", target=0, count=groups), operation("EXIT")])
    for group in range(groups):
        parity, column, row = group % 2, group // 2 % 4 * 8, group // 8
        operands = 1 if name == "relu" else 2
        for operand in range(operands):
            ahead = (group + 1) // 8 if operand == 0 else None
            code += _reads(parity, row + 4000 * operand, column, 8, ahead)
        code.append(_make("PIMWR", parity=parity, row=row + 4000 * operands, column=column, count=8))
    return _end(code)


def _reads(parity: int, row: int, column: int, count: int, ahead: int | None) -> list[Instr]:
    """A burst of triggers; the banks of the other parity get their row ``ahead`` opened meanwhile."""
    if ahead is None:
        return [_make("PIMRD", parity=parity, row=row, column=column, count=count)]
    return [
        _make("PIMRD", parity=parity, row=row, column=column, count=3),
        _make("PRE", bank=1 - parity),
        _make("PIMRD", parity=parity, row=row, column=column + 3, count=3),
        _make("ACT", bank=1 - parity, row=ahead),
        _make("PIMRD", parity=parity, row=row, column=column + 6, count=count - 6),
    ]


def _begin(crf: list[Instr]) -> list[Instr]:
    words = assemble_crf(crf)
    entries = [{"instruction": {"word": word}} for word in words + [0] * (32 - len(words))]
    return [
        _make("MODE", mode=ALL_BANK),
        _make("WRCRF", parity=ODD, column=0, program=entries),
        _make("MODE", mode=PIM, parity=ODD),
    ]


def _end(code: list[Instr]) -> Program:
    code.append(_make("MODE", mode=SINGLE, parity=ODD))
    return Program(ISA, (Stream(Engine.CHANNEL, (1 << CHANNELS) - 1, tuple(code)),))


def _make(name: str, **values: Any) -> Instr:
    return make(ISA, name, **values)
