"""Readable text of device programs. ``wordline.isa.assemble`` reads it back.

::

    stream channel mask=0x3
      0: LDA rd=r2 index=1
      1: LOOP rd=r3 count=r2+1 {
      2:   MAC16 row=r3 column=0 buffer=0 accumulator=0 count=64
         }

``;`` starts a comment. Strides, flags and masks that are zero are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wordline.isa.affine import Affine
from wordline.isa.controller.vector import OP_BY_CODE
from wordline.isa.declare import AffineWord, Bits, Engine, Group, Word
from wordline.isa.instruction import GroupEntry, Instr, Packed
from wordline.isa.program import Program, Stream
from wordline.isa.provenance import Range

INDENT = "  "


def format_bits(bits: Bits, value: int) -> str:
    """The value of a bit field: its symbolic name where it has one; masks and float bits in hexadecimal."""
    if 0 <= value < len(bits.names):
        return bits.names[value]
    return f"{value:#x}" if bits.width >= 32 else str(value)


def _bits_text(bits: Iterable[Bits], values: Packed) -> list[str]:
    return [
        f"{b.name}={format_bits(b, values.get(b.name, 0))}" for b in bits if not b.optional or values.get(b.name, 0)
    ]


def _word_text(spec: Word, value: Affine | Packed) -> list[str]:
    if isinstance(spec, AffineWord):
        return [f"{spec.name}={value}"]
    assert isinstance(value, dict)
    return _bits_text(spec.bits, value)


def _entry_text(group: Group, entry: GroupEntry) -> str:
    parts = [part for spec in group.words for part in _word_text(spec, entry.get(spec.name, _empty(spec)))]
    if "operation" in entry:
        parts = parts[: 1 + _sources_shown(entry["operation"])]
    text = " ".join(parts)
    comment = group.comment(entry) if group.comment is not None else ""
    return f"{text}  ; {comment}" if comment else text


def _sources_shown(operation: Packed) -> int:
    """Sources of a vector operation to print: those it has, and any other that is not zero."""
    op = OP_BY_CODE.get(operation.get("op", 0))
    used = [number for number, name in enumerate("abc", 1) if operation.get(name, 0)]
    return max([op.arity if op else 0, *used])


def _empty(spec: Word) -> Affine | Packed:
    return Affine() if isinstance(spec, AffineWord) else {}


def format_head(instr: Instr, omit: tuple[str, ...] = ()) -> str:
    """One line: name, header fields and operands, without the repeated groups."""
    declaration = instr.declaration
    counts = {group.count_field for group in declaration.groups}
    hidden = counts.union(omit)
    shown = [b for b in declaration.fields if b.name not in hidden and (not b.optional or instr.fields[b.name])]
    parts = [declaration.name, *(f"{b.name}={format_bits(b, instr.fields[b.name])}" for b in shown)]
    for spec in declaration.words:
        parts += _word_text(spec, instr.words[spec.name])
    return " ".join(parts)


def instruction_lines(instr: Instr) -> list[str]:
    """An instruction as text: its head, then one line an entry of its groups, in braces."""
    entries = [
        f"{INDENT}{group.name} {_entry_text(group, entry)}".rstrip()
        for group in instr.declaration.groups
        for entry in instr.groups[group.name]
    ]
    if not entries:
        return [format_head(instr)]
    return [f"{format_head(instr)} {{", *entries, "}"]


def stream_head(stream: Stream) -> str:
    """The line that starts a stream."""
    name = f"stream {stream.engine.name.lower()}"
    return f"{name} mask={stream.channel_mask:#x}" if stream.engine is Engine.CHANNEL else name


def disassemble_stream(stream: Stream, provenance: dict[int, str] | None = None) -> list[str]:
    """Lines of one stream; ``provenance`` has comments by the instruction that they stand before."""
    lines = [stream_head(stream)]
    width = len(str(max(len(stream.instrs) - 1, 0)))
    blank = " " * (width + 2)
    ends: list[int] = []

    def close(at: int) -> None:
        while ends and ends[-1] == at:
            ends.pop()
            lines.append(f"{INDENT}{blank}{INDENT * len(ends)}}}")

    for index, instr in enumerate(stream.instrs):
        close(index)
        if provenance and index in provenance:
            lines.append(f"{INDENT}{blank}{INDENT * len(ends)}; {provenance[index]}")
        indent = INDENT * len(ends)
        text = instruction_lines(instr)
        if instr.name == "LOOP":
            end = index + 1 + instr.fields["body"]
            if end <= (ends[-1] if ends else len(stream.instrs)):
                ends.append(end)
                text = [f"{format_head(instr, omit=('body',))} {{"]
        lines.append(f"{INDENT}{index:>{width}}: {indent}{text[0]}")
        lines += [f"{INDENT}{blank}{indent}{line}" for line in text[1:]]
    close(len(stream.instrs))
    return lines


def disassemble(program: Program, provenance: Sequence[Range] = ()) -> str:
    """The whole program as text; with ``provenance``, each range is preceded by the source operation it comes from."""
    lines: list[str] = []
    for number, stream in enumerate(program.streams):
        comments: dict[int, str] = {}
        for source in provenance:
            if source.stream == number:
                note = f"{source.op} [{source.kind}] {source.loc}".rstrip()
                before = comments.get(source.first)
                comments[source.first] = note if before is None else f"{before}; {note}"
        lines += disassemble_stream(stream, comments)
    return "\n".join(lines) + "\n"
