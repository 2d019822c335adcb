"""Reference interpreter: one decode step at a time over NumPy, KV caches included."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wordline.errors import WordlineError
from wordline.graph.ir import Graph, Op
from wordline.graph.opdef import Array
from wordline.graph.registry import lookup
from wordline.graph.types import Dim, SymDim
from wordline.numerics.formats import round_bf16


class LayerCache:
    """Keys and values of one layer: [batch, kv_heads, positions, head] float32 arrays that double when full."""

    def __init__(self) -> None:
        self._keys: Array | None = None
        self._values: Array | None = None

    def append(self, position: NDArray[np.int32], key: Array, value: Array) -> None:
        """Write key and value ([batch, kv_heads, head]) of each lane at that lane's position."""
        needed = int(position.max()) + 1
        self._keys = _room(self._keys, key, needed)
        self._values = _room(self._values, value, needed)
        lanes = np.arange(len(position))
        self._keys[lanes, :, position] = key
        self._values[lanes, :, position] = value

    def window(self, lane: int, first: int, last: int) -> tuple[Array, Array]:
        """Keys and values of one lane at positions first..last: two [kv_heads, last - first + 1, head] arrays."""
        # Attention appends before it reads.
        assert self._keys is not None
        assert self._values is not None
        return self._keys[lane, :, first : last + 1], self._values[lane, :, first : last + 1]


def _room(store: Array | None, rows: Array, needed: int) -> Array:
    """The store with at least `needed` positions; unwritten ones are zero."""
    batch, heads, head = rows.shape
    held = 0 if store is None else store.shape[2]
    if store is not None and held >= needed:
        return store
    grown = np.zeros((batch, heads, max(needed, 2 * held, 16), head), np.float32)
    if store is not None:
        grown[:, :, :held] = store
    return grown


class Interpreter:
    """Executes a graph step by step. Floats are float32; values of type bf16 are float32 numbers that bf16 can hold.

    Args:
        graph: a verified graph with every constant bound.

    Raises:
        WordlineError: "unbound-weights": a constant has no data.
    """

    def __init__(self, graph: Graph) -> None:
        unbound = [name for name, constant in graph.constants.items() if constant.data is None]
        if unbound:
            raise WordlineError(
                "unbound-weights",
                f"the graph '{graph.name}' cannot be executed: {len(unbound)} of its constants have no data",
                where=unbound[0],
                remedy="load the model with its weights, not from a bare configuration",
            )
        self._graph = graph
        self._caches: dict[int, LayerCache] = {}
        self._symbols: dict[str, int] = {}
        self._position: NDArray[np.int32] = np.zeros(0, np.int32)

    @property
    def position(self) -> NDArray[np.int32]:
        """Position of each lane in the current step."""
        return self._position

    def dims(self, shape: tuple[Dim, ...]) -> tuple[int, ...]:
        """The shape with the symbols of the current step replaced."""
        return tuple(dim if isinstance(dim, int) else self._symbols[dim.name] for dim in shape)

    def constant(self, name: str) -> Array:
        """Elements of a named constant."""
        data = self._graph.constants[name].data
        assert data is not None  # checked by the constructor
        return data

    def cache(self, layer: int) -> LayerCache:
        """The cache of a layer, created empty."""
        return self._caches.setdefault(layer, LayerCache())

    def reset(self) -> None:
        """Forget every cached key and value."""
        self._caches.clear()

    def step(self, token: ArrayLike, position: ArrayLike) -> dict[str, Array]:
        """Run one decode step.

        Args:
            token: token id of each lane, [batch].
            position: position of each lane, [batch]; the caches hold the positions before it.

        Returns:
            The graph's outputs by name.

        Raises:
            WordlineError: "invalid-input": shapes that do not fit the graph's inputs.
        """
        return self.run({"token": np.asarray(token, np.int32), "position": np.asarray(position, np.int32)})

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Like `step`, for graphs with other inputs; missing inputs raise KeyError."""
        self._symbols = {}
        values: dict[int, Array] = {}
        for value in self._graph.inputs:
            self._bind(value.name, value.type.shape, inputs[value.name].shape)
            values[value.id] = inputs[value.name]
        if "position" in inputs:
            self._position = inputs["position"]
        last_use = self._last_uses()
        for index, op in enumerate(self._graph.ops):
            values[op.result.id] = self._execute(op, values)
            for operand in op.operands:
                if last_use.get(operand.id) == index:
                    values.pop(operand.id, None)
        return {name: values[value.id] for name, value in self._graph.outputs.items()}

    def _execute(self, op: Op, values: dict[int, Array]) -> Array:
        with np.errstate(all="ignore"):
            array = lookup(op.kind).reference([values[value.id] for value in op.operands], op.attrs, self)
        # Sums depend on the memory order of their operands; values, unlike NumPy's views, have one order only.
        return np.asarray(round_bf16(array) if op.result.type.dtype == "bf16" else array, order="C")

    def _bind(self, name: str, shape: tuple[Dim, ...], actual: tuple[int, ...]) -> None:
        fits = len(shape) == len(actual) and all(
            self._symbols.setdefault(dim.name, size) == size if isinstance(dim, SymDim) else dim == size
            for dim, size in zip(shape, actual, strict=True)
        )
        if not fits:
            expected = ", ".join(str(dim) for dim in shape)
            raise WordlineError(
                "invalid-input", f"input '{name}' has shape {list(actual)}, the graph takes [{expected}]", where=name
            )

    def _last_uses(self) -> dict[int, int]:
        last = {operand.id: index for index, op in enumerate(self._graph.ops) for operand in op.operands}
        for value in self._graph.outputs.values():
            last.pop(value.id, None)
        return last
