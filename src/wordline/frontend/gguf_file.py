"""Read GGUF files (versions 2 and 3): metadata, tensor directory, dequantised tensors.

Layout as in the public GGUF specification (ggml, docs/gguf.md): a header, key-value metadata, a tensor directory and an
aligned data section. Block formats and their dequantisation come from the `gguf` package.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from wordline.errors import WordlineError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
"""As in the format's reference implementation (ggml.h, GGML_MAX_DIMS)."""
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_REMEDY = "get the file again; its size should match the one its publisher states"


@dataclass(frozen=True, slots=True)
class _Entry:
    shape: tuple[int, ...]  # outermost first
    format: GGMLQuantizationType
    offset: int
    bytes: int


class GGUFFile:
    """An open GGUF file. Everything but the tensors is read and checked on opening.

    Attributes:
        metadata: key-value pairs; arrays are lists.

    Raises:
        WordlineError: "not-gguf", "unsupported-gguf" (version or block format), "damaged-gguf" (ends too early, or
            contents that make no sense).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise WordlineError(
                    "not-gguf",
                    "the file is not a GGUF file: it does not start with 'GGUF'",
                    where=str(path),
                    remedy="give a .gguf file, a model directory or a config.json",
                )
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 4
        try:
            self._entries = self._read_directory()
        except (struct.error, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise self._damaged(f"its header cannot be read past byte {self._at} ({error})") from error

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor, outermost dimension first."""
        return {name: entry.shape for name, entry in self._entries.items()}

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor, dequantised to float32.

        Raises:
            KeyError: there is none of that name.
            WordlineError: "unsupported-gguf": there is no dequantisation for its block format.
        """
        entry = self._entries[name]
        raw = np.frombuffer(self._bytes, np.uint8, entry.bytes, entry.offset)
        if entry.format == GGMLQuantizationType.F32:
            return raw.view(np.float32).reshape(entry.shape).copy()
        try:
            rows = raw.view(np.float16) if entry.format == GGMLQuantizationType.F16 else raw
            flat = dequantize(rows.reshape(*entry.shape[:-1], -1), entry.format)
        except NotImplementedError as error:
            raise WordlineError(
                "unsupported-gguf",
                f"tensor '{name}' has the block format {entry.format.name}, which cannot be dequantised",
                where=str(self.path),
                remedy="use a file with another quantisation, such as Q4_1, Q8_0 or F16",
            ) from error
        return np.ascontiguousarray(flat.reshape(entry.shape), np.float32)

    def _read_directory(self) -> dict[str, _Entry]:
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise WordlineError(
                "unsupported-gguf",
                f"the file has GGUF version {version}; versions 2 and 3 can be read",
                where=str(self.path),
                remedy="convert it with a current llama.cpp",
            )
        tensor_count, pair_count = self._scalar("Q"), self._scalar("Q")
        for _ in range(pair_count):
            key = self._string()
            if key in self.metadata:
                raise self._damaged(f"the key '{key:.60}' appears twice")
            self.metadata[key] = self._value(self._scalar("I"))
        found = []
        for _ in range(tensor_count):
            name = self._string()
            dimensions = self._scalar("I")
            if not 1 <= dimensions <= _MAX_DIMENSIONS:
                raise self._damaged(f"tensor '{name:.60}' has {dimensions} dimensions")
            shape = tuple(self._scalar("Q") for _ in range(dimensions))[::-1]
            found.append((name, shape, GGMLQuantizationType(self._scalar("I")), self._scalar("Q")))
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"its alignment is {alignment!r:.60}, not a power of two")
        start = -(-self._at // alignment) * alignment
        entries: dict[str, _Entry] = {}
        end = start
        for name, shape, format, offset in sorted(found, key=lambda entry: entry[3]):
            block, block_bytes = GGML_QUANT_SIZES[format]
            if 0 in shape or shape[-1] % block:
                raise self._damaged(
                    f"tensor '{name:.60}' has the shape {list(shape)}, and {format.name} comes in blocks of {block}"
                )
            if name in entries:
                raise self._damaged(f"the tensor '{name:.60}' appears twice")
            size = prod(shape) // block * block_bytes
            if offset % alignment or start + offset < end:
                raise self._damaged(f"tensor '{name:.60}' is not aligned to {alignment} bytes, or inside another one")
            end = start + offset + size
            if end > len(self._bytes):
                raise self._damaged(f"tensor '{name:.60}' ends at byte {end}, the file has {len(self._bytes)} bytes")
            entries[name] = _Entry(shape, format, start + offset, size)
        return {name: entries[name] for name, *_ in found}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, count = self._scalar("I"), self._scalar("Q")
            if element in (_STRING, _ARRAY):
                return [self._value(element) for _ in range(count)]
            layout = struct.Struct(f"<{count}{_SCALARS[element]}")
            values = layout.unpack_from(self._bytes, self._at)
            self._at += layout.size
            return list(values)
        return self._scalar(_SCALARS[kind])

    def _scalar(self, code: str) -> Any:
        layout = struct.Struct(f"<{code}")
        (value,) = layout.unpack_from(self._bytes, self._at)
        self._at += layout.size
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        if self._at + length > len(self._bytes):
            raise self._damaged(f"a text at byte {self._at} goes past its end")
        text = self._bytes[self._at : self._at + length].decode("utf-8")
        self._at += length
        return text

    def _damaged(self, why: str) -> WordlineError:
        return WordlineError("damaged-gguf", f"the GGUF file is damaged: {why}", where=str(self.path), remedy=_REMEDY)
