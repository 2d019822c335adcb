"""Instructions of every stream: scalar arithmetic, loads and stores of controller memory, loops, signals and waits.

The command processor executes them, one issue slot each; a loop costs its one slot on entry and nothing per iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from wordline.isa.affine import REGISTER_BITS, sign_extend
from wordline.isa.declare import AffineWord, Bits, Engine, Instruction

REGISTERS = 1 << REGISTER_BITS
"""Local registers that the encoding can name."""
CHANNEL_REGISTER = 1
"""Holds the channel's number from the start; register 0 is zero."""
FIRST_WRITABLE_REGISTER = 2
REGISTER_NAMES = tuple(f"r{number}" for number in range(REGISTERS))
ALL = (Engine.CHANNEL, Engine.VECTOR, Engine.LINK)
RD = Bits("rd", REGISTER_BITS, "local register written", names=REGISTER_NAMES)


def _scalar(operation: Callable[[int, int], int]) -> Callable[[Any, Any], None]:
    def semantics(state: Any, o: SimpleNamespace) -> None:
        state.registers[o.rd] = sign_extend(operation(o.a, o.b), 32)

    return semantics


def _lda(state: Any, o: SimpleNamespace) -> None:
    state.registers[o.rd] = state.load_word(state.argument_base + o.index)


def _ldm(state: Any, o: SimpleNamespace) -> None:
    state.registers[o.rd] = state.load_word(o.address)


def _gets(state: Any, o: SimpleNamespace) -> None:
    state.registers[o.rd] = int(state.shared[o.shared])


def _sta(state: Any, o: SimpleNamespace) -> None:
    state.store_word(state.argument_base + o.index, o.value)


def _alu(name: str, opcode: int, description: str, operation: Callable[[int, int], int]) -> Instruction:
    words = (AffineWord("a", "value", "first operand"), AffineWord("b", "value", "second operand"))
    return Instruction(
        name, opcode, ALL, "scalar", description, (RD,), words, (), _scalar(operation), writes_register=True
    )


CONTROL = (
    Instruction(
        "LOOP",
        1,
        ALL,
        "loop",
        "Run the next `body` instructions `count` times (not at all if count <= 0) with register rd = 0, 1, ... set "
        "at the start of each; rd keeps the last index it had. Zero overhead per iteration; loops nest to the "
        "machine's depth.",
        (RD, Bits("body", 16, "number of instructions in the body, nested bodies included")),
        (AffineWord("count", "value", "trip count"),),
        writes_register=True,
    ),
    Instruction(
        "WAIT",
        2,
        ALL,
        "wait",
        "Hold this stream until signal `signal` has reached `value`. A signal belongs to one producing stream; its "
        "value is the smallest count over that stream's channels.",
        (Bits("signal", 8, "signal number"),),
        (AffineWord("value", "value", "count to reach"),),
    ),
    Instruction(
        "SIGNAL",
        3,
        ALL,
        "signal",
        "Add one to signal `signal` once everything earlier in this stream has taken effect (read data landed in "
        "scratch, pass ended, transfer landed). The stream itself does not wait for that.",
        (Bits("signal", 8, "signal number"),),
    ),
    _alu("ADD", 8, "rd = a + b", lambda a, b: a + b),
    _alu("SUB", 9, "rd = a - b", lambda a, b: a - b),
    _alu("MUL", 10, "rd = a * b (low 32 bits)", lambda a, b: a * b),
    _alu("SHL", 11, "rd = a << (b & 31)", lambda a, b: a << (b & 31)),
    _alu("SHR", 12, "rd = a >> (b & 31), arithmetic", lambda a, b: a >> (b & 31)),
    _alu("AND", 13, "rd = a & b", lambda a, b: a & b),
    _alu("OR", 14, "rd = a | b", lambda a, b: a | b),
    _alu("MIN", 15, "rd = min(a, b), signed", min),
    _alu("LT", 16, "rd = 1 if a < b (signed) else 0", lambda a, b: int(a < b)),
    _alu("EQ", 17, "rd = 1 if a == b else 0", lambda a, b: int(a == b)),
    Instruction(
        "LDA",
        20,
        ALL,
        "scalar",
        "rd = word `index` of this submission's argument block",
        (RD,),
        (AffineWord("index", "argument", "word index into the argument block"),),
        (),
        _lda,
        writes_register=True,
    ),
    Instruction(
        "LDM",
        21,
        ALL,
        "scalar",
        "rd = word `address` of controller memory (page tables)",
        (RD,),
        (AffineWord("address", "word", "word address in controller memory"),),
        (),
        _ldm,
        writes_register=True,
    ),
    Instruction(
        "GETS",
        22,
        ALL,
        "scalar",
        "rd = shared register `shared` (written by vector reductions; order it with a signal)",
        (RD, Bits("shared", 8, "shared register number")),
        (),
        (),
        _gets,
        writes_register=True,
    ),
    Instruction(
        "STA",
        23,
        ALL,
        "scalar",
        "word `index` of this submission's argument block = value",
        (),
        (
            AffineWord("index", "argument", "word index into the argument block"),
            AffineWord("value", "value", "value stored"),
        ),
        (),
        _sta,
    ),
)
