"""Vector regions of a graph: which operations are generated together, and what they must deliver.

Operations on values that are not in memory yet are collected backwards from what a bank operation (or the end of the
step) needs. Views belong to every region that looks through them; anything else is computed once, in the region that
first needs it, and delivered in each form that somebody outside still wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from wordline.graph.ir import Graph, Op, Value
from wordline.graph.registry import lookup


class Form(Enum):
    """How a value is delivered in scratch."""

    F32 = "f32, contiguous on channel 0"
    BF16_EVERYWHERE = "bf16, contiguous in every channel, padded with zeros to whole columns"
    INDEX = "an index in a shared register"


@dataclass(frozen=True, slots=True)
class Region:
    """``ops`` in program order, values that exist already (``inputs``), and what is wanted (``demands``)."""

    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    demands: tuple[tuple[Value, Form], ...]


VECTOR_GROUPS = ("elementwise", "reduction", "view")


def group_of(op: Op) -> str:
    """The group of the registry that an operation is in."""
    return lookup(op.kind).group


class RegionFinder:
    """Finds regions of one graph as values come into being (``have``)."""

    def __init__(self, graph: Graph) -> None:
        self._producers = graph.producers()
        self._users = graph.users()
        self._order = {op: index for index, op in enumerate(graph.ops)}
        self._outputs = set(graph.outputs.values())

    def producer(self, value: Value) -> Op | None:
        """The operation that defines a value; None for inputs of the graph."""
        return self._producers.get(value)

    def root(self, value: Value) -> Value:
        """``value`` with reshapes, which change no element, looked through."""
        op = self._producers.get(value)
        while op is not None and op.kind == "reshape":
            value = op.operands[0]
            op = self._producers.get(value)
        return value

    def region(self, wanted: Sequence[tuple[Value, Form]], have: set[Value]) -> Region:
        """The region that computes ``wanted`` from values in ``have``, constants and inputs of the graph."""
        inside: set[Op] = set()
        inputs: dict[Value, None] = {}
        stack = [value for value, _ in wanted]
        while stack:
            value = stack.pop()
            op = self._producers.get(value)
            if op is not None and op.kind == "constant" and "value" in op.attrs:
                inside.add(op)
                continue
            if value in have or op is None or group_of(op) not in VECTOR_GROUPS:
                inputs[value] = None
                continue
            if op not in inside:
                inside.add(op)
                stack.extend(op.operands)
        ops = tuple(sorted(inside, key=lambda op: self._order[op]))
        demands = dict.fromkeys(wanted)
        for op in ops:
            if group_of(op) not in ("view", "source"):
                for form in self._outside(op.result, inside):
                    demands[(op.result, form)] = None
        return Region(ops, tuple(inputs), tuple(demands))

    def _outside(self, value: Value, inside: set[Op]) -> Iterable[Form]:
        """Forms in which users outside the region want ``value``, views looked through."""
        forms: dict[Form, None] = {}
        stack = [value]
        while stack:
            current = stack.pop()
            if current in self._outputs and current is not value:
                continue
            for user in self._users[current]:
                group = group_of(user)
                if group == "view":
                    stack.append(user.result)
                elif group in VECTOR_GROUPS and user not in inside:
                    forms[Form.F32] = None
        return forms

    def state_ops(self) -> set[Op]:
        """Operations that some attention (and so the KV cache) depends on, attentions included."""
        found: set[Op] = set()
        stack = [op for op in self._order if op.kind == "attention"]
        while stack:
            op = stack.pop()
            if op not in found:
                found.add(op)
                stack.extend(p for v in op.operands if (p := self._producers.get(v)) is not None)
        return found
