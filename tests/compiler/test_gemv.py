"""GEMV kernels of any shape against NumPy, bit for bit where the order of summation is the machine's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.programs import bf16, build, get, put_everywhere
from wordline.compiler.kernel.scratch import ScratchBuffer, broadcast
from wordline.compiler.kernels.gemv import Stage, gemv
from wordline.compiler.layout import place_weights
from wordline.compiler.projection import project
from wordline.compiler.split import choose_parts, gemv_cost, legal_parts, plan_stages
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
    "8 channels": load_machine("gddr6-aim-card", {"organisation.channels": 8}),
    "8 channels, 3 accumulators": load_machine(
        "gddr6-aim-card", {"organisation.channels": 8, "bank_unit.accumulators": 3}
    ),
}


def expected(w: np.ndarray, x: np.ndarray, parts: int = 1) -> np.ndarray:
    """w @ x in the bank unit's arithmetic, columns in ascending order; the parts of K are added in float32."""
    if parts > 1:
        products = [expected(a, b) for a, b in zip(np.split(w, parts, 1), np.split(x, parts), strict=True)]
        return np.add.reduce(products)
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


def run(machine: Machine, outputs: list[int], k: int, first_row: int, seed: int, parts: int = 1) -> None:
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((m, k)).astype(np.float32) for m in outputs]
    x = bf16(rng.standard_normal(k).astype(np.float32))
    stream = place_weights(machine, [f"w{i}" for i in range(len(outputs))], outputs, k, first_row, parts=parts)
    o = machine.organisation
    image = np.zeros((stream.dram_rows, o.channels, o.banks, o.columns, 16), np.uint16)
    stream.pack(matrices, image, first_row)
    x_tensor = broadcast("x", "bf16", k, 16)
    zeros = ScratchBuffer("zeros", 32)
    projection = project(machine, stream, x_tensor, zeros, "y", "gemv", "gemv")
    built = build(machine, list(projection.tasks), [zeros, x_tensor.buffer])
    device = ReferenceDevice(machine)
    device.bank_write(first_row, stream.dram_rows, image)
    put_everywhere(device, built, x_tensor, x)
    device.accumulators[:] = 7.0
    device.execute(device.load_program(built.generated.program), seed=seed)
    for matrix, tensor in zip(matrices, projection.results, strict=True):
        np.testing.assert_array_equal(get(device, built, tensor), expected(matrix, x, parts))


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
    stage = Stage(0, 30, ScratchBuffer("y", 30 * 32))
    ((_, body),) = gemv(stream, broadcast("x", "bf16", 576, 16), ScratchBuffer("zeros", 32), [stage])
    names = [item.name for item in body if hasattr(item, "name")]
    assert names.count("WRGB") == 1
    assert names.count("RDMAC16") == 1
    assert stream.dram_rows == 17  # 30 * 36 columns in rows of 64


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["chip", "5 accumulators", "8 channels", "8 channels, 3 accumulators"]),
    st.lists(st.integers(1, 700), min_size=1, max_size=2),
    st.integers(1, 24),
    st.sampled_from([2, 4]),
    st.integers(0, 1000),
)
def test_k_in_parts(machine: str, outputs: list[int], columns: int, parts: int, seed: int) -> None:
    """Each run of channels has its part of K; the vector unit adds the parts, each rounded to bf16."""
    target = MACHINES[machine]
    run(target, outputs, columns * parts * 16, 2, seed, min(parts, target.organisation.channels))


@pytest.mark.parametrize(
    ("outputs", "k"), [([1300], 512), ([600], 8192), ([3000, 72], 1024), ([128], 65536 // 2 - 512)]
)
def test_k_in_parts_of_several_stages(outputs: list[int], k: int) -> None:
    """One chunk with several groups, several chunks in one group, and loops of groups within a stage."""
    machine = MACHINES["8 channels"]
    stream = place_weights(machine, [""] * len(outputs), outputs, k, 0, parts=4)
    assert len(plan_stages(machine, stream)) > 1
    run(machine, outputs, k, 0, 1, 4)


def test_parts_further_apart_than_an_address_stride_reaches() -> None:
    run(MACHINES["chip"], [40], 24576, 0, 1, 2)


def test_stages_hide_the_additions_under_the_banks() -> None:
    """Of 86 local rows the first group's additions take less than the rest, and the last row alone is not hidden."""
    machine = MACHINES["card"]
    stream = place_weights(machine, ["w"], [11008], 4096, 0, parts=4)
    assert plan_stages(machine, stream) == [32, 78, 85, 86]
    assert plan_stages(machine, place_weights(machine, ["w"], [11008], 4096, 0)) == [22]


def test_k_is_split_where_that_saves_fills() -> None:
    """4096 inputs are four buffers on 8 rows a bank; in four parts each bank has its part in the buffer throughout."""
    assert legal_parts(MACHINES["card"], [4096], 4096) == [1, 2, 4]
    assert legal_parts(MACHINES["chip"], [576], 576) == [1, 2]
    assert legal_parts(MACHINES["card"], [64], 17 * 16) == [1]
    assert legal_parts(MACHINES["card"], [4096], 32000) == [1, 2]  # the input alone nearly fills the scratch
    assert choose_parts(MACHINES["card"], [4096], 4096) == 4
    assert choose_parts(MACHINES["chip"], [576, 192, 192], 576) == 1
    whole, split = (gemv_cost(MACHINES["card"], [4096], 4096, parts) for parts in (1, 4))
    assert whole.macs == split.macs
    assert whole.additions == 0 < split.additions
    assert split.visits < whole.visits
