"""GEMV kernels of any shape against NumPy, bit for bit where the order of summation is the machine's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.programs import bf16, build, get, put_everywhere
from wordline.compiler.candidates import gemv_candidates
from wordline.compiler.choices import GemvChoice, GemvShape, Order, plain_gemv
from wordline.compiler.gemv_plan import first_choice, gemv_cost, illegal, legal_parts, placed, plan_stages
from wordline.compiler.kernel.scratch import ScratchBuffer, broadcast
from wordline.compiler.kernels.gemv import Stage, gemv
from wordline.compiler.layout import place_weights
from wordline.compiler.projection import project
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


def product(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """w @ x in the bank unit's arithmetic, columns in ascending order, read out as bf16."""
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


def expected(w: np.ndarray, x: np.ndarray, choice: GemvChoice) -> np.ndarray:
    """The partial products that ``choice`` makes, added in float32: slice after slice, in a slice part after part."""
    parts = list(zip(np.array_split(w, choice.parts, 1), np.array_split(x, choice.parts), strict=True))
    step = 16 * choice.chunk if choice.order == "inputs" else w.shape[1]
    total = None
    for first in range(0, parts[0][1].size, step):
        for w_part, x_part in parts:
            partial = product(w_part[:, first : first + step], x_part[first : first + step])
            total = partial if total is None else total + partial
    assert total is not None
    return total


def run(
    machine: Machine, outputs: list[int], k: int, first_row: int, seed: int, choice: GemvChoice | None = None
) -> None:
    choice = choice or plain_gemv(machine)
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((m, k)).astype(np.float32) for m in outputs]
    x = bf16(rng.standard_normal(k).astype(np.float32))
    stream = place_weights(machine, [f"w{i}" for i in range(len(outputs))], outputs, k, first_row, choice)
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
    for channel in device.own:
        channel.accumulators[:] = 7.0
    device.execute(device.load_program(built.generated.program), seed=seed)
    for matrix, tensor in zip(matrices, projection.results, strict=True):
        np.testing.assert_array_equal(get(device, built, tensor), expected(matrix, x, choice))


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
    parts = min(parts, target.organisation.channels)
    run(target, outputs, columns * parts * 16, 2, seed, plain_gemv(target, parts=parts))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["chip", "2 accumulators", "5 accumulators", "8 channels, 3 accumulators"]),
    st.lists(st.integers(1, 900), min_size=1, max_size=2),
    st.integers(1, 24),
    st.integers(1, 32),
    st.integers(1, 64),
    st.sampled_from(["outputs", "inputs"]),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.sampled_from([0, 1, 2]),
    st.integers(0, 1000),
)
def test_any_choice(
    machine: str,
    outputs: list[int],
    columns: int,
    group: int,
    chunk: int,
    order: Order,
    parts: int,
    padded: bool,
    stages: int,
    seed: int,
) -> None:
    """Whatever is legal gives the results of its documented order of operations."""
    target = MACHINES[machine]
    group = min(group, target.bank_unit.accumulators)
    choice = GemvChoice(group, chunk, order, parts, padded, stages)
    k = columns * parts * 16
    if illegal(target, GemvShape(tuple(outputs), k), choice) is None:
        run(target, outputs, k, 2, seed, choice)


@pytest.mark.parametrize(
    ("machine", "outputs", "k"),
    [("chip", [72, 24], 1152), ("2 accumulators", [100], 2112), ("8 channels, 3 accumulators", [260], 1280)],
)
def test_every_candidate(machine: str, outputs: list[int], k: int) -> None:
    """All that a search may choose, and the cost model's first choice among them."""
    target, shape = MACHINES[machine], GemvShape(tuple(outputs), k)
    candidates = gemv_candidates(target, shape)
    legal = [choice for choice in candidates if illegal(target, shape, choice) is None]
    assert len(candidates) == len(set(candidates)) >= len(legal) > 10
    assert {choice.order for choice in legal} == {"outputs", "inputs"}
    assert first_choice(target, shape) in legal
    for choice in legal:
        run(target, outputs, k, 1, 0, choice)


@pytest.mark.parametrize("padded", [False, True])
def test_inputs_outermost_in_loops_of_groups(padded: bool) -> None:
    """Two accumulators and three slices, the last one narrower: each slice has loops of its own."""
    run(MACHINES["2 accumulators"], [700, 40], 2400, 3, 0, GemvChoice(2, 64, "inputs", padded=padded))


