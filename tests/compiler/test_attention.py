"""Attention kernels against NumPy over page boundaries, groups, head sizes, windows and machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.programs import bf16, build, get, put_everywhere
from wordline.compiler.arguments import ARGUMENT_WORDS
from wordline.compiler.choices import AttentionChoice, Cuts, HeadShape
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer, broadcast
from wordline.compiler.kernels import attention
from wordline.compiler.kernels.attention.append import append as write_only
from wordline.compiler.layout import KVLayout, page_numbers, place_kv
from wordline.isa.declare import Engine
from wordline.machines import load_machine
from wordline.numerics.formats import f32_to_bf16_bits
from wordline.sim.reference import ReferenceDevice

CHIP = load_machine("gddr6-aim-chip")
CARD = load_machine("gddr6-aim-card")
FEW = load_machine("gddr6-aim-chip", {"bank_unit.accumulators": 2})
FOUR = load_machine("gddr6-aim-card", {"organisation.channels": 4})
SMALL_BUFFER = load_machine("gddr6-aim-chip", {"buffer.columns": 8})
TABLE = 64
FIRST_ROW = 5


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, window: int | None) -> np.ndarray:
    """q [heads, d], k and v [tokens, kv_heads, d]: softmax attention of the last position in float64."""
    group = q.shape[0] // k.shape[1]
    first = 0 if window is None else max(0, k.shape[0] - window)
    out = np.zeros_like(q, dtype=np.float64)
    for head in range(q.shape[0]):
        scores = bf16((k[first:, head // group] @ q[head]).astype(np.float32)).astype(np.float64) * scale
        weights = np.exp(scores - scores.max())
        out[head] = weights @ v[first:, head // group] / weights.sum()
    return out


@pytest.mark.parametrize(
    ("machine", "kv_heads", "group", "head_dim", "window", "positions"),
    [
        (CHIP, 3, 3, 64, None, [0, 1, 15, 16, 254, 255, 256, 257, 511, 512, 800]),
        (CHIP, 2, 1, 128, None, [0, 127, 128, 300]),
        (CHIP, 1, 8, 64, None, [0, 300]),
        (CHIP, 2, 2, 16, None, [0, 40, 1030]),
        (CHIP, 1, 2, 32, None, [0, 600]),
        (CHIP, 1, 2, 256, None, [0, 63, 64, 200]),
        (CHIP, 2, 2, 64, 100, [0, 99, 100, 101, 300, 600]),
        (FEW, 1, 3, 64, None, [0, 260]),
        (CARD, 2, 2, 64, None, [0, 255, 256, 700]),
        (CARD, 16, 1, 128, None, [0, 127, 128, 300, 640]),
        (CHIP, 8, 2, 32, None, [0, 511, 512]),
        (SMALL_BUFFER, 2, 3, 16, None, [0, 130, 1030]),
    ],
)
def test_steps(machine, kv_heads, group, head_dim, window, positions):  # type: ignore[no-untyped-def]
    """The cost model's choice."""
    choice = attention.first_choice(machine, HeadShape(kv_heads, group, head_dim, positions[-1] + 1))
    _run(machine, choice, kv_heads, group, head_dim, window, positions)


@pytest.mark.parametrize(
    ("groups", "cuts"),
    [(1, ((1, 8, 16), (16,))), (2, ((16,), (3, 15, 16))), (4, ((2, 16), (8, 16))), (4, ((16,), (16,)))],
)
def test_any_choice(groups: int, cuts: tuple[Cuts, Cuts]) -> None:
    """However channels and pages are divided, with fewer pages than parts too."""
    machine = FOUR
    assert attention.illegal_groups(machine, HeadShape(4, 2, 64, 2100), groups) is None
    _run(machine, AttentionChoice(groups, *cuts), 4, 2, 64, None, [0, 255, 256, 600])


