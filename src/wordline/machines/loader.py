"""Reads machine files: inheritance, schema check, overrides.

A file is TOML with the keys ``generation``, ``description``, ``abstract``, ``extends`` and one table per section of
the generation's schema, in which every constant is ``{ value = ..., unit = "...", source = "..." }``, with
``confidence = "..."`` besides where the schema grades it. Files without ``extends`` must state everything; the others
state what differs.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import fields
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from wordline.errors import WordlineError
from wordline.knobs import expanded
from wordline.machines.generations import GENERATIONS, Generation
from wordline.machines.machine import Field, Machine, collect_fields, unknown_field
from wordline.machines.schema import CONFIDENCE, Quantity, Scalar, Table

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_HEADER: dict[str, type] = {"generation": str, "description": str, "abstract": bool, "extends": str}
_ENTRY = {"value", "unit", "source"}
_ORDER = ("value", "unit", "source", "confidence")
#: Where an override begins in a variant name; a plus sign elsewhere belongs to the path of a file or to a number.
_VARIANT = re.compile(r"\+(?=[a-z_]+\.[A-Za-z0-9_.]+=)")


def list_machines() -> list[str]:
    """Names of the machines that come with wordline, sorted; generation bases are not machines and not listed."""
    return sorted(name for name, file in _shipped().items() if not _read(file, name).header.get("abstract", False))


def load_machine(name_or_path: str, overrides: Mapping[str, Scalar] | None = None) -> Machine:
    """Load a machine by name, by variant name ("gddr6-aim-chip+bank_unit.accumulators=2") or from a ``.toml`` file.

    Args:
        name_or_path: name from :func:`list_machines`, or a path that ends in ``.toml``; "+path=value" parts may follow.
        overrides: dotted path -> value; text is read as the type of the field. They win over those in the name.

    Raises:
        WordlineError: "unknown-machine", "machine-file" (unreadable), "machine-schema" (a field of a file),
            "unknown-field" or "machine-override" (an override).
    """
    base, *parts = _VARIANT.split(name_or_path)
    settings: dict[str, Scalar] = {}
    for part in parts:
        path, _, text = part.partition("=")
        settings[path] = text
    settings.update(overrides or {})

    source = _resolve(base)
    layers = _layers(source)
    header: dict[str, Any] = {}
    for layer in layers:
        header.update(layer.header)
    header["abstract"] = layers[-1].header.get("abstract", False)
    if header["abstract"]:
        sizes = [name for name in list_machines() if name.startswith(source.name)]
        raise WordlineError(
            "unknown-machine",
            f"{source.name!r} is the base of a generation, not a machine",
            where=source.label,
            remedy=f"choose a size: {', '.join(sizes)}" if sizes else "extend it in a file of your own",
        )
    for key in ("generation", "description"):
        if key not in header:
            raise _schema_error(key, "is missing", source.label)
    schema = _Schema.of(header["generation"], source.label)
    entries: dict[str, Field] = {}
    for layer in layers:
        entries.update(schema.entries(layer))

    applied: dict[str, Scalar] = {}
    for path in sorted(settings):
        entries[path] = schema.override(path, settings[path], entries, f"{source.name}, override")
        value = entries[path].value
        applied[path] = ",".join(value) if isinstance(value, tuple) else value
    name = "+".join([source.name, *(f"{path}={_text(value)}" for path, value in applied.items())])

    sections = {
        section: _build(section, kind, entries, source.label) for section, kind in schema.generation.sections.items()
    }
    _check_together(schema.generation, sections, applied, source)
    return Machine(
        name=name,
        generation=schema.generation.name,
        description=header["description"],
        sections=sections,
        fields_by_path=collect_fields(sections, entries),
    )


class _Source:
    """A machine file: shipped with the package or the user's own."""

    def __init__(self, name: str, file: Traversable | Path, label: str) -> None:
        self.name = name
        self.file = file
        self.label = label  # what errors call it


class _Layer:
    """One file: its header, checked, and the rest of its keys, which the schema of the generation checks."""

    def __init__(self, header: dict[str, Any], content: dict[str, Any], label: str) -> None:
        self.header = header
        self.content = content
        self.label = label


def _shipped() -> dict[str, Traversable]:
    folder = resources.files("wordline.machines")
    return {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}


