"""What searches have timed, in files named by the content of all that the times depend on.

A file holds one operation's times, on one machine, with one state of compiler and cycle model. Whoever asks for
the same gets the same times without timing anything; any change of any of the three makes another name. Files are
written whole, and what is no such file is never used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wordline.artifact.records import RecordError, from_json, to_json
from wordline.files import write_text
from wordline.machines import Machine
from wordline.sources import timing_hash

SCHEMA = 1


@dataclass(frozen=True)
class Timed:
    """The time of a choice in cycles, or why it cannot be compiled."""

    cycles: int | None
    failed: str | None = None


@dataclass(frozen=True)
class _Entry:
    choice: str
    cycles: int | None
    failed: str | None


@dataclass(frozen=True)
class _File:
    schema: int
    kind: str
    operation: str
    machine: str
    machine_hash: str
    compiler: str
    trials: tuple[_Entry, ...]


class Winners:
    """The files of one folder; ``warn`` is told what cannot be read or written."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn

    def read(self, kind: str, operation: str, machine: Machine) -> dict[str, Timed]:
        """All times by choice; none if there is no sound file."""
        path = self._path(kind, operation, machine)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._warn(f"stored times are not used: {path}: {error.strerror or error}")
            return {}
        try:
            file = from_json(_File, json.loads(text))
            if self._head(kind, operation, machine, file.trials) != file:
                raise RecordError("it is about something else")
            if any(entry.cycles == 0 for entry in file.trials):
                raise RecordError("a choice takes no time")
            if any((entry.cycles is None) == (entry.failed is None) for entry in file.trials):
                raise RecordError("a choice has both a time and a failure, or neither")
        except (ValueError, RecursionError) as error:
            self._warn(f"stored times are not used: {path} is malformed: {error}")
            return {}
        return {entry.choice: Timed(entry.cycles, entry.failed) for entry in file.trials}

    def write(self, kind: str, operation: str, machine: Machine, times: Mapping[str, Timed]) -> None:
        """Store all times. Best effort: without it the next search takes longer."""
        path = self._path(kind, operation, machine)
        trials = tuple(_Entry(choice, timed.cycles, timed.failed) for choice, timed in times.items())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(to_json(self._head(kind, operation, machine, trials)), indent=1) + "\n")
        except OSError as error:
            self._warn(f"times are not stored: {path}: {error.strerror or error}")

    def _head(self, kind: str, operation: str, machine: Machine, trials: tuple[_Entry, ...]) -> _File:
        return _File(SCHEMA, kind, operation, machine.name, machine.hash, timing_hash(), trials)

    def _path(self, kind: str, operation: str, machine: Machine) -> Path:
        content = "\n".join((str(SCHEMA), kind, operation, machine.hash, timing_hash()))
        return self._folder / f"{kind}-{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
