"""Compiled artifacts in the cache folder, found by the content of everything they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from wordline import knobs
from wordline.artifact import Artifact, check_target, open_artifact, write_artifact
from wordline.cli.searching import tuning_of
from wordline.cli.targets import model_stem
from wordline.errors import WordlineError
from wordline.files import write_text
from wordline.machines import Machine
from wordline.sources import compiler_hash

HASHES = "model-hashes.json"


def cached_artifact(
    source: Path, machine: Machine, context: int | None, progress: Callable[[str], None], search: float = 0.0
) -> Artifact:
    """The artifact of ``source`` for ``machine``: from the cache, or compiled into it, with a ``search`` of seconds.

    An artifact in the cache that is damaged is compiled again.
    """
    folder = knobs.cache_dir() / "artifacts"
    stem = f"{_name(source)}-{cache_key(source, machine, context, search)}"
    path = folder / f"{stem}-{compiler_hash()[:8]}.wl"
    if path.is_dir():
        try:
            return open_artifact(path, machine)
        except WordlineError as error:
            progress(f"the cached artifact cannot be used ({error.what})")
    check_target(path)
    progress("loading the compiler")
    from wordline.compiler.pipeline import compile_model

    contents = compile_model(source, machine, context, progress, tuning=tuning_of(search, progress))
    progress("writing the artifact")
    write_artifact(path, contents)
    for old in folder.glob(f"{stem}-*.wl"):
        if old != path:  # the same, by another state of the compiler
            shutil.rmtree(old, ignore_errors=True)
    return open_artifact(path, machine, verify=False)


def cache_key(source: Path, machine: Machine, context: int | None, search: float = 0.0) -> str:
    """Content hash (16 hex digits) of model, machine and options."""
    parts = [model_hash(source), machine.name, machine.hash, str(context), *([f"search {search}"] if search else [])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def model_hash(source: Path) -> str:
    """SHA-256 (hex) of a model file, or over the names and hashes of the files of a model folder.

    Hashes are remembered by path, size and time of change, so that a large file is read once.
    """
    files = sorted(p for p in source.iterdir() if p.is_file()) if source.is_dir() else [source]
    known = _read_hashes()
    changed, lines = False, []
    for file in files:
        stat = file.stat()
        key = f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in known:
            with file.open("rb") as stream:
                known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
            changed = True
        lines.append(f"{file.name} {known[key]}")
    if changed:
        _write_hashes(known)
    return known[key] if not source.is_dir() else hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _read_hashes() -> dict[str, str]:
    try:
        values = json.loads((knobs.cache_dir() / HASHES).read_bytes())
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in values.items() if isinstance(v, str)} if isinstance(values, dict) else {}


def _write_hashes(known: dict[str, str]) -> None:
    """Best effort: without it the next start only takes longer."""
    folder = knobs.cache_dir()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / HASHES, json.dumps(known))


def _name(source: Path) -> str:
    """A readable part of the file name."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in model_stem(source))[:60]
