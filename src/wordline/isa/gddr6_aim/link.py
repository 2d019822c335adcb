"""Transfers of the host link: strided blocks between scratch and host memory.

The host address is the 64-bit value in argument words ``slot`` (low) and ``slot + 1`` (high); the device checks it against the windows
that the host has opened to it. Block b covers bytes ``scratch + b * stride`` and up, modulo the size of all scratch; blocks are copied in order.
A transfer of no bytes does nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import AffineWord, Bits, Engine, Instruction

LINK = (Engine.LINK,)
FIELDS = (Bits("slot", 8, "argument word that holds the host address"),)
WORDS = (
    AffineWord("scratch", "value", "linear scratch byte address of the first block"),
    AffineWord("stride", "value", "bytes between blocks in scratch"),
    AffineWord("blocks", "value", "number of blocks"),
    AffineWord("bytes", "value", "bytes a block, packed on the host side"),
    AffineWord("offset", "value", "byte offset added to the host address"),
)


def _out(state: Any, o: SimpleNamespace) -> None:
    host = state.host_window(o.slot, o.offset, o.blocks * o.bytes)
    for block, addresses in enumerate(state.scratch_blocks(o.scratch, o.stride, o.blocks, o.bytes)):
        host[block * o.bytes : (block + 1) * o.bytes] = state.scratch[addresses]


def _in(state: Any, o: SimpleNamespace) -> None:
    host = state.host_window(o.slot, o.offset, o.blocks * o.bytes)
    for block, addresses in enumerate(state.scratch_blocks(o.scratch, o.stride, o.blocks, o.bytes)):
        state.scratch[addresses] = host[block * o.bytes : (block + 1) * o.bytes]


LINK_COMMANDS = (
    Instruction("XOUT", 80, LINK, "link", "Copy blocks of scratch to host memory.", FIELDS, WORDS, (), _out),
    Instruction("XIN", 81, LINK, "link", "Copy blocks of host memory to scratch.", FIELDS, WORDS, (), _in),
)
