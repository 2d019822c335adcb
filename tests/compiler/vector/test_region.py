"""Generated vector code against the graph's references, on the instruction set's own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.vector_regions import Region, random_values
from wordline.compiler.kernel.passes import SharedScalar
from wordline.compiler.kernel.scratch import broadcast, contiguous, shard_elements, sharded
from wordline.compiler.kernel.symbols import Register, SharedRegister
from wordline.compiler.vector.cost import passes_cycles
from wordline.errors import WordlineError
from wordline.graph.ir import Value
from wordline.machines import Machine, load_machine

CHANNELS = (1, 2, 32)


def machine_of(channels: int) -> Machine:
    return load_machine("gddr6-aim-chip", {"organisation.channels": channels})


def rms_norm(region: Region, x: Value, weight: Value, size: int) -> Value:
    b = region.builder
    mean = b.op("mul", b.op("reduce_sum", b.op("mul", x, x)), b.scalar(1 / size, "f32"))
    scale = b.op("rsqrt", b.op("add", mean, b.scalar(1e-5, "f32")))
    return b.op("mul", b.op("mul", x, scale), weight)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [576, 300])
def test_residual_and_rms_norm(channels: int, size: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    x = region.tensor("x", (1, 1, size), contiguous("x", "f32", size))
    y = region.tensor("y", (1, 1, size), sharded("y", machine, size))
    w = region.tensor("w", (size,), broadcast("w", "f32", size))
    h = region.builder.op("add", x, y)
    out = rms_norm(region, h, w, size)
    code = region.check([(h, contiguous("h", "f32", size)), (out, broadcast("n", "bf16", size, pad_to=16))])
    # Sum and residual share a pass; the norm is one more: nothing is copied when shards are whole.
    if size == 576:
        assert len(list(code.block.passes())) == 2
        assert code.temporaries == ()


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("heads", "head"), [(9, 64), (3, 64), (4, 128)])
def test_rotary_embedding(channels: int, heads: int, head: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    size = heads * head
    q = region.tensor("q", (1, 1, size), sharded("q", machine, size))
    cos = region.tensor("cos", (1, 1, head), contiguous("cos", "f32", head))
    sin = region.tensor("sin", (1, 1, head), contiguous("sin", "f32", head))
    rows = b.op("reshape", q, shape=(1, heads, 1, head))
    c, s = (b.op("reshape", t, shape=(1, 1, 1, head)) for t in (cos, sin))
    out = b.op("add", b.op("mul", rows, c), b.op("mul", b.op("rotate_half", rows), s))
    region.check([(out, broadcast("out", "bf16", size))])


@pytest.mark.parametrize("channels", CHANNELS)
def test_norm_per_head_then_rotary(channels: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    heads, head = 8, 64
    q = region.tensor("q", (1, 1, heads * head), sharded("q", machine, heads * head))
    w = region.tensor("w", (head,), broadcast("w", "f32", head))
    cos = region.tensor("cos", (1, 1, 1, head), contiguous("cos", "f32", head))
    sin = region.tensor("sin", (1, 1, 1, head), contiguous("sin", "f32", head))
    rows = b.op("transpose", b.op("reshape", q, shape=(1, 1, heads, head)), perm=(0, 2, 1, 3))
    normed = rms_norm(region, rows, w, head)
    out = b.op("add", b.op("mul", normed, cos), b.op("mul", b.op("rotate_half", normed), sin))
    region.check([(out, broadcast("out", "bf16", heads * head))])


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [1536, 1000])
def test_silu_gate_over_shards(channels: int, size: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    gate = region.tensor("gate", (1, 1, size), sharded("gate", machine, size))
    up = region.tensor("up", (1, 1, size), sharded("up", machine, size))
    out = b.op("mul", b.op("mul", gate, b.op("sigmoid", gate)), up)
    # Room for the last shard's padding lets one masked pass do it all.
    code = region.check([(out, broadcast("out", "bf16", size, pad_to=shard_elements(machine, size)))])
    assert len(list(code.block.passes())) == 1


@pytest.mark.parametrize("channels", CHANNELS)
def test_ragged_shards_without_room_for_their_padding(channels: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (1, 1000), sharded("x", machine, 1000))
    region.check([(b.op("sigmoid", x), broadcast("out", "bf16", 1000, pad_to=16))])


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [4096, 5001])
def test_argmax_over_sharded_logits(channels: int, size: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    logits = region.tensor("logits", (1, 1, size), sharded("logits", machine, size))
    token = b.op("reshape", b.op("reduce_argmax", b.op("reshape", logits, shape=(1, size))), shape=(1,))
    code = region.check([(token, SharedRegister("token"))])
    assert len(list(code.block.passes())) == 1


def test_position_tables() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    position = region.scalar_i32("position", Register("position"), 1234)
    frequencies = region.tensor("inv_freq", (32,), broadcast("inv_freq", "f32", 32))
    angle = b.op("mul", b.op("cast", b.op("reshape", position, shape=(1, 1, 1)), dtype="f32"), frequencies)
    both = b.op("concat", angle, angle, axis=2)
    region.check([(b.op("cos", both), contiguous("cos", "f32", 64)), (b.op("sin", both), contiguous("sin", "f32", 64))])


@pytest.mark.parametrize("channels", CHANNELS)
def test_gelu_tanh(channels: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (1, 1, 512), sharded("x", machine, 512))
    up = region.tensor("up", (1, 1, 512), sharded("up", machine, 512))
    cube = b.op("mul", b.op("mul", x, x), x)
    inner = b.op("add", x, b.op("mul", cube, b.scalar(0.044715, "f32")))
    bent = b.op("add", b.op("tanh", b.op("mul", inner, b.scalar(0.7978845608, "f32"))), b.scalar(1.0, "f32"))
    out = b.op("mul", b.op("mul", b.op("mul", x, b.scalar(0.5, "f32")), bent), up)
    code = region.check([(out, broadcast("out", "bf16", 512))])
    assert len(list(code.block.passes())) == 1


@pytest.mark.parametrize("rows", [1, 5])
def test_softmax_over_rows(rows: int) -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (rows, 48), contiguous("x", "f32", rows * 48))
    e = b.op("exp", b.op("sub", x, b.op("reduce_max", x)))
    out = b.op("mul", e, b.op("recip", b.op("reduce_sum", e)))
    region.check([(out, contiguous("out", "f32", rows * 48))])


def test_layer_norm_keeps_both_sums_in_one_pass() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (1, 128), contiguous("x", "f32", 128))
    w = region.tensor("w", (128,), contiguous("w", "f32", 128))
    share = b.scalar(1 / 128, "f32")
    mean = b.op("mul", b.op("reduce_sum", x), share)
    square = b.op("mul", b.op("reduce_sum", b.op("mul", x, x)), share)
    variance = b.op("sub", square, b.op("mul", mean, mean))
    scale = b.op("rsqrt", b.op("add", variance, b.scalar(1e-5, "f32")))
    out = b.op("mul", b.op("mul", b.op("sub", x, mean), scale), w)
    code = region.check([(out, contiguous("out", "f32", 128))])
    assert len(list(code.block.passes())) == 2


def test_more_operations_than_a_pass_holds() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    value = region.tensor("x0", (96,), contiguous("x0", "f32", 96))
    for at in range(1, 12):
        other = region.tensor(f"x{at}", (96,), contiguous(f"x{at}", "f32", 96))
        value = b.op("add", b.op("mul", value, b.scalar(0.5 + at, "f32")), b.op("sigmoid", other))
    region.check([(value, contiguous("out", "f32", 96))])


def test_transpose_and_slice() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (6, 4, 8), sharded("x", machine, 192))
    turned = b.op("transpose", x, perm=(2, 0, 1))
    part = b.op("slice", turned, axis=1, start=1, stop=5)
    out = b.op("add", part, b.op("broadcast", b.op("slice", turned, axis=1, start=0, stop=1), shape=(8, 4, 4)))
    region.check([(out, contiguous("out", "f32", 128))])


def test_shared_scalar_input() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (64,), contiguous("x", "f32", 64))
    total = region.shared("total", SharedScalar(SharedRegister("total")), 2.5)
    region.check([(b.op("mul", x, total), contiguous("out", "f32", 64))])


def test_padding_becomes_zero_even_where_the_layout_is_awkward() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (3, 10), contiguous("x", "f32", 30))
    w = region.tensor("w", (10,), contiguous("w", "f32", 10))
    target = broadcast("out", "bf16", 30, pad_to=16)
    region.check([(b.op("mul", x, w), target)])


def test_cost_matches_the_rule() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (64,), contiguous("x", "f32", 64))
    code = region.check([(b.op("exp", b.op("add", x, x)), contiguous("out", "f32", 64))])
    latency = machine.vector_unit.latency
    lines = 64 // machine.vector_unit.lanes
    assert code.cycles == lines + latency["exp"] + latency["other"] + machine.vector_unit.pass_overhead
    assert passes_cycles(machine, code.block.items) == code.cycles


def test_random_values_cover_signs() -> None:
    values: NDArray[np.float32] = random_values((1000,), 0)
    assert (values > 0).any()
    assert (values < 0).any()


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [5000, 8192])
def test_large_temporaries_are_spread_over_the_channels(channels: int, size: int) -> None:
    machine = machine_of(channels)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (1, size), sharded("x", machine, size))
    e = b.op("exp", b.op("tanh", b.op("sub", x, b.op("reduce_max", x))))
    out = b.op("mul", e, b.op("recip", b.op("reduce_sum", e)))
    code = region.check([(out, broadcast("out", "bf16", size))])
    assert code.temporaries
    for temporary in code.temporaries:
        assert temporary.buffer.bytes_per_channel < size * 4 or channels == 1


def test_values_demanded_in_two_forms_are_computed_once() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (64,), contiguous("x", "f32", 64))
    y = b.op("tanh", b.op("exp", b.op("sin", x)))
    code = region.check([(y, contiguous("kept", "f32", 64)), (y, broadcast("sent", "bf16", 64))])
    first, second = code.block.passes()
    assert first.operations
    assert not second.operations


def test_one_element_to_a_shared_register() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (1, 64), contiguous("x", "f32", 64))
    total = b.op("reduce_sum", x)
    region.check([(b.op("rsqrt", b.op("mul", total, total)), SharedRegister("scale")), (total, SharedRegister("sum"))])


def test_unsupported_operation_is_named_with_its_place() -> None:
    machine = machine_of(2)
    region = Region(machine)
    b = region.builder
    x = region.tensor("x", (4,), contiguous("x", "f32", 4))
    with b.at("model.layers.0, model.py:7"):
        whole = b.op("cast", x, dtype="i32")
    with pytest.raises(WordlineError) as caught:
        region.check([(whole, contiguous("out", "f32", 4))])
    assert caught.value.code == "vector-op"
    assert "cannot convert f32 to i32" in str(caught.value)
    assert "model.layers.0, model.py:7" in str(caught.value)


def test_a_destination_that_is_read_is_refused() -> None:
    region = Region(machine_of(2))
    where = contiguous("x", "f32", 4)
    x = region.tensor("x", (4,), where)
    with pytest.raises(ValueError, match="which the region reads"):
        region.check([(region.builder.op("exp", x), where)])
