"""Static verification: each rule, with the place it names."""

from __future__ import annotations

import pytest

from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.isa.instruction import make
from wordline.isa.program import Program, Stream
from wordline.isa.verify import verify_program
from wordline.machines import load_machine

ISA = instruction_set("gddr6-aim")
MACHINE = load_machine("gddr6-aim-chip")

PASS = """
stream vector
  VPASS n0=1 n1=1 n2=8 high=8 {{
    operands base=0 s2=2
    scalars kind=f32 value=1
    operations op=mul a=x0 b=k0
    {0}
  }}
"""


def refused(text: str, **overrides: int | bool) -> WordlineError:
    machine = load_machine("gddr6-aim-chip", {key.replace("__", "."): value for key, value in overrides.items()})
    with pytest.raises(WordlineError) as caught:
        verify_program(assemble(ISA, text), machine)
    return caught.value


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("VPASS n0=1", "bad-stream", "VPASS does not belong in a channel stream"),
        ("XOUT blocks=1", "bad-stream", "XOUT does not belong in a channel stream"),
        ("ADD rd=r0 a=1", "bad-register", "r0 cannot be written; r2 to r31 can"),
        ("LOOP rd=r1 count=2 {\n }", "bad-register", "r1 cannot be written"),
        ("LDA rd=r1 index=0", "bad-register", "r1 cannot be written"),
        ("GETS rd=r2 shared=64", "bad-register", "shared register 64 does not exist; the machine has 64"),
        ("LOOP rd=r2 count=2 body=2", "bad-loop", "the loop body ends at instruction 3, the stream at 1"),
        ("LOOP rd=r2 count=1 body=1\nLOOP rd=r3 count=1 body=1\nPREA", "bad-loop", "the loop around it at 2"),
        ("WAIT signal=3 value=1", "bad-signal", "no stream produces signal 3"),
        ("MAC16 row=16384 count=1", "out-of-range", "row 16384 is outside 0..16383"),
        ("MAC16 row=-1 count=1", "out-of-range", "row -1 is outside 0..16383"),
        ("MAC16 column=60 count=5", "out-of-range", "column 64 is outside 0..63"),
        ("MAC16 buffer=1 count=64", "out-of-range", "buffer column 64 is outside 0..63"),
        ("MAC16 accumulator=32 count=1", "out-of-range", "accumulator 32 is outside 0..31"),
        ("RDMAC16 accumulator=30 count=3", "out-of-range", "accumulator 32 is outside 0..31"),
        ("RD bank=16 count=1", "out-of-range", "bank 16 is outside 0..15"),
        ("RD count=2 target=65504", "out-of-range", "scratch offset 65567 is outside 0..65535"),
        ("WR count=1 source=16", "out-of-range", "scratch offset 16 is not a multiple of 32"),
        ("WRE source=1", "out-of-range", "scratch offset 1 is not a multiple of 2"),
        ("WRE column=64", "out-of-range", "column 64 is outside 0..63"),
        ("WRMAC16 advance=1 count=2 source=65504", "out-of-range", "scratch offset 65567"),
        ("ACT16 row=16384", "out-of-range", "row 16384"),
        ("LDM rd=r2 address=524288", "out-of-range", "controller memory word 524288 is outside 0..524287"),
        ("STA index=-1 value=0", "out-of-range", "controller memory word -1"),
    ],
)
def test_channel_streams(body: str, code: str, message: str) -> None:
    error = refused(f"stream channel mask=0x3\n{body}")
    assert error.code == code
    assert message in error.what
    assert error.where is not None
    assert error.where.startswith("stream 0, instruction ")
    assert error.remedy == "recompile the model for this machine"


@pytest.mark.parametrize(
    "body",
    [
        "MAC16 row=99999 column=-5 count=0",  # a burst of no columns names nothing
        "MAC16 row=99999 column=-5 count=r2",  # known at run time only
        "MAC16 row=r2 column=63 count=1",
        "WRMAC16 advance=0 count=32 source=65504",
        "WRE source=65534",
        "MAC16 row=16383 column=0 buffer=0 accumulator=31 count=64",
        "LOOP rd=r2 count=2 {\n }",
    ],
)
def test_what_is_accepted(body: str) -> None:
    verify_program(assemble(ISA, f"stream channel mask=0x3\n{body}"), MACHINE)


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("operations op=add a=t0 b=t1", "bad-pass", "operations[1] uses value 13, which does not exist there"),
        ("operations op=neg a=x0".replace("neg", "99"), "bad-pass", "operations[1] is unknown: 99"),
        ("operations op=exp a=x1", "bad-pass", "operations[1] uses value 1"),
        ("operations op=exp a=k1", "bad-pass", "operations[1] uses value 5"),
        ("operations op=exp a=60", "bad-pass", "operations[1] uses value 60"),
        ("result base=0 dtype=i32 value=x0", "bad-pass", "a pass stores bf16 or f32"),
        ("result base=0 dtype=3 value=x0", "bad-pass", "a pass stores bf16 or f32"),
        ("result base=0 value=t1", "bad-pass", "the result uses value 13"),
        ("result base=0 channels=0x4 value=t0", "bad-pass", "channels that the machine does not have"),
        ("operands base=0 dtype=3", "bad-pass", "operands[1] has an element format that the machine lacks"),
        ("scalars kind=register_i32 value=32", "bad-register", "scalars[1] reads r32"),
        ("scalars kind=shared_f32 value=64", "bad-register", "shared register 64"),
        ("reductions kind=3 value=t0", "bad-pass", "reductions[0] is unknown: 3"),
        ("reductions kind=sum value=t5", "bad-pass", "reductions[0] uses value 17"),
        ("reductions kind=sum value=t0 shared=200", "bad-register", "shared register 200"),
        ("operands base=0\n" * 4, "bad-pass", "the pass has 5 operands, the machine allows 4"),
        ("scalars\n" * 8, "bad-pass", "the pass has 9 scalars, the machine allows 8"),
        ("operations op=exp a=x0\n" * 16, "bad-pass", "the pass has 17 operations, the machine allows 16"),
        ("reductions kind=sum value=t0\n" * 3, "bad-pass", "the pass has 3 reductions, the machine allows 2"),
    ],
)
def test_passes(entry: str, code: str, message: str) -> None:
    error = refused(PASS.format(entry))
    assert error.code == code
    assert message in error.what
    assert error.where is not None
    assert error.where.startswith("stream 0, instruction 0: VPASS")


