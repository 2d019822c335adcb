"""Encoding and text of instructions: round trips over every declared instruction, field ranges, hostile images."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline.errors import WordlineError
from wordline.isa import GENERATIONS, instruction_set
from wordline.isa.affine import IMM_RANGE, STRIDE_RANGE, Affine, affine
from wordline.isa.assemble import assemble, parse_affine
from wordline.isa.declare import AffineWord, Bits, Engine, Instruction, InstructionSet, Word
from wordline.isa.disassemble import disassemble, format_head
from wordline.isa.instruction import Instr, decode, decode_all, encode, encode_all, encoded_length, evaluate, make
from wordline.isa.program import MAGIC, Program, Stream

ISA = instruction_set("gddr6-aim")
STREAMS = [instruction_set(generation) for generation in GENERATIONS]
BUFFERS = [isa.buffer for isa in STREAMS if isa.buffer is not None]


def every(sets: Sequence[InstructionSet]) -> pytest.MarkDecorator:
    cases = [(isa, declaration) for isa in sets for declaration in isa.instructions]
    return pytest.mark.parametrize(("isa", "declaration"), cases, ids=[f"{i.generation}-{d.name}" for i, d in cases])


@st.composite
def affines(draw: st.DrawFn) -> Affine:
    registers = draw(st.lists(st.integers(1, 31), max_size=2, unique=True))
    strides = st.integers(*STRIDE_RANGE).filter(bool)
    return Affine(draw(st.integers(*IMM_RANGE)), tuple((register, draw(strides)) for register in registers))


def bits_range(bits: Bits) -> tuple[int, int]:
    if bits.signed:
        return -(1 << (bits.width - 1)), (1 << (bits.width - 1)) - 1
    return 0, (1 << bits.width) - 1


def word_values(word: Word) -> st.SearchStrategy[Any]:
    if isinstance(word, AffineWord):
        return affines()
    return st.fixed_dictionaries({b.name: st.integers(*bits_range(b)) for b in word.bits})


@st.composite
def instructions(draw: st.DrawFn, isa: InstructionSet, declaration: Instruction | None = None) -> Instr:
    declaration = declaration or draw(st.sampled_from(isa.instructions))
    values: dict[str, Any] = {b.name: draw(st.integers(*bits_range(b))) for b in declaration.fields}
    values |= {w.name: draw(word_values(w)) for w in declaration.words}
    for group in declaration.groups:
        width = next(b.width for b in declaration.fields if b.name == group.count_field)
        entry = st.fixed_dictionaries({w.name: word_values(w) for w in group.words})
        values[group.name] = draw(st.lists(entry, max_size=(1 << width) - 1))
    return make(isa, declaration.name, **values)


@every(STREAMS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_instruction_round_trips_through_words_and_text(
    isa: InstructionSet, declaration: Instruction, data: st.DataObject
) -> None:
    instr = data.draw(instructions(isa, declaration))
    words = encode(instr)
    assert len(words) == encoded_length(instr)
    assert decode(isa, words, 0) == (instr, len(words))
    program = Program(isa, (Stream(declaration.engines[0], 0, (instr,)),))
    assert assemble(isa, disassemble(program)) == program


@every(BUFFERS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_buffered_instruction_round_trips_through_its_word(
    isa: InstructionSet, declaration: Instruction, data: st.DataObject
) -> None:
    instr = data.draw(instructions(isa, declaration))
    (word,) = encode(instr, isa.layout)
    assert word < 1 << isa.layout.bits
    assert decode(isa, [word], 0) == (instr, 1)
    assert format_head(instr).startswith(declaration.name)


@pytest.mark.parametrize("isa", STREAMS, ids=lambda isa: isa.generation)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_programs_round_trip_through_image_and_text(isa: InstructionSet, data: st.DataObject) -> None:
    first = data.draw(st.lists(instructions(isa), max_size=12))
    second = data.draw(st.lists(instructions(isa), max_size=4))
    program = Program(isa, (Stream(Engine.CHANNEL, 0b101, tuple(first)), Stream(Engine.LINK, 0, tuple(second))))
    image = program.to_bytes()
    assert Program.from_bytes(isa, image) == program
    assert Program.from_bytes(isa, image).to_bytes() == image
    assert assemble(isa, disassemble(program)) == program
    assert decode_all(isa, encode_all(first)) == first


@every(STREAMS + BUFFERS)
def test_every_field_holds_exactly_its_range(isa: InstructionSet, declaration: Instruction) -> None:
    counts = {g.count_field for g in declaration.groups}
    for bits in declaration.fields:
        if bits.name in counts:
            continue
        low, high = bits_range(bits)
        for value in range(low, high + 1) if bits.width <= 8 else (low, low + 1, high - 1, high):
            instr = make(isa, declaration.name, **{bits.name: value})
            assert decode(isa, encode(instr, isa.layout), 0)[0].fields[bits.name] == value
        for value in (low - 1, high + 1):
            with pytest.raises(WordlineError, match=f"{bits.name}={value}") as caught:
                encode(make(isa, declaration.name, **{bits.name: value}), isa.layout)
            assert caught.value.code == "field-range"


@every(STREAMS)
def test_every_packed_word_field_holds_exactly_its_range(isa: InstructionSet, declaration: Instruction) -> None:
    for group in declaration.groups:
        for word in group.words:
            if isinstance(word, AffineWord):
                continue
            for bits in word.bits:
                low, high = bits_range(bits)
                for value in (low, high):
                    instr = make(isa, declaration.name, **{group.name: [{word.name: {bits.name: value}}]})
                    entry = decode(isa, encode(instr), 0)[0].groups[group.name][0][word.name]
                    assert entry == {b.name: value if b is bits else 0 for b in word.bits}
                for value in (low - 1, high + 1):
                    with pytest.raises(WordlineError) as caught:
                        encode(make(isa, declaration.name, **{group.name: [{word.name: {bits.name: value}}]}))
                    assert caught.value.code == "field-range"


@settings(deadline=None)
@given(affines(), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=32, max_size=32))
def test_affine_operands(operand: Affine, registers: list[int]) -> None:
    registers[0] = 0
    assert Affine.decode(operand.encode()) == operand
    assert parse_affine(str(operand)) == operand
    exact = operand.imm + sum(registers[r] * s for r, s in operand.terms)
    assert (operand.evaluate(registers) - exact) % (1 << 32) == 0
    assert -(1 << 31) <= operand.evaluate(registers) < 1 << 31


def test_affine_bit_layout() -> None:
    word = Affine(-1, ((31, -16384), (2, 5))).encode()
    assert word & 0xFFFFFF == 0xFFFFFF
    assert word >> 24 & 31 == 31
    assert word >> 29 & 0x7FFF == 0x4000
    assert word >> 44 & 31 == 2
    assert word >> 49 == 5
    # Whatever a term says, register 0 and stride 0 contribute nothing.
    assert Affine.decode(0 << 24 | 77 << 29 | 9 << 44) == Affine()


@pytest.mark.parametrize(
    ("operand", "code"),
    [
        (Affine(1 << 23), "affine-range"),
        (Affine(-(1 << 23) - 1), "affine-range"),
        (Affine(0, ((32, 1),)), "affine-range"),
        (Affine(0, ((0, 1),)), "affine-range"),
        (Affine(0, ((2, 16384),)), "affine-range"),
        (Affine(0, ((2, 0),)), "affine-range"),
        (Affine(0, ((2, 1), (3, 1), (4, 1))), "affine-terms"),
    ],
)
def test_affine_operands_that_do_not_fit(operand: Affine, code: str) -> None:
    with pytest.raises(WordlineError) as caught:
        operand.encode()
    assert caught.value.code == code


def test_affine_merges_terms() -> None:
    assert affine(3, (2, 4), (2, -4), (0, 9), (5, 1)) == Affine(3, ((5, 1),))


def test_evaluate_gives_every_operand() -> None:
    registers = [0] * 32
    registers[4] = 7
    instr = make(ISA, "MAC16", row=affine(10, (4, 2)), count=3)
    values = evaluate(instr, registers)
    assert (values.row, values.column, values.count) == (24, 0, 3)
    layout = {"s2": -4, "dtype": 1}
    values = evaluate(make(ISA, "VPASS", operands=[{"base": affine(0, (4, -1)), "layout": layout}]), registers)
    assert (values.operands[0].base, values.operands[0].layout.s2, values.n_operands) == (-7, -4, 1)


def test_unknown_operands_are_refused() -> None:
    with pytest.raises(KeyError, match="MAC16 has no operand 'rows'"):
        make(ISA, "MAC16", rows=1)


def test_too_long_instructions_are_refused() -> None:
    # No declared instruction can be as long as this; the encoder does not rely on that.
    entry: dict[str, Any] = {"operation": {}}
    instr = make(ISA, "VPASS", operations=[entry] * 300)
    with pytest.raises(WordlineError) as caught:
        encode(instr)
    assert caught.value.code in ("instruction-length", "field-range")


def image_of(*instrs: Instr) -> bytearray:
    return bytearray(Program(ISA, (Stream(Engine.CHANNEL, 1, instrs),)).to_bytes())


HEADER = 8 + 16


def decoded_or_refused(image: bytes) -> Program | None:
    """The program, or None if the image is refused as one that is malformed."""
    try:
        return Program.from_bytes(ISA, image)
    except WordlineError as error:
        if error.code != "bad-program":
            raise
        return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: image[:5], "shorter than its header"),
        (lambda image: b"XXXX" + image[4:], "wrong magic"),
        (lambda image: image[:4] + b"\x63\0" + image[6:], "instruction-set version 99"),
        (lambda image: image[:6] + b"\xff\xff" + image[8:], "65535 streams do not fit"),
        (lambda image: image[:-1], "streams do not fit"),
        (lambda image: image[:8] + struct.pack("<I", 9) + image[12:], "engine 9"),
        (lambda image: image[:16] + struct.pack("<I", 1) + image[20:], "words 1.."),
        (lambda image: image[:20] + struct.pack("<I", 0xFFFFFFFF) + image[24:], "words 0..4294967295"),
        (lambda image: image + bytes(8), "1 words belong to no stream"),
        (lambda image: image[:HEADER] + b"\xee" + image[HEADER + 1 :], "unknown opcode 238"),
        (lambda image: image[: HEADER + 1] + b"\x03" + image[HEADER + 2 :], "says 3 words, needs 6"),
        (lambda image: image[: HEADER + 1] + b"\x00" + image[HEADER + 2 :], "says 0 words"),
    ],
)
def test_malformed_images_are_refused(change: Any, message: str) -> None:
    image = change(bytes(image_of(make(ISA, "MAC16", count=1))))
    with pytest.raises(WordlineError, match=message) as caught:
        Program.from_bytes(ISA, image)
    assert caught.value.code == "bad-program"
    assert "recompile" in str(caught.value)


def test_a_truncated_last_instruction_is_refused() -> None:
    whole = image_of(make(ISA, "MAC16", count=1))
    cut = bytes(whole[:-8])
    cut = cut[:20] + struct.pack("<I", 5) + cut[24:]
    with pytest.raises(WordlineError, match="needs 6, 5 remain"):
        Program.from_bytes(ISA, cut)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_no_image_makes_the_decoder_fail_otherwise(data: bytes, framed: bool) -> None:
    if framed:
        words = data[: len(data) // 8 * 8]
        data = MAGIC + struct.pack("<HHIIII", ISA.version, 1, 0, 1, 0, len(words) // 8) + words
    program = decoded_or_refused(data)
    if program is not None:
        assert len(assemble(ISA, disassemble(program)).streams) == len(program.streams)


@settings(max_examples=100, deadline=None)
@given(instructions(ISA), st.integers(0, 7), st.data())
def test_flipped_bits_are_refused_or_decode_to_something_printable(instr: Instr, bit: int, data: st.DataObject) -> None:
    image = image_of(instr)
    image[data.draw(st.integers(HEADER, len(image) - 1))] ^= 1 << bit
    program = decoded_or_refused(bytes(image))
    if program is not None:
        assert assemble(ISA, disassemble(program)).streams


def test_unknown_generations_are_named() -> None:
    with pytest.raises(WordlineError, match="gddr9") as caught:
        instruction_set("gddr9")
    assert caught.value.code == "unknown-generation"
    assert "gddr6-aim" in str(caught.value)


def test_opcodes_and_descriptions() -> None:
    assert len({i.opcode for i in ISA.instructions}) == len(ISA.instructions)
    for instruction in ISA.instructions:
        assert instruction.description
        assert 0 < instruction.opcode < 256
        assert all(word.description for word in instruction.words)


@pytest.mark.parametrize("isa", STREAMS, ids=lambda isa: isa.generation)
def test_images_name_every_channel_of_their_generation(isa: InstructionSet) -> None:
    channels = 32 * isa.mask_words
    stream = (make(isa, "PREA"),)
    every = Program(isa, (Stream(Engine.CHANNEL, (1 << channels) - 2, stream), Stream(Engine.CHANNEL, 1, stream)))
    assert Program.from_bytes(isa, every.to_bytes()) == every
    with pytest.raises(WordlineError, match=f"names channels 0 to {channels - 1}") as caught:
        Program(isa, (Stream(Engine.CHANNEL, 1 << channels, stream),)).to_bytes()
    assert caught.value.code == "too-many-channels"
