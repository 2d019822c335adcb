"""An instruction with its operands, and its encoding to and from 64-bit words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.isa.affine import ZERO, Affine, sign_extend
from wordline.isa.declare import (
    AffineWord,
    Bits,
    Group,
    Instruction,
    InstructionSet,
    PackedWord,
    Word,
    WordLayout,
)

Packed = dict[str, int]
GroupEntry = dict[str, Any]


@dataclass(frozen=True)
class Instr:
    """``declaration`` with values.

    Header ``fields``, ``words`` (an :class:`Affine` or a dict of bit fields each), and the entries of ``groups``.
    """

    declaration: Instruction
    fields: dict[str, int] = field(default_factory=dict)
    words: dict[str, Affine | Packed] = field(default_factory=dict)
    groups: dict[str, list[GroupEntry]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.declaration.name

    def affine(self, name: str) -> Affine:
        """The affine operand ``name``."""
        value = self.words[name]
        assert isinstance(value, Affine)
        return value


def make(isa: InstructionSet, name: str, /, **values: Any) -> Instr:
    """Build an instruction by operand name.

    Integers become constant affine operands; a missing affine operand is zero; group counts are filled in. An entry of
    a group that is one field can be given as an integer.
    """
    declaration = isa.by_name[name]
    fields = dict.fromkeys((b.name for b in declaration.fields), 0)
    words: dict[str, Affine | Packed] = {}
    for spec in declaration.words:
        words[spec.name] = _complete(spec, values.pop(spec.name, None))
    groups: dict[str, list[GroupEntry]] = {}
    for group in declaration.groups:
        entries = values.pop(group.name, ())
        given = (_single(group, entry) if isinstance(entry, int) else entry for entry in entries)
        groups[group.name] = [{w.name: _complete(w, entry.get(w.name)) for w in group.words} for entry in given]
    for key, value in values.items():
        if key not in fields:
            raise KeyError(f"{name} has no operand {key!r}")
        fields[key] = int(value)
    for group in declaration.groups:
        fields[group.count_field] = len(groups[group.name])
    return Instr(declaration, fields, words, groups)


def _single(group: Group, value: int) -> GroupEntry:
    (word,) = group.words
    assert isinstance(word, PackedWord)
    (bits,) = word.bits
    return {word.name: {bits.name: value}}


def _complete(spec: Word, value: Any) -> Affine | Packed:
    """``value`` in the form that decoding gives: integers as affine operands, every bit field present."""
    if isinstance(value, Affine):
        return value
    if isinstance(spec, PackedWord):
        return {b.name: 0 for b in spec.bits} | (value or {})
    if value is None:
        return ZERO
    return Affine(int(value)) if isinstance(value, (int, np.integer)) else value


def _pack(bits: Sequence[Bits], values: Packed, start: int, where: str) -> int:
    word, shift = 0, start
    for b in bits:
        value = values.get(b.name, 0)
        low, high = (-(1 << (b.width - 1)), (1 << (b.width - 1)) - 1) if b.signed else (0, (1 << b.width) - 1)
        if not low <= value <= high:
            raise WordlineError("field-range", f"{where}: {b.name}={value} is outside {low}..{high}")
        word |= (value & ((1 << b.width) - 1)) << shift
        shift += b.width
    return word


def _unpack(bits: Sequence[Bits], word: int, start: int) -> Packed:
    values, shift = {}, start
    for b in bits:
        raw = word >> shift & ((1 << b.width) - 1)
        values[b.name] = sign_extend(raw, b.width) if b.signed else raw
        shift += b.width
    return values


def _encode_word(spec: Word, value: Any, where: str) -> int:
    if isinstance(spec, AffineWord):
        return Affine(int(value)).encode() if isinstance(value, (int, np.integer)) else value.encode()
    return _pack(spec.bits, value, 0, f"{where}.{spec.name}")


def _decode_word(spec: Word, word: int) -> Affine | Packed:
    return Affine.decode(word) if isinstance(spec, AffineWord) else _unpack(spec.bits, word, 0)


def encoded_length(instr: Instr) -> int:
    """Number of 64-bit words of ``instr``."""
    declaration = instr.declaration
    return 1 + len(declaration.words) + sum(len(g.words) * len(instr.groups[g.name]) for g in declaration.groups)


def encode(instr: Instr, layout: WordLayout = WordLayout()) -> list[int]:  # noqa: B008  # a constant
    """The words of ``instr``. Raises ``WordlineError`` when a value does not fit its field."""
    d = instr.declaration
    body = [_encode_word(w, instr.words[w.name], d.name) for w in d.words]
    for group in d.groups:
        for entry in instr.groups[group.name]:
            body.extend(
                _encode_word(w, entry.get(w.name, ZERO if isinstance(w, AffineWord) else {}), d.name)
                for w in group.words
            )
    start = d.opcode | _pack(d.fields, instr.fields, layout.header_bits, d.name)
    if not layout.length_bits:
        return [start]
    length = len(body) + 1
    if length >= 1 << layout.length_bits:
        raise WordlineError(
            "instruction-length", f"{d.name} needs {length} words, the encoding holds {(1 << layout.length_bits) - 1}"
        )
    return [start | length << layout.opcode_bits, *body]


def decode(isa: InstructionSet, words: Sequence[int] | npt.NDArray[np.uint64], at: int) -> tuple[Instr, int]:
    """Decode the instruction that starts at word ``at``; returns it and the index after it.

    Raises ``WordlineError("bad-program")``.
    """
    header, layout = int(words[at]), isa.layout
    opcode = header & ((1 << layout.opcode_bits) - 1)
    declaration = isa.by_opcode.get(opcode)
    if declaration is None:
        raise WordlineError("bad-program", f"word {at}: unknown opcode {opcode}", remedy="recompile the artifact")
    length = header >> layout.opcode_bits & ((1 << layout.length_bits) - 1) if layout.length_bits else 1
    fields = _unpack(declaration.fields, header, layout.header_bits)
    expected = 1 + len(declaration.words) + sum(fields[g.count_field] * len(g.words) for g in declaration.groups)
    if length != expected or at + length > len(words):
        raise WordlineError(
            "bad-program",
            f"word {at}: {declaration.name} says {length} words, needs {expected}, {len(words) - at} remain",
            remedy="recompile the artifact",
        )
    cursor = at + 1
    operands: dict[str, Affine | Packed] = {}
    for spec in declaration.words:
        operands[spec.name] = _decode_word(spec, int(words[cursor]))
        cursor += 1
    groups: dict[str, list[GroupEntry]] = {}
    for group in declaration.groups:
        entries = []
        for _ in range(fields[group.count_field]):
            entries.append({w.name: _decode_word(w, int(words[cursor + i])) for i, w in enumerate(group.words)})
            cursor += len(group.words)
        groups[group.name] = entries
    return Instr(declaration, fields, operands, groups), at + length


def decode_all(isa: InstructionSet, words: Sequence[int] | npt.NDArray[np.uint64]) -> list[Instr]:
    """Decode a whole stream."""
    return list(_iterate(isa, words))


def _iterate(isa: InstructionSet, words: Sequence[int] | npt.NDArray[np.uint64]) -> Iterator[Instr]:
    at = 0
    while at < len(words):
        instr, at = decode(isa, words, at)
        yield instr


def encode_all(instrs: Sequence[Instr]) -> npt.NDArray[np.uint64]:
    """Encode a stream: uint64 array."""
    return np.array([word for instr in instrs for word in encode(instr)], dtype=np.uint64)


def evaluate(instr: Instr, registers: Sequence[int]) -> SimpleNamespace:
    """All operands as plain integers for the given registers: fields and words as attributes, groups as lists."""
    values: dict[str, Any] = dict(instr.fields)
    for name, value in instr.words.items():
        values[name] = value.evaluate(registers) if isinstance(value, Affine) else SimpleNamespace(**value)
    for name, entries in instr.groups.items():
        values[name] = [
            SimpleNamespace(
                **{
                    k: v.evaluate(registers) if isinstance(v, Affine) else SimpleNamespace(**v)
                    for k, v in entry.items()
                }
            )
            for entry in entries
        ]
    return SimpleNamespace(**values)
