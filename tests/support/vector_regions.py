"""A region of a graph with inputs in scratch: compiled, executed, compared with the graph's operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.support.vector_passes import VectorState
from wordline.compiler.kernel.passes import SharedScalar
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import Register, SharedRegister
from wordline.compiler.vector.expression import RegionInput
from wordline.compiler.vector.region import Destination, VectorCode, compile_region
from wordline.graph.builder import GraphBuilder
from wordline.graph.interpreter import Interpreter
from wordline.graph.ir import Graph, Op, Value
from wordline.graph.registry import lookup
from wordline.graph.types import DType, TensorType
from wordline.isa.controller.vector import OP_BY_NAME
from wordline.isa.controller.vector_pass import OPERATIONS
from wordline.machines import Machine
from wordline.numerics import vector as functions
from wordline.numerics.formats import round_bf16

Array = NDArray[np.generic]


def random_values(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Normal values of moderate size that bf16 can hold."""
    return round_bf16(np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32))


class Region:
    """Builds a graph and remembers where its inputs lie and what they hold."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.builder = GraphBuilder("region")
        self._where: dict[Value, RegionInput] = {}
        self._data: dict[str, Array] = {}

    def tensor(self, name: str, shape: tuple[int, ...], where: ScratchTensor, dtype: DType = "f32") -> Value:
        """A float input in scratch."""
        return self._input(name, TensorType(dtype, shape), where, random_values(shape, len(self._data)))

    def scalar_i32(self, name: str, register: Register, number: int) -> Value:
        """An int32 input of one element in a local register."""
        return self._input(name, TensorType("i32", (1,)), register, np.array([number], np.int32))

    def shared(self, name: str, where: SharedScalar, number: float) -> Value:
        """A float input of one element in a shared register."""
        return self._input(name, TensorType("f32", (1,)), where, np.array([number], np.float32))

    def _input(self, name: str, kind: TensorType, where: RegionInput, data: Array) -> Value:
        value = self.builder.input(name, kind)
        self._where[value] = where
        self._data[name] = data
        return value

    def check(self, outputs: Sequence[tuple[Value, Destination]], tolerance: float = 2e-6) -> VectorCode:
        """Compile, run, and compare every output with the interpreter (in units of the largest value); the code."""
        graph = self._finish(outputs)
        expected = Interpreter(graph).run(dict(self._data))
        code, state = self._run(graph, outputs)
        for at, (_, where) in enumerate(outputs):
            _compare(state, where, expected[f"out{at}"], tolerance)
        return code

    def check_exact(self, outputs: Sequence[tuple[Value, ScratchTensor]]) -> VectorCode:
        """Like :meth:`check`, but bit for bit against the unit's own functions applied one operation at a time."""
        graph = self._finish(outputs)
        expected = _unit_reference(graph, self._data)
        code, state = self._run(graph, outputs)
        for at, (_, where) in enumerate(outputs):
            value = expected[f"out{at}"].reshape(-1)
            value = round_bf16(value) if where.dtype == "bf16" else value
            for channel in range(state.channels if where.replicated else 1):
                stored = state.read(where, channel, padding=True)
                assert self.same(stored[: where.elements], value), f"{where}:\n{stored}\n{value}\n{code.block}"
                assert len(where.dims) > 1 or not stored[where.elements :].any()
        return code

    @staticmethod
    def same(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
        """Equal bits; every NaN counts as the same."""
        nan = np.isnan(a) & np.isnan(b)
        return bool((nan | (a.view(np.uint32) == b.view(np.uint32))).all())

    def _finish(self, outputs: Sequence[tuple[Value, Destination]]) -> Graph:
        return self.builder.finish({f"out{at}": value for at, (value, _) in enumerate(outputs)})

    def _run(self, graph: Graph, outputs: Sequence[tuple[Value, Destination]]) -> tuple[VectorCode, VectorState]:
        inputs = {graph.input(value.name): where for value, where in self._where.items()}
        demands = [(graph.outputs[f"out{at}"], where) for at, (_, where) in enumerate(outputs)]
        code = compile_region(self.machine, "region", graph.ops, inputs, demands)
        state = VectorState(self.machine)
        registers: dict[Register, int] = {}
        for value, where in inputs.items():
            data = self._data[value.name]
            if isinstance(where, ScratchTensor):
                state.write(where, data)
            elif isinstance(where, Register):
                registers[where] = int(data.item())
            elif isinstance(where, SharedScalar):
                state.shared[state.shared_number(where.register)] = data.astype(np.float32).view(np.int32)[0]
        state.run(code.block.items, registers)
        return code, state


def _compare(state: VectorState, where: Destination, expected: Array, tolerance: float) -> None:
    if isinstance(where, SharedRegister):
        word = state.read_shared(where)
        if expected.dtype == np.int32:
            assert word == expected.item()
        else:
            np.testing.assert_allclose(word.view(np.float32), expected.item(), rtol=tolerance)
        return
    scale = float(np.abs(expected).max()) + 1e-30
    # bf16 keeps 8 bits: half a unit in the last place is 2^-9 of the value.
    allowed = tolerance * scale if where.dtype == "f32" else tolerance * scale + np.abs(expected.reshape(-1)) * 2.0**-8
    for channel in range(state.channels if where.replicated else 1):
        stored = state.read(where, channel, padding=True)
        difference = np.abs(stored[: where.elements].astype(np.float64) - expected.reshape(-1))
        assert (difference <= allowed).all(), f"{where}: off by {difference.max()} of {scale}"
        if len(where.dims) == 1:
            assert not stored[where.elements :].any()


def _unit_reference(graph: Graph, data: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
    values: dict[Value, Array] = {value: data[value.name] for value in graph.inputs}
    with np.errstate(all="ignore"):
        for op in graph.ops:
            result = _unit_op(op, [values[x] for x in op.operands])
            values[op.result] = round_bf16(result) if op.result.type.dtype == "bf16" else result
    return {name: np.asarray(values[value], np.float32) for name, value in graph.outputs.items()}


class _Static:
    """What views ask of a step: shapes are numbers already."""

    @staticmethod
    def dims(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


def _unit_op(op: Op, args: list[Array]) -> Array:
    definition = lookup(op.kind)
    name = {"maximum": "max"}.get(op.kind, op.kind)
    if op.kind == "cast":
        return args[0]
    if op.kind == "neg":
        return np.asarray(-args[0])
    if definition.group == "elementwise":
        shape = np.broadcast_shapes(*(x.shape for x in args))
        flat = [np.ascontiguousarray(np.broadcast_to(x, shape), np.float32).reshape(-1) for x in args]
        return np.asarray(OPERATIONS[OP_BY_NAME[name].code][1](*flat), np.float32).reshape(shape)
    if definition.group == "reduction":
        reduce = {"reduce_sum": functions.reduce_sum, "reduce_max": functions.reduce_max}[op.kind]
        rows = args[0].reshape(-1, args[0].shape[-1])
        valid = np.ones(rows.shape[1], bool)
        return np.array([reduce(row, valid) for row in rows], np.float32).reshape(op.result.type.concrete_shape({}))
    return np.asarray(definition.reference(args, op.attrs, _Static()))  # type: ignore[arg-type]  # what views use of it
