"""Writes artifacts: everything into a temporary folder beside the target, which is renamed when it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
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
    Chosen,
    Entry,
    LogitsOutput,
    MachineRef,
    Manifest,
    MemoryMap,
    ModelInfo,
    Part,
    SearchedStep,
    TokenizerInfo,
)
from wordline.artifact.records import to_json
from wordline.errors import WordlineError
from wordline.isa.provenance import Range

#: Names from :func:`_new_folder`: artifacts half written, and old ones that stepped aside.
_TEMPORARY = re.compile(r"\..+\.wl\.(old\.)?[0-9a-f]{12}")


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
    choices: tuple[Chosen, ...] = ()
    search: SearchedStep | None = None


def write_artifact(path: str | Path, contents: ArtifactContents) -> Path:
    """Write ``contents`` as the folder ``path`` (ends in ``.wl``) and return it. An artifact already there is replaced.

    Raises:
        WordlineError: "bad-artifact-name", "artifact-exists" (the target is something else), or "write-failed" (disk
            full, no permission). Nothing is left behind in any of these cases.
    """
    target = _named(path)
    real = Path(os.path.realpath(target))  # a link stays, what it leads to is replaced
    temporary: Path | None = None
    owner: int | None = None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        with _alone(real.parent):
            _check_free(real)
            _remove_abandoned(real.parent)
            temporary = _new_folder(real.parent, f".{real.name}.")
            owner = _lock(temporary, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_parts(temporary, contents)
        with _alone(real.parent):
            _check_free(real)
            _replace(temporary, real)
    except OSError as error:
        raise _write_failed(target, error.strerror or str(error)) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if owner is not None:
            os.close(owner)
    return target


def _new_folder(parent: Path, prefix: str) -> Path:
    """A folder of a name that nobody has, with the access rights that folders get here (``tempfile`` gives its own)."""
    folder = parent / f"{prefix}{secrets.token_hex(6)}"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within it no other process makes, replaces or clears artifacts in ``folder``, if its file system has locks."""
    lock = _lock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, kind: int) -> int | None:
    """A descriptor whose lock ends with it, or with this process; None if it cannot be had."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed while they wrote artifacts in ``folder`` have left there.

    A writer holds a lock on its temporary folder, and the system releases it however the writer ends.
    """
    for left in folder.glob(".*.wl.*"):
        if _TEMPORARY.fullmatch(left.name) is None or left.is_symlink() or not left.is_dir():
            continue
        lock = _lock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            continue
        try:
            if set(os.listdir(lock)) <= {MANIFEST, PROGRAM, WEIGHTS, TOKENIZER}:
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)


def check_target(path: str | Path) -> Path:
    """The path, if an artifact may be written there (to ask before a long compilation); raises as writing does."""
    target = _named(path)
    folder = next(folder for folder in target.absolute().parents if folder.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise _write_failed(target, f"{folder} is no folder that you may write to")
    with _alone(target.parent):
        _check_free(target)
    return target


def _named(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix != ".wl":
        raise WordlineError(
            "bad-artifact-name",
            f"the artifact name {target.name!r} does not end in .wl",
            remedy=f"write {target.name}.wl",
        )
    return target


def _check_free(target: Path) -> None:
    if target.exists() and not (target / MANIFEST).is_file():
        raise WordlineError(
            "artifact-exists",
            "the target exists and is not an artifact",
            where=str(target),
            remedy="choose another name, or remove it",
        )


def _write_failed(target: Path, why: str) -> WordlineError:
    return WordlineError(
        "write-failed",
        f"the artifact cannot be written: {why}",
        where=str(target),
        remedy="free space or choose another folder, then repeat; nothing was left behind",
    )


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
        choices=contents.choices,
        search=contents.search,
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
    old = _new_folder(target.parent, f".{target.name}.old.")
    try:
        target.rename(old)
        try:
            temporary.rename(target)
        except OSError:
            old.rename(target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
