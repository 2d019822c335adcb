"""Passes written by hand with the builder: symbolic extents, limits, cost, printing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.vector_passes import VectorState
from wordline.compiler.kernel.passes import PassLoop, PassSpec, VectorBlock
from wordline.compiler.kernel.scratch import ScratchBuffer, broadcast, contiguous
from wordline.compiler.kernel.symbols import Linear, Register, SharedRegister, linear
from wordline.compiler.vector.builder import PassBuilder
from wordline.compiler.vector.cost import pass_cost, passes_cycles
from wordline.compiler.vector.emit import pass_instruction
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.isa.program import Program, Stream
from wordline.machines import load_machine
from wordline.sim.timing import time_program

MACHINE = load_machine("gddr6-aim-chip")
SPACE = MACHINE.scratch.bytes_per_channel


def masked_softmax(scores: ScratchBuffer, pages: Register, context: Register) -> tuple[PassSpec, PassSpec, PassSpec]:
    """Softmax over the first ``context`` of pages x 2 channels x 32 scores, in place."""
    top, total = SharedRegister("top"), SharedRegister("total")
    strides = (32 * 4, SPACE, 4)
    shape = (pages, 2, 32)
    first = PassBuilder(MACHINE, shape, high=context)
    first.reduce("max", first.load(scores, 0, strides), top)
    second = PassBuilder(MACHINE, shape, high=context)
    e = second.exp(second.load(scores, 0, strides) - second.scalar(top))
    second.store(e, scores, 0, strides)
    second.reduce("sum", e, total)
    third = PassBuilder(MACHINE, shape)
    third.store(third.load(scores, 0, strides) * third.recip(third.scalar(total)), scores, 0, strides)
    return first.build(), second.build(), third.build()


@pytest.mark.parametrize("context", [1, 31, 64, 100, 192])
def test_softmax_with_lengths_from_registers(context: int) -> None:
    scores = ScratchBuffer("scores", 3 * 32 * 4)
    pages, length = Register("pages"), Register("context")
    passes = masked_softmax(scores, pages, length)
    state = VectorState(MACHINE)
    used = -(-context // 64)
    values = np.random.default_rng(1).normal(size=(used, 2, 32)).astype(np.float32)
    base = state.place(scores)
    memory = state.scratch.view(np.float32).reshape(2, -1)[:, base // 4 : base // 4 + 96]
    memory.reshape(2, 3, 32)[:, :used] = values.transpose(1, 0, 2)
    state.run(passes, {pages: used, length: context})
    stored = memory.reshape(2, 3, 32)[:, :used].transpose(1, 0, 2).reshape(-1)
    valid = values.reshape(-1)[:context].astype(np.float64)
    expected = np.exp(valid - valid.max())
    np.testing.assert_allclose(stored[:context], expected / expected.sum(), rtol=1e-5)
    assert not stored[context:].any()
    assert VectorBlock(passes).registers == (pages, length)
    assert VectorBlock(passes).reads == VectorBlock(passes).writes == (scores,)


def test_equal_loads_scalars_and_operations_are_kept_once() -> None:
    x = contiguous("x", "f32", 16)
    b = PassBuilder(MACHINE, (16,))
    a = b.load(x.buffer, 0, (4,)) * b.scalar(2.0)
    again = b.load(x.buffer, 0, (4,)) * b.scalar(2.0)
    b.store(a + again, x.buffer, 0, (4,))
    spec = b.build()
    assert (len(spec.operands), len(spec.scalars), len(spec.operations)) == (1, 1, 2)


def test_zero_and_negative_zero_are_two_scalars() -> None:
    b = PassBuilder(MACHINE, (1,))
    b.reduce("max", b.scalar(0.0) + b.scalar(-0.0), SharedRegister("s"))
    assert len(b.build().scalars) == 2


@pytest.mark.parametrize(("what", "count"), [("operands", 5), ("scalars", 9), ("operations", 17), ("reductions", 3)])
def test_a_pass_that_exceeds_a_limit_is_refused(what: str, count: int) -> None:
    b = PassBuilder(MACHINE, (16,))
    buffer = ScratchBuffer("x", 4096)
    one = b.load(buffer, 0, (4,))
    for at in range(1, count if what != "operations" else count + 1):
        if what == "operands":
            b.load(buffer, at * 64, (4,))
        elif what == "scalars":
            b.scalar(float(at))
        elif what == "operations":
            one = one * one
        else:
            b.reduce("sum", one, SharedRegister(f"s{at}"))
    if what == "scalars":
        b.scalar(float(count))
    if what == "reductions":
        b.reduce("sum", one, SharedRegister("last"))
    assert b.excess() == 1
    with pytest.raises(WordlineError) as caught:
        b.build()
    assert caught.value.code == "pass-limits"
    assert f"needs {count} {what}, the unit has {count - 1}" in str(caught.value)


def test_broadcast_needs_a_mask_that_holds_every_channel() -> None:
    b = PassBuilder(load_machine("gddr6-aim-card", {"organisation.channels": 64}), (1,))
    with pytest.raises(WordlineError, match="at most 32 channels"):
        b.store(b.scalar(1.0), broadcast("x", "f32", 1).buffer, 0, (4,), every_channel=True)


def test_cost_takes_lengths_from_registers_and_trips_from_loops() -> None:
    pages, context = Register("pages"), Register("context")
    passes = masked_softmax(ScratchBuffer("scores", 4096), pages, context)
    sizes = {pages: 3}.__getitem__
    lines = 3 * 2 * 32 // MACHINE.vector_unit.lanes
    latency, overhead = MACHINE.vector_unit.latency, MACHINE.vector_unit.pass_overhead
    first, second = (pass_cost(MACHINE, spec, sizes).cycles for spec in passes[:2])
    assert first == lines + overhead
    assert second == lines + latency["other"] + latency["exp"] + overhead
    loop = PassLoop(Register("row"), linear(5), (passes[0],))
    assert passes_cycles(MACHINE, [loop, passes[1]], sizes) == 5 * first + second
    with pytest.raises(KeyError, match="pages"):
        pass_cost(MACHINE, passes[0])


def test_cost_equals_the_cycle_model() -> None:
    isa = instruction_set(MACHINE.generation)
    buffer = ScratchBuffer("x", 4096)
    specs = []
    for size, operands in ((1, 1), (16, 2), (100, 4), (640, 3)):
        b = PassBuilder(MACHINE, (size,))
        loads = [b.load(buffer, 4 * at, (4,)) for at in range(operands)]
        b.store(b.apply("rsqrt", b.exp(loads[0]) + loads[-1]), buffer, 0, (4,))
        specs.append(b.build())
    instrs = tuple(pass_instruction(isa, spec, lambda _: 0, lambda _: 1, lambda _: 0) for spec in specs)
    result = time_program(MACHINE, Program(isa, (Stream(Engine.VECTOR, 0, instrs),)))
    assert result.streams[0].end == passes_cycles(MACHINE, specs)


def test_printed_pass_names_buffers_registers_and_operations() -> None:
    first, second, _ = masked_softmax(ScratchBuffer("scores", 4096), Register("pages"), Register("context"))
    assert str(first) == ("pass %pagesx2x32 valid 0..%context\n  $top = max @scores[0; 128,65536,4]:f32")
    assert "v1 = exp v0" in str(second)
    loop = PassLoop(Register("row"), linear(5), (first,))
    assert str(loop).startswith("loop %row < 5\n  pass %pages")


def test_affine_forms_merge_terms() -> None:
    i, j = Register("i"), Register("j")
    form = 4 * i + j * 2 + 8 - i * 4
    assert form == Linear(8, ((j, 2),))
    assert form.evaluate({j: 3}.__getitem__) == 14
    assert str(i * 4 - 3) == "%i*4-3"
    assert (5 - i).evaluate({i: 2}.__getitem__) == 3
