"""Whatever bytes are loaded and run, the native core answers with an error or a fault, never with undefined behaviour.

The sanitizer build (``make test-all``) runs these tests too.
"""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_programs import prepare_case, random_case
from wordline import _native
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.isa.instruction import make
from wordline.isa.program import Program, Stream
from wordline.isa.verify import verify_program
from wordline.machines import load_machine
from wordline.sim.fault import Fault

MACHINE = load_machine("gddr6-aim-chip", {"organisation.rows": 16, "scratch.bytes_per_channel": 4096})
ISA = instruction_set("gddr6-aim")
LIMIT = 3000
ENDS = {"ended", "device-fault", "bad-program", "program-too-large"}


def model() -> _native.FunctionalModel:
    return _native.FunctionalModel(MACHINE.flat(), 2)


def load_and_run(image: bytes) -> str:
    """Load and run; "ended" or the code of the error."""
    device = model()
    try:
        slot = device.load_program(image)
    except WordlineError as error:
        return error.code
    device.cmem_write(0, np.arange(64, dtype=np.int32) - 8)
    window = device.map_host(np.zeros(4096, np.uint8))
    device.cmem_write(8, np.array([window, window], np.uint64).view(np.int32))
    try:
        device.execute(slot, 0, instruction_limit=LIMIT)
    except Fault as fault:
        return fault.code
    return "ended"


def time_it(image: bytes) -> None:
    """The cycle model takes what the functional model takes, and ends as well."""
    timing = _native.TimingModel(MACHINE.flat())
    slot = timing.load_program(image)
    with contextlib.suppress(Fault):
        timing.run(slot, 0, np.arange(64, dtype=np.int32) - 8, instruction_limit=LIMIT)


