"""What the verifier refuses of a pseudo-channel's stream and of CRF programs."""

from __future__ import annotations

import pytest

from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.isa.declare import OperandError
from wordline.isa.disassemble import disassemble
from wordline.isa.hbm2_pim.crf_program import assemble_crf, check_crf, crf_text, operation, triggers
from wordline.isa.verify import verify_program
from wordline.machines import load_machine

ISA = instruction_set("hbm2-pim")
MACHINE = load_machine("hbm2-pim-stack")
MAC = operation("MAC", aam=1, dst="GRF_B0", a="EVEN_BANK", b="GRF_A0")


def test_listing_shows_the_program_of_the_buffer() -> None:
    words = assemble_crf([MAC, operation("JUMP", target=0, count=7), operation("EXIT")])
    text = f"""\
stream channel mask=0x1
  0: MODE mode=all_bank parity=even
  1: WRCRF parity=odd column=0 {{
       program word={words[0]:#x}  ; MAC aam=1 dst=GRF_B0 a=EVEN_BANK b=GRF_A0
       program word={words[1]:#x}  ; JUMP target=0 count=7
       program word=0x0  ; EXIT
     }}
  2: PIMRD parity=even row=r2+3 column=0 count=32
"""
    program = assemble(ISA, text)
    verify_program(program, MACHINE)
    assert disassemble(program) == text
    assert crf_text(9) == "no instruction"


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("PIMRD row=16383 count=1", "out-of-range", "row 16383 is outside 0..16382"),
        ("PIMRD column=30 count=3", "out-of-range", "column 32 is outside 0..31"),
        ("WRGRF first=6 count=3", "out-of-range", "GRF register 8 is outside 0..7"),
        ("WR bank=16 count=1", "out-of-range", "bank 16 is outside 0..15"),
        ("WRSRF source=8", "out-of-range", "scratch offset 8 is not a multiple of 32"),
        ("WRCRF {\n program word=0xf\n}", "bad-operand", "CRF entry 0: unknown opcode 15"),
        ("WRCRF column=1 {\n program word=0x2\n}", "bad-operand", None),
    ],
)
def test_streams_that_are_refused(body: str, code: str, message: str | None) -> None:
    program = assemble(ISA, f"stream channel mask=0x1\n{body}\n")
    if message is None:
        verify_program(program, MACHINE)
        return
    with pytest.raises(WordlineError) as caught:
        verify_program(program, MACHINE)
    assert (caught.value.code, caught.value.what) == (code, message)
    assert caught.value.where is not None
    assert caught.value.where.startswith("stream 0, instruction 0")


def test_programs_of_another_generation_are_refused() -> None:
    with pytest.raises(WordlineError, match="the program is for hbm2-pim") as caught:
        verify_program(assemble(ISA, "stream channel mask=0x1\nPREA\n"), load_machine("gddr6-aim-chip"))
    assert caught.value.code == "wrong-generation"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ([operation("JUMP", target=0, count=1)], "entry 0 is not before it"),
        ([MAC, operation("JUMP", target=0, count=1), operation("JUMP", target=0, count=1)], "loops do not nest"),
        ([operation("MAC", dst=0, a="EVEN_BANK", b="ODD_BANK")], "reads an even and an odd bank"),
        ([operation("MUL", dst=0, a="EVEN_BANK", b="SRF_A0")], "MUL cannot have SRF_A0 as b"),
        ([operation("ADD", dst=0, a="EVEN_BANK", b="SRF_M0")], "ADD cannot have SRF_M0 as b"),
        ([operation("MAD", dst=0, a="EVEN_BANK", b="SRF_M0", c="ODD_BANK")], "reads an even and an odd bank"),
        ([operation("FILL", dst=0, a="GRF_B0")], "FILL cannot have GRF_B0 as a"),
        ([operation("FILL", dst=3, a="EVEN_BANK")], "FILL begins at register 0"),
        ([operation("MOV", dst=3, a=34)], "has a=34, which names nothing"),
    ],
)
def test_crf_programs_that_are_refused(program: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(OperandError, match=message):
        assemble_crf(program)


def test_bits_that_an_instruction_does_not_use_are_refused() -> None:
    with pytest.raises(OperandError, match="EXIT has bits set"):
        check_crf([0x10])


def test_triggers_of_an_instruction() -> None:
    assert [triggers(i) for i in (MAC, operation("NOP", n=7), operation("EXIT"), operation("JUMP", target=0))] == [
        8,
        8,
        0,
        0,
    ]
    assert triggers(operation("FILL", dst=0, a="ODD_BANK")) == 8
    assert triggers(operation("MOV", dst=0, a="ODD_BANK")) == 1
