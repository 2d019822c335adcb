"""Transfers of the host link: strided blocks between scratch and host memory.

The host address is the 64-bit value in argument words ``slot`` (low) and ``slot + 1`` (high); the device checks it
against the windows that the host has opened to it. Block b covers bytes ``scratch + b * stride`` and up, modulo the
size of all scratch; blocks are copied in order. A transfer of no bytes does nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import AffineWord, Bits, Engine, Instruction, OperandError

LINK = (Engine.LINK,)
FIELDS = (Bits("slot", 8, "argument word that holds the host address"),)
WORDS = (
    AffineWord("scratch", "value", "linear scratch byte address of the first block"),
    AffineWord("stride", "value", "bytes between blocks in scratch"),
    AffineWord("blocks", "value", "number of blocks"),
    AffineWord("bytes", "value", "bytes a block, packed on the host side"),
    AffineWord("offset", "value", "byte offset added to the host address"),
)


def _copy(state: Any, o: SimpleNamespace, out: bool) -> None:
    blocks, size = max(o.blocks, 0), max(o.bytes, 0)
    low, high = (state.load_word(state.argument_base + o.slot + i) & 0xFFFFFFFF for i in range(2))
    if blocks and size > state.scratch.size:
        raise OperandError(f"a block of {size} bytes exceeds scratch ({state.scratch.size})")
    if not blocks or not size:
        return
    host = state.host_window((high << 32 | low) + o.offset, blocks * size)
    for block in range(blocks):
        start = (o.scratch + block * o.stride) % state.scratch.size
        straight = min(size, state.scratch.size - start)  # the rest wraps to the start of scratch
        for scratch, data in ((start, host[:straight]), (0, host[straight:size])):
            part = state.scratch[scratch : scratch + len(data)]
            if out:
                data[:] = part
            else:
                part[:] = data
        host = host[size:]


def _out(state: Any, o: SimpleNamespace) -> None:
    _copy(state, o, out=True)


def _in(state: Any, o: SimpleNamespace) -> None:
    _copy(state, o, out=False)


LINK_COMMANDS = (
    Instruction("XOUT", 80, LINK, "link", "Copy blocks of scratch to host memory.", FIELDS, WORDS, (), _out),
    Instruction("XIN", 81, LINK, "link", "Copy blocks of host memory to scratch.", FIELDS, WORDS, (), _in),
)