def test_pass_limits_come_from_the_machine() -> None:
    verify_program(assemble(ISA, PASS.format("operations op=exp a=t0")), MACHINE)
    error = refused(PASS.format("operations op=exp a=t0"), vector_unit__max_ops=1)
    assert "2 operations, the machine allows 1" in error.what
    assert "no vector unit" in refused("stream vector", vector_unit__present=False).what


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stream channel mask=0x0", "channel mask 0x0 names no channel"),
        ("stream channel mask=0x4", "channels beyond the 2 of the machine"),
        ("stream channel mask=0x3\nstream channel mask=0x2", "a channel already has a stream"),
        ("stream vector\nstream vector", "more than one vector stream"),
        ("stream link\nstream link", "more than one link stream"),
    ],
)
def test_streams(text: str, message: str) -> None:
    error = refused(text)
    assert error.code == "bad-stream"
    assert message in error.what


def test_a_vector_stream_has_no_channel_mask() -> None:
    from wordline.isa.declare import Engine

    with pytest.raises(WordlineError, match="a vector stream has no channel mask, this one says 0x1"):
        verify_program(Program(ISA, (Stream(Engine.VECTOR, 1, ()),)), MACHINE)


def test_signals_have_one_producer() -> None:
    error = refused("stream channel mask=0x1\nSIGNAL signal=5\nstream link\nSIGNAL signal=5")
    assert error.code == "bad-signal"
    assert "signal 5 is produced by stream 0 too" in error.what
    assert error.where == "stream 1, instruction 0: SIGNAL signal=5"
    error = refused("stream link\nSIGNAL signal=9", command_processor__signals=8)
    assert "signal 9 does not exist; the machine has 8" in error.what


def test_loop_depth() -> None:
    def nest(depth: int) -> str:
        return "stream channel mask=0x1\n" + "LOOP rd=r2 count=1 {\n" * depth + "PREA\n" + "}\n" * depth

    verify_program(assemble(ISA, nest(8)), MACHINE)
    error = refused(nest(9))
    assert error.code == "bad-loop"
    assert "loops nest 9 deep, the machine 8" in error.what


def test_loops_may_end_together_and_follow_each_other() -> None:
    body = "LOOP rd=r2 count=1 {\nLOOP rd=r3 count=1 {\nPREA\n}\n}\n"
    verify_program(assemble(ISA, "stream channel mask=0x1\n" + body * 12), MACHINE)


def test_registers_of_a_smaller_machine() -> None:
    error = refused("stream channel mask=0x1\nADD rd=r16 a=0", command_processor__registers=16)
    assert "r16 cannot be written; r2 to r15 can" in error.what
    error = refused("stream channel mask=0x1\nADD rd=r2 a=r20", command_processor__registers=16)
    assert "a reads r20, the machine has 16 registers" in error.what


def test_instruction_memory() -> None:
    error = refused("stream channel mask=0x1\n" + "PREA\n" * 9, command_processor__instruction_memory_bytes=64)
    assert error.code == "program-too-large"
    assert "the program has 72 bytes of instructions, the device holds 64" in error.what


def test_generation() -> None:
    from dataclasses import replace

    other = replace(MACHINE, generation="hbm2-pim")
    with pytest.raises(WordlineError, match="the program is for gddr6-aim") as caught:
        verify_program(Program(ISA, (Stream(assemble(ISA, "stream link").streams[0].engine, 0, ()),)), other)
    assert caught.value.code == "wrong-generation"


def test_every_instruction_has_an_accepted_form() -> None:
    for declaration in ISA.instructions:
        values = {"rd": 2} if declaration.writes_register else {}
        instr = make(ISA, declaration.name, **values)
        engine = declaration.engines[0]
        instrs = (make(ISA, "SIGNAL"), instr) if declaration.name == "WAIT" else (instr,)
        verify_program(Program(ISA, (Stream(engine, 1 if engine.value == 0 else 0, instrs),)), MACHINE)