def _resolve(name_or_path: str, relative_to: Path | None = None) -> _Source:
    if name_or_path.endswith(".toml"):
        path = expanded(name_or_path)
        if relative_to is not None:
            path = relative_to / path
        return _Source(path.stem, path, str(path))
    shipped = _shipped()
    if name_or_path not in shipped:
        known = list_machines()
        near = difflib.get_close_matches(name_or_path, known, n=3, cutoff=0.3) or known
        raise WordlineError(
            "unknown-machine",
            f"there is no machine {name_or_path!r}",
            remedy=f"nearest names: {', '.join(near)}; or give the path of a .toml file",
        )
    return _Source(name_or_path, shipped[name_or_path], f"{name_or_path}.toml")


def _layers(source: _Source) -> list[_Layer]:
    """The file and all it extends, base first."""
    layers: list[_Layer] = []
    seen: set[str] = set()
    while True:
        if source.label in seen:
            raise WordlineError("machine-file", "machine files extend each other in a circle", where=source.label)
        seen.add(source.label)
        layer = _read(source.file, source.label)
        layers.append(layer)
        parent = layer.header.get("extends")
        if parent is None:
            return layers[::-1]
        source = _resolve(parent, Path(str(source.file)).parent)


def _read(file: Traversable | Path, label: str) -> _Layer:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise WordlineError(
            "machine-file", f"the machine file cannot be read: {reason}", where=label, remedy="check the path"
        ) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WordlineError("machine-file", f"the machine file is not valid TOML: {error}", where=label) from error

    header: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, content in data.items():
        if key not in _HEADER:
            rest[key] = content
            continue
        if not isinstance(content, _HEADER[key]):
            raise _schema_error(key, f"must be {_KINDS[_HEADER[key]]}", label)
        header[key] = content
    return _Layer(header, rest, label)


