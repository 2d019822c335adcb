"""Scratch tensors: layouts, capacity, slices."""

from __future__ import annotations

import pytest

from wordline.compiler.kernel.scratch import (
    ScratchTensor,
    broadcast,
    contiguous,
    shard_elements,
    sharded,
)
from wordline.machines import load_machine

MACHINE = load_machine("gddr6-aim-chip")


def test_contiguous_vector_pads_capacity_and_buffer() -> None:
    x = contiguous("x", "bf16", 30, pad_to=16)
    assert (x.elements, x.capacity, x.contiguous, x.replicated) == (30, 32, True, False)
    assert x.buffer.bytes_per_channel == 64
    assert contiguous("y", "f32", 1).buffer.bytes_per_channel == 4
    assert broadcast("z", "f32", 8).replicated


@pytest.mark.parametrize("elements", [1, 16, 576, 577, 49152])
def test_sharded_result_has_whole_registers_of_all_banks(elements: int) -> None:
    shard = shard_elements(MACHINE, elements)
    banks, channels = MACHINE.organisation.banks, MACHINE.organisation.channels
    assert shard % banks == 0
    assert shard * channels >= elements > (shard - banks) * channels
    y = sharded("y", MACHINE, elements)
    assert y.dims == ((channels, MACHINE.scratch.bytes_per_channel), (shard, 2))
    assert not y.contiguous


def test_slice_of_a_vector() -> None:
    part = contiguous("x", "f32", 64).slice(16, 8)
    assert (part.offset, part.dims, part.elements) == (64, ((8, 4),), 8)
    with pytest.raises(ValueError, match="60"):
        contiguous("x", "f32", 64).slice(60, 8)


def test_elements_cannot_exceed_the_capacity() -> None:
    with pytest.raises(ValueError, match="exceed the capacity 4"):
        ScratchTensor(contiguous("x", "f32", 4).buffer, "f32", ((4, 4),), elements=5)
