"""ATen graph of an exported decode step -> graph IR in canonical form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from wordline.errors import WordlineError
from wordline.frontend.aten import ATEN, Lowering, UnsupportedError, dtype_of
from wordline.frontend.export import ExportedStep
from wordline.graph.builder import GraphBuilder
from wordline.graph.canonicalise import CANONICAL_RULES, canonicalise
from wordline.graph.ir import Constant, Graph, Value
from wordline.graph.types import Dim, SymDim, TensorType

_BATCH = SymDim("batch")
_SHOWN_OPERATIONS = 40
_IGNORED = frozenset({"aten._assert_tensor_metadata.default", "aten.sym_size.int", "aten._assert_scalar.default"})
"""Calls that check or measure but compute no tensor."""


def lower(step: ExportedStep, name: str, weights: Mapping[str, NDArray[np.generic]] | None) -> Graph:
    """Lower an exported decode step.

    Args:
        step: the traced model.
        name: name of the graph.
        weights: float32 tensors by shared parameter name; None leaves every weight unbound.

    Raises:
        WordlineError: "unsupported-operations": lists every operation that has no lowering, with source line and shape.
    """
    return _Lowerer(step, name, weights).run()


class _Lowerer(Lowering):
    def __init__(self, step: ExportedStep, name: str, weights: Mapping[str, NDArray[np.generic]] | None) -> None:
        super().__init__(GraphBuilder(name, CANONICAL_RULES))
        self._step = step
        self._weights = weights
        self._values: dict[Node, Value | tuple[Value, ...]] = {}
        self._unsupported: Counter[str] = Counter()

    def run(self) -> Graph:
        graph = self._step.program.graph
        signature = self._step.program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        lifted = {**signature.inputs_to_lifted_tensor_constants}
        outputs: dict[str, Value] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                if node.name in names:
                    self._values[node] = self._named(node, names[node.name].removeprefix("model."))
                elif node.name in lifted:
                    self._values[node] = self._lifted(lifted[node.name])
                else:
                    self._values[node] = self.b.input(node.name, self.type_of(node))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                logits, next_token = (self._values[value] for value in node.args[0])
                assert isinstance(logits, Value)
                assert isinstance(next_token, Value)
                outputs = {"logits": logits, "next_token": next_token}
        self._report()
        # A rule can need an operation that only a later one completes; one more pass reaches the fixed point.
        return canonicalise(self.b.finish(outputs))

    def type_of(self, node: Node) -> TensorType:
        """Type of a node's result; the only symbol is the batch."""
        fake = node.meta["val"]
        return TensorType(dtype_of(fake.dtype), tuple(_dim(size) for size in fake.shape))

    def _named(self, node: Node, name: str) -> Value | tuple[Value, ...]:
        if name in self._step.tables:
            return self._table(name, self._step.tables[name])
        if name not in self._step.aliases:
            if node.users:
                self._unsupported[f"a buffer at {name} (its value does not follow from the configuration)"] += 1
            return self._stand_in(node)
        shared = self._step.aliases[name]
        data = None if self._weights is None else self._weights[shared]
        return self.b.constant(shared, Constant(TensorType("f32", self._step.parameters[shared]), data))

    def _lifted(self, name: str) -> Value:
        tensor = self._step.program.constants[name]
        assert isinstance(tensor, torch.Tensor)
        return self._table(name, tensor.detach().numpy())

    def _table(self, name: str, data: NDArray[np.generic]) -> Value:
        dtype = dtype_of(torch.from_numpy(np.asarray(data)).dtype)
        if data.ndim == 0 and dtype != "bool":
            return self.b.scalar(data.item(), dtype)
        return self.b.constant(name, Constant(TensorType(dtype, data.shape), data, inline=True))

    def _call(self, node: Node) -> None:
        target = str(node.target)
        if target in _IGNORED or not _has_elements(node.meta.get("val")):
            return
        loc = source_of(node)
        with self.b.at(loc):
            try:
                rule = ATEN.get(target)
                if rule is None:
                    raise UnsupportedError("")
                self._values[node] = rule(self, node, *self._resolve(node.args), **self._resolve(node.kwargs))
            except UnsupportedError as error:
                self._unsupported[self._describe(node, target, loc, str(error))] += 1
                self._values[node] = self._stand_in(node)
            except (TypeError, WordlineError) as error:
                # An overload called with arguments that its rule does not take, or shapes that the graph does not.
                reason = error.what if isinstance(error, WordlineError) else str(error).partition(") ")[2]
                self._unsupported[self._describe(node, target, loc, reason)] += 1
                self._values[node] = self._stand_in(node)

    def _resolve(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self._values.get(argument, argument)
        if isinstance(argument, list | tuple):
            return [self._resolve(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self._resolve(item) for key, item in argument.items()}
        return argument

    def _stand_in(self, node: Node) -> Value | tuple[Value, ...]:
        """A value of the right type, so that the operations after an unsupported one are checked too."""
        fake = node.meta["val"]
        many = fake if isinstance(fake, list | tuple) else [fake]
        values = []
        for item in many:
            try:
                dtype = dtype_of(item.dtype)
            except UnsupportedError:
                dtype = "f32"
            values.append(self.b.input("unsupported", TensorType(dtype, tuple(_dim(size) for size in item.shape))))
        return tuple(values) if isinstance(fake, list | tuple) else values[0]

    def _describe(self, node: Node, target: str, loc: str, reason: str) -> str:
        # Layers repeat their operations: one line for all layers, without the layer number.
        place = re.sub(r"\.\d+\.", ".*.", loc)
        fakes = node.meta["val"]
        shapes = ", ".join(
            f"{str(fake.dtype).removeprefix('torch.')}[{', '.join(str(_dim(size)) for size in fake.shape)}]"
            for fake in (fakes if isinstance(fakes, list | tuple) else [fakes])
        )
        return f"{target} -> {shapes} at {place}{f' ({reason})' if reason else ''}"

    def _report(self) -> None:
        if not self._unsupported:
            return
        lines = [f"{text}{f', {count} times' if count > 1 else ''}" for text, count in self._unsupported.items()]
        if len(lines) > _SHOWN_OPERATIONS:
            lines = [*lines[:_SHOWN_OPERATIONS], f"and {len(lines) - _SHOWN_OPERATIONS} more"]
        total = sum(self._unsupported.values())
        raise WordlineError(
            "unsupported-operations",
            f"{total} operation{'s' if total > 1 else ''} of the model '{self.b.name}' cannot be lowered:\n    "
            + "\n    ".join(lines),
            where=next(iter(self._unsupported)).partition(" at ")[2],
            remedy="use a model without them, or declare a lowering in wordline/frontend/aten.py",
        )


def _has_elements(result: object) -> bool:
    """Whether a node computes a tensor, or several; empty tensors do not count."""
    if isinstance(result, torch.Tensor):
        return all(not isinstance(size, int) or size > 0 for size in result.shape)
    return isinstance(result, list | tuple)


def _dim(size: int | torch.SymInt) -> Dim:
    """A number, the batch, or a symbol of its own for any other expression (which shape rules then refuse)."""
    if isinstance(size, int):
        return size
    return _BATCH if size.node.expr.is_symbol else SymDim(re.sub(r"s\d+", _BATCH.name, str(size.node.expr)))


def source_of(node: Node) -> str:
    """Where a node comes from: "model.layers.0.mlp, modeling_llama.py:155"."""
    parts = []
    stack = node.meta.get("nn_module_stack")
    if stack:
        path = next(reversed(stack.values()))[0]
        parts.append(path.removeprefix("L['self'].model").removeprefix("model").lstrip(".") or "model")
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    if frames:
        file, line = frames[-1]
        parts.append(f"{file.rpartition('/')[2]}:{line}")
    return ", ".join(parts)
