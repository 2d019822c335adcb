"""Check that a graph is well formed. Run after every pass."""

from __future__ import annotations

from collections.abc import Sequence

from wordline.errors import WordlineError
from wordline.graph.ir import Graph, Op, Value
from wordline.graph.opdef import ShapeError
from wordline.graph.registry import infer, lookup


def verify(graph: Graph) -> None:
    """Check single assignment, definition before use, every operation against the registry, constants and outputs.

    Raises:
        WordlineError: "invalid-graph", naming the operation and its source location.
    """
    defined: set[Value] = set()
    ids: set[int] = set()
    layers: set[object] = set()

    def define(values: Sequence[Value], where: str) -> None:
        for value in values:
            if value.id in ids:
                raise _invalid(f"value %{value.id} is defined twice", where)
            ids.add(value.id)
            defined.add(value)

    define(graph.inputs, graph.name)
    if len({value.name for value in graph.inputs}) < len(graph.inputs):
        raise _invalid("two inputs have one name", graph.name)
    for op in graph.ops:
        where = f"{op.kind}{f' at {op.loc}' if op.loc else ''}"
        for value in op.operands:
            if value not in defined:
                raise _invalid(f"operand %{value.id} is used before it is defined", where)
        if len(op.results) != 1:
            raise _invalid(f"{op.kind} has {len(op.results)} results instead of one", where)
        try:
            _check_type(graph, op)
        except ShapeError as error:
            raise _invalid(str(error), where) from error
        if op.kind == "attention":
            if op.attrs["layer"] in layers:
                raise _invalid(f"two attentions own the cache of layer {op.attrs['layer']}", where)
            layers.add(op.attrs["layer"])
        define(op.results, where)
    if layers and "position" not in {value.name for value in graph.inputs}:
        raise _invalid("attention needs the graph input 'position'", graph.name)
    for name, value in graph.outputs.items():
        if value not in defined:
            raise _invalid(f"output '{name}' is never defined", graph.name)


def _check_type(graph: Graph, op: Op) -> None:
    definition = lookup(op.kind)
    types = [value.type for value in op.operands]
    declared = op.result.type
    if definition.infer is not None:
        inferred = infer(op.kind, types, op.attrs)
        if inferred != declared:
            raise ShapeError(f"{op.kind} gives {inferred}, the graph says {declared}")
        return
    definition.check(types, op.attrs)
    if ("name" in op.attrs) == ("value" in op.attrs):
        raise ShapeError("a constant has either a name or a value")
    if "value" in op.attrs:
        wants_float = declared.is_float
        if declared.rank or declared.dtype == "bool" or isinstance(op.attrs["value"], float) != wants_float:
            raise ShapeError(f"the value {op.attrs['value']!r} is no {declared}")
        return
    name = str(op.attrs["name"])
    if name not in graph.constants:
        raise ShapeError(f"there is no constant '{name}'")
    constant = graph.constants[name]
    if constant.type != declared:
        raise ShapeError(f"constant '{name}' has type {constant.type}, the graph says {declared}")
    if constant.data is not None and constant.data.shape != declared.shape:
        raise ShapeError(f"constant '{name}' holds data of shape {list(constant.data.shape)} for type {declared}")


def _invalid(what: str, where: str) -> WordlineError:
    return WordlineError("invalid-graph", what, where=where, remedy="this is a fault of the pass that built the graph")
