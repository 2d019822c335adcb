"""What the artifact of a compiled model holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.artifact import (
    ArtifactContents,
    Chosen,
    EntryContents,
    Envelope,
    KvLayout,
    LogitsOutput,
    MachineRef,
    MemoryMap,
    ModelInfo,
    ScratchAllocation,
    Searched,
    SearchedStep,
    TokenizerInfo,
    WeightPlacement,
)
from wordline.artifact.names import starred
from wordline.compiler.arguments import ARGUMENT_WORDS, ARGUMENTS
from wordline.compiler.compiled import Compiled, Kept, Tuned
from wordline.compiler.footprint import envelope_contexts, kv_footprint
from wordline.compiler.integers import ceil_div
from wordline.compiler.lower import Lowered
from wordline.compiler.spaces import GemvSpace
from wordline.errors import WordlineError
from wordline.frontend.load import ImportedModel
from wordline.graph.ir import Constant, Graph


def artifact_contents(compiled: Compiled, model: ImportedModel, source: Path) -> ArtifactContents:
    """Everything that the artifact holds. Weights are packed when they are written."""
    machine, lowered = compiled.machine, compiled.lowered
    kv = lowered.kv
    generated = compiled.generated
    entry = EntryContents(generated.program.to_bytes(), ARGUMENTS, ARGUMENT_WORDS, generated.provenance)
    memory = MemoryMap(
        compiled.weight_rows,
        tuple(_placements(compiled)),
        KvLayout(
            kv.layers,
            kv.kv_heads,
            kv.head_dim,
            kv.page_tokens,
            kv.rows_per_page,
            kv.pages_per_channel,
            kv.groups,
            compiled.weight_rows,
            compiled.max_context,
        ),
        tuple(ScratchAllocation(p.buffer.name, p.offset, p.size, p.first, p.last) for p in compiled.plan.placements),
        tuple(_envelope(compiled)),
    )
    tokenizer, tokenizer_json = _tokenizer(model)
    return ArtifactContents(
        machine.generation,
        MachineRef(machine.name, machine.hash),
        _model_info(model, source, lowered),
        {"decode": entry},
        memory,
        LogitsOutput("bf16", lowered.vocabulary, lowered.logits_shard * machine.organisation.channels),
        BankImage(compiled) if _bound(compiled.graph) else None,
        tokenizer,
        tokenizer_json,
        chosen(compiled),
        None if compiled.tuned is None else searched_step(compiled.tuned),
    )


def chosen(compiled: Compiled) -> tuple[Chosen, ...]:
    """What was chosen for the operations of each shape, and what a search found for them."""
    machine, lowered = compiled.machine, compiled.lowered
    kept = {} if compiled.tuned is None else {k.found.operations: k for k in compiled.tuned.kept}
    made: list[tuple[str, str, tuple[str, ...], str]] = [
        ("gemv", str(shape), gemv.operations, GemvSpace(machine, shape).describe(gemv.choice))
        for shape, gemv in lowered.gemvs.items()
    ]
    made.append(("attention", str(lowered.heads), compiled.attentions, str(lowered.attention)))
    return tuple(
        Chosen(kind, starred(ops[0]), len(ops), shape, choice, _searched(kept[ops]) if ops in kept else None)
        for kind, shape, ops, choice in made
    )


def _searched(kept: Kept) -> Searched:
    found, space = kept.found, kept.found.space
    return Searched(
        space.describe(found.first),
        found.first_cycles,
        space.describe(found.best),
        found.best_cycles,
        space.bound,
        space.bound_cycles,
        len(found.trials),
        found.candidates,
        kept.dropped,
    )


def searched_step(tuned: Tuned) -> SearchedStep:
    """The whole step with the choices of the search and with the first ones."""
    return SearchedStep(tuned.contexts, tuned.first_cycles, tuned.cycles)


def _envelope(compiled: Compiled) -> Iterator[Envelope]:
    machine, kv = compiled.machine, compiled.lowered.kv
    weights = compiled.weight_rows * machine.organisation.device_row_bytes
    for context in envelope_contexts(kv, compiled.max_context):
        pages = kv_footprint(machine, kv, context)
        yield Envelope(1, context, weights, pages.bytes, pages.rows, compiled.plan.peak)


def _bound(graph: Graph) -> bool:
    return all(constant.data is not None for constant in graph.constants.values())


def _placements(compiled: Compiled) -> Iterator[WeightPlacement]:
    for stream in compiled.lowered.streams:
        for name, m in zip(stream.names, stream.outputs, strict=True):
            yield WeightPlacement(name, stream.first_row, stream.dram_rows, "bf16", (m, stream.k))
    for place in compiled.lowered.parameters.places.values():
        rows = ceil_div(place.column + place.columns, compiled.machine.organisation.columns)
        yield WeightPlacement(place.name, place.row, rows, "f32", (place.elements,))


@dataclass(frozen=True)
class BankImage:
    """The weights in bank order, row 0 to the last weight row; each iteration packs them anew, one stream at a time."""

    compiled: Compiled

    def __iter__(self) -> Iterator[npt.NDArray[np.uint16]]:
        """Blocks of whole rows, uint16 [rows, channels, banks, columns, lanes]."""
        machine, lowered, constants = self.compiled.machine, self.compiled.lowered, self.compiled.graph.constants
        o = machine.organisation
        slab = (o.channels, o.banks, o.columns, machine.bank_unit.lanes)
        for stream in lowered.streams:
            image = np.zeros((stream.dram_rows, *slab), dtype=np.uint16)
            stream.pack([_data(constants[name]) for name in stream.names], image, stream.first_row)
            yield image
        rows = lowered.parameters
        if rows.rows:
            image = np.zeros((rows.rows, *slab), dtype=np.uint16)
            for name in rows.places:
                rows.pack(name, _data(constants[name]), image, rows.first_row)
            yield image


def _data(constant: Constant) -> npt.NDArray[np.float32]:
    assert constant.data is not None
    return np.asarray(constant.data, dtype=np.float32)


def _tokenizer(model: ImportedModel) -> tuple[TokenizerInfo | None, bytes | None]:
    if model.tokenizer is None:
        return None, None
    files: Any = model.tokenizer
    info, vocab = tokenizer_info(files), int(model.config["vocab_size"])
    if info.bos_id is not None and info.bos_id >= vocab:
        raise WordlineError(
            "unreadable-tokenizer",
            f"the token {files['bos_token']!r:.40} that begins texts is number {info.bos_id}, the model knows {vocab}",
            where=str(model.metadata["source"]),
            remedy="use the tokenizer that the model was published with",
        )
    return info, files["tokenizer_json"].encode()


def tokenizer_info(files: Any) -> TokenizerInfo:
    """The runtime's view of the tokenizer files."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(files["tokenizer_json"])
    bos = tokenizer.token_to_id(files["bos_token"]) if files["bos_token"] else None
    plain = tokenizer.encode("a").ids
    return TokenizerInfo(files["chat_template"], bos, tuple(files["eos_token_ids"]), bool(plain) and plain[0] == bos)


def model_shape_of(model: ImportedModel, lowered: Lowered) -> dict[str, int]:
    """The sizes of a model that the limits need, see :class:`wordline.sim.shapes.ModelShape`."""
    return {
        "layers": lowered.kv.layers,
        "hidden": int(model.config["hidden_size"]),
        "ffn": int(model.config["intermediate_size"]),
        "heads": int(model.config["num_attention_heads"]),
        "kv_heads": lowered.kv.kv_heads,
        "head_dim": lowered.kv.head_dim,
        "vocab": lowered.vocabulary,
    }


def _model_info(model: ImportedModel, source: Path, lowered: Lowered) -> ModelInfo:
    shape = model_shape_of(model, lowered)
    digest = _digest(source) if source.is_file() and source.suffix != ".json" else None
    meta = model.metadata
    return ModelInfo(str(meta["name"]), str(meta["architecture"]), source.name, digest, int(meta["parameters"]), shape)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
