"""A resolved machine: the tree of sections, where each value came from, its flat form and its hash."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from wordline.errors import WordlineError
from wordline.machines.gddr6_aim import AimSimulator, BankUnit, Buffer, Rules, Timing
from wordline.machines.generations import GENERATIONS
from wordline.machines.schema import (
    Clock,
    CommandProcessor,
    Energy,
    Host,
    Link,
    Organisation,
    Refresh,
    Scalar,
    Scratch,
    Table,
    VectorPasses,
    VectorUnit,
)

Section = TypeVar("Section")


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
    """A machine description: ``sections`` by name, as :data:`wordline.machines.generations.GENERATIONS` lists them.

    Sections are attributes too. Those of every generation are always there; the others belong to the generation that
    most of wordline knows, and what reads one of them on a machine of another generation raises
    ``WordlineError("unsupported-generation")``. Code of a generation reads its own with :meth:`section`.

    ``name`` includes overrides ("gddr6-aim-chip+bank_unit.accumulators=2") and loads the same machine again.
    """

    name: str
    generation: str
    description: str
    sections: Mapping[str, Any] = field(repr=False)
    fields_by_path: Mapping[str, Field] = field(repr=False, compare=False)

    def __hash__(self) -> int:
        return hash((self.name, self.generation))

    def section(self, name: str, kind: type[Section]) -> Section:
        """The section of that name and kind. Raises ``WordlineError("unsupported-generation")`` if it has another."""
        found = self.sections.get(name)
        if not isinstance(found, kind):
            raise self.unsupported(f"what needs its {name!r} section")
        return found

    def unsupported(self, what: str) -> WordlineError:
        """The error for something that wordline cannot do yet for machines of this generation."""
        return WordlineError(
            "unsupported-generation",
            f"wordline cannot do this yet for a machine of generation {self.generation}: {what}",
            where=f"machine {self.name}",
            remedy="use a machine of another generation; docs/machines.md says what each can do",
        )

    @property
    def clock(self) -> Clock:
        return self.section("clock", Clock)

    @property
    def organisation(self) -> Organisation:
        return self.section("organisation", Organisation)

    @property
    def refresh(self) -> Refresh:
        return self.section("refresh", Refresh)

    @property
    def scratch(self) -> Scratch:
        return self.section("scratch", Scratch)

    @property
    def command_processor(self) -> CommandProcessor:
        return self.section("command_processor", CommandProcessor)

    @property
    def vector_passes(self) -> VectorPasses:
        return self.section("vector_unit", VectorPasses)

    @property
    def vector_unit(self) -> VectorUnit:
        return self.section("vector_unit", VectorUnit)

    @property
    def runs_vector_streams(self) -> bool:
        """By its vector unit, or by the host where its generation has none (decision 0007)."""
        passes = self.vector_passes
        return passes.present or not isinstance(passes, VectorUnit)

    @property
    def link(self) -> Link:
        return self.section("link", Link)

    @property
    def host(self) -> Host:
        return self.section("host", Host)

    @property
    def bank_unit(self) -> BankUnit:
        return self.section("bank_unit", BankUnit)

    @property
    def buffer(self) -> Buffer:
        return self.section("buffer", Buffer)

    @property
    def timing(self) -> Timing:
        return self.section("timing", Timing)

    @property
    def rules(self) -> Rules:
        return self.section("rules", Rules)

    @property
    def energy(self) -> Energy:
        return self.section("energy", Energy)

    @property
    def aim_simulator(self) -> AimSimulator:
        return self.section("aim_simulator", AimSimulator)

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
    def has_native(self) -> bool:
        """Whether the native models implement its generation."""
        return GENERATIONS[self.generation].native

    def native(self) -> dict[str, Scalar]:
        """:meth:`flat`, for the native models. Raises ``WordlineError("unsupported-generation")`` if they lack it."""
        if not self.has_native:
            raise self.unsupported("the native simulator has no model of its channels")
        return self.flat()

    @property
    def hash(self) -> str:
        """SHA-256 (hex) over generation and all values: independent of names, sources and order in the files."""
        canonical = {"generation": self.generation, "values": self.flat()}
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def collect_fields(sections: Mapping[str, Any], origin: Mapping[str, Field]) -> dict[str, Field]:
    """All constants in schema order: of each section the stored ones with their origin, then the derived ones."""
    collected: dict[str, Field] = {}
    for name, section in sections.items():
        kind = type(section)
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
    sections = dict.fromkeys(name.partition(".")[0] for name in known)
    remedy = f"did you mean {', '.join(near)}?" if near else f"the sections are {', '.join(sections)}"
    return WordlineError("unknown-field", f"the machine has no field {path!r}", where=where, remedy=remedy)


def _scalar(value: Scalar | tuple[str, ...]) -> Scalar:
    return ",".join(value) if isinstance(value, tuple) else value
