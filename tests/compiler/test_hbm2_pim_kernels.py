"""Kernels of HBM2-PIM: bit-exact against the order in which their sums are defined, and their cycles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.hbm2_kernels import encoded, gemv_program, task
from wordline.compiler.kernel.scratch import contiguous
from wordline.compiler.kernels.hbm2_pim.elementwise import (
    Operation,
    elementwise,
    pack_operands,
    plan_elementwise,
    unpack_result,
)
from wordline.compiler.kernels.hbm2_pim.gemv import GemvPlan, Pass, combine, pack_input, pack_weights, plan_gemv
from wordline.compiler.kernels.hbm2_pim.linear import linear_tasks
from wordline.compiler.kernels.hbm2_pim.placement import dispatch_gemv, stream_ns
from wordline.compiler.kernels.hbm2_pim.state import ChannelState
from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine
from wordline.numerics import fp16
from wordline.sim.hbm2_pim.timing import time_program
from wordline.sim.reference import ReferenceDevice

RNG = np.random.default_rng(11)
TWO = load_machine("hbm2-pim-stack", {"organisation.channels": 2})
U16 = npt.NDArray[np.uint16]


def values(*shape: int) -> U16:
    return fp16.from_float(RNG.normal(0, 1, shape))


def defined(plan: GemvPlan, weights: U16, x: U16) -> npt.NDArray[np.float32]:
    """y by the definition: fp16 sums in the order of the banks, then fp32 over input groups and their parts."""
    own = np.arange(plan.m) % plan.outputs
    y = np.full(plan.m, np.nan, np.float32)
    for group in range(plan.input_groups):
        for part in plan.passes:
            outputs = np.flatnonzero((part.first <= own) & (own < part.first + plan.pass_outputs(part)))
            value = fp16.to_float(partial_sums(plan, part, weights[outputs], x, group * 8 * plan.tiles))
            first = group == 0 and part.first_tile == 0
            y[outputs] = value if first else np.add(y[outputs], value, dtype=np.float32)
    return y


def partial_sums(plan: GemvPlan, part: Pass, weights: U16, x: U16, begin: int) -> U16:
    """Accumulators. A narrow pass reads even banks first, which hold scalars 4 to 7 of every second tile."""
    total = None
    for tile in range(part.tiles):
        order = [4, 5, 6, 7, 0, 1, 2, 3] if part.files == 1 and tile % 2 else list(range(8))
        for scalar in order:
            at = begin + 8 * (part.first_tile + tile) + scalar
            nothing = np.zeros(len(weights), np.uint16)
            product = fp16.mul(weights[:, at], np.broadcast_to(x[at], nothing.shape)) if at < plan.k else nothing
            total = product if total is None else fp16.add(product, total)
    assert total is not None
    return total


def run_gemvs(machine: Machine, shapes: list[tuple[int, int]], most: int = 256) -> list[GemvPlan]:
    plans, row = [], 0
    for m, k in shapes:
        plans.append(plan_gemv(machine, m, k, row, most))
        row += plans[-1].rows
    program, offsets = gemv_program(machine, plans)
    device = ReferenceDevice(machine)
    matrices = [(values(plan.m, plan.k), values(plan.k)) for plan in plans]
    scratch = device.scratch().reshape(machine.organisation.channels, -1)
    for plan, (weights, x), (at, _) in zip(plans, matrices, offsets, strict=True):
        image = pack_weights(plan, weights)
        device.bank_write(plan.passes[0].row, image.shape[0], image)
        data = pack_input(plan, x).reshape(plan.channels, -1).view(np.uint8)
        scratch[:, at : at + data.shape[1]] = data
    device.execute(device.load_program(program))
    for plan, (weights, x), (_, at) in zip(plans, matrices, offsets, strict=True):
        partial = scratch[:, at : at + plan.result_bytes].view(np.uint16)
        got = combine(plan, partial)
        assert got.shape == (plan.m,)
        assert np.array_equal(got.view(np.uint32), defined(plan, weights, x).view(np.uint32))
    return plans


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1024, 16), (1025, 24), (37, 70), (300, 33), (500, 40), (600, 40), (2100, 17), (4100, 9)],
    ids=lambda s: f"{s[0]}x{s[1]}",
)
def test_gemv_of_any_shape(shape: tuple[int, int]) -> None:
    run_gemvs(TWO, [shape])


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_products_from_activations_to_activations(seed: int | None) -> None:
    machine = load_machine("hbm2-pim-stack", {"organisation.channels": 4})
    first, second = plan_gemv(machine, 300, 70, 0, 16), plan_gemv(machine, 1100, 300, 200)
    state = ChannelState()
    x, h, y = (contiguous(name, "f32", n) for name, n in (("x", 70), ("h", 300), ("y", 1100)))
    tasks = [
        *linear_tasks(machine, first, state, "first", x, h),
        *linear_tasks(machine, second, state, "second", h, y),
    ]
    program, offsets = encoded(machine, tasks, [x.buffer, y.buffer])
    device = ReferenceDevice(machine)
    matrices = [values(300, 70), values(1100, 300)]
    for plan, matrix in zip((first, second), matrices, strict=True):
        image = pack_weights(plan, matrix)
        device.bank_write(plan.passes[0].row, image.shape[0], image)
    given = RNG.normal(0, 1, 70).astype(np.float32)
    scratch = device.scratch().view(np.float32)
    scratch[offsets[x.buffer] // 4 :][:70] = given
    device.execute(device.load_program(program), seed=seed)
    hidden = defined(first, matrices[0], fp16.from_float(given))
    want = defined(second, matrices[1], fp16.from_float(hidden))
    assert np.array_equal(scratch[offsets[y.buffer] // 4 :][:1100], want)
    time = time_program(machine, program)
    assert time.host_calls == 3  # x of the first; its sums and x of the second; the last sums
    assert time.cycles > time.host_cycles > 1500


def test_accumulation_is_bounded() -> None:
    (plan,) = run_gemvs(TWO, [(1030, 90)], 16)
    assert plan.accumulation == 16
    assert len(plan.passes) > 2
    stacks = load_machine("hbm2-pim-stack")
    assert plan_gemv(stacks, 49152, 576).accumulation <= 256
    with pytest.raises(WordlineError, match="8 products or more"):
        plan_gemv(stacks, 64, 64, max_accumulation=4)


def test_gemvs_one_after_the_other() -> None:
    run_gemvs(TWO, [(300, 50), (300, 50), (2100, 20), (64, 16)])


@pytest.mark.parametrize("operation", ["add", "mul", "relu"])
@pytest.mark.parametrize("elements", [1, 4096, 10_000])
def test_elementwise(operation: Operation, elements: int) -> None:
    plan = plan_elementwise(TWO, operation, elements, 3)
    a, b = values(elements), values(elements)
    device = ReferenceDevice(TWO)
    device.bank_write(3, plan.rows, pack_operands(plan, a, None if operation == "relu" else b))
    state = ChannelState()
    program, _ = encoded(TWO, [task("op", (*elementwise(plan, state), *state.single()))])
    device.execute(device.load_program(program))
    want = {"add": fp16.add(a, b), "mul": fp16.mul(a, b), "relu": fp16.relu(a)}[operation]
    assert np.array_equal(unpack_result(plan, np.frombuffer(device.bank_read(3, plan.rows), np.uint16)), want)


def share_of_peak(machine: Machine, m: int, k: int) -> float:
    program, _ = gemv_program(machine, [plan_gemv(machine, m, k)])
    macs = m * k / (machine.organisation.channels * 8 * 16)
    return 4 * macs / time_program(machine, program).cycles


def test_gemv_reaches_its_share_of_the_peak_with_refresh() -> None:
    stacks = load_machine("hbm2-pim-4stacks")
    assert share_of_peak(stacks, 4096, 4096) >= 0.70
    assert share_of_peak(stacks, 1024, 1024) >= 0.35


def test_what_is_set_already_is_not_set_again() -> None:
    machine = load_machine("hbm2-pim-4stacks", {"refresh.enabled": False})
    plans, row = [], 0
    for k in (4096, 4096, 2048):
        plans.append(plan_gemv(machine, 4096, k, row))
        row += plans[-1].rows
    remembered, forgotten = (
        time_program(machine, gemv_program(machine, plans, ChannelState(forgetful=forgetful))[0]).channels[0]
        for forgetful in (False, True)
    )
    # 4 columns of the CRF for each matrix; the second finds them all, the third has another count of tiles in one.
    assert forgotten.commands["WR"] - remembered.commands["WR"] == 4 + 3
    assert forgotten.end - remembered.end == 4 * (4 + 3)


def test_the_crf_is_written_where_it_differs() -> None:
    from wordline.isa.hbm2_pim.crf_program import operation

    state = ChannelState()
    program = [*[operation("NOP", n=1)] * 8, *[operation("NOP", n=2)] * 8, operation("EXIT")]
    names = [str(item).split()[0] for item in state.start(program)]
    assert names == ["mode", "wrcrf", "wrcrf", "wrcrf", "mode"]
    assert [str(item).split()[0] for item in state.start(program)] == ["mode"]
    program[9] = operation("NOP", n=3)
    changed = state.start(program)
    assert [str(item).split()[0] for item in changed] == ["wrcrf", "mode"]
    assert "column=1" in str(changed[0])
    assert not ChannelState().single()


def test_the_cheaper_place_is_chosen_and_both_costs_are_kept() -> None:
    stacks = load_machine("hbm2-pim-4stacks")
    large, small = dispatch_gemv(stacks, "mlp", 4096, 4096), dispatch_gemv(stacks, "kv", 192, 576)
    assert (large.engine, small.engine) == ("banks", "host")
    for decision, (m, k) in ((large, (4096, 4096)), (small, (192, 576))):
        banks, host = decision.candidates
        assert banks.cost_ns == pytest.approx(
            time_program(stacks, gemv_program(stacks, [plan_gemv(stacks, m, k)])[0]).cycles
            + 500
            + m * (plan_gemv(stacks, m, k).input_groups - 1) / 1000
        )
        assert host.cost_ns == pytest.approx(500 + 2 * m * k / 1024 / (1 - 350 / 3900))
        assert decision.runner_up is not decision.winner


@pytest.mark.parametrize(
    ("operand_bytes", "cycles"),
    [
        (2 * 4096 * 4096, 36082),  # gemv 4096x4096
        (2 * 1024 * 1024, 2494),  # gemv 1024x1024
        (3 * 2 * 1048576, 6651),  # add 1048576
        (3 * 2 * 2097152, 13255),  # mul 2097152
        (2 * 2 * 4194304, 17504),  # relu 4194304
    ],
)
def test_the_host_streams_as_fast_as_published(operand_bytes: int, cycles: int) -> None:
    """Rows ``nopim`` of tests/reference/hbm2-pim/kernel_cycles.csv; the small one has a fixed part that is not ours."""
    assert stream_ns(load_machine("hbm2-pim-4stacks"), operand_bytes) == pytest.approx(cycles, rel=0.1)


def test_shapes_that_are_refused() -> None:
    with pytest.raises(WordlineError, match="no elements"):
        plan_gemv(TWO, 0, 5)
    with pytest.raises(WordlineError) as caught:
        plan_gemv(TWO, 1 << 20, 1 << 16)
    assert caught.value.code == "capacity"
    with pytest.raises(WordlineError, match="positive number"):
        plan_elementwise(TWO, "add", 0)
    with pytest.raises(WordlineError) as caught:
        plan_elementwise(TWO, "add", 1 << 40)
    assert caught.value.code == "capacity"
