"""Frozen dataclasses to JSON values and back, with every value checked against its type on the way in."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class RecordError(ValueError):
    """A JSON value that does not fit its record; the message names the path and the problem."""


def to_json(value: Any) -> Any:
    """A record as JSON values: dataclasses become objects, tuples arrays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], value: Any, path: str = "") -> T:
    """Read a record of type ``kind``. Whole numbers are never negative in a manifest, and must be whole.

    Raises:
        RecordError: a key is missing or unknown, or a value has the wrong type.
    """
    return typing.cast(T, _read(kind, value, path))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        if value is None and types.NoneType in arguments:
            return None
        return _read(next(a for a in arguments if a is not types.NoneType), value, path)
    if origin is tuple and arguments[-1] is Ellipsis:
        if not isinstance(value, list):
            raise RecordError(f"{path} must be an array")
        return tuple(_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise RecordError(f"{path} must be an object")
        return {key: _read(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    if is_dataclass(kind):
        return _read_record(typing.cast(type, kind), value, path)
    if type(value) is not kind or (kind is int and value < 0):
        wanted = {int: "a whole number from 0", str: "a text", bool: "true or false", float: "a number"}[kind]
        raise RecordError(f"{path} must be {wanted}, not {value!r:.60}")
    return value


def _read_record(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise RecordError(f"{path or 'it'} must be an object")
    names = [field.name for field in fields(kind)]
    prefix = f"{path}." if path else ""
    for name in names:
        if name not in value:
            raise RecordError(f"{prefix}{name} is missing")
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise RecordError(f"{prefix}{unknown[0]} is not a known key")
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], value[name], prefix + name) for name in names})
