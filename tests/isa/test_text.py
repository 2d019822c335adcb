"""The text form: exact listings, provenance, and errors of the assembler."""

from __future__ import annotations

import textwrap

import pytest

from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.isa.declare import Engine
from wordline.isa.disassemble import disassemble
from wordline.isa.instruction import make
from wordline.isa.program import Program, Stream
from wordline.isa.provenance import Range

ISA = instruction_set("gddr6-aim")

LISTING = """\
stream channel mask=0x3
   0: LDA rd=r2 index=1
   1: WAIT signal=4 value=r2+1
   2: LOOP rd=r3 count=r2*2-1 {
   3:   WRGB buffer=0 count=64 source=r3*32+4096
   4:   LOOP rd=r4 count=3 {
   5:     MAC16 row=r3+r4*-2 column=0 buffer=0 accumulator=r4 count=64
        }
   6:   LOOP rd=r4 count=0 {
        }
      }
   7: WRMAC16 advance=advance accumulator=0 count=3 source=64
   8: TMOD mode=normal
   9: PREA
  10: SIGNAL signal=0
stream vector
  0: VPASS n0=1 n1=2 n2=32 low=0 high=r5 {
       operands base=r1*4 s0=-128 s1=65536 s2=4 dtype=f32 rotate=1
       operands base=0 s2=2 dtype=bf16
       scalars kind=f32 value=0x3fc00000  ; 1.5
       scalars kind=shared_i32 value=0x3
       operations op=fma a=x0 b=k0 c=x1
       operations op=exp a=t0
       result base=0 s2=2 dtype=bf16 channels=0x3 value=t1
       reductions kind=argmax value=t1 shared=0
     }
stream link
  0: XOUT slot=4 scratch=0 stride=65536 blocks=2 bytes=64 offset=0
"""


def test_listing() -> None:
    program = assemble(ISA, LISTING)
    assert disassemble(program) == LISTING
    assert [s.engine for s in program.streams] == [Engine.CHANNEL, Engine.VECTOR, Engine.LINK]
    assert program.streams[0].instrs[2].fields == {"rd": 3, "body": 4}
    assert Program.from_bytes(ISA, program.to_bytes()) == program


def test_provenance_precedes_its_range() -> None:
    text = """
        stream channel mask=0x1
          PREA
          LOOP rd=r2 count=2 {
            ACT16 row=0
          }
    """
    provenance = [
        Range(0, 0, 0, "linear", "gemv", "model.py:12"),
        Range(0, 2, 2, "softmax", "vector", ""),
        Range(1, 0, 0, "not", "this", "stream"),
    ]
    expected = """\
        stream channel mask=0x1
             ; linear [gemv] model.py:12
          0: PREA
          1: LOOP rd=r2 count=2 {
               ; softmax [vector]
          2:   ACT16 row=0
             }
    """
    assert disassemble(assemble(ISA, text), provenance) == textwrap.dedent(expected)


def test_a_loop_that_leaves_its_surroundings_is_printed_by_length() -> None:
    stream = Stream(Engine.LINK, 0, (make(ISA, "LOOP", rd=2, count=2, body=5), make(ISA, "SIGNAL")))
    text = disassemble(Program(ISA, (stream,)))
    assert text == "stream link\n  0: LOOP rd=r2 body=5 count=2\n  1: SIGNAL signal=0\n"
    assert assemble(ISA, text).streams == (stream,)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("MAC16 row=0", "expected `stream channel", 1),
        ("stream tensor", "expected `stream channel", 1),
        ("stream channel mask=1\n  MAC17 row=0", "unknown instruction 'MAC17'", 2),
        ("stream channel mask=1\n  MAC16 rwo=0", "MAC16 has no operand 'rwo'", 2),
        ("stream channel mask=1\n  MAC16 row=r1*", "not of the form", 2),
        ("stream channel mask=1\n  MAC16 row=1 2", "got '2'", 2),
        ("stream channel mask=1\n  MAC16 row=1 row=2", "once for each operand", 2),
        ("stream channel mask=1\n  MAC16 row=9999999999", "does not fit 24 bits", 2),
        ("stream channel mask=1\n  PREA\n  SIGNAL signal=256", "signal=256 is outside 0..255", 3),
        ("stream channel mask=1\n  PREA {\n  }", "PREA has no braces", 2),
        ("stream channel mask=1\n  LOOP rd=r2 count=1 {\n  PREA", "a brace is not closed", 3),
        ("stream vector\n  VPASS n0=1 {\n    inputs base=0\n  }", "VPASS has no 'inputs'", 3),
        ("stream vector\n  VPASS n0=1 {\n    operands dtype=f64\n  }", "names: bf16, f32, i32", 3),
        ("stream vector\n  VPASS n0=1 {", "a brace is not closed", 2),
    ],
)
def test_bad_text_names_the_line(text: str, message: str, line: int) -> None:
    with pytest.raises(WordlineError) as caught:
        assemble(ISA, text)
    assert caught.value.code == "bad-assembly"
    assert message in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.startswith(f"line {line}:")
