"""A region of a graph with inputs in scratch: compiled, executed, compared with the graph's interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.support.vector_passes import VectorState
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import Register, SharedRegister
from wordline.compiler.vector.expression import RegionInput
from wordline.compiler.vector.passes import SharedScalar
from wordline.compiler.vector.region import Destination, VectorCode, compile_region
from wordline.graph.builder import GraphBuilder
from wordline.graph.interpreter import Interpreter
from wordline.graph.ir import Value
from wordline.graph.types import TensorType
from wordline.machines import Machine
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

    def tensor(self, name: str, shape: tuple[int, ...], where: ScratchTensor) -> Value:
        """A float input in scratch."""
        value = self.builder.input(name, TensorType("f32", shape))
        self._where[value] = where
        self._data[name] = random_values(shape, len(self._data))
        return value

    def scalar_i32(self, name: str, register: Register, number: int) -> Value:
        """An int32 input of one element in a local register."""
        value = self.builder.input(name, TensorType("i32", (1,)))
        self._where[value] = register
        self._data[name] = np.array([number], dtype=np.int32)
        return value

    def shared(self, name: str, where: SharedScalar, number: float) -> Value:
        """A float input of one element in a shared register."""
        value = self.builder.input(name, TensorType("f32", (1,)))
        self._where[value] = where
        self._data[name] = np.array([number], dtype=np.float32)
        return value

    def check(self, outputs: Sequence[tuple[Value, Destination]], tolerance: float = 2e-6) -> VectorCode:
        """Compile, run, and compare every output with the interpreter (in units of the largest value); the code."""
        graph = self.builder.finish({f"out{at}": value for at, (value, _) in enumerate(outputs)})
        expected = Interpreter(graph).run(dict(self._data))
        inputs = {graph.input(value.name): where for value, where in self._where.items()}
        demands = [(graph.outputs[f"out{at}"], where) for at, (_, where) in enumerate(outputs)]
        code = compile_region(self.machine, "region", graph.ops, inputs, demands)
        state = VectorState(self.machine)
        registers: dict[Register, int] = {}
        for value, where in self._where.items():
            data = self._data[value.name]
            if isinstance(where, ScratchTensor):
                state.write(where, data)
            elif isinstance(where, Register):
                registers[where] = int(data.item())
            elif isinstance(where, SharedScalar):
                state.shared[state.shared_number(where.register)] = data.astype(np.float32).view(np.int32)[0]
        state.run(code.block.items, registers)
        for at, (_, where) in enumerate(outputs):
            _compare(state, where, expected[f"out{at}"], tolerance)
        return code


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
