"""A resolved machine: the tree of sections, where each value came from, its flat form and its hash."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from wordline.errors import WordlineError
from wordline.machines.schema import (
    SECTIONS,
    AimSimulator,
    BankUnit,
    Buffer,
    Clock,
    CommandProcessor,
    Energy,
    Host,
    Link,
    Organisation,
    Refresh,
    Rules,
    Scalar,
    Scratch,
    Table,
    Timing,
    VectorUnit,
)


@dataclass(frozen=True)
class Field:
    """One constant: its value, its unit and where it comes from.

    ``confidence`` is a word of :data:`wordline.machines.schema.CONFIDENCE` in sections that grade their constants,
    "override" for an override there, and empty elsewhere.
    """

    value: Scalar | tuple[str, ...]
    unit: str
    source: str
    confidence: str = ""


@dataclass(frozen=True)
class Machine:
    """A machine description. Sections are attributes; see :mod:`wordline.machines.schema` for fields and units.

    ``name`` includes overrides ("gddr6-aim-chip+bank_unit.accumulators=2") and loads the same machine again.
    """

    name: str
    generation: str
    description: str
    clock: Clock
    organisation: Organisation
    bank_unit: BankUnit
    buffer: Buffer
    timing: Timing
    rules: Rules
    refresh: Refresh
    scratch: Scratch
    command_processor: CommandProcessor
    vector_unit: VectorUnit
    link: Link
    energy: Energy
    host: Host
    aim_simulator: AimSimulator
    fields_by_path: Mapping[str, Field] = field(repr=False, compare=False)

    def field(self, path: str) -> Field:
        """The constant at a dotted path, derived ones included.

        Raises:
            WordlineError: "unknown-field", with the nearest paths.
        """
        found = self.fields_by_path.get(path)
        if found is None:
            raise unknown_field(path, self.fields_by_path, self.name)
        return found

    def flat(self) -> dict[str, Scalar]:
        """Every constant by dotted path ("timing.nRP": 32), derived ones included; lists are joined by commas."""
        return {path: _scalar(entry.value) for path, entry in self.fields_by_path.items()}

    @property
    def hash(self) -> str:
        """SHA-256 (hex) over generation and all values: independent of names, sources and order in the files."""
        canonical = {"generation": self.generation, "values": self.flat()}
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def collect_fields(sections: Mapping[str, Any], origin: Mapping[str, Field]) -> dict[str, Field]:
    """All constants in schema order: of each section the stored ones with their origin, then the derived ones."""
    collected: dict[str, Field] = {}
    for name, kind in SECTIONS.items():
        section = sections[name]
        for entry in fields(kind):
            value = getattr(section, entry.name)
            if isinstance(value, Table):
                paths = [f"{name}.{entry.name}.{key}" for key in value]
            else:
                paths = [f"{name}.{entry.name}"]
            collected.update((path, origin[path]) for path in paths)
        derived: Mapping[str, tuple[str, str]] = getattr(kind, "DERIVED", {})
        for key, (unit, formula) in derived.items():
            collected[f"{name}.{key}"] = Field(getattr(section, key), unit, f"derived: {formula}")
    return collected


def unknown_field(path: str, known: Mapping[str, Any], where: str) -> WordlineError:
    """The error for a path that names no constant, with the nearest names."""
    near = difflib.get_close_matches(path, known, n=3, cutoff=0.5)
    if not near:
        last = path.rsplit(".", 1)[-1]
        near = [name for name in known if name.rsplit(".", 1)[-1] == last]
    remedy = f"did you mean {', '.join(near)}?" if near else f"the sections are {', '.join(SECTIONS)}"
    return WordlineError("unknown-field", f"the machine has no field {path!r}", where=where, remedy=remedy)


def _scalar(value: Scalar | tuple[str, ...]) -> Scalar:
    return ",".join(value) if isinstance(value, tuple) else value