@pytest.mark.parametrize(
    ("outputs", "k"), [([1300], 512), ([600], 8192), ([3000, 72], 1024), ([128], 65536 // 2 - 512)]
)
def test_k_in_parts_of_several_stages(outputs: list[int], k: int) -> None:
    """One chunk with several groups, several chunks in one group, and loops of groups within a stage."""
    machine = MACHINES["8 channels"]
    choice = plain_gemv(machine, parts=4)
    assert len(plan_stages(machine, placed(machine, GemvShape(tuple(outputs), k), choice))) > 1
    run(machine, outputs, k, 0, 1, choice)


def test_parts_further_apart_than_an_address_stride_reaches() -> None:
    run(MACHINES["chip"], [40], 24576, 0, 1, plain_gemv(MACHINES["chip"], parts=2))


def test_stages_hide_the_additions_under_the_banks() -> None:
    """Of 86 local rows the first group's additions take less than the rest, and the last row alone is not hidden."""
    machine, shape = MACHINES["card"], GemvShape((11008,), 4096)

    def stages(choice: GemvChoice) -> list[int]:
        return plan_stages(machine, placed(machine, shape, choice))

    assert stages(plain_gemv(machine, parts=4)) == [32, 78, 85, 86]
    assert stages(plain_gemv(machine)) == [22]
    assert stages(GemvChoice(32, 64, "inputs")) == [22, 44, 66, 70, 84, 87, 88]  # only the last slice is divided


def test_k_is_split_where_that_saves_fills() -> None:
    """4096 inputs are four buffers on 8 rows a bank; in four parts each bank has its part in the buffer throughout."""
    card, chip = MACHINES["card"], MACHINES["chip"]

    def parts(machine: Machine, m: int, k: int) -> list[int]:
        return [choice.parts for choice in legal_parts(machine, GemvShape((m,), k))]

    assert parts(card, 4096, 4096) == [1, 2, 4]
    assert parts(chip, 576, 576) == [1, 2]
    assert parts(card, 64, 17 * 16) == [1]
    assert parts(card, 4096, 32000) == [1, 2]  # the input alone nearly fills the scratch
    square = GemvShape((4096,), 4096)
    assert first_choice(card, square).parts == 4
    assert first_choice(card, GemvShape((4096,), 4096, read_out=True)).parts == 1
    assert first_choice(chip, GemvShape((576, 192, 192), 576)).parts == 1
    whole, split = (gemv_cost(card, square, plain_gemv(card, parts=parts)) for parts in (1, 4))
    assert whole.macs == split.macs
    assert whole.additions == 0 < split.additions
    assert split.visits < whole.visits


def test_inputs_are_outermost_where_accumulators_are_few() -> None:
    """Two accumulators would put all of the input into the buffer again for every two rows."""
    shape = GemvShape((4096,), 4096)
    first = first_choice(MACHINES["2 accumulators"], shape)
    assert (first.order, first.parts) == ("inputs", 2)
    assert first_choice(MACHINES["chip"], shape) == plain_gemv(MACHINES["chip"])
    logits = GemvShape((4096,), 4096, read_out=True)
    assert first_choice(MACHINES["2 accumulators"], logits).order == "outputs"


@pytest.mark.parametrize(
    ("shape", "choice", "reason"),
    [
        (GemvShape((64,), 64), GemvChoice(33, 64), "a bank has 32 accumulators"),
        (GemvShape((64,), 64), GemvChoice(32, 65), "the buffer holds 64 columns"),
        (
            GemvShape((64,), 17 * 16),
            GemvChoice(32, 64, parts=2),
            "32 channels and 17 columns of K are not divided by 2",
        ),
        (GemvShape((64,), 128), GemvChoice(32, 64, parts=8), "an addition of 8 operands"),
        (GemvShape((64,), 4096), GemvChoice(32, 32, "inputs", parts=4), "an addition of 5 operands"),
        (GemvShape((64,), 4096, read_out=True), GemvChoice(32, 64, "inputs"), "logits go to the host"),
        (GemvShape((400000,), 4096), GemvChoice(32, 64, "inputs"), "take 66432 bytes of each channel's scratch"),
    ],
)
def test_what_cannot_be_chosen_says_why(shape: GemvShape, choice: GemvChoice, reason: str) -> None:
    found = illegal(MACHINES["card"], shape, choice)
    assert found is not None
    assert reason in found.reason
    assert found.rule