@pytest.mark.parametrize("cuts", [((16,), (16,)), ((4, 16), (9, 16))])
@pytest.mark.parametrize("groups", [1, 4])
def test_query_by_query(groups: int, cuts: tuple[Cuts, Cuts]) -> None:
    """The last round's query heads one after the other, the last of them in parts of the pages."""
    _run(FOUR, AttentionChoice(groups, *cuts, query_by_query=True), 4, 3, 64, None, [0, 255, 256, 600])


@pytest.mark.parametrize(
    "change",
    [{}, {"query_by_query": False, "weigh_cuts": (6, 12, 16)}, {"groups": 4, "weigh_cuts": (5, 10, 16)}],
    ids=str,
)
def test_long_contexts_of_grouped_queries_on_many_channels(change: dict[str, Any]) -> None:
    """Several pages in every channel, so that parts of the pages are many; the cache is written by its layout."""
    kv_heads, group, head_dim, position, layer = 8, 4, 128, 4227, 1
    first = attention.first_choice(CARD, HeadShape(kv_heads, group, head_dim, position + 1))
    assert first.cut
    assert first.query_by_query
    choice = replace(first, **change)
    kv = place_kv(CARD, 2, kv_heads, head_dim, position + 1, groups=choice.groups)
    shape = attention.AttentionShape(kv, layer, group, head_dim**-0.5, None)
    rng = np.random.default_rng(5)
    q = bf16(rng.standard_normal((kv_heads * group, head_dim)).astype(np.float32))
    k, v = (bf16(rng.standard_normal((position + 1, kv_heads, head_dim)).astype(np.float32)) for _ in range(2))
    k[:, :, 0] += np.linspace(0, 4, position + 1)[:, None]  # attention is uneven, so that every part counts
    k, v = bf16(k), bf16(v)
    _, built, tensors, out = _programs(CARD, shape, choice, kv_heads, group, head_dim, False)
    device = ReferenceDevice(CARD)
    rows = FIRST_ROW + kv.rows_per_page * page_numbers(kv)
    device.cmem_write(TABLE, rows.astype(np.int32))
    cache = cached(kv, layer, k[:position], v[:position], rows)
    device.bank_write(0, len(cache), cache)
    arguments = np.zeros(ARGUMENT_WORDS, np.int32)
    arguments[1], arguments[3] = position, TABLE
    device.cmem_write(0, arguments)
    for tensor, values in zip(tensors, (q, k[position], v[position]), strict=True):
        put_everywhere(device, built, tensor, values)
    device.execute(device.load_program(built.generated.program), seed=3)
    got = get(device, built, out).reshape(q.shape)
    want = attend(q, k, v, shape.scale, None)
    np.testing.assert_allclose(got, want, atol=0.02 * float(np.abs(want).max()), rtol=0)