class _Schema:
    """What a file of one generation may say: every settable path with its type and its quantity.

    The type is int, float, bool, str, or tuple for a list of names.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self._quantities: dict[str, tuple[type, Quantity]] = {}
        for section, kind in generation.sections.items():
            hints = typing.get_type_hints(kind)
            for entry in fields(kind):
                spec: Quantity = entry.metadata["quantity"]
                hint = hints[entry.name]
                if hint is Table:
                    number = int if spec.unit == "cycle" else float
                    for key in spec.keys:
                        self._quantities[f"{section}.{entry.name}.{key}"] = (number, spec)
                else:
                    self._quantities[f"{section}.{entry.name}"] = (typing.get_origin(hint) or hint, spec)

    @classmethod
    def of(cls, name: str, label: str) -> _Schema:
        """The schema of a generation, made once."""
        if name not in GENERATIONS:
            known = ", ".join(GENERATIONS)
            raise _schema_error("generation", f"is {name!r}, which is not known", label, f"known generations: {known}")
        if name not in _SCHEMAS:
            _SCHEMAS[name] = cls(GENERATIONS[name])
        return _SCHEMAS[name]

    def entries(self, layer: _Layer) -> dict[str, Field]:
        """The constants of a file by dotted path."""
        found: dict[str, Field] = {}
        for section, content in layer.content.items():
            if section not in self.generation.sections:
                near = difflib.get_close_matches(section, [*self.generation.sections, *_HEADER], n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise _schema_error(section, f"is neither a section nor a header key{hint}", layer.label)
            if not isinstance(content, dict):
                raise _schema_error(section, "must be a table", layer.label)
            self._read_section(section, content, found, layer.label)
        return found

    def _read_section(self, section: str, content: dict[str, Any], found: dict[str, Field], label: str) -> None:
        known = {path: spec for path, spec in self._quantities.items() if path.startswith(section + ".")}
        tables = {path.rsplit(".", 1)[0] for path in known if path.count(".") == 2}
        for key, entry in content.items():
            path = f"{section}.{key}"
            if path in tables:
                if not isinstance(entry, dict):
                    raise _schema_error(path, "must be a table of constants", label)
                children = {f"{path}.{child}": value for child, value in entry.items()}
            else:
                children = {path: entry}
            for child, value in children.items():
                if child not in known:
                    error = unknown_field(child, known, label)
                    raise _schema_error(child, "is not in the schema", label, error.remedy)
                found[child] = _entry(child, value, *known[child], label)

    def override(self, path: str, value: Scalar, entries: Mapping[str, Field], where: str) -> Field:
        """The constant that an override sets."""
        if path not in self._quantities:
            section, _, key = path.partition(".")
            derived = getattr(self.generation.sections.get(section), "DERIVED", {})
            if key in derived:
                raise WordlineError(
                    "machine-override",
                    f"{path} is derived and cannot be set",
                    where=where,
                    remedy=f"set the fields it follows from: {derived[key][1]}",
                )
            raise unknown_field(path, self._quantities, where)
        kind, spec = self._quantities[path]
        problem, checked = _check(_parse(value, kind) if isinstance(value, str) else value, kind, spec)
        if problem:
            raise WordlineError("machine-override", f"{path} {problem}", where=where)
        before = entries.get(path)
        was = f" (was {_text(before.value)}: {before.source})" if before else ""
        return Field(checked, spec.unit, f"override{was}", "override" if spec.graded else "")


_SCHEMAS: dict[str, _Schema] = {}


def _entry(path: str, entry: Any, kind: type, spec: Quantity, label: str) -> Field:
    keys = _ENTRY | {"confidence"} if spec.graded else _ENTRY
    if not isinstance(entry, dict):
        form = ", ".join(f"{key} = ..." if key == "value" else f'{key} = "..."' for key in _ORDER if key in keys)
        raise _schema_error(path, "is a bare value", label, f"write {{ {form} }}")
    missing = sorted(keys - set(entry))
    if missing:
        raise _schema_error(path, f"lacks {' and '.join(missing)}", label)
    extra = sorted(set(entry) - keys)
    if extra:
        raise _schema_error(path, f"has the unknown key {extra[0]!r}", label)
    if entry["unit"] != spec.unit:
        raise _schema_error(path, f"has the unit {entry['unit']!r}, the schema says {spec.unit!r}", label)
    source = entry["source"]
    if not isinstance(source, str) or not source.strip():
        raise _schema_error(path, "has no source", label)
    confidence = entry.get("confidence", "")
    if spec.graded and confidence not in CONFIDENCE:
        words = ", ".join(CONFIDENCE)
        raise _schema_error(path, f"must have a confidence of {words}, not {confidence!r}", label)
    problem, value = _check(entry["value"], kind, spec)
    if problem:
        raise _schema_error(path, problem, label)
    return Field(value, spec.unit, source, confidence)


def _parse(text: str, kind: type) -> Any:
    """Text of a command line as the type of the field; text that does not parse is left to the type check."""
    try:
        if kind is int:
            return int(text, 0)
        if kind is float:
            return float(text)
    except ValueError:
        return text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is tuple:
        return text.split(",")
    return text


def _check(value: Any, kind: type, spec: Quantity) -> tuple[str, Any]:
    """(problem, value as stored); the problem is empty if the value is of the type and in range."""
    if kind is tuple:
        if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
            return "must be a non-empty list of names", value
        unknown = [item for item in value if item not in spec.words]
        if unknown:
            return f"must be among {', '.join(spec.words)}, not {unknown[0]!r:.60}", value
        return "", tuple(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        return f"must be {_KINDS[kind]}, not {value!r:.60}", value
    if spec.words and value not in spec.words:
        return f"must be one of {', '.join(spec.words)}, not {value!r:.60}", value
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be finite, not {value!r}", value
    if (
        isinstance(value, int | float)
        and spec.low is not None
        and spec.high is not None
        and not spec.low <= value <= spec.high
    ):
        return f"must be between {spec.low:,.12g} and {spec.high:,.12g}, not {value!r:.60}", value
    return "", value


def _build(section: str, kind: type, entries: Mapping[str, Field], label: str) -> Any:
    values: dict[str, Any] = {}
    for entry in fields(kind):
        spec: Quantity = entry.metadata["quantity"]
        paths = [f"{section}.{entry.name}.{key}" for key in spec.keys] or [f"{section}.{entry.name}"]
        for path in paths:
            if path not in entries:
                raise _schema_error(path, "is missing", label)
        if spec.keys:
            numbers = [cast(float, entries[path].value) for path in paths]
            values[entry.name] = Table(dict(zip(spec.keys, numbers, strict=True)))
        else:
            values[entry.name] = entries[paths[0]].value
    return kind(**values)


def _check_together(
    generation: Generation, sections: Mapping[str, Any], applied: Mapping[str, Scalar], source: _Source
) -> None:
    """Relations between fields that every part of wordline relies on."""
    organisation = sections["organisation"]
    problems = []
    if organisation.banks % organisation.bank_groups:
        problems.append("organisation.banks must be a multiple of organisation.bank_groups")
    problems += generation.problems(sections)
    if problems:
        code = "machine-override" if applied else "machine-schema"
        raise WordlineError(code, "; ".join(problems), where=source.label)


def _schema_error(path: str, problem: str, label: str, remedy: str | None = None) -> WordlineError:
    return WordlineError("machine-schema", f"{path} {problem}", where=label, remedy=remedy)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
