"""How an instruction is declared: once, with its encoding, meaning, timing class and description together.

Everything else about an instruction (encoder, decoder, disassembler, verifier, documentation table, C++ header) is
derived from its :class:`Instruction`. An instruction is a sequence of 64-bit words: a header (opcode in bits 0-7, total
length in words in bits 8-15, then the header fields in declaration order from bit 16), the fixed words, then the
repeated groups whose counts are header fields. An instruction set with another :class:`WordLayout` has instructions of
one word, without a length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

OPCODE_BITS = 8
LENGTH_BITS = 8
HEADER_BITS = OPCODE_BITS + LENGTH_BITS


@dataclass(frozen=True, slots=True)
class WordLayout:
    """How an instruction begins: bits of a word, of the opcode, of the length (0: every instruction is one word)."""

    bits: int = 64
    opcode_bits: int = OPCODE_BITS
    length_bits: int = LENGTH_BITS

    @property
    def header_bits(self) -> int:
        """Where the fields start."""
        return self.opcode_bits + self.length_bits


class Engine(Enum):
    """The kinds of instruction stream of a device."""

    CHANNEL = 0
    VECTOR = 1
    LINK = 2


@dataclass(frozen=True, slots=True)
class Bits:
    """An integer of ``width`` bits in the header or in a packed word.

    ``names`` gives symbolic values, value 0 first; ``enum`` is the type they form in C++ (empty: a plain integer);
    an ``optional`` field is left out of listings when it is zero.
    """

    name: str
    width: int
    description: str
    signed: bool = False
    names: tuple[str, ...] = ()
    enum: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class AffineWord:
    """One word that holds an affine operand.

    ``kind`` is the bound that verification and execution check it against (``bounds.py``): ``bank``, ``row``;
    ``column``, ``scratch`` together with the burst length ``count``; ``element`` of scratch; ``word`` of controller
    memory, ``argument`` word; a :class:`Kind` of the generation; ``value`` for anything else.
    """

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True)
class PackedWord:
    """One word of bit fields, from bit 0 up."""

    name: str
    bits: tuple[Bits, ...]
    description: str


Word = AffineWord | PackedWord


@dataclass(frozen=True, slots=True)
class Group:
    """``words`` repeated as often as the header field ``count_field`` says.

    ``comment`` explains an entry in listings.
    """

    name: str
    count_field: str
    words: tuple[Word, ...]
    description: str
    comment: Callable[[dict[str, Any]], str] | None = None


class OperandError(Exception):
    """An instruction refuses its operands at run time; the text is the reason. Execution turns it into a fault."""


Semantics = Callable[[Any, Any], None]
"""``semantics(state, operands)``: change the reference state; ``operands`` has every field, evaluated word and group
as an attribute."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A bound of operands that a generation declares: what errors call it, whether it covers the burst, its limit.

    ``limit`` gives the number of items of a :class:`wordline.machines.Machine`.
    """

    name: str
    burst: bool
    limit: Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One declared instruction.

    ``timing`` names the rule set the cycle model applies (``docs/device-programs.md``); ``semantics`` is its bit-exact
    NumPy meaning, ``None`` for what changes no data (row commands) or is control flow that the command processor itself
    executes; ``check`` raises ``OperandError`` for what verification can refuse besides ranges. Declaring modules
    import NumPy inside their functions only: the C++ header is generated in build environments that have nothing but
    Python.
    """

    name: str
    opcode: int
    engines: tuple[Engine, ...]
    timing: str
    description: str
    fields: tuple[Bits, ...] = ()
    words: tuple[Word, ...] = ()
    groups: tuple[Group, ...] = ()
    semantics: Semantics | None = None
    writes_register: bool = False
    check: Callable[[Any], None] | None = None

    @property
    def identifier(self) -> str:
        """CamelCase name for C++: ``RDMAC16`` -> ``Rdmac16``."""
        return self.name.capitalize()


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, or a table indexed by a symbolic value, that encoding and execution share with C++."""

    name: str
    value: int | tuple[int, ...]
    description: str


@dataclass(frozen=True)
class InstructionSet:
    """All instructions of one generation; opcodes and names are unique. Program images carry ``version``.

    ``mask_words`` is how many words of 32 channels the mask of a stream has there. ``kinds`` are the generation's
    bounds of operands by kind; ``buffer`` is the instruction set of an instruction
    buffer that channel commands fill and trigger.
    """

    generation: str
    version: int
    instructions: tuple[Instruction, ...]
    constants: tuple[Constant, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict, repr=False)
    layout: WordLayout = WordLayout()
    buffer: InstructionSet | None = field(default=None, repr=False)
    mask_words: int = 1
    by_name: dict[str, Instruction] = field(init=False, repr=False)
    by_opcode: dict[int, Instruction] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {i.name: i for i in self.instructions})
        object.__setattr__(self, "by_opcode", {i.opcode: i for i in self.instructions})
        if len(self.by_name) != len(self.instructions) or len(self.by_opcode) != len(self.instructions):
            raise ValueError(f"duplicate instruction name or opcode in generation {self.generation}")
        for instruction in self.instructions:
            room = self.layout.bits - self.layout.header_bits
            if sum(b.width for b in instruction.fields) > room:
                raise ValueError(f"{instruction.name}: header fields exceed {room} bits")
            if not self.layout.length_bits and (instruction.words or instruction.groups):
                raise ValueError(f"{instruction.name}: instructions of this set are one word")
