"""The graph: a list of operations in static single assignment form.

A graph is immutable by convention: rewrites build a new one with `wordline.graph.builder.GraphBuilder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wordline.graph.types import Dim, TensorType

Attr = bool | int | float | str | tuple[Dim, ...]
"""An attribute: a number, a string, or a tuple of dimensions (plain integers included)."""


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One tensor of the graph. Two values are the same only if they are the same object."""

    id: int
    type: TensorType
    name: str = ""

    def __str__(self) -> str:
        return f"%{self.name or self.id}"


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operation. `loc` says where in the model it came from ("module path, source file:line")."""

    kind: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Attr]
    results: tuple[Value, ...]
    loc: str = ""

    @property
    def result(self) -> Value:
        """The only result (every operation of the registry has exactly one)."""
        (value,) = self.results
        return value


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor known before the first step.

    Attributes:
        type: element type and (static) shape.
        data: the elements, float32 for both float types; None while the weights are unbound.
        inline: True for tables that follow from the model's configuration (rotary frequencies): they belong to the
            program and are printed with it. False for weights.
    """

    type: TensorType
    data: NDArray[np.generic] | None
    inline: bool = False


@dataclass(slots=True)
class Graph:
    """A decode step.

    Attributes:
        name: name of the model.
        inputs: run-time inputs, in argument order, named ("token", "position").
        ops: operations, each after the operations it uses.
        outputs: named results ("logits", "next_token").
        constants: tensors that `constant` operations refer to by name.
    """

    name: str
    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: dict[str, Value]
    constants: dict[str, Constant] = field(default_factory=dict)

    def producers(self) -> dict[Value, Op]:
        """The operation that defines each value (inputs have none)."""
        return {value: op for op in self.ops for value in op.results}

    def users(self) -> dict[Value, list[Op]]:
        """The operations that read each value, in program order, once per operation; values without users included."""
        users: dict[Value, list[Op]] = {value: [] for value in self.inputs}
        for op in self.ops:
            for value in dict.fromkeys(op.operands):
                users[value].append(op)
            for value in op.results:
                users[value] = []
        return users

    def input(self, name: str) -> Value:
        """The input of that name.

        Raises:
            KeyError: there is none.
        """
        for value in self.inputs:
            if value.name == name:
                return value
        raise KeyError(name)
