"""Longer models from a short trace: layers that are all alike are traced three times and repeated in the graph.

Tracing takes time for every layer, and adds nothing after the second that equals the one before. Repetition is only
done where it can be seen to be right: the second and third layer of the trace must be the same operations on the same
operands, one layer further.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from transformers import PretrainedConfig

from wordline.graph.ir import Attr, Constant, Graph, Op, Value

TRACED_LAYERS = 3
"""The first layer computes what all share, the second and third show what repeats."""
_LAYER = re.compile(r"(?<=\blayers\.)\d+\b")
ALIKE = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures whose layers differ in nothing but what ``layer_types`` says.
Source: transformers 5, modeling_llama.py, modeling_mistral.py, modeling_qwen2.py, modeling_qwen3.py."""


def layers_are_alike(config: PretrainedConfig) -> bool:
    """Whether a few layers of this model say what all of them do, and there are enough of them to be worth it."""
    types = set(getattr(config, "layer_types", None) or ())
    return config.model_type in ALIKE and len(types) <= 1 and config.num_hidden_layers > TRACED_LAYERS


def repeat_layers(graph: Graph, layers: int) -> Graph | None:
    """The graph of ``layers`` layers from the canonical one of three; None if its layers do not simply repeat."""
    repeated = _Repeated(graph)
    return repeated.extended(layers - TRACED_LAYERS) if repeated.sound() else None


def renamed(name: str, by: int) -> str:
    """``name`` with the number after each "layers" moved by ``by``."""
    return _LAYER.sub(lambda match: str(int(match.group()) + by), name)


def layer_of(name: str) -> int | None:
    """The number after "layers" in a name or a source location."""
    match = _LAYER.search(name)
    return None if match is None else int(match.group())


class _Repeated:
    """A graph whose operations ``start .. start + 2 * period`` are its second and third layer."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._at: dict[Value, int] = {op.result: index for index, op in enumerate(graph.ops)}
        self._at |= {value: -1 - index for index, value in enumerate(graph.inputs)}
        attentions = [index for index, op in enumerate(graph.ops) if op.kind == "attention"]
        first, last = (self._first_of(layer) for layer in (1, 2))
        self._start, self._period = first, last - first
        self._plausible = len(attentions) == TRACED_LAYERS and 0 < self._period == attentions[2] - attentions[1]

    def _first_of(self, layer: int) -> int:
        return next((i for i, op in enumerate(self._graph.ops) if layer_of(op.loc) == layer), 0)

    @property
    def _end(self) -> int:
        return self._start + 2 * self._period

    def sound(self) -> bool:
        """Whether the third layer is the second, one further, and the rest uses nothing of the second."""
        ops = self._graph.ops
        if not self._plausible or self._end > len(ops):
            return False
        if any(self._is_layer(op) for op in ops[self._end :]):
            return False
        middle = range(self._start, self._start + self._period)
        used = [value for op in ops[self._end :] for value in op.operands] + list(self._graph.outputs.values())
        if any(self._at[value] in middle for value in used):
            return False
        return all(self._follows(ops[i], ops[i + self._period]) for i in middle)

    @staticmethod
    def _is_layer(op: Op) -> bool:
        return layer_of(op.loc) is not None or layer_of(str(op.attrs.get("name", ""))) is not None

    def _follows(self, first: Op, second: Op) -> bool:
        if (first.kind, first.result.type, len(first.operands)) != (
            second.kind,
            second.result.type,
            len(second.operands),
        ):
            return False
        if renamed(first.loc, 1) != second.loc or _shifted(first.attrs, 1) != dict(second.attrs):
            return False
        pairs = zip(first.operands, second.operands, strict=True)
        return all(self._place(self._at[b]) == self._at[a] for a, b in pairs)

    def _place(self, at: int) -> int:
        """Where the second layer finds what the third has from operation ``at``."""
        return at if at < self._start else at - self._period

    def extended(self, more: int) -> Graph:
        """The graph with ``more`` layers after the third."""
        graph, shift = self._graph, more * self._period
        values = list(graph.inputs)
        ops: list[Op] = []

        def add(op: Op, by: int, layers: int) -> None:
            operands = tuple(
                value_at(at if at < self._start else at + by) for at in (self._at[value] for value in op.operands)
            )
            value = Value(len(values), op.result.type, op.result.name)
            values.append(value)
            ops.append(Op(op.kind, operands, _shifted(op.attrs, layers), (value,), renamed(op.loc, layers)))

        def value_at(at: int) -> Value:
            return ops[at].result if at >= 0 else graph.inputs[-1 - at]

        for op in graph.ops[: self._end]:
            add(op, 0, 0)
        for layer in range(1, more + 1):
            for op in graph.ops[self._end - self._period : self._end]:
                add(op, layer * self._period, layer)
        for op in graph.ops[self._end :]:
            add(op, shift, 0)
        outputs = {}
        for name, value in graph.outputs.items():
            at = self._at[value]
            outputs[name] = value_at(at if at < self._start else at + shift)
        return Graph(graph.name, graph.inputs, tuple(ops), outputs, _constants(graph.constants, more))


def _shifted(attrs: Mapping[str, Attr], by: int) -> dict[str, Attr]:
    """Attributes of the same operation ``by`` layers further."""
    shifted = dict(attrs)
    if "layer" in shifted:
        shifted["layer"] = int(str(shifted["layer"])) + by
    if "name" in shifted:
        shifted["name"] = renamed(str(shifted["name"]), by)
    return shifted


def _constants(constants: Mapping[str, Constant], more: int) -> dict[str, Constant]:
    """Constants in their order, those of the third layer followed by those of the layers after it."""
    last = {name: constant for name, constant in constants.items() if layer_of(name) == TRACED_LAYERS - 1}
    found: dict[str, Constant] = {}
    for name, constant in constants.items():
        found[name] = constant
        if last and name == next(reversed(last)):
            for layer in range(1, more + 1):
                found |= {renamed(n, layer): c for n, c in last.items()}
    return found
