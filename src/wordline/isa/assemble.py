"""Reads the text form of device programs (``wordline.isa.disassemble``), for tests and experiments.

Instruction numbers and comments are ignored. A LOOP either has its body in braces or says ``body=N``.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from wordline.errors import WordlineError
from wordline.isa.affine import Affine
from wordline.isa.declare import AffineWord, Bits, Engine, Group, Instruction, InstructionSet, Word
from wordline.isa.instruction import Instr, Packed, encode, make
from wordline.isa.program import Program, Stream

_TERM = re.compile(r"([+-]?)(?:r(\d+)(?:\*(-?\d+))?|(0x[0-9a-fA-F]+|\d+))")


def parse_affine(text: str) -> Affine:
    """``r2*4+r3-8`` -> Affine. Raises ``ValueError``."""
    at, imm, terms = 0, 0, []
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None or (at and not match[1]):
            raise ValueError(f"{text!r} is not of the form r1*stride+r2*stride+number")
        sign = -1 if match[1] == "-" else 1
        if match[2] is not None:
            terms.append((int(match[2]), sign * int(match[3] or 1)))
        else:
            imm += sign * int(match[4], 0)
        at = match.end()
    if not text:
        raise ValueError("an operand is empty")
    return Affine(imm, tuple((register, stride) for register, stride in terms if register and stride))


def _parse_bits(bits: Bits, text: str) -> int:
    if text in bits.names:
        return bits.names.index(text)
    try:
        return int(text, 0)
    except ValueError:
        names = f"; names: {', '.join(bits.names)}" if bits.names else ""
        raise ValueError(f"{bits.name}={text} is neither a number nor a name{names}") from None


def _values(words: tuple[Word, ...], pairs: dict[str, str]) -> dict[str, Any]:
    """Consume the operands of ``words`` from ``pairs``."""
    values: dict[str, Any] = {}
    for word in words:
        if isinstance(word, AffineWord):
            values[word.name] = parse_affine(pairs.pop(word.name, "0"))
        else:
            packed: Packed = {b.name: _parse_bits(b, pairs.pop(b.name, "0")) for b in word.bits}
            values[word.name] = packed
    return values


class _Assembler:
    def __init__(self, isa: InstructionSet, text: str) -> None:
        self._isa = isa
        stripped = (re.sub(r"^\s*\d+:", "", line.split(";", 1)[0]).strip() for line in text.splitlines())
        self._lines = [(number, line) for number, line in enumerate(stripped, 1) if line]
        self._at = 0

    def _fail(self, what: str) -> NoReturn:
        number, line = self._lines[min(self._at, len(self._lines) - 1)] if self._lines else (1, "")
        raise WordlineError("bad-assembly", what, where=f"line {number}: {line}")

    def program(self) -> Program:
        streams = []
        while self._at < len(self._lines):
            try:
                engine, mask = self._stream_head(self._lines[self._at][1])
                self._at += 1
                instrs = self._block(top=True)
            except (ValueError, KeyError) as error:
                self._fail(str(error.args[0]))
            except WordlineError as error:
                if error.code == "bad-assembly":
                    raise
                self._fail(error.what)
            streams.append(Stream(engine, mask, tuple(instrs)))
        return Program(self._isa, tuple(streams))

    def _stream_head(self, line: str) -> tuple[Engine, int]:
        match = re.fullmatch(r"stream (channel|vector|link)(?: mask=(\w+))?", line)
        if match is None:
            raise ValueError("expected `stream channel mask=M`, `stream vector` or `stream link`")
        return Engine[match[1].upper()], int(match[2] or "0", 0)

    def _block(self, top: bool) -> list[Instr]:
        """Instructions up to the closing brace, or at top level up to the next stream."""
        instrs: list[Instr] = []
        while self._at < len(self._lines):
            line = self._lines[self._at][1]
            if top and line.startswith("stream "):
                return instrs
            if not top and line == "}":
                self._at += 1
                return instrs
            instrs += self._instruction(line)
        if not top:
            self._fail("a brace is not closed")
        return instrs

    def _instruction(self, line: str) -> list[Instr]:
        opens = line.endswith("{")
        name, *operands = line.removesuffix("{").split()
        declaration = self._isa.by_name.get(name)
        if declaration is None:
            raise ValueError(f"unknown instruction {name!r}")
        pairs = self._pairs(operands)
        values: dict[str, Any] = {
            b.name: _parse_bits(b, pairs.pop(b.name)) for b in declaration.fields if b.name in pairs
        }
        values |= _values(declaration.words, pairs)
        self._expect_empty(pairs, name)
        here, self._at = self._at, self._at + 1
        body: list[Instr] = []
        if opens and declaration.groups:
            values |= self._groups(declaration)
        elif opens and name == "LOOP":
            body = self._block(top=False)
            values["body"] = len(body)
        elif opens:
            self._at = here
            raise ValueError(f"{name} has no braces")
        instr = make(self._isa, name, **values)
        after, self._at = self._at, here
        encode(instr)  # so that a value that does not fit is reported with its line
        self._at = after
        return [instr, *body]

    def _groups(self, declaration: Instruction) -> dict[str, list[dict[str, Any]]]:
        groups: dict[str, Group] = {group.name: group for group in declaration.groups}
        entries: dict[str, list[dict[str, Any]]] = {name: [] for name in groups}
        while self._at < len(self._lines):
            line = self._lines[self._at][1]
            if line == "}":
                self._at += 1
                return entries
            name, *operands = line.split()
            if name not in groups:
                raise ValueError(f"{declaration.name} has no {name!r}; it has {', '.join(groups)}")
            pairs = self._pairs(operands)
            entries[name].append(_values(groups[name].words, pairs))
            self._expect_empty(pairs, name)
            self._at += 1
        return self._fail("a brace is not closed")

    def _pairs(self, operands: list[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for operand in operands:
            key, equals, value = operand.partition("=")
            if not equals or key in pairs:
                raise ValueError(f"expected name=value once for each operand, got {operand!r}")
            pairs[key] = value
        return pairs

    def _expect_empty(self, pairs: dict[str, str], name: str) -> None:
        if pairs:
            raise ValueError(f"{name} has no operand {next(iter(pairs))!r}")


def assemble(isa: InstructionSet, text: str) -> Program:
    """Parse a program. Raises ``WordlineError("bad-assembly")`` with the line."""
    return _Assembler(isa, text).program()
