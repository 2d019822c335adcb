"""Loop rolling, register allocation, scratch plan, synchronisation, capacity."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline.compiler.capacity import check_capacity
from wordline.compiler.codegen import allocate_registers
from wordline.compiler.kernel.builder import CHANNEL, Builder
from wordline.compiler.kernel.ir import Command, Item, Loop, Task, command
from wordline.compiler.kernel.roll import roll
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernel.symbols import Linear, Register, linear
from wordline.compiler.layout import ParameterRows, place_kv
from wordline.compiler.memory import plan_scratch
from wordline.compiler.synchronise import synchronise
from wordline.errors import WordlineError
from wordline.isa.declare import Engine
from wordline.machines import load_machine

MACHINE = load_machine("gddr6-aim-chip")


def unrolled(items: tuple[Item, ...], values: dict[Register, int]) -> list[tuple[str, dict[str, int]]]:
    """What the items execute, operands evaluated."""
    out: list[tuple[str, dict[str, int]]] = []
    for item in items:
        if isinstance(item, Loop):
            for index in range(item.count.evaluate(values.__getitem__)):
                out += unrolled(item.body, values | {item.register: index})
        else:
            assert isinstance(item, Command)
            out.append((item.name, {k: v.evaluate(values.__getitem__) for k, v in item.operands}))  # type: ignore[union-attr]
    return out


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_rolling_keeps_the_order_of_execution(raw: list[tuple[str, int, int]]) -> None:
    commands = [command(name, row=row, column=column, count=4) for name, row, column in raw]
    numbers = count()
    rolled = roll(commands, lambda: Register(f"i{next(numbers)}"))
    assert unrolled(rolled, {}) == unrolled(tuple(commands), {})


def test_rolling_finds_steps_and_periods() -> None:
    commands = []
    for i in range(10):
        commands += [command("A", row=3 * i, count=4), command("B", row=3 * i + 1, count=2)]
    rolled = roll(commands, lambda: Register("i"))
    assert len(rolled) == 1
    assert unrolled(rolled, {}) == unrolled(tuple(commands), {})


def test_rolling_respects_what_an_operand_can_hold() -> None:
    """Two register terms and 15-bit strides."""
    full = linear(Register("a")) + Register("b")
    commands = [command("A", row=full + i) for i in range(4)]
    assert roll(commands, lambda: Register("i")) == tuple(commands)
    far = [command("A", row=i * 20000) for i in range(4)]
    assert roll(far, lambda: Register("i")) == tuple(far)


def task(body: tuple[Item, ...], engine: Engine = Engine.CHANNEL, name: str = "t", **io: object) -> Task:
    return Task(engine, name, "op", "gemv", "", body, **io)  # type: ignore[arg-type]


def test_registers_are_reused_but_not_while_a_loop_needs_them() -> None:
    b = Builder()
    outside = b.calc("ADD", 1, 2, "outside")
    with b.loop(3) as index:
        inner = b.calc("ADD", outside, index, "inner")
        b.calc("ADD", inner, 1, "later")
    after = b.calc("ADD", 5, 6, "after")
    b.calc("ADD", after, CHANNEL)
    items = b.take()
    number = allocate_registers(items, 32, task(items))
    assert number(CHANNEL) == 1
    assert len({number(outside), number(index), number(inner)}) == 3
    assert number(after) <= 5  # one of the four that the loop used


def test_too_many_registers_is_an_error_that_names_the_task() -> None:
    b = Builder()
    held = [b.calc("ADD", i, 0) for i in range(31)]
    for register in held:
        b.calc("ADD", register, 0)
    items = b.take()
    with pytest.raises(WordlineError, match="task t needs more than the 30 registers") as caught:
        allocate_registers(items, 32, task(items))
    assert caught.value.code == "registers"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40), st.integers(0, 5)), min_size=1, max_size=20))
def test_live_buffers_never_overlap(spans: list[tuple[int, int, int]]) -> None:
    buffers = [(ScratchBuffer(f"b{i}", size * 32), first, length) for i, (first, size, length) in enumerate(spans)]
    tasks = [
        task((), name=f"t{at}", writes=tuple(b for b, first, length in buffers if first <= at <= first + length))
        for at in range(11)
    ]
    plan = plan_scratch(MACHINE, tasks)
    placed = plan.placements
    for i, a in enumerate(placed):
        assert a.offset % 32 == 0
        assert a.offset + a.buffer.bytes_per_channel <= plan.peak
        for b in placed[:i]:
            apart = (
                a.offset >= b.offset + b.buffer.bytes_per_channel or b.offset >= a.offset + a.buffer.bytes_per_channel
            )
            assert apart or a.first > b.last or b.first > a.last


def test_scratch_full_names_what_is_live() -> None:
    big, other = ScratchBuffer("big", 60000), ScratchBuffer("other", 8000)
    with pytest.raises(WordlineError, match=r"@other needs 8000 bytes.*live with it: @big 60000 B") as caught:
        plan_scratch(MACHINE, [task((), writes=(big, other))])
    assert caught.value.code == "scratch-full"


def test_waits_follow_hazards_and_nothing_else() -> None:
    """A chain across engines waits once each; independent tasks do not wait; covered waits are dropped."""
    x, y, z = (ScratchBuffer(name, 64) for name in "xyz")
    tasks = [
        task((), Engine.CHANNEL, "a", writes=(x,)),
        task((), Engine.VECTOR, "b", reads=(x,), writes=(y,)),
        task((), Engine.CHANNEL, "c", writes=(z,)),
        task((), Engine.CHANNEL, "d", reads=(y,)),
        task((), Engine.VECTOR, "e", writes=(x,)),
        task((), Engine.CHANNEL, "f", reads=(y,)),
    ]
    sync = synchronise(tasks, plan_scratch(MACHINE, tasks, (x, y, z)))
    assert [[(w.engine, w.count) for w in waits] for waits in sync.waits] == [
        [],
        [(Engine.CHANNEL, 1)],
        [],
        [(Engine.VECTOR, 1)],
        [],
        [],
    ]
    assert sync.signals == (True, True, False, False, False, False)


def test_writing_waits_for_readers_on_other_engines() -> None:
    x = ScratchBuffer("x", 64)
    tasks = [
        task((), Engine.VECTOR, "a", writes=(x,)),
        task((), Engine.CHANNEL, "b", reads=(x,)),
        task((), Engine.VECTOR, "c", writes=(x,)),
    ]
    sync = synchronise(tasks, plan_scratch(MACHINE, tasks))
    assert [(w.engine, w.count) for w in sync.waits[2]] == [(Engine.CHANNEL, 1)]


def test_a_channel_waits_for_its_own_read_data() -> None:
    """Data read from a bank land in scratch after the command; the channel must not use them earlier."""
    x = ScratchBuffer("x", 64)
    tasks = [task((), name="a", writes=(x,)), task((), name="b", reads=(x,))]
    sync = synchronise(tasks, plan_scratch(MACHINE, tasks))
    assert [(w.engine, w.count) for w in sync.waits[1]] == [(Engine.CHANNEL, 1)]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60))
def test_parameters_do_not_overlap(sizes: list[int]) -> None:
    rows = ParameterRows(MACHINE, 7)
    used: set[tuple[int, int, int]] = set()
    for i, size in enumerate(sizes):
        place = rows.add(f"p{i}", size)
        assert place.columns * 8 >= size
        for c in range(place.columns):
            at = (place.row + (place.column + c) // 64, place.bank, (place.column + c) % 64)
            assert at not in used
            assert 7 <= at[0] < 7 + rows.rows
            used.add(at)


def test_device_full_says_by_how_much_and_what_would_do() -> None:
    kv = place_kv(MACHINE, 30, 3, 64, 8192)
    with pytest.raises(WordlineError, match=r"needs 1\.2\d GB on gddr6-aim-chip .* GB too much") as caught:
        check_capacity(MACHINE, 16000, kv, "model")
    assert caught.value.remedy == "use --machine gddr6-aim-card or compile for a shorter --context"


@pytest.mark.parametrize("head_dim", [8, 24, 96])
def test_head_sizes_without_a_page_layout(head_dim: int) -> None:
    with pytest.raises(WordlineError, match=f"this model has {head_dim}") as caught:
        place_kv(MACHINE, 2, 2, head_dim, 128)
    assert caught.value.code == "kv-layout"


def test_pages_fill_whole_rows() -> None:
    """The page rule: 256 tokens for head size 64, 128 for 128, one row of every bank for K and one for V."""
    for head_dim, tokens in ((64, 256), (128, 128), (32, 512), (16, 1024), (256, 64)):
        kv = place_kv(MACHINE, 1, 1, head_dim, 4096)
        assert (kv.page_tokens, kv.rows_per_side) == (tokens, 1)


def test_linear_prints_readably() -> None:
    assert str(Linear(3, ((Register("i"), 2),))) == "%i*2+3"


def test_buffers_take_whole_columns() -> None:
    """Channel commands move columns; a buffer that ends inside one shares it with nobody."""
    small, other = ScratchBuffer("small", 4), ScratchBuffer("other", 40)
    plan = plan_scratch(MACHINE, [], (small, other))
    assert {p.buffer: (p.offset, p.size) for p in plan.placements} == {other: (0, 64), small: (64, 32)}
    assert (plan.peak, plan.granule) == (96, 32)
