"""Hashes of the sources that decide what is compiled, and how long it takes on the cycle model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import wordline

COMPILER = ("artifact", "compiler", "frontend", "graph", "isa", "numerics")
"""The packages whose sources decide what is compiled."""
TIMING = ("compiler", "isa", "sim")
"""The packages whose sources decide, with the native module, how long a kernel takes."""


@cache
def compiler_hash() -> str:
    """Hash of the version and the sources of the compiler: a changed compiler compiles again."""
    return _hash(COMPILER, ())


@cache
def timing_hash() -> str:
    """Hash of the version, the sources of compiler and simulator, and the native module: others time again."""
    return _hash(TIMING, (".so", ".pyd"))


def _hash(packages: Sequence[str], native: tuple[str, ...]) -> str:
    digest = hashlib.sha256(wordline.__version__.encode())
    root = resources.files("wordline")
    for package in packages:
        for name, file in sorted(_sources(root / package, package), key=lambda source: source[0]):
            digest.update(name.encode())
            digest.update(file.read_bytes())
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name) if native else ():
        if entry.name.endswith(native):
            digest.update(entry.read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry
