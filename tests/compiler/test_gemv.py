"""GEMV kernels of any shape against NumPy, bit for bit where the order of summation is the machine's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.programs import bf16, build, get, put_everywhere
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor, broadcast, sharded
from wordline.compiler.kernels.gemv import gemv
from wordline.compiler.layout import place_weights
from wordline.isa.declare import Engine
from wordline.machines import Machine, load_machine
from wordline.numerics.formats import bf16_bits_to_f32, f32_to_bf16_bits
from wordline.numerics.mac import mac_column, readout_bf16
from wordline.sim.reference import ReferenceDevice

MACHINES = {
    "chip": load_machine("gddr6-aim-chip"),
    "card": load_machine("gddr6-aim-card"),
    "2 accumulators": load_machine("gddr6-aim-chip", {"bank_unit.accumulators": 2}),
    "5 accumulators": load_machine("gddr6-aim-chip", {"bank_unit.accumulators": 5}),
    "16 buffer columns": load_machine("gddr6-aim-chip", {"buffer.columns": 16}),
}


def expected(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """w @ x in the bank unit's arithmetic, columns in ascending order."""
    columns = -(-w.shape[1] // 16)
    padded_w = np.zeros((w.shape[0], columns * 16), np.uint16)
    padded_w[:, : w.shape[1]] = f32_to_bf16_bits(w)
    padded_x = np.zeros(columns * 16, np.uint16)
    padded_x[: x.size] = f32_to_bf16_bits(x)
    accumulator = np.zeros(w.shape[0], np.float32)
    for column in range(columns):
        part = slice(16 * column, 16 * column + 16)
        accumulator = mac_column(accumulator, padded_w[:, part], padded_x[None, part])
    return bf16_bits_to_f32(readout_bf16(accumulator))


def run(machine: Machine, outputs: list[int], k: int, first_row: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((m, k)).astype(np.float32) for m in outputs]
    x = bf16(rng.standard_normal(k).astype(np.float32))
    stream = place_weights(machine, [f"w{i}" for i in range(len(outputs))], outputs, k, first_row)
    o = machine.organisation
    image = np.zeros((stream.dram_rows, o.channels, o.banks, o.columns, 16), np.uint16)
    stream.pack(matrices, image, first_row)
    x_tensor = broadcast("x", "bf16", k, 16)
    zeros, result = ScratchBuffer("zeros", 32), ScratchBuffer("y", stream.total_rows * 32)
    prologue, body = gemv(stream, x_tensor, result, zeros)
    task = Task(Engine.CHANNEL, "gemv", "gemv", "gemv", "", body, (x_tensor.buffer,), (result,), prologue)
    built = build(machine, [task], [zeros])
    device = ReferenceDevice(machine)
    device.bank_write(first_row, stream.dram_rows, image)
    put_everywhere(device, built, x_tensor, x)
    device.accumulators[:] = 7.0
    device.execute(device.load_program(built.generated.program), seed=seed)
    offset = 0
    for index, matrix in enumerate(matrices):
        template = sharded("", machine, matrix.shape[0])
        tensor = ScratchTensor(result, "bf16", template.dims, offset, False, matrix.shape[0])
        np.testing.assert_array_equal(get(device, built, tensor), expected(matrix, x))
        offset += stream.local_rows[index] * 32


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["chip", "2 accumulators", "5 accumulators", "16 buffer columns"]),
    st.lists(st.integers(1, 1300), min_size=1, max_size=3),
    st.integers(1, 1100),
    st.integers(0, 50),
    st.integers(0, 1000),
)
def test_any_shape(machine: str, outputs: list[int], k: int, first_row: int, seed: int) -> None:
    run(MACHINES[machine], outputs, k, first_row, seed)


@pytest.mark.parametrize(
    ("machine", "outputs", "k"),
    [
        ("chip", [1100, 40], 64),
        ("chip", [3000], 576),
        ("chip", [3300], 16),
        ("chip", [1500], 1040),
        ("card", [700, 40], 100),
        ("2 accumulators", [700], 1030),
    ],
)
def test_many_groups(machine: str, outputs: list[int], k: int) -> None:
    """Shapes with looped groups, groups that do not end with a DRAM row, and several chunks."""
    run(MACHINES[machine], outputs, k, 3, 0)


def test_matrices_that_share_an_input_share_one_read_out() -> None:
    """Q, K and V of SmolLM2 on the chip are 30 local rows: one visit, one fill."""
    machine = MACHINES["chip"]
    stream = place_weights(machine, ["q", "k", "v"], [576, 192, 192], 576, 0)
    _, body = gemv(stream, broadcast("x", "bf16", 576, 16), ScratchBuffer("y", 30 * 32), ScratchBuffer("zeros", 32))
    names = [item.name for item in body if hasattr(item, "name")]
    assert names.count("WRGB") == 1
    assert names.count("RDMAC16") == 1
    assert stream.dram_rows == 17  # 30 * 36 columns in rows of 64