def verdict(image: bytes) -> str:
    """What the verifier says: "good" or the code of the error."""
    try:
        verify_program(Program.from_bytes(ISA, image), MACHINE)
    except WordlineError as error:
        return error.code
    return "good"


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 32), st.data())
def test_damaged_images(seed: int, data: st.DataObject) -> None:
    image = bytearray(random_case(seed % 50, MACHINE, phases=1).program.to_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(image) - 1))
        image[at] = data.draw(st.integers(0, 255))
    outcome, said = load_and_run(bytes(image)), verdict(bytes(image))
    assert outcome in ENDS
    if outcome in ("bad-program", "program-too-large"):
        assert said != "good"
    else:
        # The device finds a constant that is out of range when it gets there, and not if it never does.
        assert said in ("good", "out-of-range")
        time_it(bytes(image))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(ISA.instructions), st.binary(min_size=300, max_size=300)), max_size=12),
    st.sampled_from(Engine),
)
def test_random_words_behind_valid_opcodes(parts: list[tuple[object, bytes]], engine: Engine) -> None:
    words = b""
    for declaration, noise in parts:
        low = int.from_bytes(noise[:8], "little") & ~0xFFFF | declaration.opcode  # type: ignore[attr-defined]
        if declaration.name == "VPASS":  # type: ignore[attr-defined]
            low &= ~(0xFFFF << 16) | (2 | 1 << 3 | 2 << 7 | 1 << 12 | 1 << 13) << 16
        counts = {g.count_field: 0 for g in declaration.groups}  # type: ignore[attr-defined]
        shift = 16
        for field in declaration.fields:  # type: ignore[attr-defined]
            if field.name in counts:
                counts[field.name] = low >> shift & ((1 << field.width) - 1)
            shift += field.width
        length = 1 + len(declaration.words) + sum(counts[g.count_field] * len(g.words) for g in declaration.groups)  # type: ignore[attr-defined]
        if length > 37:
            continue
        words += (low | length << 8).to_bytes(8, "little") + noise[8 : 8 * length]
    mask = 3 if engine is Engine.CHANNEL else 0
    header = struct.pack("<4sHHIIII", b"WLPG", ISA.version, 1, engine.value, mask, 0, len(words) // 8)
    assert load_and_run(header + words) in ENDS


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_random_bytes(image: bytes) -> None:
    assert load_and_run(image) in ENDS
    assert load_and_run(b"WLPG" + image) in ENDS


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 20), st.integers(0, 1 << 32))
def test_valid_programs_with_hostile_arguments(seed: int, garbage: int) -> None:
    case = random_case(seed, MACHINE, phases=2)
    case.words = (
        np.random.default_rng(garbage).integers(-(1 << 31), 1 << 31, case.words.size, dtype=np.int64).astype(np.int32)
    )
    device = model()
    slot, _ = prepare_case(device, case)
    for base in (case.argument_base, 0, MACHINE.command_processor.controller_memory_bytes // 4 - 3, -5, 1 << 40):
        with contextlib.suppress(Fault):
            device.execute(slot, base, instruction_limit=LIMIT)


def stream_image(*streams: tuple[Engine, int, list[object]]) -> bytes:
    return Program(ISA, tuple(Stream(e, m, tuple(i)) for e, m, i in streams)).to_bytes()  # type: ignore[arg-type]


LOOP = make(ISA, "LOOP", rd=2, body=1, count=1)
ADD = make(ISA, "ADD", rd=3)
LAYOUT = {"base": 0, "layout": {"s2": 4, "dtype": 1}}


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (b"", "shorter than its header"),
        (b"WLPX\1\0\0\0", "wrong magic"),
        (b"WLPG\2\0\0\0", "instruction-set version 2, this build has 1"),
        (b"WLPG\1\0\1\0", "1 streams do not fit 8 bytes"),
        (stream_image((Engine.CHANNEL, 0, [])), "names no channel"),
        (stream_image((Engine.CHANNEL, 4, [])), "channels that the machine does not have"),
        (stream_image((Engine.CHANNEL, 3, []), (Engine.CHANNEL, 1, [])), "two streams for one channel"),
        (stream_image((Engine.VECTOR, 0, []), (Engine.VECTOR, 0, [])), "more than one vector or link stream"),
        (stream_image((Engine.LINK, 1, [])), "has no channel mask"),
        (stream_image((Engine.VECTOR, 0, [make(ISA, "PREA")])), "PREA does not belong into this kind of stream"),
        (stream_image((Engine.LINK, 0, [make(ISA, "ADD", rd=1)])), "register 1 cannot be written"),
        (stream_image((Engine.LINK, 0, [LOOP])), "reaches beyond the end of the stream"),
        (stream_image((Engine.LINK, 0, [LOOP, LOOP, ADD])), "reaches beyond the enclosing loop"),
        (
            stream_image((Engine.LINK, 0, [make(ISA, "LOOP", rd=2, body=9 - i, count=1) for i in range(9)] + [ADD])),
            "nest deeper than 8",
        ),
        (stream_image((Engine.LINK, 0, [make(ISA, "GETS", rd=2, shared=64)])), "shared register 64 does not exist"),
        (stream_image((Engine.LINK, 0, [make(ISA, "WAIT", signal=4, value=1)])), "no stream produces signal 4"),
        (
            stream_image(
                (Engine.CHANNEL, 3, [make(ISA, "SIGNAL", signal=4)]), (Engine.LINK, 0, [make(ISA, "SIGNAL", signal=4)])
            ),
            "signal 4 is produced by streams 0 and 1",
        ),
        (
            stream_image((Engine.VECTOR, 0, [make(ISA, "VPASS", operands=[LAYOUT] * 5)])),
            "5 operands, the machine allows 4",
        ),
        (
            stream_image((Engine.VECTOR, 0, [make(ISA, "VPASS", operations=[{"operation": {"op": 0, "a": 12}}])])),
            "value 12 does not exist",
        ),
        (
            stream_image((Engine.VECTOR, 0, [make(ISA, "VPASS", operations=[{"operation": {"op": 15}}])])),
            "unknown vector operation 15",
        ),
        (
            stream_image(
                (
                    Engine.VECTOR,
                    0,
                    [
                        make(
                            ISA,
                            "VPASS",
                            operands=[LAYOUT],
                            result=[{"base": 0, "layout": {"dtype": 2}, "broadcast": {}}],
                        )
                    ],
                )
            ),
            "a pass stores bf16 or f32",
        ),
        (stream_image((Engine.VECTOR, 0, []))[:-1] + b"\1", "of 0"),
    ],
)
def test_each_refusal_says_why(image: bytes, words: str) -> None:
    with pytest.raises(WordlineError) as caught:
        model().load_program(image)
    assert caught.value.code == "bad-program"
    assert words in str(caught.value)


def test_instruction_memory_is_finite() -> None:
    device = model()
    big = stream_image((Engine.LINK, 0, [ADD] * 80_000))  # 3 words each
    device.load_program(big)
    with pytest.raises(WordlineError, match="all loaded programs together") as caught:
        device.load_program(big)
    assert caught.value.code == "program-too-large"
    device.unload_program(0)
    assert device.load_program(big) == 0
    with pytest.raises(WordlineError, match="the program has 2400000 bytes"):
        model().load_program(stream_image((Engine.LINK, 0, [ADD] * 100_000)))
