"""A device program: one instruction stream per engine, and its binary image.

Image, little endian: magic ``WLPG``, u16 instruction-set version, u16 number of streams, then for each stream u32
engine, the channel mask in as many u32 as the instruction set says (low channels first), u32 first word, u32 number of
words; then the words (u64 each). The image is what an executable is loaded from on every device.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.instruction import Instr, decode_all, encode_all

MAGIC = b"WLPG"
_HEADER = struct.Struct("<4sHH")
MAX_STREAMS = 64


@dataclass(frozen=True)
class Stream:
    """``instrs`` of one engine; ``channel_mask`` names the channels of a channel stream (0 for the others)."""

    engine: Engine
    channel_mask: int
    instrs: tuple[Instr, ...]


@dataclass(frozen=True)
class Program:
    """All streams of one entry point."""

    isa: InstructionSet
    streams: tuple[Stream, ...]

    def to_bytes(self) -> bytes:
        """The binary image. Raises ``WordlineError("too-many-channels")`` for a channel that it cannot name."""
        channels = 32 * self.isa.mask_words
        for number, stream in enumerate(self.streams):
            if stream.channel_mask >> channels:
                raise WordlineError(
                    "too-many-channels",
                    f"an image of {self.isa.generation} names channels 0 to {channels - 1}, the mask is "
                    f"{stream.channel_mask:#x}",
                    where=f"stream {number}",
                    remedy=f"use a machine of at most {channels} channels",
                )
        encoded = [encode_all(s.instrs) for s in self.streams]
        parts = [_HEADER.pack(MAGIC, self.isa.version, len(self.streams))]
        first = 0
        for stream, words in zip(self.streams, encoded, strict=True):
            masks = (stream.channel_mask >> 32 * i & 0xFFFFFFFF for i in range(self.isa.mask_words))
            parts.append(_stream(self.isa).pack(stream.engine.value, *masks, first, len(words)))
            first += len(words)
        return b"".join([*parts, *(w.astype("<u8").tobytes() for w in encoded)])

    @classmethod
    def from_bytes(cls, isa: InstructionSet, image: bytes | memoryview) -> Program:
        """Decode an image. Raises ``WordlineError("bad-program")`` for anything malformed."""
        return cls(isa, tuple(Stream(e, m, tuple(decode_all(isa, w))) for e, m, w in split_image(isa, image)))


def _stream(isa: InstructionSet) -> struct.Struct:
    """The entry of a stream in an image."""
    return struct.Struct(f"<{3 + isa.mask_words}I")


def split_image(isa: InstructionSet, image: bytes | memoryview) -> Sequence[tuple[Engine, int, npt.NDArray[np.uint64]]]:
    """Engine, channel mask and words of each stream, with every length checked before it is used."""

    def bad(what: str) -> WordlineError:
        return WordlineError("bad-program", f"the program image is malformed: {what}", remedy="recompile the artifact")

    if len(image) < _HEADER.size:
        raise bad("shorter than its header")
    magic, version, count = _HEADER.unpack_from(image, 0)
    if magic != MAGIC:
        raise bad("wrong magic")
    if version != isa.version:
        raise bad(f"instruction-set version {version}, this build has {isa.version}")
    layout = _stream(isa)
    base = _HEADER.size + count * layout.size
    if count > MAX_STREAMS or len(image) < base or (len(image) - base) % 8:
        raise bad(f"{count} streams do not fit {len(image)} bytes")
    words = np.frombuffer(image, dtype="<u8", offset=base)
    streams, expected = [], 0
    for i in range(count):
        engine, *masks, first, length = layout.unpack_from(image, _HEADER.size + i * layout.size)
        mask = sum(word << 32 * i for i, word in enumerate(masks))
        if engine not in {e.value for e in Engine} or first != expected or first + length > len(words):
            raise bad(f"stream {i} has engine {engine}, words {first}..{first + length} of {len(words)}")
        streams.append((Engine(engine), mask, words[first : first + length]))
        expected = first + length
    if expected != len(words):
        raise bad(f"{len(words) - expected} words belong to no stream")
    return streams
