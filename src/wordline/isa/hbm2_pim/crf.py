"""Instructions of the CRF, the instruction buffer that all blocks of a pseudo-channel run (rules: docs/hbm2-pim.md).

One 32-bit word each; the opcode is in bits 0-3, and a word of zero bits is EXIT. Operations work on 16 lanes of fp16
and round after every operation. Semantics see ``state.a``, ``state.b``, ``state.c`` (operands) and ``state.d`` (the
destination), uint16 bits [..., lanes], and set ``state.d``; control flow is the sequencer's (``sim/hbm2_pim``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import Bits, Instruction, InstructionSet, WordLayout

ENTRIES = 32
REGISTERS = 8
"""Registers of a file, and the triggers of an instruction that sweeps one."""
GRF_A, GRF_B, SRF_M, SRF_A = range(0, 32, 8)
"""Number of the first register of each file among the operands."""
EVEN_BANK, ODD_BANK = 32, 33
FILES = ("GRF_A", "GRF_B", "SRF_M", "SRF_A")
OPERANDS = (*(f"{file}{i}" for file in FILES for i in range(REGISTERS)), "EVEN_BANK", "ODD_BANK")

_AAM = Bits("aam", 1, "address-aligned: register indices come from the column address", optional=True)
_RELU = Bits("relu", 1, "negative values, and -0, become +0", optional=True)
_DST = Bits("dst", 4, "register written", names=OPERANDS[:16], enum="CrfRegister")


def _source(name: str, description: str) -> Bits:
    return Bits(name, 6, description, names=OPERANDS, enum="CrfOperand")


_A, _B, _C = _source("a", "first operand"), _source("b", "second operand"), _source("c", "third operand")


def _move(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics import fp16

    state.d = fp16.relu(state.a) if o.relu else state.a


def _add(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics import fp16

    state.d = fp16.add(state.a, state.b)


def _mul(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics import fp16

    state.d = fp16.mul(state.a, state.b)


def _mac(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics import fp16

    state.d = fp16.add(fp16.mul(state.a, state.b), state.d)


def _mad(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics import fp16

    state.d = fp16.add(fp16.mul(state.a, state.b), state.c)


CRF = InstructionSet(
    "hbm2-pim-crf",
    1,
    (
        Instruction("EXIT", 0, (), "crf", "Ends the program; MODE starts it again."),
        Instruction(
            "NOP",
            1,
            (),
            "crf",
            "Nothing for n + 1 triggers. A write during NOP stores the register that its column mod 8 names, of GRF_A "
            "to an even bank, of GRF_B to an odd one.",
            (Bits("n", 7, "triggers besides the first"),),
        ),
        Instruction(
            "JUMP",
            2,
            (),
            "crf",
            "Back to entry `target`, `count` times, then on. Takes no trigger. There is one loop counter: no JUMP lies "
            "between another JUMP and its target.",
            (Bits("target", 5, "entry, before this one"), Bits("count", 16, "times that it is taken")),
        ),
        Instruction("MOV", 3, (), "crf", "dst = a", (_AAM, _RELU, _DST, _A), semantics=_move),
        Instruction(
            "FILL",
            4,
            (),
            "crf",
            "MOV of 8 triggers, one a register from dst 0 up (address-aligned: column mod 8).",
            (_AAM, _RELU, _DST, _A),
            semantics=_move,
        ),
        Instruction("ADD", 5, (), "crf", "dst = a + b", (_AAM, _DST, _A, _B), semantics=_add),
        Instruction("MUL", 6, (), "crf", "dst = a * b", (_AAM, _DST, _A, _B), semantics=_mul),
        Instruction("MAC", 7, (), "crf", "dst = a * b + dst, rounded after each", (_AAM, _DST, _A, _B), semantics=_mac),
        Instruction(
            "MAD", 8, (), "crf", "dst = a * b + c, rounded after each", (_AAM, _DST, _A, _B, _C), semantics=_mad
        ),
    ),
    layout=WordLayout(bits=32, opcode_bits=4, length_bits=0),
)
