"""Opens artifacts: every length, hash, range and name is checked before anything uses them."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import stat
from dataclasses import dataclass
from pathlib import Path

from wordline.artifact.check import check_manifest
from wordline.artifact.manifest import MANIFEST, PROGRAM, SCHEMA, TOKENIZER, WEIGHTS, Manifest, Part
from wordline.artifact.records import RecordError, from_json
from wordline.artifact.write import manifest_digest
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine


@dataclass(frozen=True)
class Artifact:
    """An opened artifact. ``weights`` maps the file (``memory.weight_rows`` rows of the device), None if unbound."""

    path: Path
    manifest: Manifest
    digest: str
    machine: Machine
    program_bytes: bytes
    weights: memoryview | None

    def image(self, entry: str) -> bytes:
        """The program image of an entry point. Raises ``WordlineError("unknown-entry")``."""
        found = self.manifest.entries.get(entry)
        if found is None:
            names = ", ".join(self.manifest.entries)
            raise WordlineError(
                "unknown-entry",
                f"the artifact has no entry {entry!r}",
                where=str(self.path),
                remedy=f"its entries are: {names}",
            )
        return self.program_bytes[found.offset : found.offset + found.bytes]

    def program(self, entry: str) -> Program:
        """The decoded program of an entry point."""
        return Program.from_bytes(instruction_set(self.manifest.generation), self.image(entry))

    def tokenizer_json(self) -> bytes:
        """``tokenizer.json``. Raises ``WordlineError("no-tokenizer")``."""
        if TOKENIZER not in self.manifest.parts:
            raise WordlineError(
                "no-tokenizer",
                "the artifact holds no tokenizer",
                where=str(self.path),
                remedy="compile from a GGUF file or a model folder that has one",
            )
        return (self.path / TOKENIZER).read_bytes()


def open_artifact(path: str | Path, machine: Machine | None = None, verify: bool = True) -> Artifact:
    """Open the artifact folder ``path`` and check all of it.

    Args:
        path: the ``NAME.wl`` folder.
        machine: the machine it is to run on; by default the one that the artifact names.
        verify: also compare the SHA-256 of every part; without it only their lengths.

    Raises:
        WordlineError: "artifact-not-found", "artifact-version", "corrupt-artifact" (naming file and problem), or
            "machine-mismatch".
    """
    folder = Path(path)
    manifest, digest = _read_manifest(folder)
    machine = _check_machine(folder, manifest, machine)
    for name, part in manifest.parts.items():
        _check_part(folder, name, part, verify)
    program = (folder / PROGRAM).read_bytes()
    problem = check_manifest(manifest, machine, program)
    if problem:
        raise corrupt(folder, problem)
    return Artifact(folder, manifest, digest, machine, program, _map(folder / WEIGHTS, manifest))


def corrupt(path: Path, problem: str) -> WordlineError:
    """The error for an artifact that is not what the compiler wrote."""
    return WordlineError(
        "corrupt-artifact", f"the artifact is damaged: {problem}", where=str(path), remedy="compile it again"
    )


def _read_manifest(folder: Path) -> tuple[Manifest, str]:
    file = folder / MANIFEST
    try:
        _regular_size(file)
        data = file.read_bytes()
    except OSError as error:
        if folder.is_dir():
            raise corrupt(folder, f"{MANIFEST} cannot be read: {error.strerror or error}") from error
        raise WordlineError(
            "artifact-not-found",
            f"there is no artifact {str(folder)!r}",
            remedy="give the path of a .wl folder written by `wordline compile`",
        ) from error
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise corrupt(folder, f"{MANIFEST} is not JSON") from error
    if not isinstance(values, dict):
        raise corrupt(folder, f"{MANIFEST} is not a JSON object")
    schema = values.get("schema")
    if schema != SCHEMA:
        raise WordlineError(
            "artifact-version",
            f"the artifact has schema version {schema!r:.20}, this build reads {SCHEMA}",
            where=str(folder),
            remedy="compile it again with this build",
        )
    digest = values.pop("sha256", None)
    if digest != manifest_digest(values):
        raise corrupt(folder, f"{MANIFEST} does not match its own hash")
    try:
        return from_json(Manifest, values), digest
    except RecordError as error:
        raise corrupt(folder, f"{MANIFEST}: {error}") from error


def _check_machine(folder: Path, manifest: Manifest, machine: Machine | None) -> Machine:
    wanted = manifest.machine
    given = machine or load_machine(wanted.name)
    if given.hash != wanted.hash:
        if machine is None:
            what = f"the machine {wanted.name!r} has changed since the artifact was compiled"
        else:
            what = f"the artifact was compiled for machine {wanted.name!r}, not for {given.name!r}"
        raise WordlineError(
            "machine-mismatch",
            f"{what} (hash {wanted.hash[:12]}, now {given.hash[:12]})",
            where=str(folder),
            remedy=f"compile it again with --machine {given.name!r}"
            + ("" if machine is None else f", or run it on {wanted.name!r}"),
        )
    return given


def _check_part(folder: Path, name: str, part: Part, verify: bool) -> None:
    if Path(name).name != name:
        raise corrupt(folder, f"the part name {name!r:.60} leads out of the folder")
    file = folder / name
    try:
        size = _regular_size(file)
        if size != part.bytes:
            raise corrupt(folder, f"{name} has {size} bytes instead of {part.bytes}")
        if verify:
            with file.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != part.sha256:
                    raise corrupt(folder, f"{name} does not match its hash")
    except OSError as error:
        raise corrupt(folder, f"{name} cannot be read: {error.strerror or error}") from error


def _regular_size(file: Path) -> int:
    """Bytes of a file. A pipe or a device has no size, and reading it might never end: raises ``OSError``."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found.st_size


def _map(file: Path, manifest: Manifest) -> memoryview | None:
    if WEIGHTS not in manifest.parts:
        return None
    if manifest.memory.weight_rows == 0:
        return memoryview(b"")
    with file.open("rb") as stream:
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