def cached(kv: KVLayout, layer: int, k: np.ndarray, v: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows of the banks from 0 up, [row, channel, bank, column, lane], with K and V [tokens, KV heads, head size]
    in their pages, each at the row that its word of the page table says.
    """
    image = np.zeros((rows.max() + kv.rows_per_page, kv.channels, kv.banks, kv.row_columns, kv.lanes), np.uint16)
    token, dim = np.meshgrid(np.arange(kv.page_tokens), np.arange(kv.head_dim), indexing="ij")
    key_column = token // kv.banks * kv.head_columns + dim // kv.lanes
    value_column = dim // kv.banks * kv.token_columns + token // kv.lanes
    for head in range(kv.kv_heads):
        for page in range(-(-len(k) // kv.page_tokens)):
            member = (page + head // kv.groups) % kv.spread
            row = rows[kv.entry(layer, head) + page // kv.spread * kv.spread + member]
            channel = (page * kv.groups + head) % kv.channels
            here = slice(page * kv.page_tokens, (page + 1) * kv.page_tokens)
            keys = (row + key_column // kv.row_columns, token % kv.banks, key_column % kv.row_columns, dim % kv.lanes)
            below = row + kv.rows_per_side + value_column // kv.row_columns
            values = (below, dim % kv.banks, value_column % kv.row_columns, token % kv.lanes)
            for (at, bank, column, lane), tensor in ((keys, k), (values, v)):
                bits = f32_to_bf16_bits(tensor[here, head])
                n = len(bits)
                image[at[:n], channel, bank[:n], column[:n], lane[:n]] = bits
    return image


@pytest.mark.parametrize(
    ("heads", "groups", "reason"),
    [
        (HeadShape(4, 1, 64, 512), 3, "2 channels and 4 KV heads do not make 3 groups"),
        (HeadShape(4, 1, 64, 512), 4, "2 channels and 4 KV heads do not make 4 groups"),
        (HeadShape(4, 12, 64, 512), 2, "maxima and sums take 72 registers"),
        (HeadShape(4, 4, 64, 16384), 2, "262144 bytes of scores take more than half of the scratch"),
    ],
)
def test_groups_that_cannot_be_say_why(heads: HeadShape, groups: int, reason: str) -> None:
    found = attention.illegal_groups(CHIP, heads, groups)
    assert found is not None
    assert reason in found.reason


def _run(machine, choice, kv_heads, group, head_dim, window, positions):  # type: ignore[no-untyped-def]
    """Selected positions of one sequence; between them the cache is filled through the append kernel alone."""
    rng = np.random.default_rng(head_dim + group)
    total = positions[-1] + 1
    kv = place_kv(machine, 2, kv_heads, head_dim, total, groups=choice.groups)
    layer, scale = 1, head_dim**-0.5
    shape = attention.AttentionShape(kv, layer, group, scale, window)
    heads = kv_heads * group
    q, k, v = (bf16(rng.standard_normal((total, n, head_dim)).astype(np.float32)) for n in (heads, kv_heads, kv_heads))
    built_append, built, tensors, out = _programs(machine, shape, choice, kv_heads, group, head_dim, kv_heads == 2)
    device = ReferenceDevice(machine)
    # Page tables: every page of this layer at its own row of each channel, in an order that is not the identity.
    pages = kv.table_words
    rows = FIRST_ROW + kv.rows_per_page * np.arange(pages)[::-1]
    device.cmem_write(TABLE, rows)
    append_slot = device.load_program(built_append.generated.program)
    slot = device.load_program(built.generated.program)
    q_t, k_t, v_t = tensors
    for position in range(total):
        arguments = np.zeros(ARGUMENT_WORDS, np.int32)
        arguments[1], arguments[3] = position, TABLE
        device.cmem_write(0, arguments)
        check = position in positions
        program = built if check else built_append
        put_everywhere(device, program, q_t, q[position])
        put_everywhere(device, program, k_t, k[position])
        put_everywhere(device, program, v_t, v[position])
        device.execute(slot if check else append_slot, seed=position)
        if check:
            got = get(device, built, out).reshape(heads, head_dim)
            want = attend(q[position], k[: position + 1], v[: position + 1], scale, window)
            # bf16 probabilities and partial sums: a few parts in 256 of the largest value.
            np.testing.assert_allclose(got, want, atol=0.02 * max(1.0, float(np.abs(want).max())), rtol=0)


def _programs(machine, shape, choice, kv_heads, group, head_dim, skipped):  # type: ignore[no-untyped-def]
    heads = kv_heads * group
    q = broadcast("q", "bf16", heads * head_dim, 16)
    k = broadcast("k", "bf16", kv_heads * head_dim, 16)
    v = broadcast("v", "bf16", kv_heads * head_dim, 16)
    out = broadcast("out", "bf16", heads * head_dim, 16)
    zeros = ScratchBuffer("zeros", 32)
    inputs = (q.buffer, k.buffer, v.buffer)
    append = Task(Engine.CHANNEL, "append", "a", "attention", "", write_only(shape, k, v), (k.buffer, v.buffer))
    built = attention.AttentionSteps(machine, shape, q, k, v, out, zeros, choice, overlap=True, apart=skipped)
    tasks = [
        Task(s.engine, s.name, "a", "attention", "", s.body, s.reads, s.writes, s.prologue, None, s.shares)
        for s in built.steps
    ]
    permanent = (zeros, *inputs, out.buffer)
    return build(machine, [append], permanent), build(machine, tasks, permanent), (q, k, v), out
