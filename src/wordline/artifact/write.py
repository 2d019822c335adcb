"""Writes artifacts: everything into a temporary folder beside the target, which is renamed when it is complete."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import wordline
from wordline.artifact.manifest import (
    ENTRY_ALIGNMENT,
    MANIFEST,
    PROGRAM,
    SCHEMA,
    TOKENIZER,
    WEIGHTS,
    Entry,
    LogitsOutput,
    MachineRef,
    Manifest,
    MemoryMap,
    ModelInfo,
    Part,
    Range,
    TokenizerInfo,
)
from wordline.artifact.records import to_json
from wordline.errors import WordlineError


@dataclass(frozen=True)
class EntryContents:
    """One entry point: the image of its program (``Program.to_bytes``), its arguments, where its code comes from."""

    image: bytes
    arguments: Mapping[str, int]
    argument_words: int
    provenance: tuple[Range, ...] = ()


@dataclass(frozen=True)
class ArtifactContents:
    """Everything the compiler produces for one model on one machine.

    ``weights`` yields blocks of whole rows in ascending order, uint16 ``[rows, channels, banks, columns, lanes]`` (bf16
    bits), ``memory.weight_rows`` rows together; None leaves the weights unbound: the artifact can be timed, not run.
    ``tokenizer_json`` is a file of the ``tokenizers`` library.
    """

    generation: str
    machine: MachineRef
    model: ModelInfo
    entries: Mapping[str, EntryContents]
    memory: MemoryMap
    logits: LogitsOutput
    weights: Iterable[npt.NDArray[np.uint16]] | None = None
    tokenizer: TokenizerInfo | None = None
    tokenizer_json: bytes | None = field(default=None, repr=False)


def write_artifact(path: str | Path, contents: ArtifactContents) -> Path:
    """Write ``contents`` as the folder ``path`` (ends in ``.wl``) and return it. An artifact already there is replaced.

    Raises:
        WordlineError: "bad-artifact-name", "artifact-exists" (the target is something else), or "write-failed" (disk
            full, no permission). Nothing is left behind in any of these cases.
    """
    target = check_target(path)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        temporary.chmod(0o777 & ~_umask())
        _write_parts(temporary, contents)
        _replace(temporary, target)
    except OSError as error:
        raise WordlineError(
            "write-failed",
            f"the artifact cannot be written: {error.strerror or error}",
            where=str(target),
            remedy="free space or choose another folder, then repeat; nothing was left behind",
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def check_target(path: str | Path) -> Path:
    """The path, if an artifact may be written there (to ask before a long compilation); raises as writing does."""
    target = Path(path)
    if target.suffix != ".wl":
        raise WordlineError(
            "bad-artifact-name",
            f"the artifact name {target.name!r} does not end in .wl",
            remedy=f"write {target.name}.wl",
        )
    if target.exists() and not (target / MANIFEST).is_file():
        raise WordlineError(
            "artifact-exists",
            "the target exists and is not an artifact",
            where=str(target),
            remedy="choose another name, or remove it",
        )
    return target


def _write_parts(folder: Path, contents: ArtifactContents) -> None:
    parts: dict[str, Part] = {}
    entries, images, offset = {}, [], 0
    for name, entry in contents.entries.items():
        entries[name] = Entry(
            offset, len(entry.image), dict(entry.arguments), entry.argument_words, tuple(entry.provenance)
        )
        padding = -len(entry.image) % ENTRY_ALIGNMENT
        images += [entry.image, bytes(padding)]
        offset += len(entry.image) + padding
    parts[PROGRAM] = _write(folder / PROGRAM, images)
    if contents.weights is not None:
        blocks = (np.ascontiguousarray(block, dtype="<u2").data.cast("B") for block in contents.weights)
        parts[WEIGHTS] = _write(folder / WEIGHTS, blocks)
    if contents.tokenizer_json is not None:
        parts[TOKENIZER] = _write(folder / TOKENIZER, [contents.tokenizer_json])
    manifest = Manifest(
        schema=SCHEMA,
        wordline_version=wordline.__version__,
        generation=contents.generation,
        machine=contents.machine,
        model=contents.model,
        entries=entries,
        memory=contents.memory,
        logits=contents.logits,
        tokenizer=contents.tokenizer,
        parts=parts,
    )
    _write(folder / MANIFEST, [manifest_bytes(to_json(manifest))])


def manifest_bytes(values: dict[str, Any]) -> bytes:
    """The file ``manifest.json``: the values, and their digest under the key ``sha256``."""
    return json.dumps({**values, "sha256": manifest_digest(values)}, separators=(",", ":")).encode()


def manifest_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the canonical text of a manifest without its digest."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _write(path: Path, blocks: Iterable[bytes | memoryview]) -> Part:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for block in blocks:
            digest.update(block)
            file.write(block)
            size += len(block)
        file.flush()
        os.fsync(file.fileno())
    return Part(size, digest.hexdigest())


def _replace(temporary: Path, target: Path) -> None:
    """Rename into place. A folder cannot be renamed over a full one: an old artifact first steps aside."""
    try:
        temporary.rename(target)
        return
    except OSError:
        if not target.is_dir():
            raise
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        target.rename(old)
        try:
            temporary.rename(target)
        except OSError:
            old.rename(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
