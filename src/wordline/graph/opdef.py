"""How an operation of the graph is declared: schema, shape rule, NumPy reference and printable form in one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from wordline.graph.ir import Attr
from wordline.graph.types import Dim, TensorType

Array = NDArray[Any]
Group = Literal["source", "contraction", "state", "elementwise", "reduction", "view"]
AttrKind = Literal["int", "float", "number", "str", "dims"]


class ShapeError(ValueError):
    """Operand types or attributes that an operation does not accept; the text says which rule is broken."""


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute: what kind of value it takes and whether it can be left out."""

    kind: AttrKind
    required: bool = True
    meaning: str = ""

    def accepts(self, value: Attr) -> bool:
        match self.kind:
            case "int":
                return isinstance(value, int) and not isinstance(value, bool)
            case "float":
                return isinstance(value, float)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "str":
                return isinstance(value, str)
            case "dims":
                return isinstance(value, tuple)


class KVCache(Protocol):
    """Keys and values of one layer, one row a position."""

    def append(self, position: NDArray[np.int32], key: Array, value: Array) -> None:
        """Write key and value ([batch, kv_heads, head]) of each lane at that lane's position."""

    def window(self, lane: int, first: int, last: int) -> tuple[Array, Array]:
        """Keys and values of one lane at positions first..last: two [kv_heads, last - first + 1, head] arrays."""


class Step(Protocol):
    """What a reference may read besides its operands."""

    @property
    def position(self) -> NDArray[np.int32]:
        """Position of each lane, [batch]."""

    def dims(self, shape: tuple[Dim, ...]) -> tuple[int, ...]:
        """The shape with the symbols of this step replaced."""

    def constant(self, name: str) -> Array:
        """Elements of a named constant."""

    def cache(self, layer: int) -> KVCache:
        """The cache of a layer."""


ShapeRule = Callable[[Sequence[TensorType], Mapping[str, Attr]], TensorType]
Reference = Callable[[Sequence[Array], Mapping[str, Attr], Step], Array]


@dataclass(frozen=True, slots=True)
class OpDef:
    """Declaration of one operation kind.

    Attributes:
        kind: its name; "wordline.<kind>" in the text form.
        group: what kind of work it is; passes dispatch on this.
        operands: operand names; a last name that ends in "..." takes one or more.
        attrs: attribute schema.
        infer: result type from operand types and attributes; raises ShapeError. None when the type is declared with the
            operation instead (constants).
        reference: NumPy meaning, float types in float32.
        meaning: one sentence for the documentation.
        commutative: the two operands can be exchanged without changing a bit of the result.
    """

    kind: str
    group: Group
    operands: tuple[str, ...]
    infer: ShapeRule | None
    reference: Reference
    meaning: str
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    commutative: bool = False

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].endswith("...")

    @property
    def signature(self) -> str:
        """Printable form of the declaration: "attention(q, k, v; layer, scale, window?)"."""
        attrs = ", ".join(name if spec.required else f"{name}?" for name, spec in self.attrs.items())
        return f"{self.kind}({', '.join(self.operands)}{'; ' + attrs if attrs else ''})"

    def check(self, types: Sequence[TensorType], attrs: Mapping[str, Attr]) -> None:
        """Check the number of operands and the attributes against the schema.

        Raises:
            ShapeError: something is missing, unknown or of the wrong kind.
        """
        if len(types) < len(self.operands) or (len(types) > len(self.operands) and not self.variadic):
            wanted = ", ".join(self.operands) or "no operands"
            raise ShapeError(f"{self.kind} takes {wanted}; got {len(types)} operands")
        for name, spec in self.attrs.items():
            if name not in attrs:
                if spec.required:
                    raise ShapeError(f"{self.kind} needs the attribute '{name}'")
            elif not spec.accepts(attrs[name]):
                raise ShapeError(f"{self.kind}: attribute '{name}' must be {spec.kind}, got {attrs[name]!r}")
        unknown = sorted(set(attrs) - set(self.attrs))
        if unknown:
            raise ShapeError(f"{self.kind} has no attribute '{unknown[0]}'")
