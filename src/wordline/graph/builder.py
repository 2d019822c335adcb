"""Build graphs: infer types, share equal operations, apply rewrite rules on the way, drop what no output needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from wordline.errors import WordlineError
from wordline.graph.ir import Attr, Constant, Graph, Op, Value
from wordline.graph.opdef import ShapeError
from wordline.graph.registry import infer, lookup
from wordline.graph.types import DType, TensorType
from wordline.numerics.formats import round_bf16

Rule = Callable[["GraphBuilder", str, tuple[Value, ...], dict[str, Attr]], Value | None]
"""A rewrite: the value that replaces the operation about to be built, or None to leave it. A rule builds with the same
builder, so its result is simplified in turn; it must make progress (never rebuild what it was given)."""


class GraphBuilder:
    """Collects operations in program order.

    Args:
        name: name of the graph.
        rules: rewrites to try, in order, on every operation before it is built.

    Attributes:
        constants: the named constants declared so far.
        loc: source location given to the operations built next; see `at`.
    """

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        self.name = name
        self.loc = ""
        self.constants: dict[str, Constant] = {}
        self._rules = tuple(rules)
        self._inputs: list[Value] = []
        self._ops: list[Op] = []
        self._producers: dict[Value, Op] = {}
        self._known: dict[tuple[object, ...], Value] = {}
        self._next_id = 0

    @contextmanager
    def at(self, loc: str) -> Iterator[None]:
        """Operations built inside carry this location."""
        before, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = before

    def input(self, name: str, type: TensorType) -> Value:
        """Declare the next run-time input."""
        value = self._value(type, name)
        self._inputs.append(value)
        return value

    def scalar(self, value: float, dtype: DType) -> Value:
        """A constant of the empty shape; a float is rounded to its type."""
        number: Attr
        if dtype == "f32":
            number = float(np.float32(value))
        elif dtype == "bf16":
            number = float(round_bf16(np.float32(value)))
        else:
            number = int(value)
        return self._emit("constant", (), {"value": number}, TensorType(dtype))

    def constant(self, name: str, constant: Constant) -> Value:
        """A named constant; declares it if it is new."""
        self.constants.setdefault(name, constant)
        return self._emit("constant", (), {"name": name}, constant.type)

    def op(self, kind: str, *operands: Value, **attrs: Attr) -> Value:
        """Build an operation, or the value that the rules or an equal earlier operation give for it.

        Raises:
            WordlineError: "invalid-graph": the operands or attributes break the operation's rules.
        """
        for rule in self._rules:
            replacement = rule(self, kind, operands, attrs)
            if replacement is not None:
                return replacement
        return self._emit(kind, operands, attrs, self.infer(kind, operands, attrs))

    def infer(self, kind: str, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> TensorType:
        """The type `op` would give.

        Raises:
            WordlineError: "invalid-graph".
        """
        try:
            return infer(kind, [value.type for value in operands], attrs)
        except ShapeError as error:
            raise WordlineError("invalid-graph", str(error), where=self.loc or self.name) from error

    def producer(self, value: Value) -> Op | None:
        """The operation that defines a value; None for inputs."""
        return self._producers.get(value)

    def matches(self, value: Value, kind: str) -> Op | None:
        """The operation that defines a value if it is of that kind."""
        op = self._producers.get(value)
        return op if op is not None and op.kind == kind else None

    def scalar_value(self, value: Value) -> float | None:
        """The number behind a scalar constant, None for anything else."""
        op = self.matches(value, "constant")
        number = op.attrs.get("value") if op is not None else None
        return float(number) if isinstance(number, int | float) else None

    def finish(self, outputs: Mapping[str, Value]) -> Graph:
        """The graph of these outputs: without dead operations and constants, values numbered from 0."""
        live: set[Value] = set(outputs.values())
        for op in reversed(self._ops):
            if op.result in live:
                live.update(op.operands)
        renamed = {value: Value(number, value.type, value.name) for number, value in enumerate(self._inputs)}
        ops: list[Op] = []

        def keep(op: Op) -> None:
            # Constants come just before their first use, which reads better than one block at the start.
            for value in op.operands:
                if value not in renamed:
                    keep(self._producers[value])
            renamed[op.result] = Value(len(renamed), op.result.type, op.result.name)
            operands = tuple(renamed[value] for value in op.operands)
            ops.append(Op(op.kind, operands, op.attrs, (renamed[op.result],), op.loc))

        for op in self._ops:
            if op.result in live and op.kind != "constant":
                keep(op)
        for value in outputs.values():
            if value not in renamed:
                keep(self._producers[value])
        used = {str(op.attrs["name"]) for op in ops if op.kind == "constant" and "name" in op.attrs}
        return Graph(
            self.name,
            tuple(renamed[value] for value in self._inputs),
            tuple(ops),
            {name: renamed[value] for name, value in outputs.items()},
            {name: constant for name, constant in self.constants.items() if name in used},
        )

    def _value(self, type: TensorType, name: str = "") -> Value:
        value = Value(self._next_id, type, name)
        self._next_id += 1
        return value

    def _emit(self, kind: str, operands: tuple[Value, ...], attrs: Mapping[str, Attr], type: TensorType) -> Value:
        # Types distinguish 1 and 1.0; repr distinguishes 0.0 and -0.0.
        key = (kind, operands, tuple(sorted((name, repr(value)) for name, value in attrs.items())), type)
        if key in self._known:
            return self._known[key]
        value = self._value(type)
        op = Op(kind, operands, dict(attrs), (value,), self.loc)
        self._ops.append(op)
        self._producers[value] = op
        if lookup(kind).group != "state":
            self._known[key] = value
        return value


def rebuild(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Replay a graph through a builder with the given rules; equal operations are shared, dead ones dropped."""
    builder = GraphBuilder(graph.name, rules)
    mapped: dict[Value, Value] = {value: builder.input(value.name, value.type) for value in graph.inputs}
    for op in graph.ops:
        with builder.at(op.loc):
            if op.kind == "constant" and "name" in op.attrs:
                name = str(op.attrs["name"])
                mapped[op.result] = builder.constant(name, graph.constants[name])
            elif op.kind == "constant":
                number = op.attrs["value"]
                assert isinstance(number, int | float)  # schema, checked by the verifier
                mapped[op.result] = builder.scalar(number, op.result.type.dtype)
            else:
                operands = tuple(mapped[value] for value in op.operands)
                mapped[op.result] = builder.op(op.kind, *operands, **dict(op.attrs))
    return builder.finish({name: mapped[value] for name, value in graph.outputs.items()})
