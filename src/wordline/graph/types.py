"""Types of graph values: an element type and a shape whose dimensions are numbers or symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

DType = Literal["bf16", "f32", "i32", "i64", "bool"]

DTYPES: tuple[str, ...] = get_args(DType)
FLOATS: tuple[DType, ...] = ("bf16", "f32")
INTEGERS: tuple[DType, ...] = ("i32", "i64")

_ELEMENT_BYTES: dict[str, int] = {"bf16": 2, "f32": 4, "i32": 4, "i64": 8, "bool": 1}


@dataclass(frozen=True, slots=True)
class SymDim:
    """A dimension that is known only at run time, by name ("batch", "context")."""

    name: str

    def __str__(self) -> str:
        return self.name


Dim = int | SymDim
Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a value. A scalar has the empty shape."""

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic dimensions, in order of appearance, with repetitions."""
        return tuple(dim.name for dim in self.shape if isinstance(dim, SymDim))

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def static_elements(self) -> int:
        """Number of elements with every symbolic dimension counted as one."""
        return prod(dim for dim in self.shape if isinstance(dim, int))

    def concrete_shape(self, bindings: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with symbols replaced.

        Raises:
            KeyError: a symbol has no binding.
        """
        return tuple(dim if isinstance(dim, int) else bindings[dim.name] for dim in self.shape)

    def bytes(self, bindings: Mapping[str, int] | None = None) -> int:
        """Storage in bytes, unpadded; symbols as bound in `bindings`."""
        return prod(self.concrete_shape(bindings or {})) * _ELEMENT_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(dim) for dim in self.shape)}]"
