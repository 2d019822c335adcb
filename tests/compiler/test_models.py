"""Whole decode steps of small models: compiled, run on the reference device, compared with the graph interpreter."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import LLAMA3_ROPE, saved_model
from wordline._native import FunctionalModel
from wordline.artifact import ArtifactContents
from wordline.compiler.contents import artifact_contents
from wordline.compiler.optimisations import ALL, NAMES, NONE, Optimisations
from wordline.compiler.pipeline import compile_graph
from wordline.errors import WordlineError
from wordline.frontend.load import load_config, load_model
from wordline.graph.interpreter import Interpreter
from wordline.machines import load_machine
from wordline.numerics.formats import bf16_bits_to_f32
from wordline.sim.reference import ReferenceDevice
from wordline.sim.shapes import known_shapes

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-rope": {"rope_parameters": {**LLAMA3_ROPE, "rope_theta": 10000.0}},
    "llama-tied": {"tie_word_embeddings": True},
    "llama-odd-sizes": {"hidden_size": 72, "intermediate_size": 100, "vocab_size": 301},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
}
TABLE = 64


def step(device: Any, contents: ArtifactContents, slot: int, token: int, position: int, flags: int) -> Any:
    """One submission; (logits, next token)."""
    names = contents.entries["decode"].arguments
    arguments = np.zeros(contents.entries["decode"].argument_words, np.int64)
    buffer = np.zeros(contents.logits.padded * 2, np.uint8)
    address = device.map_host(buffer)
    arguments[names["token"]], arguments[names["position"]], arguments[names["flags"]] = token, position, flags
    arguments[names["page_table_base"]] = TABLE
    arguments[names["logits_address"]] = address & 0xFFFFFFFF
    arguments[names["logits_address"] + 1] = address >> 32
    device.cmem_write(0, arguments.astype(np.int32))
    device.execute(slot, 0)
    device.unmap_host(address)
    logits = bf16_bits_to_f32(buffer.view(np.uint16))[: contents.logits.vocab]
    return logits, int(device.cmem_read(names["next_token"], 1)[0])


def loaded(device: Any, contents: ArtifactContents) -> tuple[Any, int]:
    """The device with the weights, a page table that gives every page its own rows, and the program."""
    machine = load_machine(contents.machine.name)
    assert contents.weights is not None
    row = 0
    for block in contents.weights:
        device.bank_write(row, block.shape[0], block)
        row += block.shape[0]
    assert row == contents.memory.weight_rows
    kv = contents.memory.kv
    channels = machine.organisation.channels
    pages = kv.layers * kv.kv_heads * kv.pages_per_channel
    table = kv.first_row + kv.rows_per_page * np.repeat(np.arange(pages), channels)
    device.cmem_write(TABLE, table.astype(np.int32))
    return device, device.load_program(contents.entries["decode"].image)


@pytest.mark.parametrize("name", MODELS)
def test_logits_follow_the_graph(name: str, tmp_path: Path) -> None:
    """Ten teacher-forced positions; the device differs from float32 by bf16 rounding only."""
    saved_model(tmp_path, name.split("-")[0], **MODELS[name])
    _follows_the_graph(tmp_path, ALL, 10)


def _follows_the_graph(folder: Path, optimisations: Optimisations, positions: int) -> None:
    model = load_model(folder)
    machine = load_machine("gddr6-aim-chip")
    compiled = compile_graph(model.graph, machine, 64, optimisations=optimisations)
    contents = artifact_contents(compiled, model, folder)
    device, slot = loaded(ReferenceDevice(machine), contents)
    interpreter = Interpreter(model.graph)
    tokens = np.random.default_rng(1).integers(0, contents.logits.vocab, positions)
    for position, token in enumerate(tokens):
        want = np.asarray(interpreter.step([token], [position])["logits"]).reshape(-1)
        got, next_token = step(device, contents, slot, int(token), position, 3)
        assert next_token == int(got.argmax())
        error = np.abs(got - want).max() / np.abs(want).max()
        assert error < 0.05, (position, error)
        assert np.corrcoef(got, want)[0, 1] > 0.999


@pytest.mark.parametrize("name", [*NAMES, "all"])
def test_programs_without_an_optimisation_compute_the_same(name: str, tmp_path: Path) -> None:
    """With all others, and with no other."""
    saved_model(tmp_path, "llama")
    for optimisations in (NONE,) if name == "all" else (ALL.without(name), ALL.only(name)):
        _follows_the_graph(tmp_path, optimisations, 3)


VARIANTS: list[dict[str, int | bool]] = [
    {"organisation.channels": 1},
    {"organisation.channels": 8},
    {"bank_unit.accumulators": 1},
    {"bank_unit.accumulators": 3, "buffer.columns": 20},
    {"vector_unit.max_operands": 2},
    {"refresh.enabled": False},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_machine_variants_compile_and_compute_the_same_on_both_simulators(
    variant: dict[str, int | bool], tmp_path: Path
) -> None:
    saved_model(tmp_path, "llama")
    model = load_model(tmp_path)
    machine = load_machine("gddr6-aim-card" if variant.get("organisation.channels") == 8 else "gddr6-aim-chip", variant)
    contents = artifact_contents(compile_graph(model.graph, machine, 64), model, tmp_path)
    devices = [loaded(kind(machine), contents) for kind in (ReferenceDevice, lambda m: FunctionalModel(m.flat()))]
    for position, token in enumerate((3, 7, 200)):
        (logits, chosen), (native_logits, native_chosen) = (
            step(device, contents, slot, token, position, 3) for device, slot in devices
        )
        np.testing.assert_array_equal(logits, native_logits)
        assert chosen == native_chosen == int(logits.argmax())


def test_prompt_positions_skip_the_logits(tmp_path: Path) -> None:
    """Without the flag nothing is sent or chosen, and the cache is the same afterwards."""
    saved_model(tmp_path, "llama")
    model = load_model(tmp_path)
    machine = load_machine("gddr6-aim-chip")
    contents = artifact_contents(compile_graph(model.graph, machine, 64), model, tmp_path)
    results = []
    for flags in (0, 3):
        device, slot = loaded(ReferenceDevice(machine), contents)
        for position, token in enumerate((5, 6, 7)):
            logits, next_token = step(device, contents, slot, token, position, flags)
            if not flags:
                assert not logits.any()
                assert next_token == 0
        results.append(step(device, contents, slot, 8, 3, 3))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def test_weights_unbound(tmp_path: Path) -> None:
    """A configuration alone compiles to the same program as the model with weights."""
    saved_model(tmp_path, "llama")
    machine = load_machine("gddr6-aim-chip")
    bound, bare = load_model(tmp_path), load_model(tmp_path / "config.json")
    programs = [compile_graph(m.graph, machine, 64).generated.program.to_bytes() for m in (bound, bare)]
    assert programs[0] == programs[1]
    assert artifact_contents(compile_graph(bare.graph, machine, 64), bare, tmp_path / "config.json").weights is None


def test_a_program_too_large_takes_a_shorter_style() -> None:
    """Attention in parts is dropped where the instruction memory is short; what is still too large is refused."""
    shape = dataclasses.replace(known_shapes()["Llama-3-8B"], layers=2, vocab=512)
    fields = {**shape.config_fields(), "model_type": "llama", "max_position_embeddings": 4096}
    graph = load_config("short", fields).graph
    card = load_machine("gddr6-aim-card")
    size = len(compile_graph(graph, card, 4096).generated.program.to_bytes())

    def limited(limit: int) -> int:
        machine = load_machine("gddr6-aim-card", {"command_processor.instruction_memory_bytes": limit})
        return len(compile_graph(graph, machine, 4096).generated.program.to_bytes())

    assert limited(size) == size
    shorter = limited(3 * size // 4)
    assert shorter < 3 * size // 4
    with pytest.raises(WordlineError) as caught:
        limited(shorter // 2)
    assert caught.value.code == "program-too-large"
