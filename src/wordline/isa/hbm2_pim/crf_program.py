"""CRF programs: made from instructions, encoded, decoded, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wordline.isa.declare import OperandError
from wordline.isa.disassemble import format_head
from wordline.isa.hbm2_pim.crf import CRF, ENTRIES, EVEN_BANK, FILES, OPERANDS, REGISTERS
from wordline.isa.instruction import Instr, decode, encode, make

#: Operand files that an operand of an instruction can name; a bank is "bank".
_ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    "MOV": {"a": ("GRF_A", "GRF_B", "SRF_M", "SRF_A", "bank")},
    "FILL": {"a": ("bank",)},
    "ADD": {"a": ("GRF_A", "GRF_B", "bank"), "b": ("GRF_A", "GRF_B", "SRF_A", "bank")},
    "MUL": {"a": ("GRF_A", "GRF_B", "bank"), "b": ("GRF_A", "GRF_B", "SRF_M", "bank")},
    "MAC": {"a": ("GRF_A", "GRF_B", "bank"), "b": ("GRF_A", "GRF_B", "SRF_M", "bank")},
    "MAD": {
        "a": ("GRF_A", "GRF_B", "bank"),
        "b": ("GRF_A", "GRF_B", "SRF_M", "bank"),
        "c": ("GRF_A", "GRF_B", "SRF_A"),
    },
}


def operation(name: str, /, **values: Any) -> Instr:
    """A CRF instruction, operands by number or name: ``operation("MAC", dst="GRF_B0", a="EVEN_BANK", b="SRF_M0")``."""
    return make(CRF, name, **{k: OPERANDS.index(v) if isinstance(v, str) else v for k, v in values.items()})


def assemble_crf(program: Sequence[Instr]) -> list[int]:
    """The words of a program. Raises ``WordlineError`` for a value that does not fit, ``OperandError`` for the rest."""
    words = [encode(instr, CRF.layout)[0] for instr in program]
    check_crf(words)
    return words


def decode_crf(word: int) -> Instr:
    """One entry. Raises ``WordlineError("bad-program")`` for an unknown opcode."""
    return decode(CRF, [word], 0)[0]


def crf_text(word: int) -> str:
    """One entry as text."""
    known = word & ((1 << CRF.layout.opcode_bits) - 1) in CRF.by_opcode
    return format_head(decode_crf(word)) if known else "no instruction"


def triggers(instr: Instr) -> int:
    """Column commands that an instruction takes; 0 for JUMP and EXIT."""
    if instr.name in ("JUMP", "EXIT"):
        return 0
    if instr.name == "NOP":
        return instr.fields["n"] + 1
    return REGISTERS if instr.name == "FILL" or instr.fields["aam"] else 1


def check_crf(words: Sequence[int]) -> None:
    """Raise ``OperandError`` for the first entry that means nothing: what verification of a program can know."""
    if len(words) > ENTRIES:
        raise OperandError(f"CRF entry {len(words) - 1} is outside 0..{ENTRIES - 1}")
    for index, word in enumerate(words):
        code = word & ((1 << CRF.layout.opcode_bits) - 1)
        if code not in CRF.by_opcode:
            raise OperandError(f"CRF entry {index}: unknown opcode {code}")
        instr = decode_crf(word)
        if encode(instr, CRF.layout)[0] != word:
            raise OperandError(f"CRF entry {index}: {instr.name} has bits set that it does not use")
        if instr.name == "JUMP":
            _check_jump(index, instr, words)
        banks = {value for name in "abc" if (value := instr.fields.get(name, 0)) >= EVEN_BANK}
        if len(banks) > 1:
            raise OperandError(f"CRF entry {index}: {instr.name} reads an even and an odd bank; a command opens one")
        for name, files in _ALLOWED.get(instr.name, {}).items():
            value = instr.fields[name]
            if value >= len(OPERANDS):
                raise OperandError(f"CRF entry {index}: {instr.name} has {name}={value}, which names nothing")
            if ("bank" if value >= EVEN_BANK else FILES[value // REGISTERS]) not in files:
                raise OperandError(f"CRF entry {index}: {instr.name} cannot have {OPERANDS[value]} as {name}")
        if instr.name == "FILL" and instr.fields["dst"] % REGISTERS:
            raise OperandError(f"CRF entry {index}: FILL begins at register 0 of a file")


def _check_jump(index: int, instr: Instr, words: Sequence[int]) -> None:
    target = instr.fields["target"]
    if target >= index:
        raise OperandError(f"CRF entry {index}: JUMP goes back; entry {target} is not before it")
    jump = CRF.by_name["JUMP"].opcode
    if any(word & ((1 << CRF.layout.opcode_bits) - 1) == jump for word in words[target:index]):
        raise OperandError(f"CRF entry {index}: the loop from entry {target} has a JUMP in it; loops do not nest")
